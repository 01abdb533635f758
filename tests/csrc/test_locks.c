/* test_locks.c - turns: whose they are, in which order they end, rings of waiters, and fork. */
#include "check.h"

#include <pthread.h>

enum { LOCKS = 4 };

static krt_lock locks[LOCKS];

static void test_one_thread(void)
{
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    CHECK(krt_lock_acquire(&locks[0], 1000) == KRT_BUSY);
    CHECK(krt_lock_acquire(&locks[1], 0) == KRT_OK);
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_BUSY);
    krt_lock_release(&locks[0]); /* not the one taken last, as coroutines do */
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    krt_lock_release(&locks[1]);
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_BUSY);
    krt_lock_release(&locks[0]);
}

/* Each of LOCKS threads holds its lock and wants the next one's: a ring. */
static pthread_barrier_t all_hold;
static _Atomic int deadlocks;

static void *want_next(void *argument)
{
    int mine = (int)(intptr_t)argument;
    CHECK(krt_lock_acquire(&locks[mine], 1000000000) == KRT_OK);
    pthread_barrier_wait(&all_hold);
    krt_lock *next = &locks[(mine + 1) % LOCKS];
    krt_status status;
    do
        status = krt_lock_acquire(next, 1000000 * (1 + random_below(3)));
    while (status == KRT_TIMEOUT);
    CHECK(status == KRT_OK || status == KRT_DEADLOCK);
    if (status == KRT_DEADLOCK)
        atomic_fetch_add(&deadlocks, 1);
    else
        krt_lock_release(next);
    krt_lock_release(&locks[mine]);
    return NULL;
}

static void test_a_ring_is_broken(void)
{
    for (long i = 0; i < rounds("KRT_ROUNDS", 200); ++i) {
        pthread_t threads[LOCKS];
        CHECK(!pthread_barrier_init(&all_hold, NULL, LOCKS));
        atomic_store(&deadlocks, 0);
        for (int t = 0; t < LOCKS; ++t)
            CHECK(!pthread_create(&threads[t], NULL, want_next, (void *)(intptr_t)t));
        for (int t = 0; t < LOCKS; ++t)
            CHECK(!pthread_join(threads[t], NULL));
        CHECK(atomic_load(&deadlocks) >= 1);
        pthread_barrier_destroy(&all_hold);
    }
}

/* Who holds nothing may wait for anybody; locks always taken in one order never ring. */
static void *take_in_order(void *argument)
{
    for (long i = 0; i < 2000; ++i) {
        int first = (int)random_below(LOCKS), last = (int)random_below(LOCKS);
        for (int l = first; l <= last; ++l)
            CHECK(krt_lock_acquire(&locks[l], 60000000000) == KRT_OK);
        for (int l = first; l <= last; ++l)
            krt_lock_release(&locks[l]);
    }
    return argument;
}

static void test_no_false_alarm(void)
{
    pthread_t threads[4];
    for (int t = 0; t < 4; ++t)
        CHECK(!pthread_create(&threads[t], NULL, take_in_order, NULL));
    for (int t = 0; t < 4; ++t)
        CHECK(!pthread_join(threads[t], NULL));
}

static void *hold_for_ever(void *held)
{
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    atomic_store((_Atomic bool *)held, true);
    for (;;)
        pause();
}

static void use_all_locks(void)
{
    CHECK(krt_fork_count() == 1);
    /* As if this thread stood where the one that held it stands in the parent. */
    atomic_store(&locks[0].holder, atomic_load(&locks[1].holder));
    for (int l = 0; l < LOCKS; ++l)
        CHECK(krt_lock_acquire(&locks[l], 0) == (l == 1 ? KRT_BUSY : KRT_OK));
    krt_lock_release(&locks[1]);
    CHECK(krt_lock_acquire(&locks[1], 0) == KRT_OK);
}

/* In the child locks of other threads are free, and those of the one that forked are its own. */
static void test_fork(void)
{
    static _Atomic bool held;
    pthread_t thread;
    krt_watch_fork();
    CHECK(!pthread_create(&thread, NULL, hold_for_ever, (void *)&held));
    while (!atomic_load(&held))
        usleep(100);
    CHECK(krt_lock_acquire(&locks[1], 0) == KRT_OK);
    CHECK(krt_lock_acquire(&locks[0], 1000) == KRT_TIMEOUT);
    for (int i = 0; i < 20; ++i)
        in_child(use_all_locks);
    CHECK(krt_fork_count() == 0);
    krt_lock_release(&locks[1]);
}

