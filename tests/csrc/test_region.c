/* test_region.c - loops over plans against the same in C: serially and on several threads, one in
 * another, on small stacks, interrupted, failing, and with every allocation failing once. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>

enum { COLUMNS = 64, CHUNK = 8, INNER = 5, OUTER = 7, ROWS = INNER * OUTER };
enum { ROW = COLUMNS * sizeof(int64_t) };

static int64_t xs[ROWS][COLUMNS], ys[ROWS][COLUMNS], carry[COLUMNS], first[COLUMNS];
static int64_t wanted[ROWS][COLUMNS], last[COLUMNS];
static int64_t fail_in = -1; /* the row where a body fails */
static bool stops;

/* carry += x * (1 + iteration), a chunk of it; bufs = (carry, x, iteration) */
static void accumulate(void *const *bufs, const int64_t *vals)
{
    int64_t *sum = bufs[0];
    const int64_t *x = bufs[1], *iteration = bufs[2];
    for (int64_t i = vals[0] * CHUNK; i < (vals[0] + 1) * CHUNK; ++i)
        sum[i] += x[i] * (1 + *iteration);
}

/* y = carry, a chunk of it; bufs = (y, carry, status) */
static void put(void *const *bufs, const int64_t *vals)
{
    int64_t *y = bufs[0];
    const int64_t *sum = bufs[1];
    for (int64_t i = vals[0] * CHUNK; i < (vals[0] + 1) * CHUNK; ++i)
        y[i] = sum[i];
    if (fail_in >= 0 && y == ys[fail_in])
        __atomic_store_n((int64_t *)bufs[2], 9, __ATOMIC_RELAXED);
}

static krt_status poll_host(void *self)
{
    (void)self;
    return stops ? KRT_INTERRUPTED : KRT_OK;
}

static const krt_host host = {.custom = never_custom, .poll = poll_host};

typedef struct plans {
    krt_plan *inner, *middle, *outer;
} plans;

static int64_t anything[COLUMNS];
static const size_t before[] = {0};

/* ys[r] = the sum up to row r of xs[r] * (1 + r % INNER), from `first` on. */
static krt_status make(plans *made, bool reverse, krt_fault *fault)
{
    *made = (plans){0};
    void *const inner_bufs[] = {anything, anything, anything, anything, anything, NULL};
    const krt_op inner[] = {
        {.fn = accumulate, .bufs = inner_bufs, .n_bufs = 3, .vals = (int64_t[]){0}, .n_vals = 1,
         .chunks = COLUMNS / CHUNK, .core_slot = 0, .flags = KRT_HOST_PARALLEL_SAFE,
         .cost_ns = 400000},
        {.fn = put, .bufs = inner_bufs + 3, .n_bufs = 3, .vals = (int64_t[]){0}, .n_vals = 1,
         .chunks = COLUMNS / CHUNK, .core_slot = 0,
         .flags = KRT_HOST_PARALLEL_SAFE | KRT_MAY_FAIL, .cost_ns = 400000,
         .deps = before, .n_deps = 1},
    };
    krt_status status = krt_plan_create(inner, 2, host, &made->inner, fault);
    if (status)
        return status;
    void *const middle_bufs[] = {anything, anything, anything};
    const krt_binding bindings[] = {
        {.op = 0, .at = 0, .slot = 0}, {.op = 1, .at = 1, .slot = 0},
        {.op = 0, .at = 1, .slot = 1, .stride = ROW}, {.op = 0, .at = 2, .slot = KRT_ITERATION},
        {.op = 1, .at = 0, .slot = 2, .stride = ROW},
    };
    krt_region loop = {.bodies = &made->inner, .n_bodies = 1, .count = INNER, .count_slot = -1,
                       .condition_slot = -1, .choice_slot = -1, .bindings = bindings,
                       .n_bindings = 5, .reverse = reverse};
    krt_op op = {.kind = KRT_REGION, .bufs = middle_bufs, .n_bufs = 3, .chunks = 1,
                 .core_slot = -1, .cost_ns = 4000000, .region = &loop};
    status = krt_plan_create(&op, 1, host, &made->middle, fault);
    if (status)
        return status;
    void *const outer_bufs[] = {carry, xs, ys, first};
    const krt_binding around[] = {
        {.op = 0, .at = 0, .slot = 0},
        {.op = 0, .at = 1, .slot = 1, .stride = INNER * ROW},
        {.op = 0, .at = 2, .slot = 2, .stride = INNER * ROW},
    };
    const krt_initial start = {.dst = 0, .src = 3, .nbytes = ROW};
    loop.bodies = &made->middle;
    loop.count = OUTER;
    loop.bindings = around;
    loop.n_bindings = 3;
    loop.initial = &start;
    loop.n_initial = 1;
    op.bufs = outer_bufs;
    op.n_bufs = 4;
    return krt_plan_create(&op, 1, host, &made->outer, fault);
}

