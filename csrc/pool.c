/* pool.c - the thread pool: number of threads, sleeping and waking, and the current region. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "pool.h"

#include "krt.h"
#include "thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Time that a worker without a region spins for the next one: longer than the Python code between
 * two steps of a training loop, and too short to matter for power consumption. */
#define SPIN_BETWEEN_REGIONS_NS 200000

/* Rounds of spinning; about a microsecond. */
enum { ROUNDS_BETWEEN_YIELDS = 64 };

/* Time that a caller spins until workers leave, before it sleeps. */
#define SPIN_FOR_LEAVERS_NS 20000

#define MAX_THREADS (1 << KRT_WORKER_BITS)

/* ---- Number of threads ------------------------------------------------------------------- */

static _Atomic int limit;         /* 0: not yet read */
static _Atomic int usual;         /* default number, read with the limit; 0: as many as allowed */
static _Atomic int requested;     /* 0: the default number */
static _Atomic bool start_failed; /* since the last krt_pool_take_start_failure */
static _Atomic bool start_refused; /* do not try again until krt_set_num_threads is called */

/* Read a positive number, limited to 2**30, from an environment variable; 0: it has none. More text
 * may follow after `end`. */
static int read_variable(const char *name, char end)
{
    const char *text = getenv(name);
    char *rest = NULL;
    long number = text ? strtol(text, &rest, 10) : 0;
    if (number < 1)
        return 0;
    rest += strspn(rest, " \t");
    if (*rest && *rest != end)
        return 0;
    return number < 1 << 30 ? (int)number : 1 << 30;
}

