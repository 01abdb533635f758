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

/* What executions take, were they made. */
typedef struct times {
    int64_t serial_ns, parallel_ns;
    int64_t stall_ns; /* what every `stall_every`th parallel one waits for a worker beside that */
    int stall_every;
    int64_t break_ns; /* by how much the system interrupts one of `break_every`, either way */
    int break_every;
    bool alone; /* no worker comes */
} times;

/* How many of `n` executions would go parallel, if they took so long; adds up what they took. */
static int shared_runs(krt_plan *plan, int n, times at, int64_t *total_ns)
{
    int parallel = 0;
    for (int i = 0; i < n; ++i) {
        CHECK(krt_choice_is_open(plan, THREADS));
        bool choice = krt_choose_parallel(plan);
        int64_t elapsed = choice ? at.parallel_ns : at.serial_ns, waited = 0;
        parallel += choice;
        if (choice && at.stall_every && parallel % at.stall_every == 0)
            waited = at.stall_ns;
        if (at.break_every && !random_below((uint32_t)at.break_every))
            elapsed += at.break_ns;
        krt_choice_learn(plan, &(krt_trace){.elapsed_ns = elapsed + waited,
                                            .waited_ns = waited,
                                            .helped = choice && !at.alone});
        *total_ns += elapsed + waited;
    }
    return parallel;
}

static int parallel_runs(krt_plan *plan, int n, int64_t serial_ns, int64_t parallel_ns)
{
    int64_t total = 0;
    return shared_runs(plan, n, (times){.serial_ns = serial_ns, .parallel_ns = parallel_ns},
                       &total);
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
    krt_plan *plan = chunked(60000);
    CHECK(parallel_runs(plan, 1, 60000, 32000) == 0);
    parallel_runs(plan, 20, 60000, 32000);
    CHECK(parallel_runs(plan, 2000, 60000, 32000) > 1980);
    krt_plan_destroy(plan);
}

/* To know what one thread takes costs little from the first executions on. */
static void test_trials_are_few(void)
{
    krt_plan *plan = chunked(20000000);
    CHECK(parallel_runs(plan, 80, 20000000, 10200000) >= 77);
    krt_plan_destroy(plan);
    plan = chunked(200000);
    CHECK(parallel_runs(plan, 88, 200000, 105000) >= 84);
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

/* What two cores gain stays away for a tenth of a second: sharing costs nothing meanwhile, and is
 * not given up. Where it stays away for good, the other core is left to others. */
static void test_a_pause_of_gains(void)
{
    static const int64_t costs[] = {4000, 20000, 200000, 2000000};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; ++i) {
        krt_plan *plan = chunked(costs[i] < 20000 ? 20000 : costs[i]);
        int pause = (int)(100000000 / costs[i]);
        parallel_runs(plan, 2000, costs[i], costs[i] / 2);
        CHECK(parallel_runs(plan, pause, costs[i], costs[i]) > pause * 8 / 10);
        CHECK(parallel_runs(plan, 100, costs[i], costs[i] / 2) > 90);
        parallel_runs(plan, 60 * pause, costs[i], costs[i]);
        CHECK(parallel_runs(plan, 60 * pause, costs[i], costs[i]) < 60 * pause * 8 / 10);
        krt_plan_destroy(plan);
    }
}

/* Starting threads and first touching memory say nothing about later executions. */
static void test_a_slow_beginning(void)
{
    krt_plan *plan = chunked(1000000);
    parallel_runs(plan, 1, 20000000, 20000000);
    CHECK(parallel_runs(plan, 100, 1000000, 510000) > 90);
    krt_plan_destroy(plan);
}

/* Interruptions that come either way are no reason to give up what gains. */
static void test_interruptions(void)
{
    times at = {.serial_ns = 1000000, .parallel_ns = 510000, .break_ns = 8000000};
    for (int every = 5; every <= 50; every += 5) {
        krt_plan *plan = chunked(1000000);
        int64_t total = 0;
        at.break_every = every;
        CHECK(shared_runs(plan, 2000, at, &total) > 1700);
        krt_plan_destroy(plan);
    }
}

/* A worker that is now and then taken off its core costs its caller little, or much. */
static void test_stalls(void)
{
    times at = {.serial_ns = 1000000, .parallel_ns = 510000, .stall_ns = 3000000};
    krt_plan *plan = chunked(1000000);
    int64_t total = 0;
    at.stall_every = 100;
    CHECK(shared_runs(plan, 2000, at, &total) > 1900);
    at.stall_ns = 30000000;
    at.stall_every = 10;
    CHECK(shared_runs(plan, 2000, at, &total) < 200);
    total = 0;
    CHECK(shared_runs(plan, 4000, at, &total) < 200 && total < 4400000000);
    krt_plan_destroy(plan);
}

/* Where sharing loses, trying it costs next to nothing, whatever an execution takes. */
static void test_trying_in_vain(void)
{
    static const int64_t costs[] = {20000, 200000, 2000000};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; ++i) {
        times at = {.serial_ns = costs[i], .parallel_ns = costs[i] + costs[i] / 4};
        krt_plan *plan = chunked(costs[i]);
        int64_t total = 0;
        shared_runs(plan, 100, at, &total);
        total = 0;
        shared_runs(plan, 2000, at, &total);
        CHECK(total < 2000 * (costs[i] + costs[i] / 40));
        krt_plan_destroy(plan);
    }
}

/* As long as workers are kept away for nothing, the plan goes on offering them a part. */
static void test_workers_that_do_not_come(void)
{
    times at = {.serial_ns = 1000000, .parallel_ns = 1010000, .alone = true};
    krt_plan *plan = chunked(1000000);
    int64_t total = 0;
    CHECK(shared_runs(plan, 2000, at, &total) > 1900);
    at.parallel_ns = 1150000; /* calling them is dear */
    shared_runs(plan, 100, at, &total);
    total = 0;
    CHECK(shared_runs(plan, 2000, at, &total) < 200 && total < 2040000000);
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
    test_trials_are_few();
    test_circumstances_change();
    test_an_outlier();
    test_a_pause_of_gains();
    test_a_slow_beginning();
    test_interruptions();
    test_stalls();
    test_trying_in_vain();
    test_workers_that_do_not_come();
    test_other_costs_are_other_plans();
    return 0;
}