static void destroy(plans *made)
{
    krt_plan_destroy(made->outer);
    krt_plan_destroy(made->middle);
    krt_plan_destroy(made->inner);
    CHECK(krt_test_live_allocs() == 0);
}

static void fill(bool reverse)
{
    for (size_t i = 0; i < COLUMNS; ++i) {
        last[i] = first[i] = random_below(100);
        for (size_t n = 0; n < ROWS; ++n) {
            size_t r = reverse ? ROWS - 1 - n : n;
            xs[r][i] = random_below(100);
            last[i] += xs[r][i] * (int64_t)(1 + r % INNER);
            wanted[r][i] = last[i];
        }
    }
    memset(ys, -1, sizeof ys);
}

static void check_results(void)
{
    CHECK(!memcmp(ys, wanted, sizeof ys));
    CHECK(!memcmp(carry, last, sizeof carry));
}

static void test_loops(void)
{
    for (int way = 0; way < 4; ++way) {
        plans made;
        krt_fault fault;
        CHECK(make(&made, way & 1, &fault) == KRT_OK);
        krt_test_always_parallel(way & 2);
        for (long i = rounds("KRT_ROUNDS", 200); i > 0; --i) {
            /* Both loops go the same way. */
            fill(way & 1);
            run_plan(made.outer);
            check_results();
        }
        krt_test_always_parallel(false);
        destroy(&made);
    }
}

static void test_failure(void)
{
    plans made;
    krt_fault fault;
    krt_failure at;
    size_t failed_op;
    CHECK(make(&made, false, &fault) == KRT_OK);
    for (int64_t row = 0; row < ROWS; row += 3) {
        krt_test_always_parallel(row & 1);
        fill(false);
        fail_in = row;
        CHECK(krt_plan_execute(made.outer, &failed_op) == KRT_OUT_OF_BOUNDS && failed_op == 0);
        CHECK(krt_region_failure(made.outer, 0, &at) && at.iteration == row / INNER && at.op == 0);
        CHECK(krt_region_failure(made.middle, 0, &at) && at.iteration == row % INNER && at.op == 1);
        CHECK(!krt_region_failure(made.inner, 1, &at));
        CHECK(krt_plan_status(made.inner, 1) == 9);
        fail_in = -1;
        run_plan(made.outer);
        check_results();
    }
    krt_test_always_parallel(false);
    destroy(&made);
}

static void test_interrupt(void)
{
    plans made;
    krt_fault fault;
    size_t failed_op;
    CHECK(make(&made, false, &fault) == KRT_OK);
    fill(false);
    stops = true;
    usleep(30000); /* longer than from one poll to the next */
    CHECK(krt_plan_execute(made.outer, &failed_op) == KRT_INTERRUPTED);
    CHECK(memcmp(ys, wanted, sizeof ys));
    stops = false;
    run_plan(made.outer);
    check_results();
    destroy(&made);
}

static krt_plan *asking;
static int64_t asked;

/* Takes longer, of a clock that is set, than from one look at the host to the next. */
static void take_long(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
    asking->last_poll_ns = INT64_MIN / 2;
}

static krt_status count_looks(void *self)
{
    (void)self;
    ++asked;
    return KRT_OK;
}

static krt_status take_long_in_host(void *self, size_t op)
{
    (void)self;
    (void)op;
    take_long(NULL, NULL);
    return KRT_OK;
}

/* What is of unknown cost is followed by a look, in a loop as in a plan, on one thread and on several;
 * what an estimate is known of is not. */
