/* graph.c - runs a plan on several threads, as its dependencies allow.
 *
 * A plan is divided into consecutive stages: ops that may overlap, or ops that must run alone. The
 * pool runs one stage at a time. In a stage each op counts its unfinished predecessors. The thread
 * that finishes the last predecessor puts the op into the queue of ready ops, or runs it next
 * without the queue. Threads claim chunks from the op at the head of the queue.
 *
 * Results are bitwise equal for every assignment of chunks to threads: chunks and ops write
 * disjoint memory, or the same bits, or are ordered by dependencies. */
#include "graph.h"

#include "pool.h"

/* Time that the caller sleeps before it polls for signals. */
#define NAP_NS 20000000

/* The caller polls for signals after this much estimated work. Estimates can be too low, so each
 * claim counts at least LEAST_CLAIM_US. */
#define POLL_COST_US 1000
#define LEAST_CLAIM_US 32

/* ---- Claiming, finishing ----------------------------------------------------------------- */

typedef struct claim {
    krt_task *task;
    uint32_t begin, end;
    bool last; /* whether it is the last claim of the task */
} claim;

static uint64_t first_bits(uint32_t n)
{
    return n < MOST_CLAIMS ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
}

/* Choose a claim for a thread. Each thread first takes claims from its own part of an op, which is
 * the same fraction in all ops: so it finds in its cache what it wrote in the previous op. Then it
 * helps other threads, from the end that they reach last. */
static uint32_t pick(uint64_t open, uint32_t claims, uint32_t thread, uint32_t threads)
{
    uint32_t begin = claims * thread / threads, end = claims * (thread + 1) / threads;
    uint64_t own = open & first_bits(end) & ~first_bits(begin);
    return own ? (uint32_t)__builtin_ctzll(own) : 63u - (uint32_t)__builtin_clzll(open);
}

static bool claim_from(krt_task *task, int thread, int threads, claim *out)
{
    uint64_t open = atomic_load_explicit(&task->open, memory_order_relaxed), rest;
    uint32_t i;
    do {
        if (!open)
            return false;
        i = pick(open, task->claims, (uint32_t)thread, (uint32_t)threads);
        rest = open & ~(UINT64_C(1) << i);
    } while (!atomic_compare_exchange_weak_explicit(&task->open, &open, rest, memory_order_relaxed,
                                                    memory_order_relaxed));
    uint32_t begin = i * task->grain, n = task->chunks - begin;
    *out = (claim){.task = task,
                   .begin = begin,
                   .end = begin + (n < task->grain ? n : task->grain),
                   .last = !rest};
    return true;
}

/* Claim the next chunks from the queue. False: nothing is ready. */
static bool claim_next(krt_graph *graph, int thread, claim *out)
{
    uint32_t size = graph->stage->end - graph->stage->begin;
    for (;;) {
        uint32_t head = atomic_load_explicit(&graph->head, memory_order_relaxed);
        if (head == size)
            return false;
        /* Acquire: the op's inputs were written before it was pushed. */
        uint32_t op = atomic_load_explicit(&graph->ready[head], memory_order_acquire);
        if (!op)
            return false;
        krt_task *task = graph->tasks + (op - 1);
        bool claimed = claim_from(task, thread, graph->stage->threads, out);
        if (!claimed || out->last)
            atomic_compare_exchange_strong_explicit(&graph->head, &head, head + 1,
                                                    memory_order_relaxed, memory_order_relaxed);
        if (claimed)
            return true;
    }
}

static void push(krt_graph *graph, const krt_task *task)
{
    uint32_t slot = atomic_fetch_add_explicit(&graph->tail, 1, memory_order_relaxed);
    /* Sequentially consistent, hence also release: see krt_event. */
    atomic_store_explicit(&graph->ready[slot], task->op + 1, memory_order_seq_cst);
    krt_workers_notify((int)task->claims);
    krt_event_notify(&krt_caller_event);
}

static void stop(krt_graph *graph, krt_status status, size_t op)
{
    if (atomic_exchange_explicit(&graph->phase, STOPPED, memory_order_seq_cst) == STOPPED)
        return;
    graph->status = status;
    graph->failed_op = op;
    krt_event_notify(&krt_caller_event);
}

