/* test_graph.c - random graphs of ops over overlapping slices of one buffer. The expected bytes
 * are computed while the graph is generated; a missing order shows as a wrong byte, or as a race
 * under ThreadSanitizer. */
#include "check.h"
#include "graph.h"

#include <pthread.h>

enum { BYTES = 512, MOST_OPS = 300, MOST_DEPS = MOST_OPS, MOST_CHUNKS = 5 };

/* Mix vals[1] bytes of a source slice into a target slice; chunk vals[0] of vals[2] does its
 * share. Slices may be the same, but share no byte otherwise. */
static void mix(void *const *bufs, const int64_t *vals)
{
    uint8_t *target = bufs[0];
    const uint8_t *source = bufs[1];
    int64_t begin = vals[1] * vals[0] / vals[2], end = vals[1] * (vals[0] + 1) / vals[2];
    for (int64_t i = begin; i < end; ++i)
        target[i] = (uint8_t)(target[i] * 5 + source[i] * 3 + vals[3]);
}

typedef struct slice {
    size_t begin, end;
} slice;

static bool overlap(slice a, slice b) { return a.begin < b.end && b.begin < a.end; }

typedef struct generated {
    krt_op ops[MOST_OPS];
    void *bufs[MOST_OPS][2];
    int64_t vals[MOST_OPS][4];
    size_t deps[MOST_OPS][MOST_DEPS];
    slice writes[MOST_OPS], reads[MOST_OPS];
    uint8_t memory[BYTES], expected[BYTES];
} generated;

static bool ordered(const generated *g, size_t before, size_t after)
{
    return overlap(g->writes[before], g->writes[after]) ||
           overlap(g->writes[before], g->reads[after]) ||
           overlap(g->reads[before], g->writes[after]);
}

/* Few, or more than there are claims. */
static int64_t some_chunks(void)
{
    return random_below(random_below(20) ? MOST_CHUNKS + 1 : 3 * MOST_CLAIMS);
}

static void generate_op(generated *g, size_t i)
{
    size_t length = 1 + random_below(48);
    size_t source = random_below((uint32_t)(BYTES - length));
    size_t target = random_below((uint32_t)(BYTES - length));
    g->writes[i] = (slice){target, target + length};
    g->reads[i] = (slice){source, source + length};
    if (overlap(g->writes[i], g->reads[i]))
        g->reads[i] = g->writes[i];
    unsigned kind = random_below(10);
    krt_op *op = &g->ops[i];
    *op = (krt_op){.kind = kind == 0 ? KRT_COPY : kind == 1 ? KRT_NOP : KRT_KERNEL,
                   .fn = mix,
                   .bufs = g->bufs[i],
                   .n_bufs = 2,
                   .vals = g->vals[i],
                   .n_vals = kind == 0 ? 1 : 4,
                   .chunks = kind < 2 ? 1 : some_chunks(),
                   .core_slot = kind < 2 ? -1 : 0,
                   .flags = random_below(30) ? KRT_HOST_PARALLEL_SAFE : 0,
                   .cost_ns = random_below(2) ? random_below(100000) : 0,
                   .deps = g->deps[i]};
    if (random_below(20) == 0)
        op->flags |= KRT_MAY_FAIL;
    if (random_below(20) == 0)
        op->flags |= KRT_COMMIT;
    g->bufs[i][0] = g->memory + g->writes[i].begin;
    g->bufs[i][1] = g->memory + g->reads[i].begin;
    int64_t vals[4] = {0, (int64_t)length, op->chunks, (int64_t)random_below(256)};
    if (op->kind == KRT_COPY)
        vals[0] = (int64_t)length;
    memcpy(g->vals[i], vals, sizeof vals);
    for (size_t k = 0; k < i; ++k)
        if (ordered(g, k, i))
            g->deps[i][op->n_deps++] = k;
}

static void expect_op(generated *g, size_t i)
{
    uint8_t *target = g->expected + g->writes[i].begin;
    const uint8_t *source = g->expected + g->reads[i].begin;
    size_t length = g->writes[i].end - g->writes[i].begin;
    if (g->ops[i].kind == KRT_COPY)
        memmove(target, source, length);
    else if (g->ops[i].kind == KRT_KERNEL && g->ops[i].chunks)
        mix((void *[]){target, (void *)source}, (int64_t[]){0, (int64_t)length, 1, g->vals[i][3]});
}

