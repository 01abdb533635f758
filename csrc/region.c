/* region.c - control-flow regions: ops that execute body plans, as a loop or as a choice.
 *
 * The loop writes addresses directly into the tables of the body: all bound addresses before the
 * first iteration, and those with a stride in each iteration. That works because tables of pointers
 * never move. So an iteration of a small body costs its kernels, one addition per strided address
 * and one check of the condition. */
#include "plan.h"

#include "platform.h"

#include <string.h>

/* Minimum estimate of an iteration: the clock is read at most every POLL_OPS iterations. */
#define LEAST_ITERATION_NS (POLL_COST_NS / POLL_OPS + 1)

/* Maximum stack bytes that the core itself uses to run a body. */
#define FRAMES_BYTES 1024

typedef struct krt_bound_pointer {
    void **target;
    size_t slot;
    int64_t offset, stride;
    int64_t step; /* per iteration: the stride, or its negative */
} krt_bound_pointer;

typedef struct krt_body {
    krt_plan *plan;
    size_t begin, strided, end; /* range of its pointers; those from `strided` on have a stride */
    krt_sample *samples;       /* of one iteration */
    krt_sample *sums;          /* of all iterations of the last profiled run */
} krt_body;

struct krt_loop {
    krt_body *bodies;
    size_t n_bodies;
    int64_t count;
    bool reverse;
    int64_t count_slot, condition_slot, choice_slot;
    krt_initial *initial;
    size_t n_initial;
    krt_bound_pointer *pointers;
    krt_sample *samples; /* of all bodies */
    int64_t iteration;   /* its number */
    krt_failure failure;
};

/* ---- Making ------------------------------------------------------------------------------ */

static krt_status invalid(krt_fault *fault, size_t op, const char *reason)
{
    *fault = (krt_fault){.op = op, .field = "region", .reason = reason};
    return KRT_INVALID;
}

static bool is_slot(int64_t slot, const krt_op *op)
{
    return slot >= -1 && (slot < 0 || (size_t)slot < op->n_bufs);
}

static bool moves_within_memory(const krt_binding *binding, int64_t count)
{
    int64_t distance, end;
    return !__builtin_mul_overflow(binding->stride, count, &distance) &&
           !__builtin_add_overflow(distance, binding->offset, &end);
}

static krt_status check_binding(const krt_binding *binding, const krt_op *op, size_t index,
                                krt_fault *fault)
{
    const krt_region *region = op->region;
    if (binding->body >= region->n_bodies)
        return invalid(fault, index, "a binding names a body that does not exist");
    const krt_plan *body = region->bodies[binding->body];
    if (binding->op >= body->n_ops || binding->at >= body->records[binding->op].n_bufs)
        return invalid(fault, index, "a binding names a buffer that its body does not have");
    if (binding->slot == KRT_ITERATION)
        return binding->offset || binding->stride
                   ? invalid(fault, index,
                             "a binding to the iteration number must have offset 0 and stride 0")
                   : KRT_OK;
    if (binding->slot >= op->n_bufs)
        return invalid(fault, index, "a binding names a slot that the op does not have");
    if (!moves_within_memory(binding, region->count))
        return invalid(fault, index, "count * stride + offset of a binding exceeds 64 bits");
    return KRT_OK;
}

krt_status krt_region_check(const krt_op *op, size_t index, krt_fault *fault)
{
    const krt_region *region = op->region;
    if (!region || !region->n_bodies)
        return invalid(fault, index, "a region needs at least one body");
    if (region->count < 0)
        return invalid(fault, index, "count must not be negative");
    if (!is_slot(region->count_slot, op) || !is_slot(region->condition_slot, op) ||
        !is_slot(region->choice_slot, op))
        return invalid(fault, index,
                       "count_slot, condition_slot and choice_slot must be -1 or a buffer index");
    if ((region->choice_slot >= 0) != (region->n_bodies > 1))
        return invalid(fault, index,
                       "choice_slot must be set if there are several bodies, and -1 otherwise");
    for (size_t i = 0; i < region->n_bodies; ++i)
        if (!region->bodies[i])
            return invalid(fault, index, "a body is null");
    for (size_t i = 0; i < region->n_initial; ++i)
        if (region->initial[i].dst >= op->n_bufs || region->initial[i].src >= op->n_bufs)
            return invalid(fault, index, "a copy names a slot that the op does not have");
    krt_status status = KRT_OK;
    for (size_t i = 0; !status && i < region->n_bindings; ++i)
        status = check_binding(region->bindings + i, op, index, fault);
    return status;
}

