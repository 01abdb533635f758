/* plan.c - runs a plan: its lock, the serial loop, and the serial loop with timing. */
#include "plan.h"

#include "platform.h"
#include "pool.h"
#include "thread.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

#define POLL_INTERVAL_NS 20000000

/* ---- Locks ------------------------------------------------------------------------------- */

/* A lock word contains the fork epoch in which it was written, above two bits of state. A word of
 * an earlier epoch was written by the parent process: its holder does not exist here. */
enum { FREE = 0, HELD = 1, HELD_AND_WAITED_FOR = 2, RESERVED = 3, STATE = 3, EPOCH = 4 };

/* A thread that runs a plan in a loop takes the lock again before a waiting thread has woken up. So
 * a thread that has waited for OVERDUE_NS is served next: a release leaves the lock RESERVED for it,
 * and other threads take the lock only after RESERVED_NS. */
#define OVERDUE_NS 2000000
#define RESERVED_NS 1000000

static uint32_t epoch; /* a forked child increments it before it has a second thread */

uint32_t krt_fork_count(void) { return epoch / EPOCH; }

/* The lock that this thread took last; `below` links to its other locks. The address of this
 * variable identifies the thread. */
static _Thread_local krt_lock *innermost;

static uintptr_t myself(void) { return (uintptr_t)&innermost; }

static void took(krt_lock *lock)
{
    krt_lock **mine = &innermost;
    atomic_store_explicit(&lock->holder, (uintptr_t)mine, memory_order_relaxed);
    lock->below = *mine;
    *mine = lock;
}

static bool holds(const krt_lock *lock)
{
    for (const krt_lock *held = innermost; held; held = held->below)
        if (held == lock)
            return true;
    return false;
}

/* Whether the calling thread executes a plan from within a custom function of another. */
static bool is_nested(void) { return innermost && innermost->below; }

/* ---- Waiting for each other ---- */

/* Threads that hold a lock and wait for another. The thread that would close a cycle detects it. */
typedef struct waiter {
    uintptr_t thread;
    const krt_lock *lock;
    struct waiter *next;
} waiter;

static pthread_mutex_t waiters_mutex = PTHREAD_MUTEX_INITIALIZER;
static waiter *waiters;

static const waiter *waiter_of(uintptr_t thread)
{
    const waiter *at = waiters;
    while (at && at->thread != thread)
        at = at->next;
    return at;
}

/* The thread that holds a lock; 0: none in this process. The epoch is checked because a thread here
 * may have the same address as one of the parent. */
static uintptr_t holder_of(const krt_lock *lock)
{
    uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
    if ((word & ~(uint32_t)STATE) != epoch)
        return 0;
    return atomic_load_explicit(&lock->holder, memory_order_relaxed);
}

static bool waits_for_me(const krt_lock *lock)
{
    /* Following more locks than there are waiters means a cycle that is just being left. */
    for (const waiter *left = waiters;; left = left->next) {
        uintptr_t holder = holder_of(lock);
        if (holder == myself())
            return true;
        const waiter *next = holder ? waiter_of(holder) : NULL;
        if (!next || !left)
            return false;
        lock = next->lock;
    }
}

/* Return whether waiting for `lock` can end; if so, add the calling thread to the waiters. */
static bool begin_waiting(waiter *self, const krt_lock *lock)
{
    *self = (waiter){.thread = myself(), .lock = lock};
    if (!innermost)
        return true;
    pthread_mutex_lock(&waiters_mutex);
    bool ends = !waits_for_me(lock);
    if (ends) {
        self->next = waiters;
        waiters = self;
    }
    pthread_mutex_unlock(&waiters_mutex);
    return ends;
}

static void end_waiting(const waiter *self)
{
    if (!innermost)
        return;
    pthread_mutex_lock(&waiters_mutex);
    waiter **at = &waiters;
    while (*at && *at != self)
        at = &(*at)->next;
    if (*at)
        *at = self->next;
    pthread_mutex_unlock(&waiters_mutex);
}

static krt_status wait_for(krt_lock *lock, uint32_t seen, int64_t timeout_ns);

krt_status krt_lock_acquire(krt_lock *lock, int64_t timeout_ns)
{
    uint32_t seen = epoch | FREE;
    if (atomic_compare_exchange_strong_explicit(&lock->word, &seen, epoch | HELD,
                                                memory_order_acquire, memory_order_relaxed)) {
        took(lock);
        return KRT_OK;
    }
    if (holds(lock))
        return KRT_BUSY;
    waiter self;
    if (!begin_waiting(&self, lock))
        return KRT_DEADLOCK;
    krt_status status = wait_for(lock, seen, timeout_ns);
    end_waiting(&self);
    if (!status)
        took(lock);
    return status;
}

