/* test_chains.c - chains of ops that go slice by slice, among other ops: the same bytes as one op
 * after the other, serially and on several threads; their samples; chains that are none any more;
 * what is refused. */
#include "check.h"

static krt_status exchange(krt_plan *plan, const size_t *where, const krt_op *items, size_t n,
                           krt_fault *fault)
{
    return krt_exchange_all(
        &(krt_exchange){.plan = plan, .where = where, .items = items, .n = n}, 1, fault);
}

enum { SLICES = 16, SLICE = 32, ROWS = 8, MOST_OPS = 40, MOST_CHUNKS = 3 * SLICES };
enum { ROW = SLICES * SLICE };

static uint8_t memory[ROWS][ROW], expected[ROWS][ROW];

/* A chunk, vals[0] of vals[1], of target = 5 * target + 3 * source + vals[2]. */
static void mix(void *const *bufs, const int64_t *vals)
{
    uint8_t *target = bufs[0];
    const uint8_t *source = bufs[1];
    int64_t begin = ROW * vals[0] / vals[1], end = ROW * (vals[0] + 1) / vals[1];
    for (int64_t i = begin; i < end; ++i)
        target[i] = (uint8_t)(target[i] * 5 + source[i] * 3 + vals[2]);
}

/* The whole of a row moves on by one byte: each needs all of what is before. */
static void rotate(void *const *bufs, const int64_t *vals)
{
    uint8_t *target = bufs[0], last = target[ROW - 1];
    (void)vals;
    memmove(target + 1, target, ROW - 1);
    target[0] = last;
}

typedef struct generated {
    krt_op ops[MOST_OPS];
    void *bufs[MOST_OPS][2];
    int64_t vals[MOST_OPS][3];
    size_t deps[MOST_OPS][2 * MOST_OPS];
    size_t rows[MOST_OPS][2];
    size_t n;
} generated;

static bool meet(const generated *g, size_t a, size_t b)
{
    return g->rows[a][0] == g->rows[b][0] || g->rows[a][0] == g->rows[b][1] ||
           g->rows[a][1] == g->rows[b][0];
}

static void add_dep(generated *g, size_t op, size_t dep)
{
    krt_op *at = &g->ops[op];
    for (size_t i = 0; i < at->n_deps; ++i)
        if (at->deps[i] == dep)
            return;
    g->deps[op][at->n_deps++] = dep;
}

static void add_op(generated *g, size_t first, int64_t slices)
{
    size_t i = g->n++;
    int64_t chunks = slices ? slices * (1 + random_below(3)) : 1;
    bool whole = !slices && random_below(2);
    g->rows[i][0] = random_below(ROWS);
    g->rows[i][1] = whole ? g->rows[i][0] : random_below(ROWS);
    g->ops[i] = (krt_op){.fn = whole ? rotate : mix, .bufs = g->bufs[i], .n_bufs = 2,
                         .vals = g->vals[i], .n_vals = 3, .chunks = chunks, .core_slot = 0,
                         .flags = KRT_HOST_PARALLEL_SAFE, .deps = g->deps[i], .slices = slices,
                         .cost_ns = random_below(3) ? random_below(400000) : 0};
    g->bufs[i][0] = memory[g->rows[i][0]];
    g->bufs[i][1] = memory[g->rows[i][1]];
    memcpy(g->vals[i], (int64_t[]){0, chunks, random_below(256)}, sizeof g->vals[i]);
    for (size_t k = 0; k < i; ++k)
        if (meet(g, k, i)) {
            add_dep(g, i, k);
            if (k < first)
                add_dep(g, first, k);
        }
    if (i > first) {
        g->ops[i].flags |= KRT_FOLLOWS;
        add_dep(g, i, first);
    }
}

static void generate(generated *g)
{
    memset(g, 0, sizeof *g);
    while (g->n < MOST_OPS) {
        size_t first = g->n, left = random_below(3) ? 1 + random_below(8) : 0;
        int64_t slices = left ? 1 << random_below(5) : 0;
        do
            add_op(g, first, slices);
        while (left-- > 1 && g->n < MOST_OPS);
    }
}