/* The claims of an op, if there are any, are all of its chunks, each once. */
static void check_claims(const krt_profile *profile, size_t op, int64_t chunks)
{
    int64_t claimed = 0;
    for (size_t i = 0; i < profile->n_claims; ++i) {
        const krt_claim_sample *one = profile->claims + i;
        if (one->op != (int64_t)op)
            continue;
        CHECK(0 <= one->begin && one->begin < one->end && one->end <= chunks);
        claimed += one->end - one->begin;
        for (size_t k = 0; k < i; ++k) {
            const krt_claim_sample *other = profile->claims + k;
            CHECK(other->op != one->op || other->end <= one->begin || one->end <= other->begin);
        }
        const krt_sample *whole = profile->samples + op;
        CHECK(one->start_ns >= 0 && one->elapsed_ns >= 0);
        CHECK(one->start_ns + one->elapsed_ns <= whole->start_ns + whole->elapsed_ns);
    }
    CHECK(!claimed || claimed == chunks);
}

static void test_graph(generated *g, size_t n, int times)
{
    memset(g, 0, sizeof *g);
    for (size_t i = 0; i < BYTES; ++i)
        g->memory[i] = g->expected[i] = (uint8_t)random_below(256);
    for (size_t i = 0; i < n; ++i)
        generate_op(g, i);
    krt_plan *plan = make_plan(g->ops, n, quiet_host);
    krt_sample samples[MOST_OPS];
    krt_profile profile = {.samples = samples};
    profile.claims = malloc((krt_plan_most_claims(plan) + 1) * sizeof *profile.claims);
    CHECK(profile.claims);
    for (int t = 0; t < times; ++t) {
        size_t failed_op;
        for (size_t i = 0; i < n; ++i)
            expect_op(g, i);
        if (t % 2)
            CHECK(krt_plan_execute_profiled(plan, &profile, &failed_op) == KRT_OK);
        else
            run_plan(plan);
        CHECK(!memcmp(g->memory, g->expected, BYTES));
    }
    for (size_t i = 0; i < n && times > 1; ++i) {
        bool runs = g->ops[i].kind != KRT_NOP && g->ops[i].chunks;
        check_claims(&profile, i, g->ops[i].chunks);
        CHECK(samples[i].chunks == (runs ? g->ops[i].chunks : 0));
        CHECK(samples[i].elapsed_ns >= 0 && samples[i].start_ns >= 0);
        for (size_t k = 0; runs && k < g->ops[i].n_deps; ++k) {
            const krt_sample *dep = &samples[g->deps[i][k]];
            CHECK(dep->start_ns + dep->elapsed_ns <= samples[i].start_ns);
        }
    }
    free(profile.claims);
    krt_plan_destroy(plan);
}

/* ---- Stopping ---------------------------------------------------------------------------- */

static _Atomic int64_t started;

static void count_start(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    atomic_fetch_add(&started, 1);
    int64_t until = krt_clock_ns() + vals[0];
    while (krt_clock_ns() < until)
        krt_relax();
}

static void set_status(void *const *bufs, const int64_t *vals)
{
    __atomic_store_n((int64_t *)bufs[0], vals[0], __ATOMIC_RELAXED);
}

static _Atomic int64_t committed;

static void commit(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
    atomic_fetch_add(&committed, 1);
}

