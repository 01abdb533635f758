/* test_pool.c - the ladder for one chunked op: it completes, in bounds, all items, each once,
 * many times, under contention, on pools from one thread to far more than there are CPUs. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "check.h"

#include <pthread.h>
#ifdef __linux__
#include <dirent.h>
#include <sched.h>
#endif

enum { MOST_ITEMS = 4096 };

typedef struct counters {
    _Atomic int64_t items[MOST_ITEMS + 1]; /* the last one stays 0 */
    _Atomic int64_t out_of_bounds;
    int64_t n;
} counters;

static void count_item(void *const *bufs, const int64_t *vals)
{
    counters *seen = bufs[0];
    int64_t item = vals[0];
    if (item < 0 || item >= seen->n)
        atomic_fetch_add(&seen->out_of_bounds, 1);
    else
        atomic_fetch_add(&seen->items[item], 1);
}

static krt_op chunked(void *const *bufs, int64_t chunks, int64_t cost_ns)
{
    static const int64_t zero[1];
    return (krt_op){.kind = KRT_KERNEL,
                    .fn = count_item,
                    .bufs = bufs,
                    .n_bufs = 1,
                    .vals = zero,
                    .n_vals = 1,
                    .chunks = chunks,
                    .core_slot = 0,
                    .flags = KRT_HOST_PARALLEL_SAFE,
                    .cost_ns = cost_ns};
}

static void expect(const counters *seen, int64_t n, int64_t times)
{
    CHECK(seen->out_of_bounds == 0);
    for (int64_t i = 0; i <= MOST_ITEMS; ++i)
        CHECK(seen->items[i] == (i < n ? times : 0));
}

static void climb(int64_t chunks, int64_t cost_ns, long times)
{
    counters *seen = calloc(1, sizeof *seen);
    CHECK(seen);
    seen->n = chunks;
    krt_op op = chunked((void *[]){seen}, chunks, cost_ns);
    krt_plan *plan = make_plan(&op, 1, quiet_host);
    for (long i = 0; i < times; ++i)
        run_plan(plan);
    expect(seen, chunks, times);
    krt_plan_destroy(plan);
    free(seen);
}

static void test_ladder(void)
{
    static const int64_t chunk_counts[] = {0, 1, 2, 3, 7, 8, 64, 1000, MOST_ITEMS};
    static const int thread_counts[] = {1, 2, 3, 8, 64};
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; ++t) {
        krt_test_set_pool_limit(thread_counts[t]);
        for (size_t c = 0; c < sizeof chunk_counts / sizeof *chunk_counts; ++c) {
            climb(chunk_counts[c], 1000000, 1);      /* waking whoever sleeps */
            climb(chunk_counts[c], 1000000, 50);     /* with workers awake */
            climb(chunk_counts[c], 1000000000, 2);   /* one chunk a claim */
            climb(chunk_counts[c], 0, 2);            /* serial */
        }
    }
}

/* Chunks that cost nothing, claimed one by one: threads meet at every one of them. */
static void test_high_contention(void)
{
    krt_test_set_pool_limit(4);
    climb(MOST_ITEMS, INT64_MAX / 2, rounds("KRT_ROUNDS", 200));
}

/* Executions that come after the workers went to sleep must wake them again. */
static void test_sleep_between(void)
{
    krt_test_set_pool_limit(4);
    counters *seen = calloc(1, sizeof *seen);
    CHECK(seen);
    seen->n = 8;
    krt_op op = chunked((void *[]){seen}, 8, 1000000);
    krt_plan *plan = make_plan(&op, 1, quiet_host);
    for (int i = 0; i < 100; ++i) {
        run_plan(plan);
        usleep((useconds_t)random_below(400));
    }
    expect(seen, 8, 100);
#ifndef KRT_NO_THREADS
    int64_t until = krt_clock_ns() + PATIENCE_NS;
    while (!krt_test_sleeping_workers()) {
        CHECK(krt_clock_ns() < until);
        usleep(1000);
    }
#endif
    krt_plan_destroy(plan);
    free(seen);
}

static void *climb_alone(void *unused)
{
    climb(100, 1000000000, rounds("KRT_ROUNDS", 200));
    return unused;
}

/* Plans in several threads: one has the pool, the others run alone. */
static void test_many_callers(void)
{
    pthread_t threads[8];
    krt_test_set_pool_limit(3);
    for (int i = 0; i < 8; ++i)
        CHECK(!pthread_create(&threads[i], NULL, climb_alone, NULL));
    for (int i = 0; i < 8; ++i)
        CHECK(!pthread_join(threads[i], NULL));
}

static void test_changing_the_thread_count(void)
{
    krt_test_set_pool_limit(8);
    for (int i = 0; i < 200; ++i) {
        krt_set_num_threads(1 + (int)random_below(8));
        CHECK(krt_get_num_threads() <= 8);
        climb(64, 10000000, 3);
    }
    krt_set_num_threads(8);
}

#ifndef KRT_NO_THREADS
static _Atomic int most_at_once;

