/* build.c - checks the description of a plan, lays it out in flat tables, and edits them. */
#include "plan.h"

#include "platform.h"
#include "pool.h"

#include <limits.h>
#include <string.h>

/* Limit of chunk counts and op indices: the thread code stores them in 32 bits. */
#define MAX_COUNT INT32_MAX

static void copy_kernel(void *const *bufs, const int64_t *vals)
{
    memmove(bufs[0], bufs[1], (size_t)vals[0]);
}

static krt_status invalid(krt_fault *fault, size_t op, const char *field, const char *reason)
{
    *fault = (krt_fault){.op = op, .field = field, .reason = reason};
    return KRT_INVALID;
}

/* ---- Checking ---------------------------------------------------------------------------- */

static krt_status check_shape(const krt_op *op, size_t index, krt_fault *fault)
{
    if (op->kind == KRT_KERNEL && !op->fn)
        return invalid(fault, index, "fn", "the address of a kernel is null");
    if (op->kind == KRT_COPY) {
        if (op->n_bufs != 2)
            return invalid(fault, index, "bufs", "a copy needs two buffers: (destination, source)");
        if (op->n_vals != 1)
            return invalid(fault, index, "vals", "a copy needs one value: (nbytes,)");
        if (op->vals[0] < 0)
            return invalid(fault, index, "vals", "nbytes is negative");
    }
    for (size_t i = 0; i < op->n_bufs; ++i)
        if (!op->bufs[i] && !(op->flags & KRT_MAY_FAIL))
            return invalid(fault, index, "bufs", "a buffer address is null");
    if (op->flags & ~(unsigned)KRT_ALL_FLAGS)
        return invalid(fault, index, "flags", "an unknown bit is set");
    if (op->cost_ns < 0)
        return invalid(fault, index, "cost_ns", "an estimate cannot be negative");
    return KRT_OK;
}

static krt_status check_chunks(int64_t chunks, bool has_core_slot, size_t index, krt_fault *fault)
{
    if (chunks < 0)
        return invalid(fault, index, "chunks", "must be 0 (skip) or more");
    if (chunks > MAX_COUNT)
        return invalid(fault, index, "chunks", "must be below 2**31");
    if (chunks > 1 && !has_core_slot)
        return invalid(fault, index, "chunks", "more than one chunk needs a core_slot");
    return KRT_OK;
}

static bool has_dep(const krt_op *op, size_t dep)
{
    for (size_t i = 0; i < op->n_deps; ++i)
        if (op->deps[i] == dep)
            return true;
    return false;
}

/* Check the pipeline fields of an op; the ops before it are already checked. */
static krt_status check_pipeline(const krt_op *ops, size_t index, krt_fault *fault)
{
    const krt_op *op = ops + index;
    bool follows = op->flags & KRT_FOLLOWS;
    if (!op->slices && !follows)
        return KRT_OK;
    if (op->slices < 1 || op->kind != KRT_KERNEL || op->chunks < 1 || op->chunks % op->slices)
        return invalid(fault, index, "slices",
                       "must divide the chunks of a kernel, or be 0 for an op without FOLLOWS");
    if ((op->flags & ~(unsigned)KRT_FOLLOWS) != KRT_HOST_PARALLEL_SAFE)
        return invalid(fault, index, "slices",
                       "the flags of the op must be HOST_PARALLEL_SAFE, with or without FOLLOWS");
    if (!follows)
        return KRT_OK;
    size_t first = index;
    while (first && ops[first].flags & KRT_FOLLOWS)
        --first;
    if (ops[first].flags & KRT_FOLLOWS || ops[index - 1].slices != op->slices)
        return invalid(fault, index, "flags",
                       "an op with FOLLOWS must have as many slices as the op before it");
    if (!has_dep(op, first))
        return invalid(fault, index, "deps",
                       "an op with FOLLOWS must depend on the first op of its pipeline");
    for (size_t i = 0; i < op->n_deps; ++i)
        if (op->deps[i] < first && !has_dep(ops + first, op->deps[i]))
            return invalid(fault, index, "deps",
                           "the first op of the pipeline lacks a dependency of this op");
    return KRT_OK;
}