static int read_limit(int wanted)
{
#ifdef KRT_NO_THREADS
    (void)wanted;
    return 1;
#endif
    int threads = krt_affinity_count();
    int64_t quota = krt_cgroup_milli_cpus();
    if (quota && (quota + 999) / 1000 < threads)
        threads = (int)((quota + 999) / 1000);
    if (wanted && wanted < threads)
        threads = wanted;
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

int krt_pool_limit(void)
{
    int threads = atomic_load_explicit(&limit, memory_order_relaxed);
    if (!threads) {
        int wanted = read_variable("KERNELRT_THREADS", '\0');
        threads = read_limit(wanted);
        atomic_store_explicit(&usual, wanted ? 0 : read_variable("OMP_NUM_THREADS", ','),
                              memory_order_relaxed);
        atomic_store_explicit(&limit, threads, memory_order_relaxed);
    }
    return threads;
}

int krt_get_num_threads(void)
{
    int allowed = krt_pool_limit();
    int threads = atomic_load_explicit(&requested, memory_order_relaxed);
    if (!threads)
        threads = atomic_load_explicit(&usual, memory_order_relaxed);
    return threads && threads < allowed ? threads : allowed;
}

bool krt_pool_take_start_failure(void)
{
    return atomic_load_explicit(&start_failed, memory_order_relaxed) &&
           atomic_exchange_explicit(&start_failed, false, memory_order_relaxed);
}

#ifdef KRT_TEST_HOOKS
void krt_test_set_pool_limit(int threads) { limit = threads; }
#endif

/* ---- Sleep and spin ---------------------------------------------------------------------- */

krt_event krt_caller_event;

uint32_t krt_event_prepare(krt_event *event)
{
    atomic_fetch_add_explicit(&event->sleepers, 1, memory_order_seq_cst);
    return atomic_load_explicit(&event->count, memory_order_seq_cst);
}

void krt_event_cancel(krt_event *event)
{
    atomic_fetch_sub_explicit(&event->sleepers, 1, memory_order_relaxed);
}

void krt_event_sleep(krt_event *event, uint32_t ticket, int64_t timeout_ns)
{
    krt_wait(&event->count, ticket, timeout_ns);
    krt_event_cancel(event);
}

void krt_event_notify(krt_event *event)
{
    if (!atomic_load_explicit(&event->sleepers, memory_order_seq_cst))
        return;
    atomic_fetch_add_explicit(&event->count, 1, memory_order_seq_cst);
    krt_wake(&event->count, 1);
}

/* States of a slot. TAKEN: its worker sleeps or is about to. CALLED: the thread that wakes the
 * worker has exclusive access. */
enum { EMPTY, TAKEN, CALLED };

/* The word that a worker sleeps on, in its own cache lines. */
typedef struct sleep_slot {
    KRT_ALIGNED _Atomic uint32_t state;
    int thread;
    krt_cores cores;
} sleep_slot;

static sleep_slot sleep_slots[MAX_THREADS];
static KRT_ALIGNED _Atomic uint32_t sleeping_workers; /* number of TAKEN slots */

void krt_worker_prepare(int worker)
{
    atomic_store_explicit(&sleep_slots[worker].state, TAKEN, memory_order_release);
    atomic_fetch_add_explicit(&sleeping_workers, 1, memory_order_seq_cst);
}

/* Change the state from TAKEN to `next`. False: another thread was faster. */
static bool try_release(sleep_slot *at, uint32_t next)
{
    uint32_t taken = TAKEN;
    if (atomic_load_explicit(&at->state, memory_order_relaxed) != TAKEN ||
        !atomic_compare_exchange_strong_explicit(&at->state, &taken, next, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return false;
    atomic_fetch_sub_explicit(&sleeping_workers, 1, memory_order_relaxed);
    return true;
}

/* Wake the worker of a slot, if it sleeps, on another core than this one. */
static bool call(sleep_slot *at)
{
    if (!try_release(at, CALLED))
        return false;
    krt_keep_off(krt_core(), at->thread, &at->cores);
    atomic_store_explicit(&at->state, EMPTY, memory_order_release);
    krt_wake(&at->state, 1);
    return true;
}

static void sleep_until_called(int worker)
{
    sleep_slot *own = sleep_slots + worker;
    uint32_t state;
    while ((state = atomic_load_explicit(&own->state, memory_order_acquire)) != EMPTY)
        krt_wait(&own->state, state, -1);
    krt_allow_again(&own->cores);
}

void krt_worker_cancel(int worker)
{
    if (!try_release(sleep_slots + worker, EMPTY))
        sleep_until_called(worker); /* until the thread that wakes it is done */
}

#ifdef KRT_TEST_HOOKS
uint32_t krt_test_sleeping_workers(void) { return sleeping_workers; }
#endif

bool krt_spin_once(krt_spin *spin, int64_t limit_ns)
{
    krt_relax();
    if (++spin->rounds % 16) /* reading the clock costs about ten rounds */
        return true;
    int64_t now = krt_clock_ns();
    if (!spin->since_ns)
        spin->since_ns = now;
    return now - spin->since_ns < limit_ns;
}

int64_t krt_spun_ns(const krt_spin *spin)
{
    return spin->since_ns ? krt_clock_ns() - spin->since_ns : 0;
}

/* ---- The region and its gate word -------------------------------------------------------- */

/* One word, the gate, contains all that a worker needs to join a region: the region's number,
 * whether it is open, which workers it wants, and how many are inside. Threads inside may read
 * work, context and core; these change only while no thread is inside. */
enum { INSIDE_BITS = 16, WANTED_BITS = 15 };
#define INSIDE ((UINT64_C(1) << INSIDE_BITS) - 1)
#define WANTED (((UINT64_C(1) << WANTED_BITS) - 1) << INSIDE_BITS)
#define OPEN (UINT64_C(1) << 31)
#define NUMBER_SHIFT 32
_Static_assert(MAX_THREADS < 1 << WANTED_BITS, "a gate word holds every worker's index");

static struct {
    KRT_ALIGNED _Atomic uint64_t gate;
    krt_work work;
    void *context;
    int core; /* the caller's, when it opened the region */
    KRT_ALIGNED _Atomic bool taken; /* the thread that set it owns the fields below */
    int started;                    /* number of workers; their indices are 1 .. started */
} pool;

static uint32_t number(uint64_t gate) { return (uint32_t)(gate >> NUMBER_SHIFT); }

/* Return whether worker `index`, which has finished region `done`, may join. */
static bool admits(uint64_t gate, int index, uint32_t done)
{
    return (gate & OPEN) && (uint64_t)index < (gate & WANTED) >> INSIDE_BITS &&
           number(gate) != done;
}

void krt_workers_notify(int count)
{
    /* The store of the work and this load are sequentially consistent, and so are a sleeper's
     * increment and its last check for work. */
    if (!atomic_load_explicit(&sleeping_workers, memory_order_seq_cst))
        return;
    uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    for (uint64_t i = 1, end = (gate & WANTED) >> INSIDE_BITS; i < end && count > 0; ++i)
        count -= call(sleep_slots + i);
}

static void leave(void)
{
    /* Release: the caller reads what was written inside. The last worker that leaves a closed
     * region wakes the caller, which may sleep. */
    uint64_t before = atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_seq_cst);
    if (!(before & OPEN) && (before & INSIDE) == 1)
        krt_event_notify(&krt_caller_event);
}

/* Wait for a region, join it and return its number. */
static uint32_t join(int index, uint32_t done)
{
    krt_spin spin = {0};
    for (;;) {
        uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
        if (admits(gate, index, done)) {
            if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + 1,
                                                      memory_order_acquire, memory_order_relaxed))
                return number(gate);
        } else if (krt_spin_once(&spin, SPIN_BETWEEN_REGIONS_NS)) {
            /* Yield the core to threads that have work, perhaps the caller itself. A worker that
             * has to wait for a core should do so outside of regions. */
            if (spin.rounds % ROUNDS_BETWEEN_YIELDS == 0)
                sched_yield();
        } else {
            krt_worker_prepare(index);
            gate = atomic_load_explicit(&pool.gate, memory_order_seq_cst);
            if (admits(gate, index, done))
                krt_worker_cancel(index);
            else
                sleep_until_called(index);
        }
    }
}