/* Append the strided, or the fixed, pointers of one body at `next`; return the end. */
static size_t collect_pointers(krt_loop *loop, const krt_region *region, size_t body, bool strided,
                               size_t next)
{
    for (size_t i = 0; i < region->n_bindings; ++i) {
        const krt_binding *binding = region->bindings + i;
        if (binding->body != body || (binding->stride != 0) != strided)
            continue;
        krt_plan *plan = loop->bodies[body].plan;
        loop->pointers[next++] = (krt_bound_pointer){
            .target = plan->pointers + plan->records[binding->op].bufs + binding->at,
            .slot = binding->slot,
            .offset = binding->offset,
            .stride = binding->stride,
            .step = loop->reverse ? -binding->stride : binding->stride,
        };
    }
    return next;
}

static bool alloc_loop(krt_loop *loop, const krt_region *region, size_t n_samples)
{
    size_t nbytes[4] = {0};
    if (!krt_add_bytes(nbytes, region->n_bodies, sizeof *loop->bodies) ||
        !krt_add_bytes(nbytes + 1, region->n_initial, sizeof *loop->initial) ||
        !krt_add_bytes(nbytes + 2, region->n_bindings, sizeof *loop->pointers) ||
        !krt_add_bytes(nbytes + 3, n_samples, 2 * sizeof *loop->samples))
        return false;
    loop->bodies = krt_alloc(nbytes[0]);
    loop->initial = krt_alloc(nbytes[1]);
    loop->pointers = krt_alloc(nbytes[2]);
    loop->samples = krt_alloc(nbytes[3]);
    return loop->bodies && loop->initial && loop->pointers && loop->samples;
}

krt_status krt_loop_create(krt_plan *plan, size_t index, const krt_op *op, krt_fault *fault)
{
    const krt_region *region = op->region;
    size_t n_samples = 0;
    for (size_t i = 0; i < region->n_bodies; ++i)
        if (!krt_add_bytes(&n_samples, region->bodies[i]->n_ops, 1))
            return KRT_NO_MEMORY;
    krt_loop *loop = plan->records[index].loop = krt_alloc(sizeof *loop);
    if (!loop || !alloc_loop(loop, region, n_samples))
        return KRT_NO_MEMORY;
    loop->count = region->count;
    loop->reverse = region->reverse;
    loop->count_slot = region->count_slot;
    loop->condition_slot = region->condition_slot;
    loop->choice_slot = region->choice_slot;
    loop->n_initial = region->n_initial;
    for (size_t i = 0; i < region->n_initial; ++i)
        loop->initial[i] = region->initial[i];
    size_t next = 0;
    krt_sample *samples = loop->samples;
    for (size_t i = 0; i < region->n_bodies; ++i) {
        krt_body *body = loop->bodies + i;
        if (region->bodies[i]->parent)
            return invalid(fault, index, "a plan can be a body of only one region, and only once");
        body->plan = region->bodies[i];
        body->plan->parent = plan;
        loop->n_bodies = i + 1;
        body->begin = next;
        body->strided = collect_pointers(loop, region, i, false, body->begin);
        body->end = next = collect_pointers(loop, region, i, true, body->strided);
        body->samples = samples;
        body->sums = samples + body->plan->n_ops;
        samples += 2 * body->plan->n_ops;
    }
    return KRT_OK;
}

void krt_loop_disown(krt_loop *loop)
{
    for (size_t i = 0; loop && i < loop->n_bodies; ++i)
        loop->bodies[i].plan->parent = NULL;
}

void krt_loop_destroy(krt_loop *loop)
{
    if (!loop)
        return;
    krt_free(loop->bodies);
    krt_free(loop->initial);
    krt_free(loop->pointers);
    krt_free(loop->samples);
    krt_free(loop);
}

void krt_loop_set_threads(krt_loop *loop, int threads)
{
    for (size_t i = 0; i < loop->n_bodies; ++i)
        krt_plan_set_threads(loop->bodies[i].plan, threads);
}