static krt_status check_op(const krt_op *op, size_t index, krt_fault *fault)
{
    if ((unsigned)op->kind > KRT_REGION)
        return invalid(fault, index, "kind", "must be KERNEL, COPY, CUSTOM, NOP or REGION");
    krt_status status = check_shape(op, index, fault);
    if (!status && op->kind == KRT_REGION)
        status = krt_region_check(op, index, fault);
    if (status)
        return status;
    if (op->core_slot < -1 || (op->core_slot >= 0 && (size_t)op->core_slot >= op->n_vals))
        return invalid(fault, index, "core_slot", "must be -1 or an index into vals");
    if (op->core_slot >= 0 && op->kind != KRT_KERNEL)
        return invalid(fault, index, "core_slot", "must be -1: only a kernel has chunks");
    status = check_chunks(op->chunks, op->core_slot >= 0, index, fault);
    for (size_t i = 0; !status && i < op->n_deps; ++i)
        if (op->deps[i] >= index)
            return invalid(fault, index, "deps", "must be indices of earlier ops");
    return status;
}

/* ---- Laying out -------------------------------------------------------------------------- */

static void fill_rows(krt_plan *plan, const krt_record *record, const int64_t *vals)
{
    for (size_t chunk = 0; chunk < record->capacity; ++chunk) {
        int64_t *row = plan->rows + record->rows + chunk * record->n_vals;
        if (record->n_vals)
            memcpy(row, vals, record->n_vals * sizeof *row);
        if (record->core_slot >= 0)
            row[record->core_slot] = (int64_t)chunk;
    }
}

/* Required sizes of the tables of a plan. */
typedef struct counts {
    size_t pointers, deps, values, steps, stops, status;
} counts;

static bool count_op(counts *total, const krt_op *op)
{
    size_t capacity = op->chunks > 0 ? (size_t)op->chunks : 1;
    bool begins_pipeline = op->slices && !(op->flags & KRT_FOLLOWS);
    total->status += (op->flags & KRT_MAY_FAIL) != 0;
    return krt_add_bytes(&total->stops, 1 + (begins_pipeline ? (size_t)op->slices : 0), 1) &&
           krt_add_bytes(&total->pointers, op->n_bufs, 1) &&
           krt_add_bytes(&total->deps, op->n_deps, 1) &&
           krt_add_bytes(&total->values, op->n_vals, capacity) &&
           krt_add_bytes(&total->steps, capacity, 1);
}

static void *alloc_table(size_t count, size_t size)
{
    size_t nbytes = 0;
    return krt_add_bytes(&nbytes, count, size) ? krt_alloc(nbytes) : NULL;
}

static bool alloc_tables(krt_plan *plan, const counts *total)
{
    plan->records = alloc_table(plan->n_ops, sizeof *plan->records);
    plan->stops = alloc_table(total->stops + 1, sizeof *plan->stops);
    plan->pointers = alloc_table(total->pointers, sizeof *plan->pointers);
    plan->deps = alloc_table(total->deps, sizeof *plan->deps);
    plan->rows = alloc_table(total->values, sizeof *plan->rows);
    plan->steps = alloc_table(total->steps, sizeof *plan->steps);
    plan->status = alloc_table(total->status, sizeof *plan->status);
    plan->n_status = total->status;
    return plan->records && plan->stops && plan->pointers && plan->deps && plan->rows &&
           plan->steps && plan->status;
}

static void fill_tables(krt_plan *plan, const krt_op *ops)
{
    counts at = {0};
    for (size_t i = 0; i < plan->n_ops; ++i) {
        const krt_op *op = ops + i;
        plan->records[i] = (krt_record){
            .fn = op->kind == KRT_COPY ? copy_kernel : op->fn,
            .kind = op->kind,
            .flags = op->flags,
            .bufs = at.pointers,
            .n_bufs = op->n_bufs,
            .rows = at.values,
            .n_vals = op->n_vals,
            .deps = at.deps,
            .n_deps = op->n_deps,
            .chunks = op->kind == KRT_NOP ? 0 : (size_t)op->chunks,
            .capacity = op->chunks > 0 ? (size_t)op->chunks : 1,
            .core_slot = op->core_slot,
            .cost_ns = op->cost_ns,
            .cost_chunks = op->chunks > 0 ? op->chunks : 1,
            .slices = (size_t)op->slices,
            .most_slices = (size_t)op->slices,
            .status = op->flags & KRT_MAY_FAIL ? plan->status + at.status : NULL,
        };
        for (size_t slot = 0; slot < op->n_bufs; ++slot)
            plan->pointers[at.pointers + slot] =
                op->bufs[slot] ? op->bufs[slot] : plan->records[i].status;
        if (op->n_deps)
            memcpy(plan->deps + at.deps, op->deps, op->n_deps * sizeof *op->deps);
        fill_rows(plan, plan->records + i, op->vals);
        count_op(&at, op);
    }
}