/* n_before ops that take 20 us, one that fails, then a commit, all without edges. */
static void test_a_failing_op_comes_before_commits(void)
{
    enum { BEFORE = 20 };
    const int64_t time[] = {20000}, failure[] = {1};
    krt_op ops[BEFORE + 2];
    for (int i = 0; i < BEFORE; ++i)
        ops[i] = (krt_op){.fn = count_start, .vals = time, .n_vals = 1,
                          .chunks = 1, .core_slot = -1, .flags = KRT_HOST_PARALLEL_SAFE,
                          .cost_ns = 20000};
    ops[BEFORE] = (krt_op){.fn = set_status, .bufs = (void *[]){NULL}, .n_bufs = 1,
                           .vals = failure, .n_vals = 1, .chunks = 1, .core_slot = -1,
                           .flags = KRT_HOST_PARALLEL_SAFE | KRT_MAY_FAIL, .cost_ns = 20000};
    ops[BEFORE + 1] = (krt_op){.fn = commit, .chunks = 1, .core_slot = -1,
                               .flags = KRT_HOST_PARALLEL_SAFE | KRT_COMMIT, .cost_ns = 20000};
    krt_plan *plan = make_plan(ops, BEFORE + 2, quiet_host);
    krt_fault fault;
    for (int i = 0; i < 50; ++i) {
        size_t failed_op = 0;
        CHECK(krt_plan_set_value(plan, BEFORE, 0, i % 2, &fault) == KRT_OK);
        committed = 0;
        krt_status status = krt_plan_execute(plan, &failed_op);
        CHECK(status == (i % 2 ? KRT_OUT_OF_BOUNDS : KRT_OK));
        CHECK(committed == !(i % 2));
        CHECK(i % 2 == 0 || failed_op == BEFORE);
    }
    krt_plan_destroy(plan);
}

/* Many ops that may fail run at once; one does, and it is the one that is named. */
static void test_the_guilty_op_is_named(void)
{
    enum { OPS = 24 };
    void *const own_word[] = {NULL};
    const int64_t nothing[] = {0};
    krt_op ops[OPS];
    for (size_t i = 0; i < OPS; ++i)
        ops[i] = (krt_op){.fn = set_status, .bufs = own_word, .n_bufs = 1,
                          .vals = nothing, .n_vals = 1, .chunks = 1, .core_slot = -1,
                          .flags = KRT_HOST_PARALLEL_SAFE | KRT_MAY_FAIL, .cost_ns = 20000};
    krt_plan *plan = make_plan(ops, OPS, quiet_host);
    krt_fault fault;
    for (long i = 0; i < rounds("KRT_ROUNDS", 200) * 5; ++i) {
        size_t guilty = random_below(OPS), failed_op = OPS;
        CHECK(krt_plan_set_value(plan, guilty, 0, i + 1, &fault) == KRT_OK);
        CHECK(krt_plan_execute(plan, &failed_op) == KRT_OUT_OF_BOUNDS);
        CHECK(failed_op == guilty && krt_plan_status(plan, guilty) == i + 1);
        CHECK(krt_plan_set_value(plan, guilty, 0, 0, &fault) == KRT_OK);
        run_plan(plan);
        CHECK(krt_plan_status(plan, guilty) == 0);
    }
    CHECK(krt_plan_status(plan, OPS) == 0);
    krt_plan_destroy(plan);
}

/* ---- Which thread does what -------------------------------------------------------------- */

enum { MOST_NOTED = 300 };
static pthread_t done_by[MOST_NOTED];
static _Atomic int64_t done_count;
static int64_t done_in_turn[MOST_NOTED];

static void note_chunk(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    done_by[vals[0]] = pthread_self();
    done_in_turn[vals[0]] = atomic_fetch_add(&done_count, 1);
    int64_t until = krt_clock_ns() + vals[1];
    while (krt_clock_ns() < until)
        krt_relax();
}

/* Whether those of `mine` from `begin` to `end` were done one after the other, up or down. */
static bool in_order(pthread_t mine, int64_t begin, int64_t end, bool up)
{
    int64_t last = -1;
    for (int64_t k = begin; k < end; ++k) {
        int64_t i = up ? k : end - 1 - (k - begin);
        if (!pthread_equal(done_by[i], mine))
            continue;
        if (done_in_turn[i] < last)
            return false;
        last = done_in_turn[i];
    }
    return true;
}

/* Of an op each thread has a part, the caller the first: it does its own from the start, that of
 * the other from the end, and none of it before its own is claimed. */