#ifndef KRT_NO_THREADS
/* Move off the caller's core: two threads on one core would run alternately. */
static void leave_core(int core)
{
    krt_cores cores = {0};
    if (core < 0 || core != krt_core())
        return;
    krt_keep_off(core, 0, &cores);
    krt_allow_again(&cores);
}

static void *worker_main(void *argument)
{
    int index = (int)(intptr_t)argument;
    sleep_slots[index].thread = krt_thread_number();
    uint32_t done = number(atomic_load_explicit(&pool.gate, memory_order_relaxed)) - 1;
    for (;;) {
        uint32_t region = join(index, done);
        leave_core(pool.core);
        bool over = pool.work(pool.context, index);
        leave();
        if (over)
            done = region;
        else
            sleep_until_called(index);
    }
    return NULL;
}
#endif

/* ---- Starting workers -------------------------------------------------------------------- */

static bool start_worker(int index)
{
#ifdef KRT_NO_THREADS
    (void)index;
    (void)join;
    (void)leave;
    (void)sleep_until_called;
    return false;
#else
    return krt_thread_start(worker_main, (void *)(intptr_t)index);
#endif
}

/* Start workers up to `wanted`, if possible; return the number of workers, at most `wanted`. */
static int have_workers(int wanted)
{
    while (pool.started < wanted &&
           !atomic_load_explicit(&start_refused, memory_order_relaxed)) {
        if (!start_worker(pool.started + 1)) {
            atomic_store_explicit(&start_refused, true, memory_order_relaxed);
            atomic_store_explicit(&start_failed, true, memory_order_relaxed);
            break;
        }
        ++pool.started;
    }
    return pool.started < wanted ? pool.started : wanted;
}

void krt_set_num_threads(int n)
{
    atomic_store_explicit(&requested, n < 1 ? 1 : n, memory_order_relaxed);
    atomic_store_explicit(&start_refused, false, memory_order_relaxed);
}

/* ---- Running a region -------------------------------------------------------------------- */

static int64_t wait_until_empty(void)
{
    krt_spin spin = {0};
    for (;;) {
        /* Acquire: the caller reads what workers wrote inside after this. */
        if (!(atomic_load_explicit(&pool.gate, memory_order_acquire) & INSIDE))
            return krt_spun_ns(&spin);
        if (krt_spin_once(&spin, SPIN_FOR_LEAVERS_NS))
            continue;
        uint32_t ticket = krt_event_prepare(&krt_caller_event);
        if (atomic_load_explicit(&pool.gate, memory_order_seq_cst) & INSIDE)
            krt_event_sleep(&krt_caller_event, ticket, -1);
        else
            krt_event_cancel(&krt_caller_event);
    }
}

bool krt_pool_run(int threads, krt_work work, void *context, int64_t *waited_ns)
{
    if (atomic_load_explicit(&pool.taken, memory_order_relaxed) ||
        atomic_exchange_explicit(&pool.taken, true, memory_order_acquire))
        return false;
    int workers = have_workers(threads < MAX_THREADS ? threads - 1 : MAX_THREADS - 1);
    if (!workers) {
        atomic_store_explicit(&pool.taken, false, memory_order_release);
        return false;
    }
    pool.work = work;
    pool.context = context;
    pool.core = krt_core();
    uint64_t next = (uint64_t)number(atomic_load_explicit(&pool.gate, memory_order_relaxed)) + 1;
    atomic_store_explicit(&pool.gate,
                          next << NUMBER_SHIFT | OPEN | (uint64_t)(workers + 1) << INSIDE_BITS,
                          memory_order_seq_cst);
    krt_workers_notify(workers);
    work(context, 0);
    atomic_fetch_and_explicit(&pool.gate, ~OPEN, memory_order_seq_cst);
    *waited_ns += wait_until_empty();
    atomic_store_explicit(&pool.taken, false, memory_order_release);
    return true;
}

/* ---- Fork -------------------------------------------------------------------------------- */

/* The child has one thread. Work of the other threads in the pool is gone. */
static void after_fork_in_child(void)
{
    uint64_t next = (uint64_t)number(pool.gate) + 1;
    pool.gate = next << NUMBER_SHIFT;
    pool.taken = false;
    /* Another thread may have started a worker and not counted it yet. */
    int beds_used = pool.started + 1 < MAX_THREADS ? pool.started + 1 : MAX_THREADS - 1;
    for (int i = 0; i <= beds_used; ++i)
        sleep_slots[i] = (sleep_slot){0};
    pool.started = 0;
    start_refused = false;
    sleeping_workers = 0;
    krt_caller_event.sleepers = 0;
    limit = 0;
    krt_locks_after_fork(true);
}

static void after_fork_in_parent(void) { krt_locks_after_fork(false); }

static void register_fork_handler(void)
{
    pthread_atfork(krt_locks_before_fork, after_fork_in_parent, after_fork_in_child);
}

void krt_watch_fork(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handler);
}