static void meet(void *const *bufs, const int64_t *vals)
{
    static _Atomic int inside;
    (void)bufs;
    (void)vals;
    int now = atomic_fetch_add(&inside, 1) + 1;
    int64_t until = krt_clock_ns() + PATIENCE_NS;
    while (atomic_load(&most_at_once) < 2 && now < 2 && krt_clock_ns() < until) {
        usleep(10);
        now = atomic_load(&inside);
    }
    if (now > atomic_load(&most_at_once))
        atomic_store(&most_at_once, now);
    atomic_fetch_sub(&inside, 1);
}

/* Of many workers that sleep, those are woken that the region admits. */
static void test_fewer_are_admitted_than_there_are(void)
{
    krt_op op = {.fn = meet, .vals = (int64_t[]){0}, .n_vals = 1, .chunks = 2, .core_slot = 0,
                 .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = 1000000000};
    krt_test_set_pool_limit(16);
    climb(1000, 1000000000, 10);
    krt_set_num_threads(2);
    krt_plan *plan = make_plan(&op, 1, quiet_host);
    for (int i = 0; i < 30; ++i) {
        usleep(1500); /* all have gone to sleep */
        atomic_store(&most_at_once, 0);
        run_plan(plan);
        CHECK(atomic_load(&most_at_once) == 2);
    }
    krt_plan_destroy(plan);
    krt_set_num_threads(16);
}
#endif

#ifdef __linux__
/* Whether every thread may run where the process may. */
static bool all_threads_may_run_anywhere(const cpu_set_t *allowed)
{
    bool all = true;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *at; (at = readdir(tasks));) {
        cpu_set_t cores;
        if (at->d_name[0] != '.' && !sched_getaffinity(atoi(at->d_name), sizeof cores, &cores))
            all &= CPU_EQUAL(&cores, allowed);
    }
    closedir(tasks);
    return all;
}

/* A worker that was called gives its cores back once it gets a turn. */
static void check_cores_of_all_threads(const cpu_set_t *allowed)
{
    int64_t until = krt_clock_ns() + PATIENCE_NS;
    while (!all_threads_may_run_anywhere(allowed)) {
        CHECK(krt_clock_ns() < until);
        usleep(1000);
    }
}

/* Workers that were kept off the caller's core to be woken get it back. */
static void test_cores_are_given_back(void)
{
    cpu_set_t allowed;
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    krt_test_set_pool_limit(4);
    for (int i = 0; i < 50; ++i) {
        climb(8, 1000000, 3);
        usleep(1500); /* all go to sleep */
    }
    check_cores_of_all_threads(&allowed);
}

#ifndef __SANITIZE_THREAD__ /* whose children may start no threads */
/* Children that start workers of their own leave those of the parent alone. */
static void test_children_leave_the_cores_of_others(void)
{
    cpu_set_t allowed;
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    krt_watch_fork();
    krt_test_set_pool_limit(4);
    climb(8, 1000000, 3);
    for (int i = 0; i < 20; ++i) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            krt_test_set_pool_limit(4);
            for (int k = 0; k < 3; ++k) {
                climb(8, 1000000, 2);
                usleep(1500);
            }
            check_cores_of_all_threads(&allowed);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
        climb(8, 1000000, 1);
    }
    check_cores_of_all_threads(&allowed);
}
#endif

/* A thread leaves the core it is kept off, if there is another, and only while it is. */
static void test_keeping_off_a_core(void)
{
    cpu_set_t allowed, now;
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    for (int i = 0; i < 100; ++i) {
        krt_cores cores = {0};
        int core = krt_core();
        CHECK(CPU_ISSET((size_t)core, &allowed));
        krt_keep_off(core, i % 2 ? krt_thread_number() : 0, &cores);
        CHECK(cores.narrowed == (CPU_COUNT(&allowed) > 1));
        CHECK(!cores.narrowed || krt_core() != core);
        krt_allow_again(&cores);
        CHECK(!cores.narrowed);
        CHECK(!sched_getaffinity(0, sizeof now, &now) && CPU_EQUAL(&now, &allowed));
    }
    krt_cores cores = {0};
    krt_keep_off(CPU_SETSIZE, 0, &cores);
    krt_keep_off(-1, 0, &cores);
    CHECK(!cores.narrowed);
}
#endif

/* For a soak: KRT_EXECUTES=1000000. */
static void test_many_executions(void)
{
    static const int thread_counts[] = {1, 2, 3, 8, 64};
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; ++t) {
        krt_test_set_pool_limit(thread_counts[t]);
        climb(8, 1000000, rounds("KRT_EXECUTES", 1000));
    }
}

int main(void)
{
    krt_test_always_parallel(true);
    test_many_executions();
    test_ladder();
    test_high_contention();
    test_sleep_between();
#ifndef KRT_NO_THREADS
    test_fewer_are_admitted_than_there_are();
#endif
#ifdef __linux__
    test_keeping_off_a_core();
    test_cores_are_given_back();
#ifndef __SANITIZE_THREAD__
    test_children_leave_the_cores_of_others();
#endif
#endif
    test_many_callers();
    test_changing_the_thread_count();
    return 0;
}
