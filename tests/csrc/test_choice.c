/* test_choice.c - serial or parallel follows what executions take, not what was estimated. The
 * times are made up, so that the answer does not depend on the machine. */
#include "check.h"
#include "graph.h"

enum { THREADS = 2 };

static void nothing(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
}

static krt_plan *chunked(int64_t cost_ns)
{
    static const int64_t zero[1];
    krt_op op = {.fn = nothing, .vals = zero, .n_vals = 1, .chunks = 2, .core_slot = 0,
                 .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = cost_ns};
    return make_plan(&op, 1, quiet_host);
}

/* How many of `n` executions would go parallel, if they took so long. */
static int parallel_runs(krt_plan *plan, int n, int64_t serial_ns, int64_t parallel_ns)
{
    int parallel = 0;
    for (int i = 0; i < n; ++i) {
        CHECK(krt_choice_is_open(plan, THREADS));
        bool choice = krt_choose_parallel(plan);
        krt_choice_learn(plan, choice ? parallel_ns : serial_ns);
        parallel += choice;
    }
    return parallel;
}

static void test_small_plans_have_no_choice(void)
{
    krt_plan *plan = chunked(2000);
    CHECK(!krt_choice_is_open(plan, THREADS));
    krt_plan_destroy(plan);
}

/* Worth waking a worker by estimate, and not in fact. */
static void test_overestimated(void)
{
    krt_plan *plan = chunked(1000000);
    CHECK(parallel_runs(plan, 1, 5000, 60000) == 1);
    parallel_runs(plan, 20, 5000, 60000);
    CHECK(parallel_runs(plan, 2000, 5000, 60000) < 20);
    krt_plan_destroy(plan);
}

/* Not worth waking a worker by estimate; but the plan comes again and again, and finds it awake. */
static void test_executed_again_and_again(void)
{
    krt_plan *plan = chunked(100000);
    CHECK(parallel_runs(plan, 1, 100000, 52000) == 0);
    parallel_runs(plan, 20, 100000, 52000);
    CHECK(parallel_runs(plan, 2000, 100000, 52000) > 1980);
    krt_plan_destroy(plan);
}

/* Other processes come and want the cores, and go. */
static void test_circumstances_change(void)
{
    krt_plan *plan = chunked(1000000);
    parallel_runs(plan, 600, 1000000, 510000);
    CHECK(parallel_runs(plan, 100, 1000000, 2000000) < 20);
    parallel_runs(plan, 1100, 1000000, 510000);
    CHECK(parallel_runs(plan, 100, 1000000, 510000) > 90);
    krt_plan_destroy(plan);
}

/* One execution that the system interrupts for long changes nothing. */
static void test_an_outlier(void)
{
    krt_plan *plan = chunked(1000000);
    parallel_runs(plan, 100, 1000000, 510000);
    parallel_runs(plan, 1, 10000000, 10000000);
    CHECK(parallel_runs(plan, 100, 1000000, 510000) > 90);
    krt_plan_destroy(plan);
}

static void test_other_costs_are_other_plans(void)
{
    krt_fault fault;
    krt_plan *plan = chunked(1000000);
    parallel_runs(plan, 100, 5000, 60000);
    CHECK(!krt_choose_parallel(plan));
    CHECK(krt_plan_set_chunks(plan, 0, 64, &fault) == KRT_OK);
    run_plan(plan);
    CHECK(krt_choice_is_open(plan, THREADS) && krt_choose_parallel(plan));
    krt_plan_destroy(plan);
}

int main(void)
{
    krt_test_set_pool_limit(THREADS);
    test_small_plans_have_no_choice();
    test_overestimated();
    test_executed_again_and_again();
    test_circumstances_change();
    test_an_outlier();
    test_other_costs_are_other_plans();
    return 0;
}