size_t krt_loop_stack_bytes(const krt_loop *loop)
{
    size_t most = 0;
    for (size_t i = 0; i < loop->n_bodies; ++i) {
        size_t nbytes = loop->bodies[i].plan->stack_bytes;
        most = nbytes > most ? nbytes : most;
    }
    return most + FRAMES_BYTES;
}

/* ---- Running ----------------------------------------------------------------------------- */

/* Read an int64_t from a buffer and clamp it to 0 to `most`. */
static int64_t read_number(const void *buffer, int64_t most)
{
    int64_t number;
    memcpy(&number, buffer, sizeof number);
    return number < 0 ? 0 : number > most ? most : number;
}

static void *offset_by(void *address, int64_t offset)
{
    return (void *)((uintptr_t)address + (uintptr_t)offset);
}

static void bind(krt_loop *loop, const krt_body *body, void *const *bufs)
{
    for (size_t i = body->begin; i < body->end; ++i) {
        const krt_bound_pointer *pointer = loop->pointers + i;
        int64_t offset = pointer->offset + loop->iteration * pointer->stride;
        *pointer->target = pointer->slot == KRT_ITERATION ? &loop->iteration
                                                          : offset_by(bufs[pointer->slot], offset);
    }
}

/* Advance to the next iteration, whose number is higher or lower by one. */
static inline void advance(krt_loop *loop, const krt_body *body)
{
    loop->iteration += loop->reverse ? -1 : 1;
    for (size_t i = body->strided; i < body->end; ++i) {
        const krt_bound_pointer *pointer = loop->pointers + i;
        *pointer->target = offset_by(*pointer->target, pointer->step);
    }
}

/* State of one execution of a region. */
typedef struct execution {
    krt_plan *root;
    krt_body *body;
    const krt_context *context;
    int threads;
    int64_t iteration_ns; /* estimated time of an iteration */
    size_t failed_op;
} execution;

static krt_status run_profiled(execution *self)
{
    krt_body *body = self->body;
    size_t n = body->plan->n_ops;
    if (n)
        memset(body->samples, 0, n * sizeof *body->samples);
    krt_context context = *self->context;
    context.profile = NULL;
    int64_t start = krt_clock_ns() - context.origin_ns;
    krt_status status = krt_plan_run_profiled(body->plan, self->threads, &context, body->samples,
                                              &self->failed_op);
    for (size_t op = 0; op < n; ++op) {
        const krt_sample *sample = body->samples + op;
        krt_sample *sum = body->sums + op;
        if (!sample->chunks)
            continue;
        if (!sum->chunks)
            *sum = (krt_sample){.start_ns = start + sample->start_ns, .worker = sample->worker};
        sum->elapsed_ns += sample->elapsed_ns;
        sum->chunks = sample->chunks;
        ++sum->runs;
    }
    return status;
}

static krt_status run_iteration(execution *self)
{
    if (self->context->origin_ns)
        return run_profiled(self);
    if (self->threads > 1)
        return krt_plan_run_shared(self->body->plan, self->context, &self->failed_op);
    return krt_plan_run_serial(self->body->plan, self->context, &self->failed_op);
}

static bool holds(const unsigned char *condition) { return !condition || *condition; }

/* Whether an iteration consists only of kernel calls on this thread. */
static bool is_plain(const execution *self)
{
    return self->threads == 1 && !self->context->origin_ns && !self->context->helper &&
           self->body->plan->stops->action == STOP_END;
}

/* Run up to `n` plain iterations; the first is bound already. Return the number that began. */
static int64_t run_plain(krt_loop *loop, const krt_body *body, int64_t n,
                         const unsigned char *condition)
{
    const krt_step *begin = body->plan->steps, *end = body->plan->stops->end;
    for (int64_t i = 1;; ++i) {
        for (const krt_step *step = begin; step != end; ++step)
            step->fn(step->bufs, step->vals);
        if (i == n || !holds(condition))
            return i;
        advance(loop, body);
    }
}

/* The number of iterations to run before the next poll of the host. */
static int64_t iterations_until_poll(const execution *self)
{
    int64_t left = POLL_COST_NS - self->root->unpolled_ns;
    return left > self->iteration_ns ? left / self->iteration_ns : 1;
}