int64_t krt_record_cost(const krt_record *record)
{
    int64_t cost;
    if (__builtin_mul_overflow(record->cost_ns / record->cost_chunks, (int64_t)record->chunks,
                               &cost))
        return INT64_MAX;
    int64_t rest = record->cost_ns % record->cost_chunks; /* below 2**31, as are the chunks */
    if (__builtin_add_overflow(cost, rest * (int64_t)record->chunks / record->cost_chunks, &cost))
        return INT64_MAX;
    return cost;
}

size_t krt_pipeline_end(const krt_plan *plan, size_t op)
{
    size_t end = op + 1;
    if (plan->records[op].slices)
        while (end < plan->n_ops && krt_follows(plan->records + end))
            ++end;
    return end;
}

int64_t krt_unit_cost(const krt_plan *plan, size_t op)
{
    int64_t cost = 0;
    if (krt_follows(plan->records + op))
        return 0;
    for (size_t end = krt_pipeline_end(plan, op); op < end; ++op)
        if (__builtin_add_overflow(cost, krt_record_cost(plan->records + op), &cost))
            return INT64_MAX;
    return cost;
}

/* Append steps of some chunks of one op at `step`. */
static krt_step *lay_chunks(const krt_plan *plan, const krt_record *record, size_t chunk,
                            size_t end, krt_step *step)
{
    for (; chunk < end; ++chunk)
        *step++ = (krt_step){.fn = record->fn,
                             .bufs = plan->pointers + record->bufs,
                             .vals = plan->rows + record->rows + chunk * record->n_vals};
    return step;
}

/* Positions of the next step and stop, and the work since the last poll of the host. */
typedef struct layout {
    krt_step *step;
    krt_stop *stop;
    int64_t since_poll_ns;
    size_t since_poll;
    bool committing;
} layout;

/* Count ops towards the next poll of the host; return whether it is due. */
static bool is_due(layout *at, size_t ops, int64_t cost_ns, unsigned flags)
{
    if (__builtin_add_overflow(at->since_poll_ns, cost_ns, &at->since_poll_ns))
        at->since_poll_ns = INT64_MAX;
    if (flags & KRT_UNKNOWN_COST)
        at->since_poll_ns = POLL_COST_NS;
    at->since_poll += ops;
    if (at->committing || (at->since_poll < POLL_OPS && at->since_poll_ns < POLL_COST_NS))
        return false;
    at->since_poll = 0;
    at->since_poll_ns = 0;
    return true;
}

/* Lay out the ops from `op` to `end` slice by slice. */
static void lay_pipeline(krt_plan *plan, size_t op, size_t end, layout *at)
{
    krt_record *first = plan->records + op, *last = plan->records + end;
    int64_t cost = krt_unit_cost(plan, op) / (int64_t)first->slices;
    size_t begin = (size_t)(at->step - plan->steps);
    for (size_t slice = 0; slice < first->slices; ++slice) {
        for (krt_record *record = first; record != last; ++record) {
            size_t n = record->chunks / record->slices;
            at->step = lay_chunks(plan, record, slice * n, (slice + 1) * n, at->step);
            record->first_step = begin;
        }
        if (is_due(at, slice ? 0 : end - op, cost, 0))
            *at->stop++ = (krt_stop){.end = at->step, .op = end - 1, .action = STOP_POLL};
    }
    first->per_slice = ((size_t)(at->step - plan->steps) - begin) / first->slices;
}

