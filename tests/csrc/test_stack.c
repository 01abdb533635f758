/* test_stack.c - plans whose kernels need more stack than the calling thread has left. */
#include "check.h"
#include "thread.h"

enum { DEEP = 512 << 10, SMALL = 96 << 10, LARGE = 2 << 20, OPS = 40 };

#if defined(__SANITIZE_THREAD__)
enum { FORKS = false }; /* it does not support new threads in a child of a process that had some */
#else
enum { FORKS = true };
#endif

static int64_t calls[OPS];
static pthread_t caller, ran_on;
static int elsewhere;
static size_t fork_at;
static bool stops;

/* Touches all that it said it needs, from the far end on. */
static void deep(void *const *bufs, const int64_t *vals)
{
    volatile char array[DEEP];
    (void)bufs;
    for (size_t i = 0; i < DEEP; i += 1024)
        array[i] = (char)vals[0];
    calls[vals[0]] += array[0] == (char)vals[0];
    ran_on = pthread_self();
    elsewhere += !pthread_equal(ran_on, caller);
}

static krt_status custom(void *self, size_t op)
{
    (void)self;
    CHECK(pthread_equal(pthread_self(), caller));
    ++calls[op];
    if (op == fork_at && FORKS) {
        pid_t child = fork();
        if (child)
            expect_exit(child);
        else
            fork_at = OPS + 1; /* here the plan goes on as it does in the parent */
    }
    return KRT_OK;
}

static krt_status poll_host(void *self)
{
    (void)self;
    CHECK(pthread_equal(pthread_self(), caller));
    return stops ? KRT_INTERRUPTED : KRT_OK;
}

/* Every fifth op is a custom one, and the estimates have the host polled in between. */
static krt_plan *make_deep(void)
{
    static int64_t numbers[OPS];
    krt_op ops[OPS];
    for (size_t i = 0; i < OPS; ++i) {
        numbers[i] = (int64_t)i;
        ops[i] = (krt_op){.kind = i % 5 == 4 ? KRT_CUSTOM : KRT_KERNEL,
                          .fn = deep,
                          .vals = numbers + i,
                          .n_vals = i % 5 != 4,
                          .chunks = 1,
                          .core_slot = -1,
                          .flags = i % 5 == 4 ? 0 : KRT_HOST_PARALLEL_SAFE,
                          .cost_ns = 400000};
    }
    krt_plan *plan = make_plan(ops, OPS, (krt_host){.custom = custom, .poll = poll_host});
    krt_plan_need_stack(plan, DEEP);
    krt_plan_need_stack(plan, 1);
    return plan;
}

static void check_calls(int64_t times)
{
    for (size_t i = 0; i < OPS; ++i)
        CHECK(calls[i] == times);
}

/* What follows where the system gives no thread, asked for by a thread that has none yet. */
static void fail_to_start(krt_plan *plan)
{
    krt_sample samples[OPS];
    size_t failed_op;
    krt_test_fail_thread(1);
    CHECK(krt_plan_execute(plan, &failed_op) == KRT_NO_STACK);
    krt_test_fail_thread(1);
    CHECK(run_sampled(plan, samples, &failed_op) == KRT_NO_STACK);
    krt_test_fail_thread(0);
    check_calls(0);
    run_plan(plan);
    check_calls(1);
    pthread_t first = ran_on;
    krt_test_fail_thread(1); /* the thread is kept, so that none is started */
    run_plan(plan);
    krt_test_fail_thread(0);
    CHECK(pthread_equal(first, ran_on));
    memset(calls, 0, sizeof calls);
}

static void *run_many(void *argument)
{
    const bool *enough = argument;
    krt_plan *plan = make_deep();
    krt_sample samples[OPS];
    size_t failed_op;
    caller = pthread_self();
    elsewhere = 0;
    memset(calls, 0, sizeof calls);
    CHECK(krt_stack_has(DEEP) == *enough);
    fork_at = OPS;
    if (!*enough)
        fail_to_start(plan);
    elsewhere = 0;
    for (int64_t i = 1; i <= 20; ++i) {
        fork_at = i % 7 ? OPS : 4 + 5 * (size_t)i % OPS;
        run_plan(plan);
        fork_at = OPS;
        check_calls(2 * i - 1);
        CHECK(run_sampled(plan, samples, &failed_op) == KRT_OK);
        check_calls(2 * i);
        CHECK(samples[0].chunks == 1 && samples[0].worker == 0);
    }
    CHECK((elsewhere == 0) == *enough);
    if (!*enough) {
        struct timespec nap = {.tv_nsec = 30000000}; /* longer than from one poll to the next */
        stops = true;
        nanosleep(&nap, NULL);
        CHECK(krt_plan_execute(plan, &failed_op) == KRT_INTERRUPTED);
        stops = false;
    }
    krt_plan_destroy(plan);
    CHECK(krt_test_live_allocs() == 0);
    return NULL;
}

static void with_stack(size_t nbytes, bool enough)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstacksize(&attributes, nbytes));
    CHECK(!pthread_create(&thread, &attributes, run_many, &enough));
    CHECK(!pthread_join(thread, NULL));
    pthread_attr_destroy(&attributes);
}

/* Where nothing tells a thread where its stack lies. */
static void *look_in_vain(void *argument)
{
    (void)argument;
    CHECK(!krt_stack_has(1)); /* it might be anywhere */
    krt_test_hide_stacks(false);
    CHECK(!krt_stack_has(1)); /* it does not look again */
    return NULL;
}

/* The first thread's stack is found without the system's help. */
static void assume(void)
{
    pthread_t thread;
    krt_test_hide_stacks(true);
    CHECK(krt_stack_has(DEEP) && !krt_stack_has(SIZE_MAX));
    CHECK(!pthread_create(&thread, NULL, look_in_vain, NULL));
    CHECK(!pthread_join(thread, NULL));
}

int main(void)
{
    krt_set_num_threads(1);
    in_child(assume); /* before this thread has looked for its own */
    with_stack(SMALL, false); /* first, so that it cannot be given a larger one that was left */
    with_stack(LARGE, true);
    CHECK(krt_stack_has(DEEP)); /* the main thread */
    CHECK(!krt_stack_has(SIZE_MAX));
    return 0;
}