/* Finish a task whose chunks are all done. Return a successor for the calling thread to run next,
 * so that a linear sequence of ops never passes through the queue. */
static krt_task *complete(krt_graph *graph, const krt_task *task)
{
    krt_task *own = NULL;
    if (task->status && __atomic_load_n(task->status, __ATOMIC_RELAXED)) {
        stop(graph, KRT_OUT_OF_BOUNDS, task->op);
        return NULL;
    }
    for (uint32_t i = 0; i < task->n_successors; ++i) {
        uint32_t op = graph->successors[task->successors + i];
        if (op >= graph->stage->end)
            break;
        krt_task *successor = graph->tasks + op;
        /* Release the writes of this thread, acquire those of the other predecessors. */
        if (atomic_fetch_sub_explicit(&successor->pending, 1, memory_order_acq_rel) != 1)
            continue;
        if (!own && successor->claims == 1)
            own = successor;
        else
            push(graph, successor);
    }
    if (atomic_fetch_sub_explicit(&graph->unfinished, 1, memory_order_seq_cst) == 1)
        krt_event_notify(&krt_caller_event);
    return own;
}

/* Return whether `task` may start; false if the stage was stopped before the first commit. */
static bool may_start(krt_graph *graph, const krt_task *task)
{
    uint32_t phase = atomic_load_explicit(&graph->phase, memory_order_relaxed);
    if (phase == RUNNING && (task->flags & KRT_COMMIT))
        return atomic_compare_exchange_strong_explicit(&graph->phase, &phase, COMMITTING,
                                                       memory_order_acq_rel,
                                                       memory_order_acquire) ||
               phase == COMMITTING;
    return phase != STOPPED;
}

static void run_steps(const krt_graph *graph, const claim *work)
{
    const krt_task *task = work->task;
    if (!task->steps)
        return;
    size_t each = task->flags & RUNS_PIPELINE ? graph->plan->records[task->op].per_slice : 1;
    const krt_step *step = task->steps + work->begin * each;
    for (const krt_step *end = task->steps + work->end * each; step != end; ++step)
        step->fn(step->bufs, step->vals);
}

/* Note that a claim began. Until the claim's task ends, start_ns of the sample is one word with the
 * earliest start of a claim and the thread that made it, so that threads can lower it atomically.
 * 0: no claim began. */