void krt_plan_lay_out(krt_plan *plan)
{
    layout at = {.step = plan->steps, .stop = plan->stops};
    plan->cost_ns = 0;
    for (size_t i = 0, next; i < plan->n_ops; i = next) {
        krt_record *record = plan->records + i;
        int64_t cost = krt_unit_cost(plan, i);
        next = krt_pipeline_end(plan, i);
        if (__builtin_add_overflow(plan->cost_ns, cost, &plan->cost_ns))
            plan->cost_ns = INT64_MAX;
        if (record->slices) {
            lay_pipeline(plan, i, next, &at);
            continue;
        }
        record->first_step = (size_t)(at.step - plan->steps);
        if (!krt_has_no_steps(record))
            at.step = lay_chunks(plan, record, 0, record->chunks, at.step);
        if (!record->chunks)
            continue;
        at.committing |= (record->flags & KRT_COMMIT) != 0;
        unsigned action = 0;
        if (record->kind == KRT_CUSTOM)
            action |= STOP_CUSTOM;
        if (record->kind == KRT_REGION)
            action |= at.committing ? STOP_REGION | STOP_QUIET : STOP_REGION;
        if (record->flags & KRT_MAY_FAIL)
            action |= STOP_CHECK;
        if (is_due(&at, 1, cost, record->flags))
            action |= STOP_POLL;
        if (action)
            *at.stop++ = (krt_stop){.end = at.step, .op = i, .action = action};
    }
    *at.stop = (krt_stop){.end = at.step, .op = plan->n_ops, .action = STOP_END};
    if (plan->graph)
        krt_graph_lay_out(plan);
    plan->stale = false;
}

static krt_status make_loops(krt_plan *plan, const krt_op *ops, krt_fault *fault)
{
    krt_status status = KRT_OK;
    for (size_t i = 0; !status && i < plan->n_ops; ++i) {
        if (ops[i].kind != KRT_REGION)
            continue;
        status = krt_loop_create(plan, i, ops + i, fault);
        if (!status)
            krt_plan_need_stack(plan, krt_loop_stack_bytes(plan->records[i].loop));
    }
    return status;
}

krt_status krt_plan_create(const krt_op *ops, size_t n, krt_host host, krt_plan **out,
                           krt_fault *fault)
{
    counts total = {0};
    *out = NULL;
    if (n > MAX_COUNT)
        return invalid(fault, 0, "ops", "a plan must have fewer than 2**31 ops");
    for (size_t i = 0; i < n; ++i) {
        krt_status status = check_op(ops + i, i, fault);
        if (!status)
            status = check_pipeline(ops, i, fault);
        if (status)
            return status;
        if (!count_op(&total, ops + i))
            return KRT_NO_MEMORY;
    }
    krt_watch_fork();
    krt_plan *plan = krt_alloc(sizeof *plan);
    if (!plan)
        return KRT_NO_MEMORY;
    plan->n_ops = n;
    plan->host = host;
    if (!alloc_tables(plan, &total)) {
        krt_plan_destroy(plan);
        return KRT_NO_MEMORY;
    }
    fill_tables(plan, ops);
    krt_status status = make_loops(plan, ops, fault);
    if (!status)
        status = krt_graph_create(plan);
    if (status) {
        for (size_t i = 0; i < n; ++i)
            krt_loop_disown(plan->records[i].loop);
        krt_plan_destroy(plan);
        return status;
    }
    krt_plan_lay_out(plan);
    *out = plan;
    return KRT_OK;
}

void krt_plan_destroy(krt_plan *plan)
{
    if (!plan)
        return;
    krt_graph_destroy(plan->graph);
    for (size_t i = 0; plan->records && i < plan->n_ops; ++i)
        krt_loop_destroy(plan->records[i].loop);
    krt_free(plan->records);
    krt_free(plan->stops);
    krt_free(plan->pointers);
    krt_free(plan->deps);
    krt_free(plan->rows);
    krt_free(plan->steps);
    krt_free(plan->status);
    krt_free(plan);
}

/* ---- Reading and editing ----------------------------------------------------------------- */

size_t krt_plan_n_ops(const krt_plan *plan) { return plan->n_ops; }

void krt_plan_set_host(krt_plan *plan, krt_host host) { plan->host = host; }