static void test_unknown_costs(void)
{
    enum { ITERATIONS = 40, OPS = 30 };
    const krt_host counts = {.custom = take_long_in_host, .poll = count_looks};
    for (int known = 0; known < 2; ++known)
        for (int custom = 0; custom < 2; ++custom)
            for (int parallel = 0; parallel < 2; ++parallel) {
                krt_op ops[OPS], loop_op = {.kind = KRT_REGION, .chunks = 1, .core_slot = -1};
                for (size_t i = 0; i < OPS; ++i)
                    ops[i] = (krt_op){.kind = custom ? KRT_CUSTOM : KRT_KERNEL,
                                      .fn = take_long,
                                      .chunks = 1,
                                      .core_slot = -1,
                                      .cost_ns = 20000,
                                      .flags = known ? 0 : KRT_UNKNOWN_COST};
                krt_op beside = {.fn = take_long, .chunks = 1, .core_slot = -1, .cost_ns = 20000,
                                 .flags = KRT_HOST_PARALLEL_SAFE};
                krt_plan *body = make_plan(ops, 1, counts), *bodies[] = {body};
                krt_region region = {.bodies = bodies, .n_bodies = 1, .count = ITERATIONS,
                                     .count_slot = -1, .condition_slot = -1, .choice_slot = -1};
                loop_op.region = &region;
                ops[1] = loop_op;
                ops[2] = beside; /* so that there is a choice between threads */
                asking = make_plan(ops, OPS, counts);
                asked = 0;
                krt_test_always_parallel(parallel);
                run_plan(asking);
                CHECK(known ? asked < 4
                            : asked >= ITERATIONS + OPS - 2 && asked <= ITERATIONS + OPS);
                krt_plan_destroy(asking);
                krt_plan_destroy(body);
            }
    krt_test_always_parallel(false);
}

/* Kernels of a plan and of its body change together, or stay. */
static void test_exchange(void)
{
    plans made;
    krt_fault fault;
    size_t none[] = {7}, put_at[] = {1}, all_at[] = {0};
    krt_op item = {.fn = take_long, .vals = (int64_t[]){0}, .n_vals = 1, .chunks = 1,
                   .core_slot = 0};
    CHECK(make(&made, false, &fault) == KRT_OK);
    krt_exchange both[] = {{.plan = made.inner, .where = put_at, .items = &item, .n = 1},
                           {.plan = made.inner, .where = none, .items = &item, .n = 1}};
    CHECK(krt_exchange_all(both, 2, &fault) == KRT_INVALID && fault.op == 7);
    both[1].where = all_at;
    for (long nth = 1; nth <= 4; ++nth) {
        krt_test_fail_alloc(nth);
        CHECK(krt_exchange_all(both, 2, &fault) == KRT_NO_MEMORY);
    }
    krt_test_fail_alloc(0);
    fill(false);
    run_plan(made.outer);
    check_results();
    both[1] = both[0];
    both[1].where = all_at;
    CHECK(krt_exchange_all(both, 1, &fault) == KRT_OK);
    CHECK(krt_exchange_all(both + 1, 1, &fault) == KRT_OK);
    fill(false);
    asking = made.outer;
    memset(ys, 0, sizeof ys);
    run_plan(made.outer);
    CHECK(!ys[0][0] && memcmp(ys, wanted, sizeof ys));
    destroy(&made);
}

static void test_samples(void)
{
    plans made;
    krt_fault fault;
    size_t failed_op;
    krt_sample samples[4];
    CHECK(make(&made, false, &fault) == KRT_OK);
    CHECK(krt_plan_n_samples(made.outer) == 4);
    for (int parallel = 0; parallel < 2; ++parallel) {
        krt_test_always_parallel(parallel);
        fill(false);
        CHECK(run_sampled(made.outer, samples, &failed_op) == KRT_OK);
        check_results();
        CHECK(samples[0].runs == 1 && samples[1].runs == OUTER);
        CHECK(samples[2].runs == ROWS && samples[3].runs == ROWS);
        CHECK(samples[2].elapsed_ns + samples[3].elapsed_ns > 0);
        CHECK(samples[1].elapsed_ns <= samples[0].elapsed_ns);
        CHECK(samples[0].start_ns <= samples[1].start_ns);
        CHECK(samples[1].start_ns <= samples[2].start_ns);
    }
    krt_test_always_parallel(false);
    destroy(&made);
}