static void expect_run(const generated *g)
{
    for (size_t i = 0; i < g->n; ++i) {
        void *bufs[] = {expected[g->rows[i][0]], expected[g->rows[i][1]]};
        g->ops[i].fn(bufs, (int64_t[]){0, 1, g->vals[i][2]});
    }
    CHECK(!memcmp(memory, expected, sizeof memory));
}

/* Ops of a chain have samples that follow each other, and the time of all of it among them. */
static void check_samples(const generated *g, const krt_sample *samples)
{
    for (size_t i = 0; i < g->n; ++i) {
        CHECK(samples[i].chunks == g->ops[i].chunks && samples[i].runs == 1);
        CHECK(samples[i].elapsed_ns >= 0 && samples[i].start_ns >= 0);
        for (size_t d = 0; d < g->ops[i].n_deps; ++d) {
            const krt_sample *dep = samples + g->deps[i][d];
            CHECK(dep->start_ns + dep->elapsed_ns <= samples[i].start_ns);
        }
    }
}

static void run_all_ways(const generated *g, krt_plan *plan)
{
    krt_sample samples[MOST_OPS];
    size_t failed_op;
    for (int t = 0; t < 4; ++t) {
        if (t % 2) {
            CHECK(run_sampled(plan, samples, &failed_op) == KRT_OK);
            check_samples(g, samples);
        } else {
            run_plan(plan);
        }
        expect_run(g);
    }
}

/* Some op gets another number of chunks, or its place is taken by the same code in more of them. */
static void change(generated *g, krt_plan *plan)
{
    krt_fault fault;
    size_t op = random_below((uint32_t)g->n);
    int64_t chunks = 1 + random_below(MOST_CHUNKS);
    if (g->ops[op].fn == rotate)
        return;
    g->ops[op].chunks = g->vals[op][1] = chunks;
    if (random_below(2)) {
        CHECK(krt_plan_set_chunks(plan, op, chunks, &fault) == KRT_OK);
        CHECK(krt_plan_set_value(plan, op, 1, chunks, &fault) == KRT_OK);
        return;
    }
    krt_op item = {.fn = mix, .vals = g->vals[op], .n_vals = 3, .chunks = chunks, .core_slot = 0};
    if (random_below(2) && krt_plan_slices(plan, op))
        item.slices = g->ops[op].slices;
    CHECK(exchange(plan, &op, &item, 1, &fault) == KRT_OK);
}

static void test_random_chains(void)
{
    static generated g;
    for (long i = rounds("KRT_ROUNDS", 100); i > 0; --i) {
        generate(&g);
        for (size_t r = 0; r < ROWS; ++r)
            for (size_t k = 0; k < ROW; ++k)
                memory[r][k] = expected[r][k] = (uint8_t)random_below(256);
        krt_plan *plan = make_plan(g.ops, g.n, quiet_host);
        run_all_ways(&g, plan);
        for (int k = 0; k < 3; ++k) {
            change(&g, plan);
            run_all_ways(&g, plan);
        }
        krt_plan_destroy(plan);
    }
}

/* ---- The order --------------------------------------------------------------------------- */

static int64_t order[2 * SLICES];
static _Atomic size_t n_done;

static void note(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    order[n_done++] = vals[0] * 2 + vals[1];
}

static void test_order(void)
{
    const int64_t first[] = {0, 0}, second[] = {0, 1};
    const size_t dep[] = {0};
    krt_op ops[2];
    for (int i = 0; i < 2; ++i)
        ops[i] = (krt_op){.fn = note, .vals = i ? second : first, .n_vals = 2, .chunks = SLICES,
                          .core_slot = 0, .slices = SLICES / 2, .flags = KRT_HOST_PARALLEL_SAFE};
    ops[1].flags |= KRT_FOLLOWS;
    ops[1].deps = dep;
    ops[1].n_deps = 1;
    krt_plan *plan = make_plan(ops, 2, quiet_host);
    n_done = 0;
    run_plan(plan);
    for (int64_t i = 0; i < 2 * SLICES; ++i) {
        int64_t slice = i / 4, op = i % 4 / 2, chunk = 2 * slice + i % 2;
        CHECK(order[i] == chunk * 2 + op);
    }
    krt_fault fault;
    CHECK(krt_plan_set_chunks(plan, 1, SLICES / 2, &fault) == KRT_OK);
    n_done = 0;
    run_plan(plan);
    CHECK(n_done == SLICES + SLICES / 2);
    for (int64_t i = 0; i < SLICES; ++i)
        CHECK(order[i] == i * 2);
    krt_plan_destroy(plan);
}