/* Whether a thread may take a lock whose word is `seen`. */
static bool is_free(const krt_lock *lock, uint32_t seen, bool overdue, int64_t now)
{
    if ((seen & ~(uint32_t)STATE) != epoch || (seen & STATE) == FREE)
        return true;
    return (seen & STATE) == RESERVED &&
           (overdue || now - atomic_load_explicit(&lock->reserved_ns, memory_order_relaxed) >=
                           RESERVED_NS);
}

static krt_status wait_for(krt_lock *lock, uint32_t seen, int64_t timeout_ns)
{
    int64_t start = krt_clock_ns();
    uint32_t state = HELD; /* changes after one wait: others may still wait */
    bool overdue;
    krt_status status;
    for (;;) {
        int64_t now = krt_clock_ns(), left = start + timeout_ns - now;
        overdue = now - start >= OVERDUE_NS;
        if (is_free(lock, seen, overdue, now)) {
            status = KRT_OK;
            if (atomic_compare_exchange_weak_explicit(&lock->word, &seen, epoch | state,
                                                      memory_order_acquire,
                                                      memory_order_relaxed))
                break;
            continue;
        }
        status = KRT_TIMEOUT;
        if (left <= 0)
            break;
        uint32_t wanted = epoch | ((seen & STATE) == RESERVED ? RESERVED : HELD_AND_WAITED_FOR);
        if (seen != wanted &&
            !atomic_compare_exchange_weak_explicit(&lock->word, &seen, wanted,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        if (overdue) /* each time: a thread that was served before has reset it */
            atomic_store_explicit(&lock->overdue, true, memory_order_relaxed);
        int64_t most = (seen & STATE) == RESERVED ? RESERVED_NS : OVERDUE_NS;
        krt_wait(&lock->word, wanted, left < most ? left : most);
        state = HELD_AND_WAITED_FOR;
        seen = atomic_load_explicit(&lock->word, memory_order_relaxed);
    }
    if (overdue)
        atomic_store_explicit(&lock->overdue, false, memory_order_relaxed);
    return status;
}

void krt_lock_release(krt_lock *lock)
{
    krt_lock **at = &innermost;
    while (*at != lock)
        at = &(*at)->below;
    *at = lock->below;
    atomic_store_explicit(&lock->holder, 0, memory_order_relaxed);
    bool overdue = atomic_load_explicit(&lock->overdue, memory_order_relaxed);
    if (overdue)
        atomic_store_explicit(&lock->reserved_ns, krt_clock_ns(), memory_order_relaxed);
    uint32_t next = epoch | (overdue ? RESERVED : FREE);
    uint32_t was = atomic_exchange_explicit(&lock->word, next, memory_order_release);
    if ((was & STATE) == HELD_AND_WAITED_FOR)
        krt_wake(&lock->word, overdue ? INT_MAX : 1);
}

void krt_locks_before_fork(void) { pthread_mutex_lock(&waiters_mutex); }

void krt_locks_after_fork(bool in_child)
{
    if (in_child) {
        waiters = NULL; /* the waiters do not exist here; this thread was not one */
        epoch += EPOCH;
        for (krt_lock *held = innermost; held; held = held->below) {
            atomic_store_explicit(&held->word, epoch | HELD, memory_order_relaxed);
            atomic_store_explicit(&held->overdue, false, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&waiters_mutex);
}

/* ---- The loop ---------------------------------------------------------------------------- */

krt_status krt_plan_poll(krt_plan *plan)
{
    if (plan->quiet)
        return KRT_OK;
    while (plan->parent)
        plan = plan->parent;
    int64_t now = krt_clock_ns();
    if (now - plan->last_poll_ns < POLL_INTERVAL_NS)
        return KRT_OK;
    plan->last_poll_ns = now;
    return plan->host.poll(plan->host.self);
}

krt_status krt_plan_act(krt_plan *plan, size_t op, unsigned action,
                        const krt_context *context, size_t *failed_op)
{
    krt_status status = KRT_OK;
    *failed_op = op;
    if (action & STOP_CUSTOM)
        status = plan->host.custom(plan->host.self, op);
    else if (action & STOP_REGION)
        status = krt_loop_run(plan, op, plan->quiet || action & STOP_QUIET, context);
    if (!status && (action & STOP_CHECK) && krt_plan_status(plan, op))
        status = KRT_OUT_OF_BOUNDS;
    if (!status && (action & STOP_POLL))
        status = krt_plan_poll(plan);
    return status;
}

/* Whether this thread has enough stack for the plan's kernels. */
static bool has_stack(const krt_plan *plan)
{
    return !plan->stack_bytes || krt_stack_has(plan->stack_bytes);
}

typedef struct step_range {
    const krt_step *begin, *end;
} step_range;

static void run_range(void *context)
{
    const step_range *steps = context;
    for (const krt_step *step = steps->begin; step != steps->end; ++step)
        step->fn(step->bufs, step->vals);
}

/* Run all ops in order. With `helper`, which is that of `context`, only the kernels run on another
 * thread. Inlined, so that the loop without it contains only calls. */
static inline krt_status run_in_order(krt_plan *plan, krt_helper *helper,
                                      const krt_context *context, size_t *failed_op)
{
    step_range steps = {.end = plan->steps};
    for (const krt_stop *stop = plan->stops;; ++stop) {
        steps = (step_range){.begin = steps.end, .end = stop->end};
        if (!helper)
            run_range(&steps);
        else if (steps.begin != steps.end && !krt_helper_call(helper, run_range, &steps))
            return KRT_NO_STACK;
        if (stop->action == STOP_END) {
            plan->marked = false;
            return KRT_OK;
        }
        krt_status status = krt_plan_act(plan, stop->op, stop->action, context, failed_op);
        if (status)
            return status;
    }
}

krt_status krt_plan_run_serial(krt_plan *plan, const krt_context *context, size_t *failed_op)
{
    plan->marked = true;
    return context->helper ? run_in_order(plan, context->helper, context, failed_op)
                          : run_in_order(plan, NULL, context, failed_op);
}

/* ---- Pipelines with timing ---- */

bool krt_pipeline_run_profiled(const krt_plan *plan, size_t op, size_t begin, size_t end,
                               const krt_context *context, krt_sample *samples)
{
    const krt_record *first = plan->records + op;
    const krt_step *step = plan->steps + first->first_step + begin * first->per_slice;
    size_t end_op = krt_pipeline_end(plan, op);
    for (; begin < end; ++begin)
        for (size_t i = op; i < end_op; ++i) {
            size_t n = plan->records[i].chunks / first->slices;
            step_range steps = {.begin = step, .end = step + n};
            int64_t start = krt_clock_ns();
            if (!context->helper)
                run_range(&steps);
            else if (!krt_helper_call(context->helper, run_range, &steps))
                return false;
            __atomic_fetch_add(&samples[i].elapsed_ns, krt_clock_ns() - start, __ATOMIC_RELAXED);
            step += n;
        }
    return true;
}

void krt_pipeline_end_samples(const krt_plan *plan, size_t op, int64_t start_ns, int64_t end_ns,
                              int64_t worker, krt_sample *samples)
{
    size_t end_op = krt_pipeline_end(plan, op);
    int64_t total = 0;
    for (size_t i = op; i < end_op; ++i)
        total += samples[i].elapsed_ns;
    double share = total > 0 ? (double)(end_ns - start_ns) / (double)total : 0;
    for (size_t i = op; i < end_op; ++i) {
        int64_t elapsed = (int64_t)(share * (double)samples[i].elapsed_ns);
        samples[i] = (krt_sample){.start_ns = start_ns,
                                  .elapsed_ns = elapsed,
                                  .worker = worker,
                                  .chunks = (int64_t)plan->records[i].chunks,
                                  .runs = 1};
        start_ns += elapsed;
    }
}

/* The number of slices of the pipeline of `record` that are done before `step`. */
static size_t slices_before(const krt_plan *plan, const krt_record *record, const krt_step *step)
{
    return ((size_t)(step - plan->steps) - record->first_step) / record->per_slice;
}

/* krt_plan_run_serial with timing. */
static krt_status run_serial_profiled(krt_plan *plan, const krt_context *context,
                                      krt_sample *samples, size_t *failed_op)
{
    const krt_stop *stop = plan->stops;
    int64_t origin = krt_clock_ns(), start = origin;
    for (size_t op = 0, next; op < plan->n_ops; op = next) {
        const krt_record *record = plan->records + op;
        next = krt_pipeline_end(plan, op);
        if (!record->chunks)
            continue;
        krt_status status = KRT_OK;
        size_t slice = 0;
        if (!record->slices && !krt_has_no_steps(record)) {
            const krt_step *step = plan->steps + record->first_step;
            step_range steps = {.begin = step, .end = step + record->chunks};
            if (!context->helper)
                run_range(&steps);
            else if (!krt_helper_call(context->helper, run_range, &steps))
                return KRT_NO_STACK;
        }
        for (; !status && stop->op == next - 1; ++stop) {
            size_t end = record->slices ? slices_before(plan, record, stop->end) : 0;
            if (!krt_pipeline_run_profiled(plan, op, slice, end, context, samples))
                return KRT_NO_STACK;
            slice = end;
            status = krt_plan_act(plan, next - 1, stop->action, context, failed_op);
        }
        if (!status &&
            !krt_pipeline_run_profiled(plan, op, slice, record->slices, context, samples))
            return KRT_NO_STACK;
        int64_t now = krt_clock_ns();
        if (record->slices)
            krt_pipeline_end_samples(plan, op, start - origin, now - origin, 0, samples);
        else
            samples[op] = (krt_sample){.start_ns = start - origin,
                                       .elapsed_ns = now - start,
                                       .chunks = (int64_t)record->chunks,
                                       .runs = 1};
        if (status)
            return status;
        start = now;
    }
    plan->marked = false;
    return KRT_OK;
}

/* The serial loop for a thread with too little stack; `samples` may be NULL. */
static krt_status run_with_helper(krt_plan *plan, krt_sample *samples, krt_context *context,
                            size_t *failed_op)
{
    context->helper = krt_helper_of_thread();
    if (!context->helper)
        return KRT_NO_STACK;
    return samples ? run_serial_profiled(plan, context, samples, failed_op)
                   : krt_plan_run_serial(plan, context, failed_op);
}

/* Prepare a run: lay out stale tables and clear status words of an earlier failure. The run counts
 * as failed until it succeeds, because a fork copies an unfinished run to the child. */
void krt_plan_begin(krt_plan *plan)
{
    if (plan->stale)
        krt_plan_lay_out(plan);
    if (plan->marked)
        memset(plan->status, 0, plan->n_status * sizeof *plan->status);
    plan->marked = true;
}

int64_t krt_plan_status(const krt_plan *plan, size_t op)
{
    const int64_t *word = op < plan->n_ops ? plan->records[op].status : NULL;
    return word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;
}

int krt_plan_threads(krt_plan *plan, const krt_context *context)
{
    /* The first call of krt_get_num_threads reads files of the system: small plans do without. */
    if (!plan->graph || !krt_choice_has_work(plan) || context->helper || is_nested())
        return 1;
    int threads = krt_get_num_threads();
    if (plan->max_threads && plan->max_threads < threads)
        threads = plan->max_threads;
    return threads > 1 && krt_choice_is_open(plan, threads) ? threads : 1;
}

krt_status krt_plan_run_shared(krt_plan *plan, const krt_context *context, size_t *failed_op)
{
    krt_trace trace = {0};
    plan->marked = true;
    int64_t start = krt_clock_ns();
    krt_status status = krt_choose_parallel(plan)
                            ? krt_graph_execute(plan, context, NULL, failed_op, &trace)
                            : krt_plan_run_serial(plan, context, failed_op);
    trace.elapsed_ns = krt_clock_ns() - start;
    if (!status)
        krt_choice_learn(plan, &trace);
    return status;
}

krt_status krt_plan_execute(krt_plan *plan, size_t *failed_op)
{
    krt_context context = {0};
    krt_plan_begin(plan);
    if (!has_stack(plan))
        return run_with_helper(plan, NULL, &context, failed_op);
    return krt_plan_threads(plan, &context) == 1
               ? krt_plan_run_serial(plan, &context, failed_op)
               : krt_plan_run_shared(plan, &context, failed_op);
}

krt_status krt_plan_run_profiled(krt_plan *plan, int threads, const krt_context *context,
                                 krt_sample *samples, size_t *failed_op)
{
    krt_trace trace;
    plan->marked = true;
    return threads > 1 && krt_choose_parallel(plan)
               ? krt_graph_execute(plan, context, samples, failed_op, &trace)
               : run_serial_profiled(plan, context, samples, failed_op);
}

krt_status krt_plan_execute_profiled(krt_plan *plan, krt_profile *profile, size_t *failed_op)
{
    krt_sample *samples = profile->samples;
    krt_context context = {.origin_ns = krt_clock_ns(),
                           .profile = profile->claims ? profile : NULL};
    profile->n_claims = 0;
    krt_plan_begin(plan);
    memset(samples, 0, plan->n_ops * sizeof *samples);
    krt_plan_forget_samples(plan);
    krt_status status =
        has_stack(plan) ? krt_plan_run_profiled(plan, krt_plan_threads(plan, &context), &context,
                                                samples, failed_op)
                        : run_with_helper(plan, samples, &context, failed_op);
    krt_plan_collect(plan, samples + plan->n_ops);
    return status;
}

/* ---- Samples of bodies ------------------------------------------------------------------- */

size_t krt_plan_n_samples(const krt_plan *plan)
{
    size_t n = plan->n_ops;
    for (size_t op = 0; op < plan->n_ops; ++op)
        if (plan->records[op].loop)
            n += krt_loop_n_samples(plan->records[op].loop);
    return n;
}

krt_sample *krt_plan_collect(const krt_plan *plan, krt_sample *samples)
{
    for (size_t op = 0; op < plan->n_ops; ++op)
        if (plan->records[op].loop)
            samples = krt_loop_collect(plan->records[op].loop, samples);
    return samples;
}

void krt_plan_forget_samples(krt_plan *plan)
{
    for (size_t op = 0; op < plan->n_ops; ++op)
        if (plan->records[op].loop)
            krt_loop_forget_samples(plan->records[op].loop);
}