void krt_plan_set_threads(krt_plan *plan, int threads)
{
    plan->max_threads = threads < 1 ? 0 : threads;
    for (size_t i = 0; i < plan->n_ops; ++i)
        if (plan->records[i].loop)
            krt_loop_set_threads(plan->records[i].loop, threads);
}

int64_t krt_plan_cost_ns(krt_plan *plan)
{
    if (plan->stale)
        krt_plan_lay_out(plan);
    return plan->cost_ns;
}

void krt_plan_need_stack(krt_plan *plan, size_t nbytes)
{
    if (nbytes > plan->stack_bytes)
        plan->stack_bytes = nbytes;
}

static krt_status check_slot(const krt_plan *plan, size_t op, size_t slot, bool pointer,
                             krt_fault *fault)
{
    if (op >= plan->n_ops)
        return invalid(fault, op, "op", "there is no such op");
    const krt_record *record = plan->records + op;
    if (slot >= (pointer ? record->n_bufs : record->n_vals))
        return invalid(fault, op, "slot", "there is no such slot");
    return KRT_OK;
}

krt_status krt_plan_get_pointer(const krt_plan *plan, size_t op, size_t slot, void **out,
                                krt_fault *fault)
{
    krt_status status = check_slot(plan, op, slot, true, fault);
    if (!status)
        *out = plan->pointers[plan->records[op].bufs + slot];
    return status;
}

static krt_status check_pointer(const krt_plan *plan, size_t op, size_t slot, const void *address,
                                krt_fault *fault)
{
    krt_status status = check_slot(plan, op, slot, true, fault);
    if (!status && !address)
        return invalid(fault, op, "address", "a buffer address is null");
    return status;
}

static void put_pointer(krt_plan *plan, size_t op, size_t slot, void *address)
{
    plan->pointers[plan->records[op].bufs + slot] = address;
}

krt_status krt_plan_set_pointer(krt_plan *plan, size_t op, size_t slot, void *address,
                                krt_fault *fault)
{
    krt_status status = check_pointer(plan, op, slot, address, fault);
    if (!status)
        put_pointer(plan, op, slot, address);
    return status;
}

krt_status krt_plan_get_value(const krt_plan *plan, size_t op, size_t slot, int64_t *out,
                              krt_fault *fault)
{
    krt_status status = check_slot(plan, op, slot, false, fault);
    if (!status)
        *out = plan->rows[plan->records[op].rows + slot];
    return status;
}

static krt_status check_value(const krt_plan *plan, size_t op, size_t slot, int64_t value,
                              krt_fault *fault)
{
    krt_status status = check_slot(plan, op, slot, false, fault);
    if (status)
        return status;
    const krt_record *record = plan->records + op;
    if (record->core_slot >= 0 && (size_t)record->core_slot == slot)
        return invalid(fault, op, "slot", "core_id is the chunk number and cannot be set");
    if (record->kind == KRT_COPY && value < 0)
        return invalid(fault, op, "value", "nbytes is negative");
    return KRT_OK;
}

static void put_value(krt_plan *plan, size_t op, size_t slot, int64_t value)
{
    const krt_record *record = plan->records + op;
    for (size_t chunk = 0; chunk < record->capacity; ++chunk)
        plan->rows[record->rows + chunk * record->n_vals + slot] = value;
}

krt_status krt_plan_set_value(krt_plan *plan, size_t op, size_t slot, int64_t value,
                              krt_fault *fault)
{
    krt_status status = check_value(plan, op, slot, value, fault);
    if (!status)
        put_value(plan, op, slot, value);
    return status;
}

size_t krt_plan_slices(const krt_plan *plan, size_t op)
{
    return op < plan->n_ops ? plan->records[op].slices : 0;
}

krt_status krt_plan_get_chunks(const krt_plan *plan, size_t op, int64_t *out, krt_fault *fault)
{
    if (op >= plan->n_ops)
        return invalid(fault, op, "op", "there is no such op");
    *out = (int64_t)plan->records[op].chunks;
    return KRT_OK;
}

/* Ops whose rows are laid out again: either `n` ops with new items, whose indices `where` has in
 * ascending order; or the one op `where[0]`, which only gets room for more chunks. */
typedef struct relaid {
    const size_t *where;
    const krt_op *items; /* NULL: keep the values */
    size_t n, capacity;
} relaid;