/* Other code with as many slices leaves a chain one, and all of it can be made one again. */
static void test_exchange(void)
{
    static const size_t where[] = {0, 1};
    const int64_t vals[] = {0, 8, 7};
    const size_t dep[] = {0};
    void *const bufs[] = {memory, memory};
    krt_op ops[2], items[2];
    krt_fault fault;
    for (int i = 0; i < 2; ++i) {
        ops[i] = (krt_op){.fn = mix, .bufs = bufs, .n_bufs = 2, .vals = vals,
                          .n_vals = 3, .chunks = 8, .core_slot = 0, .slices = 8,
                          .flags = KRT_HOST_PARALLEL_SAFE | (i ? KRT_FOLLOWS : 0),
                          .deps = dep, .n_deps = (size_t)i};
    }
    krt_plan *plan = make_plan(ops, 2, quiet_host);
    for (int i = 0; i < 2; ++i)
        items[i] = (krt_op){.fn = mix, .vals = vals, .n_vals = 3, .chunks = 8, .core_slot = 0,
                            .slices = 8};
    CHECK(exchange(plan, where + 1, items, 1, &fault) == KRT_OK);
    CHECK(krt_plan_slices(plan, 0) == 8 && krt_plan_slices(plan, 1) == 8);
    CHECK(krt_plan_set_chunks(plan, 0, 8, &fault) == KRT_OK && krt_plan_slices(plan, 1) == 8);
    items[0].slices = 16;
    CHECK(exchange(plan, where, items, 1, &fault) == KRT_INVALID);
    items[0].slices = -1;
    CHECK(exchange(plan, where, items, 1, &fault) == KRT_INVALID);
    CHECK(krt_plan_slices(plan, 0) == 8);
    krt_test_fail_alloc(1);
    items[0].slices = 0;
    CHECK(exchange(plan, where, items, 1, &fault) == KRT_NO_MEMORY);
    krt_test_fail_alloc(0);
    CHECK(krt_plan_slices(plan, 0) == 8);
    CHECK(exchange(plan, where, items, 1, &fault) == KRT_OK);
    CHECK(!krt_plan_slices(plan, 0) && !krt_plan_slices(plan, 1));
    for (int i = 0; i < 2; ++i)
        items[i].slices = 4;
    CHECK(exchange(plan, where, items, 2, &fault) == KRT_OK);
    CHECK(krt_plan_slices(plan, 0) == 4 && krt_plan_slices(plan, 1) == 4);
    CHECK(krt_plan_set_chunks(plan, 1, 4, &fault) == KRT_OK);
    CHECK(!krt_plan_slices(plan, 0) && !krt_plan_slices(plan, 1));
    krt_plan_destroy(plan);
}

/* ---- Stopping within a chain ------------------------------------------------------------- */

static void burn(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
    ++n_done;
    int64_t until = krt_clock_ns() + 5000000;
    while (krt_clock_ns() < until)
        krt_relax();
}

static krt_status stop_now(void *self)
{
    (void)self;
    return KRT_INTERRUPTED;
}

/* Of a chain of half a second no more is run than the slices that threads are at. */
static void test_interrupt(int threads)
{
    const int64_t vals[] = {0};
    const size_t dep[] = {0};
    krt_op ops[2];
    for (int i = 0; i < 2; ++i)
        ops[i] = (krt_op){.fn = burn, .vals = vals, .n_vals = 1, .chunks = 50,
                          .core_slot = 0, .slices = 50, .flags = KRT_HOST_PARALLEL_SAFE,
                          .cost_ns = 250000000};
    ops[1].flags |= KRT_FOLLOWS;
    ops[1].deps = dep;
    ops[1].n_deps = 1;
    krt_plan *plan = make_plan(ops, 2, (krt_host){.custom = never_custom, .poll = stop_now});
    krt_sample samples[2];
    size_t failed_op;
    for (int profiled = 0; profiled < 2; ++profiled) {
        usleep(30000); /* longer than from one look to the next */
        n_done = 0;
        CHECK((profiled ? run_sampled(plan, samples, &failed_op)
                        : krt_plan_execute(plan, &failed_op)) == KRT_INTERRUPTED);
        CHECK(threads > 1 ? n_done < 100 : n_done == 2);
    }
    krt_plan_destroy(plan);
}

