/* test_faults.c - every allocation and every thread start fails once, one after the other, until
 * the operation succeeds: nothing leaks, nothing hangs, the plan is as before or right. */
#include "check.h"

enum { CHUNKS = 64 };

/* ThreadSanitizer does not support new threads in a child of a process that had some. */
#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = true };
#else
enum { UNDER_TSAN = false };
#endif

static _Atomic int64_t done[CHUNKS];

static void count(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    atomic_fetch_add(&done[vals[0]], 1);
}

static const size_t first[] = {0};

static const krt_op two_ops[2] = {
    {.fn = count, .vals = (int64_t[]){0}, .n_vals = 1, .chunks = CHUNKS / 2, .core_slot = 0,
     .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = 10000000},
    {.fn = count, .vals = (int64_t[]){0}, .n_vals = 1, .chunks = CHUNKS / 2, .core_slot = 0,
     .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = 10000000, .deps = first, .n_deps = 1},
};

static void test_allocations_of_create(void)
{
    for (long nth = 1;; ++nth) {
        krt_plan *plan = (krt_plan *)&plan;
        krt_fault fault;
        krt_test_fail_alloc(nth);
        krt_status status = krt_plan_create(two_ops, 2, quiet_host, &plan, &fault);
        krt_test_fail_alloc(0);
        if (status == KRT_OK) {
            CHECK(nth > 5);
            run_plan(plan);
            krt_plan_destroy(plan);
            CHECK(krt_test_live_allocs() == 0);
            return;
        }
        CHECK(status == KRT_NO_MEMORY);
        CHECK(plan == NULL);
        CHECK(krt_test_live_allocs() == 0);
    }
}

static void test_allocations_of_growth(void)
{
    krt_plan *plan = make_plan(two_ops, 2, quiet_host);
    krt_fault fault;
    krt_status status;
    long nth = 0;
    do {
        int64_t chunks;
        memset((void *)done, 0, sizeof done);
        krt_test_fail_alloc(++nth);
        status = krt_plan_set_chunks(plan, 0, CHUNKS, &fault);
        krt_test_fail_alloc(0);
        CHECK(krt_plan_get_chunks(plan, 0, &chunks, &fault) == KRT_OK);
        CHECK(chunks == (status ? CHUNKS / 2 : CHUNKS));
        run_plan(plan);
        CHECK(done[0] == 2 && done[CHUNKS - 1] == (status ? 0 : 1));
    } while (status == KRT_NO_MEMORY);
    CHECK(status == KRT_OK && nth == 3);
    krt_plan_destroy(plan);
    CHECK(krt_test_live_allocs() == 0);
}

/* One edit too many leaves the plan as it was, whether it is illegal or has no memory. */
static void test_edits_are_all_or_none(void)
{
    krt_plan *plan = make_plan(two_ops, 2, quiet_host);
    krt_fault fault = {0};
    const krt_edit edits[] = {
        {.kind = KRT_SET_CHUNKS, .op = 0, .value = CHUNKS},
        {.kind = KRT_SET_CHUNKS, .op = 1, .value = CHUNKS},
        {.kind = KRT_SET_VALUE, .op = 1, .slot = 0, .value = 7}, /* counts the chunks */
    };
    krt_status status = KRT_NO_MEMORY;
    for (long nth = 1; status == KRT_NO_MEMORY; ++nth) {
        memset((void *)done, 0, sizeof done);
        krt_test_fail_alloc(nth);
        status = krt_plan_edit(plan, edits, 3, &fault);
        krt_test_fail_alloc(0);
        CHECK(status == KRT_NO_MEMORY || (status == KRT_INVALID && nth > 2));
        int64_t chunks;
        CHECK(krt_plan_get_chunks(plan, 0, &chunks, &fault) == KRT_OK && chunks == CHUNKS / 2);
        run_plan(plan);
        CHECK(done[0] == 2 && done[CHUNKS - 1] == 0);
    }
    memset((void *)done, 0, sizeof done);
    CHECK(krt_plan_edit(plan, edits, 2, &fault) == KRT_OK);
    run_plan(plan);
    CHECK(done[0] == 2 && done[CHUNKS - 1] == 2);
    krt_plan_destroy(plan);
    CHECK(krt_test_live_allocs() == 0);
}

static void test_no_allocation_in_execute(void)
{
    krt_plan *plan = make_plan(two_ops, 2, quiet_host);
    krt_fault fault;
    krt_test_fail_alloc(1);
    for (int64_t i = 0; i < 100; ++i) {
        CHECK(krt_plan_set_chunks(plan, 0, i % (CHUNKS / 2), &fault) == KRT_OK);
        run_plan(plan);
    }
    krt_test_fail_alloc(0);
    krt_plan_destroy(plan);
}

/* ---- Threads ----------------------------------------------------------------------------- */

/* In a process that never had a worker. */
static void run_with_a_failing_start(long failing_start)
{
    krt_test_set_pool_limit(4);
    krt_plan *plan = make_plan(two_ops, 2, quiet_host);
    krt_test_fail_thread(failing_start);
    for (int i = 0; i < 20; ++i)
        run_plan(plan);
    for (int i = 0; i < CHUNKS / 2; ++i)
        CHECK(done[i] == 40);
    CHECK(krt_pool_take_start_failure() == (failing_start <= 3));
    CHECK(!krt_pool_take_start_failure());
    krt_set_num_threads(4); /* asks for another try */
    for (int i = 0; i < 20; ++i)
        run_plan(plan);
    CHECK(done[0] == 80);
    CHECK(!krt_pool_take_start_failure());
    krt_plan_destroy(plan);
}

/* ---- Processes --------------------------------------------------------------------------- */

static krt_plan *shared_plan;

static void run_shared(void)
{
    memset((void *)done, 0, sizeof done);
    for (int i = 0; i < 10; ++i)
        run_plan(shared_plan);
    CHECK(done[0] == 20);
}

static void fork_after_use(void)
{
    krt_test_set_pool_limit(4);
    shared_plan = make_plan(two_ops, 2, quiet_host);
    in_child(run_shared);
    run_shared();
    for (int i = 0; i < 20; ++i)
        in_child(run_shared);
    run_shared();
}

int main(int argc, char **argv)
{
    krt_test_always_parallel(true);
    if (argc == 2) {
        run_with_a_failing_start(atol(argv[1]));
        return 0;
    }
    test_allocations_of_create();
    test_allocations_of_growth();
    test_edits_are_all_or_none();
    test_no_allocation_in_execute();
    for (int failing_start = 1; failing_start <= 4; ++failing_start) {
        char text[] = {(char)('0' + failing_start), '\0'};
        pid_t child = fork();
        if (!child) {
            execl(argv[0], argv[0], text, (char *)NULL);
            abort();
        }
        expect_exit(child);
    }
    if (!UNDER_TSAN)
        in_child(fork_after_use);
    return 0;
}
