/* test_choice.c - serial or parallel follows what executions take, not what was estimated. */
#include "check.h"
#include "graph.h"

static void nothing(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
}

static void take_time(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    int64_t until = krt_clock_ns() + vals[1];
    while (krt_clock_ns() < until)
        krt_relax();
}

static krt_plan *chunked(krt_kernel fn, const int64_t *vals, int64_t cost_ns)
{
    krt_op op = {.fn = fn, .vals = vals, .n_vals = 2, .chunks = 2, .core_slot = 0,
                 .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = cost_ns};
    return make_plan(&op, 1, quiet_host);
}

/* Two chunks that are said to take a millisecond and take nothing, far apart: waking a worker
 * for them cannot pay. */
static void test_overestimated(void)
{
    const int64_t vals[] = {0, 0};
    krt_plan *plan = chunked(nothing, vals, 1000000);
    run_plan(plan);
    CHECK(plan->graph->choice.parallel);
    for (int i = 0; i < 20; ++i) {
        run_plan(plan);
        usleep(1000);
    }
    CHECK(!plan->graph->choice.parallel);
    krt_plan_destroy(plan);
}

static void test_small_plans_have_no_choice(void)
{
    const int64_t vals[] = {0, 0};
    krt_plan *plan = chunked(nothing, vals, 2000);
    run_plan(plan);
    CHECK(!plan->graph->choice.open);
    krt_plan_destroy(plan);
}

/* 2 x 50 us without a pause: serial by estimate, because workers might be asleep. Needs two
 * CPUs for itself, so only a soak insists. */
static void test_executed_again_and_again(void)
{
    const int64_t vals[] = {0, 50000};
    krt_plan *plan = chunked(take_time, vals, 100000);
    run_plan(plan);
    CHECK(plan->graph->choice.open && !plan->graph->choice.parallel);
    for (int i = 0; i < 2000; ++i)
        run_plan(plan);
    CHECK(plan->graph->choice.parallel || !getenv("KERNELRT_SOAK") || krt_affinity_count() < 2);
    krt_plan_destroy(plan);
}

int main(void)
{
    krt_test_set_pool_limit(2);
    test_overestimated();
    test_small_plans_have_no_choice();
    test_executed_again_and_again();
    return 0;
}