static void test_threads_have_their_parts(void)
{
    static const int64_t counts[] = {2, 3, 4, 7, 63, 64};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
        int64_t chunks = counts[c], half = chunks / 2;
        const int64_t vals[] = {0, 20000};
        krt_op op = {.fn = note_chunk, .vals = vals, .n_vals = 2, .chunks = chunks, .core_slot = 0,
                     .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = 20000 * chunks};
        krt_plan *plan = make_plan(&op, 1, quiet_host);
        for (int t = 0; t < 20; ++t) {
            done_count = 0;
            run_plan(plan);
            CHECK(done_count == chunks);
            pthread_t caller = pthread_self(), other = caller;
            for (int64_t i = 0; i < chunks; ++i)
                if (!pthread_equal(done_by[i], caller))
                    other = done_by[i];
            if (pthread_equal(other, caller))
                continue; /* nobody came in time, or there are no threads */
            CHECK(in_order(caller, 0, half, true) && in_order(caller, half, chunks, false));
            CHECK(in_order(other, half, chunks, true) && in_order(other, 0, half, false));
        }
        krt_plan_destroy(plan);
    }
}

/* ---- Interrupts -------------------------------------------------------------------------- */

enum { MANY = 100 };
static _Atomic bool asked;
static pthread_t asking;

/* 1 ms of work; workers wait in the later half of the ops for the host to be asked, however rarely
 * the caller, who asks, gets a core. */
static void count_and_wait(void *const *bufs, const int64_t *vals)
{
    count_start(bufs, vals);
    int64_t until = krt_clock_ns() + PATIENCE_NS;
    while (!pthread_equal(pthread_self(), asking) && atomic_load(&started) > MANY / 2 &&
           !atomic_load(&asked) && krt_clock_ns() < until)
        usleep(100);
}

static krt_status stop_now(void *self)
{
    (void)self;
    atomic_store(&asked, true);
    return KRT_INTERRUPTED;
}

static krt_status stop_once_committed(void *self)
{
    (void)self;
    return atomic_load(&committed) ? KRT_INTERRUPTED : KRT_OK;
}

/* MANY ops without edges, of which the first is a commit where `first` says what it does. */
static krt_status interrupt(krt_kernel rest, krt_kernel first, krt_status (*poll)(void *))
{
    const int64_t time[] = {1000000};
    krt_op ops[MANY];
    for (size_t i = 0; i < MANY; ++i)
        ops[i] = (krt_op){.fn = rest, .vals = time, .n_vals = 1, .chunks = 1, .core_slot = -1,
                          .flags = KRT_HOST_PARALLEL_SAFE, .cost_ns = 1000000};
    if (first) {
        ops[0].fn = first;
        ops[0].flags |= KRT_COMMIT;
    }
    krt_plan *plan = make_plan(ops, MANY, (krt_host){.custom = never_custom, .poll = poll});
    size_t failed_op;
    started = committed = 0;
    asked = false;
    asking = pthread_self();
    krt_status status = krt_plan_execute(plan, &failed_op);
    krt_plan_destroy(plan);
    return status;
}

/* Before a commit a plan is stopped, behind one it runs to its end. Which comes first, the commit
 * or the look at the host, is up to the threads. */
static void test_interrupts(void)
{
    CHECK(interrupt(count_and_wait, NULL, stop_now) == KRT_INTERRUPTED);
    CHECK(asked && started < MANY);

    krt_status status = interrupt(count_start, commit, stop_once_committed);
    CHECK(status == KRT_OK || status == KRT_INTERRUPTED);
    CHECK(committed && started == MANY - 1);

    status = interrupt(count_start, commit, stop_now);
    CHECK(committed ? started == MANY - 1 : status == KRT_INTERRUPTED);
}

int main(void)
{
    static generated g;
    static const int thread_counts[] = {1, 2, 3, 8};
    long graphs = rounds("KRT_ROUNDS", 60);
    krt_test_always_parallel(true);
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; ++t) {
        krt_test_set_pool_limit(thread_counts[t]);
        for (long i = 0; i < graphs; ++i)
            test_graph(&g, random_below(MOST_OPS + 1), 6);
        test_a_failing_op_comes_before_commits();
        test_the_guilty_op_is_named();
        if (thread_counts[t] == 2)
            test_threads_have_their_parts();
        test_interrupts();
    }
    return 0;
}
