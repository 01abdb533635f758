/* check.h - what the C tests share: a check that ends the process, random numbers, plans. */
#ifndef KRT_TEST_CHECK_H
#define KRT_TEST_CHECK_H

#define _DEFAULT_SOURCE
#include "krt.h"
#include "plan.h"
#include "platform.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

/* How long what must happen is waited for, however busy the machine is. */
#define PATIENCE_S 150
#define PATIENCE_NS (PATIENCE_S * INT64_C(1000000000))

/* xorshift64*: the same graphs on every machine. */
static _Thread_local uint64_t random_state = 88172645463325252u;

static inline uint32_t random_below(uint32_t bound)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 2685821657736338717u) >> 33) % bound;
}

static inline krt_status never_custom(void *self, size_t op)
{
    (void)self;
    (void)op;
    return KRT_CUSTOM_FAILED;
}

static inline krt_status never_stop(void *self)
{
    (void)self;
    return KRT_OK;
}

static const krt_host quiet_host = {.self = NULL, .custom = never_custom, .poll = never_stop};

/* Before any test: what plans estimate with. */
__attribute__((constructor)) static void set_thread_costs(void)
{
    krt_set_thread_costs(
        (krt_thread_costs){.hand_over_ns = 500, .chunk_ns = 8000, .part_ns = 8000, .wake_ns = 80000});
}

static inline krt_plan *make_plan(const krt_op *ops, size_t n, krt_host host)
{
    krt_plan *plan;
    krt_fault fault = {0};
    krt_status status = krt_plan_create(ops, n, host, &plan, &fault);
    if (status == KRT_INVALID)
        fprintf(stderr, "op %zu: %s: %s\n", fault.op, fault.field, fault.reason);
    CHECK(status == KRT_OK);
    return plan;
}

static inline void run_plan(krt_plan *plan)
{
    size_t failed_op;
    CHECK(krt_plan_execute(plan, &failed_op) == KRT_OK);
}

static inline krt_status run_sampled(krt_plan *plan, krt_sample *samples, size_t *failed_op)
{
    return krt_plan_execute_profiled(plan, &(krt_profile){.samples = samples}, failed_op);
}

static inline void expect_exit(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A test in a forked child, which has one thread whatever its parent has. */
static inline void in_child(void (*test)(void))
{
    pid_t child = fork();
    if (!child) {
        alarm(PATIENCE_S);
        test();
        _exit(0);
    }
    expect_exit(child);
}

/* The default of `name`'s environment variable is for CI; a soak sets more. */
static inline long rounds(const char *name, long usual)
{
    const char *text = getenv(name);
    return text ? atol(text) : usual;
}

#endif