/* ---- What is refused --------------------------------------------------------------------- */

static void refuse(const krt_op *ops, size_t n, size_t op, const char *field)
{
    krt_plan *plan;
    krt_fault fault = {0};
    CHECK(krt_plan_create(ops, n, quiet_host, &plan, &fault) == KRT_INVALID && !plan);
    CHECK(fault.op == op && !strcmp(fault.field, field));
}

static void test_refusals(void)
{
    const int64_t vals[] = {0, 1, 0};
    const size_t on_first[] = {1}, on_both[] = {1, 0}, on_outside[] = {0};
    const krt_op outside = {.kind = KRT_NOP, .core_slot = -1};
    const krt_op first = {.fn = mix, .bufs = (void *[]){memory, memory}, .n_bufs = 2, .vals = vals,
                          .n_vals = 3, .chunks = 8, .core_slot = 0, .slices = 4,
                          .flags = KRT_HOST_PARALLEL_SAFE};
    krt_op second = first;
    second.flags |= KRT_FOLLOWS;
    second.deps = on_first;
    second.n_deps = 1;
    const krt_op good[] = {outside, first, second};
    krt_op ops[3];
    krt_plan_destroy(make_plan(good, 3, quiet_host));

    enum { SAFE = KRT_HOST_PARALLEL_SAFE, NEXT = SAFE | KRT_FOLLOWS };
    static const struct {
        size_t changed;
        int64_t slices, chunks;
        unsigned flags;
        size_t refused;
        const char *field;
    } cases[] = {
        {0, 1, 1, 0, 0, "slices"},
        {1, 3, 8, SAFE, 1, "slices"},
        {1, -4, 8, SAFE, 1, "slices"},
        {1, 4, 0, SAFE, 1, "slices"},
        {1, 4, 8, 0, 1, "slices"},
        {1, 4, 8, SAFE | KRT_COMMIT, 1, "slices"},
        {2, 4, 8, NEXT | KRT_MAY_FAIL, 2, "slices"},
        {2, 8, 8, NEXT, 2, "flags"},
        {1, 0, 8, SAFE, 2, "flags"},
        {1, 4, 8, NEXT, 1, "flags"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        memcpy(ops, good, sizeof ops);
        krt_op *op = ops + cases[i].changed;
        op->slices = cases[i].slices;
        op->chunks = cases[i].chunks;
        op->flags = cases[i].flags;
        refuse(ops, 3, cases[i].refused, cases[i].field);
    }
    refuse(&second, 1, 0, "deps");
    memcpy(ops, good, sizeof ops), ops[2].deps = on_outside;
    refuse(ops, 3, 2, "deps");
    memcpy(ops, good, sizeof ops), ops[2].deps = on_both, ops[2].n_deps = 2;
    refuse(ops, 3, 2, "deps");
    ops[1].deps = on_outside, ops[1].n_deps = 1;
    krt_plan_destroy(make_plan(ops, 3, quiet_host));
}

static void test_allocations(void)
{
    static generated g;
    generate(&g);
    for (long nth = 1;; ++nth) {
        krt_plan *plan;
        krt_fault fault;
        krt_test_fail_alloc(nth);
        krt_status status = krt_plan_create(g.ops, g.n, quiet_host, &plan, &fault);
        krt_test_fail_alloc(0);
        if (!status) {
            krt_plan_destroy(plan);
            CHECK(nth > 5 && krt_test_live_allocs() == 0);
            return;
        }
        CHECK(status == KRT_NO_MEMORY && krt_test_live_allocs() == 0);
    }
}

int main(void)
{
    static const int thread_counts[] = {1, 2, 3, 8};
    test_refusals();
    test_allocations();
    test_exchange();
    krt_test_set_pool_limit(1);
    test_order();
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; ++t) {
        krt_test_set_pool_limit(thread_counts[t]);
        test_interrupt(thread_counts[t]);
        for (int always = 0; always < 2; ++always) {
            krt_test_always_parallel(always);
            test_random_chains();
        }
    }
    return 0;
}