#ifndef KRT_NO_THREADS
static void *on_small_stack(void *unused)
{
    plans made;
    krt_fault fault;
    (void)unused;
    CHECK(make(&made, false, &fault) == KRT_OK);
    krt_plan_need_stack(made.outer, 400 << 10);
    for (int i = 0; i < 10; ++i) {
        krt_sample samples[4];
        size_t failed_op;
        fill(false);
        run_plan(made.outer);
        check_results();
        fill(false);
        CHECK(run_sampled(made.outer, samples, &failed_op) == KRT_OK);
        check_results();
    }
    destroy(&made);
    return NULL;
}

static void test_small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstacksize(&attributes, 256 << 10));
    CHECK(!pthread_create(&thread, &attributes, on_small_stack, NULL));
    CHECK(!pthread_join(thread, NULL));
    pthread_attr_destroy(&attributes);
}
#endif

static void test_allocations(void)
{
    for (long nth = 1;; ++nth) {
        plans made;
        krt_fault fault;
        krt_test_fail_alloc(nth);
        krt_status status = make(&made, false, &fault);
        krt_test_fail_alloc(0);
        if (!status) {
            CHECK(nth > 20);
            krt_test_fail_alloc(1);
            fill(false);
            run_plan(made.outer);
            krt_test_fail_alloc(0);
            check_results();
            destroy(&made);
            return;
        }
        CHECK(status == KRT_NO_MEMORY && !made.outer);
        /* What was made is still nobody's. */
        CHECK(!made.middle || !made.middle->parent);
        CHECK(made.middle || !made.inner || !made.inner->parent);
        destroy(&made);
    }
}

static void expect_invalid(krt_region region, krt_plan *body)
{
    krt_plan *bodies[] = {body, body}, *plan;
    void *const bufs[] = {anything, anything};
    krt_fault fault;
    region.bodies = bodies;
    krt_op op = {.kind = KRT_REGION, .bufs = bufs, .n_bufs = 2, .chunks = 1, .core_slot = -1,
                 .region = &region};
    CHECK(krt_plan_create(&op, 1, quiet_host, &plan, &fault) == KRT_INVALID);
    CHECK(!plan && !strcmp(fault.field, "region") && !body->parent);
}

static void test_what_is_invalid(void)
{
    void *const bufs[] = {anything, anything};
    const krt_op copy = {.kind = KRT_COPY, .bufs = bufs, .n_bufs = 2, .vals = (int64_t[]){8},
                         .n_vals = 1, .chunks = 1, .core_slot = -1};
    krt_plan *body = make_plan(&copy, 1, quiet_host);
    const krt_region none = {.count = 3, .count_slot = -1, .condition_slot = -1,
                             .choice_slot = -1};
    krt_region region = none;
    expect_invalid(region, body); /* no body */
    region.n_bodies = 2;
    expect_invalid(region, body); /* and no choice */
    region.choice_slot = 1;
    expect_invalid(region, body); /* the same body twice */
    region = none;
    region.n_bodies = 1;
    region.count = -1;
    expect_invalid(region, body);
    region.count = 1;
    region.count_slot = 2;
    expect_invalid(region, body);
    region.count_slot = -1;
    region.condition_slot = -2;
    expect_invalid(region, body);
    region.condition_slot = -1;
    region.initial = &(krt_initial){.dst = 2};
    region.n_initial = 1;
    expect_invalid(region, body);
    region.n_initial = 0;
    region.n_bindings = 1;
    region.count = 3;
    const krt_binding bad[] = {
        {.body = 1}, {.op = 1}, {.at = 2}, {.slot = 2}, {.slot = KRT_ITERATION, .stride = 8},
        {.stride = INT64_MAX / 2}, {.stride = INT64_MIN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        region.bindings = bad + i;
        expect_invalid(region, body);
    }
    krt_plan_destroy(body);
    CHECK(krt_test_live_allocs() == 0);
}

int main(void)
{
    krt_set_num_threads(4);
    test_what_is_invalid();
    test_loops();
    test_failure();
    test_interrupt();
    test_unknown_costs();
    test_exchange();
    test_samples();
#ifndef KRT_NO_THREADS
    test_small_stack();
#endif
    test_allocations();
    return 0;
}