/* Run up to `n` iterations; the first is bound already. */
static krt_status run_iterations(krt_loop *loop, execution *self, int64_t n,
                                 const unsigned char *condition)
{
    bool plain = is_plain(self);
    while (holds(condition)) {
        int64_t begun = 1;
        krt_status status = KRT_OK;
        if (plain) {
            int64_t most = iterations_until_poll(self);
            begun = run_plain(loop, self->body, n < most ? n : most, condition);
        } else {
            status = run_iteration(self);
        }
        n -= begun;
        if (status || !n)
            return status;
        self->root->unpolled_ns += begun * self->iteration_ns;
        if (self->root->unpolled_ns >= POLL_COST_NS) {
            self->root->unpolled_ns = 0;
            status = krt_plan_poll(self->body->plan);
            if (status)
                return status;
        }
        advance(loop, self->body);
    }
    return KRT_OK;
}

/* The estimated time of an iteration, clamped for polling. */
static int64_t iteration_cost(krt_plan *body)
{
    int64_t cost = krt_plan_cost_ns(body);
    if (cost < LEAST_ITERATION_NS)
        return LEAST_ITERATION_NS;
    return cost > POLL_COST_NS ? POLL_COST_NS : cost;
}

krt_status krt_loop_run(krt_plan *plan, size_t op, bool quiet, const krt_context *context)
{
    const krt_record *record = plan->records + op;
    krt_loop *loop = record->loop;
    void *const *bufs = plan->pointers + record->bufs;
    for (const krt_initial *copy = loop->initial; copy != loop->initial + loop->n_initial; ++copy)
        if (bufs[copy->dst] != bufs[copy->src])
            memmove(bufs[copy->dst], bufs[copy->src], copy->nbytes);
    int64_t n = loop->count;
    if (loop->count_slot >= 0)
        n = read_number(bufs[loop->count_slot], n);
    if (!n)
        return KRT_OK;
    int64_t which = 0;
    if (loop->choice_slot >= 0)
        which = read_number(bufs[loop->choice_slot], (int64_t)loop->n_bodies - 1);
    execution self = {.root = plan, .body = loop->bodies + which, .context = context};
    while (self.root->parent)
        self.root = self.root->parent;
    loop->iteration = loop->reverse ? n - 1 : 0;
    bind(loop, self.body, bufs);
    krt_plan_begin(self.body->plan);
    self.body->plan->quiet = quiet;
    self.threads = krt_plan_threads(self.body->plan, context);
    self.iteration_ns = iteration_cost(self.body->plan);
    const unsigned char *condition =
        loop->condition_slot >= 0 ? bufs[loop->condition_slot] : NULL;
    krt_status status = run_iterations(loop, &self, n, condition);
    loop->failure = (krt_failure){
        .body = (size_t)which, .op = self.failed_op, .iteration = loop->iteration};
    return status;
}

/* ---- Results ----------------------------------------------------------------------------- */

static const krt_loop *loop_of(const krt_plan *plan, size_t op)
{
    return op < plan->n_ops ? plan->records[op].loop : NULL;
}

bool krt_region_failure(const krt_plan *plan, size_t op, krt_failure *out)
{
    const krt_loop *loop = loop_of(plan, op);
    if (loop)
        *out = loop->failure;
    return loop;
}

size_t krt_loop_n_samples(const krt_loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_bodies; ++i)
        n += krt_plan_n_samples(loop->bodies[i].plan);
    return n;
}

krt_sample *krt_loop_collect(const krt_loop *loop, krt_sample *samples)
{
    for (size_t i = 0; i < loop->n_bodies; ++i) {
        const krt_body *body = loop->bodies + i;
        size_t n = body->plan->n_ops;
        if (n)
            memcpy(samples, body->sums, n * sizeof *samples);
        samples = krt_plan_collect(body->plan, samples + n);
    }
    return samples;
}

void krt_loop_forget_samples(krt_loop *loop)
{
    for (size_t i = 0; i < loop->n_bodies; ++i) {
        krt_body *body = loop->bodies + i;
        if (body->plan->n_ops)
            memset(body->sums, 0, body->plan->n_ops * sizeof *body->sums);
        krt_plan_forget_samples(body->plan);
    }
}