static size_t capacity_of(const relaid *change, size_t at)
{
    if (!change->items)
        return change->capacity;
    return change->items[at].chunks > 0 ? (size_t)change->items[at].chunks : 1;
}

/* Allocate new tables of rows and steps; the old ones stay. */
static krt_status make_rows(const krt_plan *plan, const relaid *change, struct krt_tables *made)
{
    counts total = {0};
    *made = (struct krt_tables){0};
    for (size_t i = 0, at = 0; i < plan->n_ops; ++i) {
        bool changes = at < change->n && change->where[at] == i;
        const krt_record *record = plan->records + i;
        size_t capacity = changes ? capacity_of(change, at) : record->capacity;
        size_t n_vals = changes && change->items ? change->items[at].n_vals : record->n_vals;
        at += changes;
        if (!krt_add_bytes(&total.values, n_vals, capacity) ||
            !krt_add_bytes(&total.steps, capacity, 1))
            return KRT_NO_MEMORY;
    }
    made->rows = alloc_table(total.values, sizeof *plan->rows);
    made->steps = alloc_table(total.steps, sizeof *plan->steps);
    return made->rows && made->steps ? KRT_OK : KRT_NO_MEMORY;
}

static void free_rows(const struct krt_tables *made)
{
    krt_free(made->rows);
    krt_free(made->steps);
}

/* Fill the new tables and replace the old ones by them. */
static void lay_rows(krt_plan *plan, const relaid *change, const struct krt_tables *made)
{
    int64_t *old_rows = plan->rows;
    plan->rows = made->rows;
    size_t next = 0;
    for (size_t i = 0, at = 0; i < plan->n_ops; ++i) {
        krt_record *record = plan->records + i;
        const int64_t *vals = old_rows + record->rows;
        if (at < change->n && change->where[at] == i) {
            record->capacity = capacity_of(change, at);
            if (change->items) {
                vals = change->items[at].vals;
                record->n_vals = change->items[at].n_vals;
                record->core_slot = change->items[at].core_slot;
            }
            ++at;
        }
        record->rows = next;
        fill_rows(plan, record, vals);
        next += record->capacity * record->n_vals;
    }
    krt_free(old_rows);
    krt_free(plan->steps);
    plan->steps = made->steps;
    plan->stale = true;
}

static krt_status grow_rows(krt_plan *plan, size_t op, size_t chunks)
{
    relaid change = {.where = &op, .n = 1, .capacity = chunks};
    struct krt_tables made;
    krt_status status = make_rows(plan, &change, &made);
    if (status)
        free_rows(&made);
    else
        lay_rows(plan, &change, &made);
    return status;
}

/* Check a number of chunks and grow the tables for it. Larger tables have no other effect. */
static krt_status check_edit_chunks(krt_plan *plan, size_t op, int64_t chunks, krt_fault *fault)
{
    if (op >= plan->n_ops)
        return invalid(fault, op, "op", "there is no such op");
    const krt_record *record = plan->records + op;
    if (record->kind == KRT_NOP)
        return invalid(fault, op, "op", "a NOP has no chunks");
    krt_status status = check_chunks(chunks, record->core_slot >= 0, op, fault);
    if (!status && (size_t)chunks > record->capacity)
        status = grow_rows(plan, op, (size_t)chunks);
    return status;
}

/* Dissolve the pipeline in which `op` was created, if any, unless all its ops still have the same
 * number of slices. */
static void settle_pipeline(krt_plan *plan, size_t op)
{
    const krt_record *records = plan->records;
    size_t first = op, end = op + 1;
    while (first && records[first].flags & KRT_FOLLOWS)
        --first;
    while (end < plan->n_ops && records[end].flags & KRT_FOLLOWS)
        ++end;
    size_t slices = records[first].slices;
    for (size_t i = first; slices && i < end; ++i)
        if (records[i].slices != slices || records[i].chunks < 1 || records[i].chunks % slices)
            slices = 0;
    for (size_t i = first; i < end; ++i)
        plan->records[i].slices = slices;
}

static void put_chunks(krt_plan *plan, size_t op, int64_t chunks)
{
    krt_record *record = plan->records + op;
    if (record->chunks != (size_t)chunks)
        record->slices = 0;
    record->chunks = (size_t)chunks;
    settle_pipeline(plan, op);
    plan->stale = true;
}