static _Atomic bool in_parent = true, failing;
static krt_plan *failing_plan;

static void fail_in_parent(void *const *bufs, const int64_t *vals)
{
    (void)vals;
    if (!atomic_load(&in_parent))
        return;
    *(int64_t *)bufs[0] = 1;
    atomic_store(&failing, true);
    for (;;)
        pause();
}

static void *run_for_ever(void *unused)
{
    run_plan(failing_plan);
    return unused;
}

static void run_in_child(void)
{
    atomic_store(&in_parent, false);
    run_plan(failing_plan);
    run_plan(failing_plan);
}

/* What a run of another thread has stored by the time of the fork is not the child's failure. */
static void test_fork_during_a_run(void)
{
    void *bufs[] = {NULL};
    krt_op op = {.kind = KRT_KERNEL, .fn = fail_in_parent, .bufs = bufs, .n_bufs = 1, .chunks = 1,
                 .core_slot = -1, .flags = KRT_MAY_FAIL};
    pthread_t thread;
    failing_plan = make_plan(&op, 1, quiet_host);
    CHECK(!pthread_create(&thread, NULL, run_for_ever, NULL));
    while (!atomic_load(&failing))
        usleep(100);
    in_child(run_in_child);
}

/* Threads that release a lock and take it again at once must not starve a thread that waits. Each
 * holds the lock for a millisecond; the waiting thread gets it before they held it ENOUGH times. */
enum { GREEDY = 2, SERVED = 20, ENOUGH = 200 };
static _Atomic bool satisfied;
static _Atomic long greedy_runs;

static void *take_again_at_once(void *unused)
{
    (void)unused;
    while (!atomic_load(&satisfied)) {
        if (krt_lock_acquire(&locks[0], 50000000) != KRT_OK)
            continue;
        int64_t until = krt_clock_ns() + 1000000;
        while (krt_clock_ns() < until)
            krt_relax();
        atomic_fetch_add(&greedy_runs, 1);
        krt_lock_release(&locks[0]);
    }
    return NULL;
}

static void test_a_waiting_thread_is_served(void)
{
    pthread_t threads[GREEDY];
    for (int t = 0; t < GREEDY; ++t)
        CHECK(!pthread_create(&threads[t], NULL, take_again_at_once, NULL));
    while (!atomic_load(&greedy_runs))
        usleep(100);
    for (int i = 0; i < SERVED; ++i) {
        long before = atomic_load(&greedy_runs);
        while (krt_lock_acquire(&locks[0], 50000000) == KRT_TIMEOUT)
            CHECK(atomic_load(&greedy_runs) < before + ENOUGH);
        CHECK(atomic_load(&greedy_runs) < before + ENOUGH);
        krt_lock_release(&locks[0]);
    }
    atomic_store(&satisfied, true);
    for (int t = 0; t < GREEDY; ++t)
        CHECK(!pthread_join(threads[t], NULL));
    CHECK(!locks[0].overdue);
    CHECK(krt_lock_acquire(&locks[0], 1000000000) == KRT_OK);
    krt_lock_release(&locks[0]);
}

/* A lock that is left for a thread which has given up meanwhile stays so for a moment only. */
static void *give_up(void *unused)
{
    (void)unused;
    CHECK(krt_lock_acquire(&locks[0], 10000000) == KRT_TIMEOUT);
    return NULL;
}

static void test_a_reservation_ends(void)
{
    pthread_t thread;
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    CHECK(!pthread_create(&thread, NULL, give_up, NULL));
    CHECK(!pthread_join(thread, NULL));
    CHECK(!locks[0].overdue);
    atomic_store(&locks[0].overdue, true); /* as if the release had come first */
    krt_lock_release(&locks[0]);
    usleep(2000);
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    atomic_store(&locks[0].overdue, false);
    krt_lock_release(&locks[0]);
    CHECK(krt_lock_acquire(&locks[0], 0) == KRT_OK);
    krt_lock_release(&locks[0]);
}

int main(void)
{
    test_one_thread();
    test_a_ring_is_broken();
    test_no_false_alarm();
    test_a_waiting_thread_is_served();
    test_a_reservation_ends();
    test_fork();
    test_fork_during_a_run();
    return 0;
}