static void note_start(krt_sample *sample, int64_t start_ns, int worker)
{
    int64_t mine = (start_ns << KRT_WORKER_BITS | worker) + 1;
    int64_t known = __atomic_load_n(&sample->start_ns, __ATOMIC_RELAXED);
    while ((!known || mine < known) &&
           !__atomic_compare_exchange_n(&sample->start_ns, &known, mine, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

/* Complete the sample of a task whose chunks are all done. */
static void end_sample(krt_graph *graph, const krt_task *task)
{
    krt_sample *sample = graph->samples + task->op;
    if (task->flags & FOLLOWS_PIPELINE)
        return;
    int64_t end = krt_clock_ns() - graph->origin_ns, packed = sample->start_ns - 1;
    int64_t start = packed >> KRT_WORKER_BITS, worker = packed & ((1 << KRT_WORKER_BITS) - 1);
    if (task->flags & RUNS_PIPELINE)
        krt_pipeline_end_samples(graph->plan, task->op, start, end, worker, graph->samples);
    else if (task->steps)
        *sample = (krt_sample){.start_ns = start,
                               .elapsed_ns = end - start,
                               .worker = worker,
                               .chunks = task->chunks,
                               .runs = 1};
    else
        *sample = (krt_sample){0};
}

/* Run claimed chunks with timing, and record the claim. */
static void run_claim_profiled(krt_graph *graph, const claim *work, int worker)
{
    const krt_task *task = work->task;
    krt_profile *profile = graph->context->profile;
    int64_t start = krt_clock_ns() - graph->origin_ns;
    note_start(graph->samples + task->op, start, worker);
    if (task->flags & RUNS_PIPELINE)
        krt_pipeline_run_profiled(graph->plan, task->op, work->begin, work->end, graph->context,
                                  graph->samples);
    else
        run_steps(graph, work);
    if (!profile || !task->steps)
        return;
    size_t i = __atomic_fetch_add(&profile->n_claims, 1, __ATOMIC_RELAXED);
    int64_t elapsed = krt_clock_ns() - graph->origin_ns - start;
    profile->claims[i] = (krt_claim_sample){.op = task->op,
                                            .worker = worker,
                                            .begin = work->begin,
                                            .end = work->end,
                                            .start_ns = start,
                                            .elapsed_ns = elapsed};
}

size_t krt_plan_most_claims(const krt_plan *plan)
{
    return plan->graph ? plan->n_ops * MOST_CLAIMS : 0;
}

/* Run claimed chunks. Return the op to run next, if any. */
static krt_task *run_claim(krt_graph *graph, const claim *work, int worker)
{
    krt_task *task = work->task;
    uint32_t count = work->end - work->begin;
    if (!may_start(graph, task))
        return NULL;
    if (!graph->samples)
        run_steps(graph, work);
    else if (!(task->flags & FOLLOWS_PIPELINE))
        run_claim_profiled(graph, work, worker);
    if (count != task->chunks &&
        atomic_fetch_sub_explicit(&task->left, count, memory_order_acq_rel) != count)
        return NULL;
    if (graph->samples)
        end_sample(graph, task);
    return complete(graph, task);
}

/* ---- The loop of a thread ---------------------------------------------------------------- */

static bool is_over(krt_graph *graph)
{
    return !atomic_load_explicit(&graph->unfinished, memory_order_seq_cst) ||
           atomic_load_explicit(&graph->phase, memory_order_seq_cst) == STOPPED;
}

static bool something_is_ready(krt_graph *graph)
{
    uint32_t head = atomic_load_explicit(&graph->head, memory_order_relaxed);
    return head < graph->stage->end - graph->stage->begin &&
           atomic_load_explicit(&graph->ready[head], memory_order_seq_cst);
}

/* Whether the caller has done enough work since its last poll. */
static bool is_time_to_poll(krt_graph *graph, const krt_task *task)
{
    graph->since_poll_us += task->claim_us;
    if (graph->since_poll_us < POLL_COST_US)
        return false;
    graph->since_poll_us = 0;
    return true;
}

/* Poll the host, unless an op has committed already. */
static void poll_host(krt_graph *graph)
{
    if (graph->deferred || atomic_load_explicit(&graph->phase, memory_order_relaxed) != RUNNING)
        return;
    uint32_t forks = krt_fork_count();
    krt_status status = krt_plan_poll(graph->plan);
    uint32_t running = RUNNING;
    if (!status && forks != krt_fork_count())
        status = KRT_FORKED; /* a signal handler forked; claims of workers are lost in the child */
    if (!status)
        return;
    if (!atomic_compare_exchange_strong_explicit(&graph->phase, &running, STOPPED,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        graph->deferred = status; /* a commit came first: let the plan run to its end */
        return;
    }
    graph->status = status;
}

static void caller_sleeps(krt_graph *graph)
{
    uint32_t ticket = krt_event_prepare(&krt_caller_event);
    if (is_over(graph) || something_is_ready(graph))
        krt_event_cancel(&krt_caller_event);
    else
        krt_event_sleep(&krt_caller_event, ticket, NAP_NS);
}

/* A krt_work. */
static bool run_worker(void *context, int worker)
{
    krt_graph *graph = context;
    int64_t spin_ns = graph->stage->spin_ns;
    krt_spin spin = {0};
    krt_task *own = NULL;
    bool helped = false;
    for (;;) {
        claim work;
        if (own ? claim_from(own, worker, graph->stage->threads, &work)
                : claim_next(graph, worker, &work)) {
            if (worker == 0)
                graph->waited_ns += krt_spun_ns(&spin);
            else if (!helped)
                atomic_store_explicit(&graph->helped, helped = true, memory_order_relaxed);
            own = run_claim(graph, &work, worker);
            spin = (krt_spin){0};
            if (worker == 0 && is_time_to_poll(graph, work.task))
                poll_host(graph);
        } else if (is_over(graph)) {
            if (worker == 0)
                graph->waited_ns += krt_spun_ns(&spin);
            return true;
        } else if (krt_spin_once(&spin, spin_ns)) {
            continue;
        } else if (worker == 0) {
            caller_sleeps(graph);
            poll_host(graph);
        } else {
            krt_worker_prepare(worker);
            if (!is_over(graph) && !something_is_ready(graph))
                return false;
            krt_worker_cancel(worker);
        }
    }
}

/* ---- A stage ----------------------------------------------------------------------------- */

/* Reset a stage. No thread may be in it. */
static void reset_stage(krt_graph *graph, const krt_stage *at)
{
    uint32_t ready = 0;
    graph->stage = at;
    for (uint32_t op = at->begin; op < at->end; ++op) {
        krt_task *task = graph->tasks + op;
        atomic_store_explicit(&task->pending, task->n_pending, memory_order_relaxed);
        atomic_store_explicit(&task->open, first_bits(task->claims), memory_order_relaxed);
        atomic_store_explicit(&task->left, task->chunks, memory_order_relaxed);
        atomic_store_explicit(&graph->ready[op - at->begin], 0, memory_order_relaxed);
    }
    for (uint32_t op = at->begin; op < at->end; ++op)
        if (!graph->tasks[op].n_pending)
            atomic_store_explicit(&graph->ready[ready++], op + 1, memory_order_relaxed);
    atomic_store_explicit(&graph->head, 0, memory_order_relaxed);
    atomic_store_explicit(&graph->tail, ready, memory_order_relaxed);
    atomic_store_explicit(&graph->unfinished, at->end - at->begin, memory_order_relaxed);
}

/* Run a pipeline on the caller; poll for signals between slices. */
static krt_status run_pipeline_serially(krt_graph *graph, const krt_task *task)
{
    krt_plan *plan = graph->plan;
    krt_status status = KRT_OK;
    int64_t start = graph->samples ? krt_clock_ns() - graph->origin_ns : 0;
    for (uint32_t slice = 0; !status && slice < task->chunks; ++slice) {
        claim work = {.task = (krt_task *)task, .begin = slice, .end = slice + 1};
        if (graph->samples)
            krt_pipeline_run_profiled(plan, task->op, work.begin, work.end, graph->context,
                                      graph->samples);
        else
            run_steps(graph, &work);
        if (is_time_to_poll(graph, task) &&
            atomic_load_explicit(&graph->phase, memory_order_relaxed) == RUNNING)
            status = krt_plan_act(plan, task->op, STOP_POLL, graph->context,
                                  &graph->failed_op);
    }
    if (graph->samples)
        krt_pipeline_end_samples(plan, task->op, start, krt_clock_ns() - graph->origin_ns, 0,
                                 graph->samples);
    return status;
}

/* Run one op on the caller, with the same checks as at stops of the serial loop. */
static krt_status run_serially(krt_graph *graph, uint32_t op)
{
    krt_plan *plan = graph->plan;
    const krt_task *task = graph->tasks + op;
    const krt_record *record = plan->records + op;
    unsigned action = 0;
    if (!record->chunks || task->flags & FOLLOWS_PIPELINE)
        return KRT_OK;
    if (task->flags & RUNS_PIPELINE)
        return run_pipeline_serially(graph, task);
    bool quiet = record->flags & KRT_COMMIT ||
                 atomic_load_explicit(&graph->phase, memory_order_relaxed) != RUNNING;
    int64_t start = graph->samples ? krt_clock_ns() : 0;
    if (record->kind == KRT_CUSTOM)
        action |= STOP_CUSTOM;
    else if (record->kind == KRT_REGION)
        action |= quiet ? STOP_REGION | STOP_QUIET : STOP_REGION;
    else
        run_steps(graph, &(claim){.task = (krt_task *)task, .begin = 0, .end = task->chunks});
    if (record->flags & KRT_MAY_FAIL)
        action |= STOP_CHECK;
    if (record->flags & KRT_COMMIT)
        atomic_store_explicit(&graph->phase, COMMITTING, memory_order_relaxed);
    if (is_time_to_poll(graph, task) &&
        atomic_load_explicit(&graph->phase, memory_order_relaxed) == RUNNING)
        action |= STOP_POLL;
    krt_status status = krt_plan_act(plan, op, action, graph->context, &graph->failed_op);
    if (graph->samples)
        graph->samples[op] = (krt_sample){.start_ns = start - graph->origin_ns,
                                          .elapsed_ns = krt_clock_ns() - start,
                                          .chunks = (int64_t)record->chunks,
                                          .runs = 1};
    return status;
}

static krt_status run_stage(krt_graph *graph, const krt_stage *at)
{
    if (at->threads > 1) {
        reset_stage(graph, at);
        if (krt_pool_run(at->threads, run_worker, graph, &graph->waited_ns))
            return graph->status;
    }
    for (uint32_t op = at->begin; op < at->end; ++op) {
        krt_status status = run_serially(graph, op);
        if (status)
            return status;
    }
    return KRT_OK;
}

krt_status krt_graph_execute(krt_plan *plan, const krt_context *context, krt_sample *samples,
                             size_t *failed_op, krt_trace *trace)
{
    krt_graph *graph = plan->graph;
    krt_status status = KRT_OK;
    graph->status = KRT_OK;
    graph->deferred = KRT_OK;
    graph->since_poll_us = 0;
    graph->waited_ns = 0;
    atomic_store_explicit(&graph->helped, false, memory_order_relaxed);
    graph->samples = samples;
    graph->context = context;
    graph->origin_ns = samples ? krt_clock_ns() : 0;
    atomic_store_explicit(&graph->phase, RUNNING, memory_order_relaxed);
    for (size_t i = 0; !status && i < graph->n_stages; ++i)
        status = run_stage(graph, graph->stages + i);
    *failed_op = graph->failed_op;
    trace->waited_ns = graph->waited_ns;
    trace->helped = atomic_load_explicit(&graph->helped, memory_order_relaxed);
    plan->marked = status != KRT_OK;
    return status ? status : graph->deferred;
}

/* ---- Building ---------------------------------------------------------------------------- */

void krt_graph_lay_out(krt_plan *plan)
{
    krt_graph *graph = plan->graph;
    int64_t claim_cost = krt_claim_cost_ns();
    for (size_t op = 0; op < plan->n_ops; ++op) {
        const krt_record *record = plan->records + op;
        krt_task *task = graph->tasks + op;
        bool follows = krt_follows(record);
        bool runs = record->chunks && !krt_has_no_steps(record) && !follows;
        task->flags = (uint16_t)(record->flags | (follows ? FOLLOWS_PIPELINE : 0) |
                                 (record->slices && !follows ? RUNS_PIPELINE : 0));
        task->steps = runs ? plan->steps + record->first_step : NULL;
        task->chunks = !runs ? 1 : (uint32_t)(record->slices ? record->slices : record->chunks);
        int64_t chunk_cost = krt_unit_cost(plan, op) / (int64_t)task->chunks;
        int64_t grain = chunk_cost >= claim_cost ? 1 : claim_cost / (chunk_cost + 1);
        task->grain = grain > INT16_MAX ? INT16_MAX : grain < 1 ? 1 : (uint32_t)grain;
        if (task->grain < (task->chunks - 1) / MOST_CLAIMS + 1)
            task->grain = (task->chunks - 1) / MOST_CLAIMS + 1;
        if (task->grain > task->chunks)
            task->grain = task->chunks;
        task->claims = (task->chunks - 1) / task->grain + 1;
        int64_t claim_us = chunk_cost / 1000 * task->grain + LEAST_CLAIM_US;
        if (record->flags & KRT_UNKNOWN_COST)
            claim_us = POLL_COST_US;
        task->claim_us = claim_us > UINT16_MAX ? UINT16_MAX : (uint16_t)claim_us;
    }
    graph->choice.made_for = 0; /* the estimates are stale, too */
}

static bool is_serial(const krt_record *record)
{
    return krt_has_no_steps(record) ||
           (record->kind == KRT_KERNEL && !(record->flags & KRT_HOST_PARALLEL_SAFE));
}

/* Cut the plan into stages: where an op must run alone, and before the first commit after an op
 * that may fail, because that op must have succeeded by then. */
static void cut_stages(krt_plan *plan)
{
    krt_graph *graph = plan->graph;
    bool may_fail = false;
    krt_stage *at = NULL;
    for (uint32_t op = 0; op < plan->n_ops; ++op) {
        const krt_record *record = plan->records + op;
        bool alone = is_serial(record);
        bool cut = may_fail && (record->flags & KRT_COMMIT);
        if (!at || at->alone != alone || cut) {
            at = graph->stages + graph->n_stages++;
            *at = (krt_stage){.begin = op, .alone = alone};
            may_fail = false;
        }
        may_fail |= (record->flags & KRT_MAY_FAIL) != 0;
        at->end = op + 1;
    }
}

/* Build successor lists by counting sort, so that each list is ascending. */
static void link_tasks(krt_plan *plan)
{
    krt_graph *graph = plan->graph;
    const krt_stage *at = graph->stages;
    uint32_t offset = 0;
    for (uint32_t op = 0; op < plan->n_ops; ++op) {
        const krt_record *record = plan->records + op;
        krt_task *task = graph->tasks + op;
        at += op == at->end;
        task->op = op;
        task->status = record->status;
        for (size_t i = 0; i < record->n_deps; ++i) {
            size_t dep = plan->deps[record->deps + i];
            ++graph->tasks[dep].n_successors;
            task->n_pending += dep >= at->begin; /* earlier ones are done before the stage begins */
        }
    }
    for (size_t op = 0; op < plan->n_ops; ++op) {
        graph->tasks[op].successors = offset;
        offset += graph->tasks[op].n_successors;
        graph->tasks[op].n_successors = 0;
    }
    for (uint32_t op = 0; op < plan->n_ops; ++op) {
        const krt_record *record = plan->records + op;
        for (size_t i = 0; i < record->n_deps; ++i) {
            krt_task *dep = graph->tasks + plan->deps[record->deps + i];
            graph->successors[dep->successors + dep->n_successors++] = op;
        }
    }
}

static bool could_overlap(const krt_plan *plan)
{
    for (size_t op = 0; op < plan->n_ops; ++op)
        if (!is_serial(plan->records + op) && plan->records[op].cost_ns)
            return true;
    return false;
}

krt_status krt_graph_create(krt_plan *plan)
{
    size_t n = plan->n_ops, n_edges = 0;
    if (!could_overlap(plan))
        return KRT_OK;
    for (size_t op = 0; op < n; ++op)
        n_edges += plan->records[op].n_deps;
    if (n_edges > UINT32_MAX)
        return KRT_OK;
    krt_graph *graph = krt_alloc(sizeof *graph);
    if (!graph)
        return KRT_NO_MEMORY;
    graph->plan = plan;
    /* The sizes cannot overflow: larger tables with as many ops and edges exist already. */
    graph->tasks = krt_alloc(n * sizeof *graph->tasks);
    graph->ready = krt_alloc(n * sizeof *graph->ready);
    graph->successors = krt_alloc(n_edges * sizeof *graph->successors);
    graph->finish_ns = krt_alloc(n * sizeof *graph->finish_ns);
    graph->stages = krt_alloc(n * sizeof *graph->stages);
    if (!graph->tasks || !graph->ready || !graph->successors || !graph->finish_ns ||
        !graph->stages) {
        krt_graph_destroy(graph);
        return KRT_NO_MEMORY;
    }
    plan->graph = graph;
    cut_stages(plan);
    link_tasks(plan);
    return KRT_OK;
}

void krt_graph_destroy(krt_graph *graph)
{
    if (!graph)
        return;
    krt_free(graph->tasks);
    krt_free((void *)graph->ready);
    krt_free(graph->successors);
    krt_free(graph->finish_ns);
    krt_free(graph->stages);
    krt_free(graph);
}