krt_status krt_plan_set_chunks(krt_plan *plan, size_t op, int64_t chunks, krt_fault *fault)
{
    krt_status status = check_edit_chunks(plan, op, chunks, fault);
    if (!status)
        put_chunks(plan, op, chunks);
    return status;
}

static void *address_of(const krt_edit *edit) { return (void *)(uintptr_t)edit->value; }

static krt_status check_edit(krt_plan *plan, const krt_edit *edit, krt_fault *fault)
{
    switch (edit->kind) {
    case KRT_SET_POINTER:
        return check_pointer(plan, edit->op, edit->slot, address_of(edit), fault);
    case KRT_SET_VALUE:
        return check_value(plan, edit->op, edit->slot, edit->value, fault);
    case KRT_SET_CHUNKS:
        return check_edit_chunks(plan, edit->op, edit->value, fault);
    }
    return invalid(fault, edit->op, "kind", "must be a pointer, a value or chunks");
}

krt_status krt_plan_edit(krt_plan *plan, const krt_edit *edits, size_t n, krt_fault *fault)
{
    for (const krt_edit *edit = edits; edit != edits + n; ++edit) {
        krt_status status = check_edit(plan, edit, fault);
        if (status)
            return status;
    }
    for (const krt_edit *edit = edits; edit != edits + n; ++edit)
        if (edit->kind == KRT_SET_POINTER)
            put_pointer(plan, edit->op, edit->slot, address_of(edit));
        else if (edit->kind == KRT_SET_VALUE)
            put_value(plan, edit->op, edit->slot, edit->value);
        else
            put_chunks(plan, edit->op, edit->value);
    return KRT_OK;
}

static krt_status check_exchange(const krt_exchange *exchange, krt_fault *fault)
{
    const krt_plan *plan = exchange->plan;
    for (size_t i = 0; i < exchange->n; ++i) {
        size_t op = exchange->where[i];
        const krt_op *item = exchange->items + i;
        if (op >= plan->n_ops || (i && op <= exchange->where[i - 1]))
            return invalid(fault, op, "op", "op indices must exist and ascend");
        if (plan->records[op].kind != KRT_KERNEL || item->kind != KRT_KERNEL)
            return invalid(fault, op, "kind", "only a kernel can replace a kernel");
        krt_status status = check_op(item, op, fault);
        if (status)
            return status;
        if (item->slices < 0 || item->slices > (int64_t)plan->records[op].most_slices)
            return invalid(fault, op, "slices",
                           "must be 0, or at most the number that the op was created with");
    }
    return KRT_OK;
}

static relaid rows_of(const krt_exchange *exchange)
{
    return (relaid){.where = exchange->where, .items = exchange->items, .n = exchange->n};
}

static void put_exchange(const krt_exchange *exchange)
{
    krt_plan *plan = exchange->plan;
    relaid change = rows_of(exchange);
    lay_rows(plan, &change, &exchange->made);
    for (size_t i = 0; i < exchange->n; ++i) {
        krt_record *record = plan->records + exchange->where[i];
        const krt_op *item = exchange->items + i;
        record->fn = item->fn;
        record->chunks = record->chunks ? (size_t)item->chunks : 0;
        record->cost_ns = item->cost_ns;
        record->cost_chunks = item->chunks > 0 ? item->chunks : 1;
        record->slices = (size_t)item->slices;
    }
    for (size_t i = 0; i < exchange->n; ++i)
        settle_pipeline(plan, exchange->where[i]);
    krt_plan_lay_out(plan);
}

krt_status krt_exchange_all(krt_exchange *exchanges, size_t n, krt_fault *fault)
{
    krt_status status = KRT_OK;
    size_t made = 0;
    for (size_t i = 0; !status && i < n; ++i)
        status = check_exchange(exchanges + i, fault);
    for (; !status && made < n; ++made) {
        relaid change = rows_of(exchanges + made);
        status = make_rows(exchanges[made].plan, &change, &exchanges[made].made);
    }
    for (size_t i = 0; i < made; ++i)
        if (status)
            free_rows(&exchanges[i].made);
        else
            put_exchange(exchanges + i);
    return status;
}
