/* plan.h - the inside of a plan, shared by build.c, plan.c, graph.c and region.c. */
#ifndef KRT_PLAN_H
#define KRT_PLAN_H

#include "krt.h"
#include "thread.h"

/* The serial loop asks the host whether to stop about this often. Reading the clock takes some
 * 25 ns, so that empty ops, or turns, do not notice it every 512. */
#define POLL_COST_NS 1000000
#define POLL_OPS 512

/* One call of the serial loop: everything it needs, in execution order. */
typedef struct krt_step {
    krt_kernel fn;
    void *const *bufs;
    const int64_t *vals;
} krt_step;

/* Where the serial loop looks up from its work. Between two stops it only calls. */
typedef struct krt_stop {
    const krt_step *end; /* run the steps before this one, then do what `action` says */
    size_t op;           /* the op after which, or for a custom function at which, it stops */
    unsigned action;
} krt_stop;

enum {
    STOP_CUSTOM = 1, /* call the custom function */
    STOP_CHECK = 2,  /* look at the status word */
    STOP_POLL = 4,   /* ask the host whether to go on */
    STOP_END = 8,    /* the plan is done */
    STOP_REGION = 16, /* run the region */
    STOP_QUIET = 32   /* which may write lasting state, or comes after what did: do not ask */
};

typedef struct krt_loop krt_loop;

/* What is kept of a krt_op. Offsets count elements of the plan's tables. */
typedef struct krt_record {
    krt_kernel fn;
    krt_kind kind;
    unsigned flags;
    size_t bufs, n_bufs;
    size_t rows, n_vals; /* the values of chunk c start at rows + c * n_vals */
    size_t deps, n_deps;
    size_t chunks;
    size_t capacity;   /* rows that are prepared; at least chunks, and at least one */
    int64_t core_slot; /* -1: none */
    int64_t cost_ns;   /* of cost_chunks chunks */
    int64_t cost_chunks;
    size_t first_step; /* where its chunks lie in steps, `chunks` of them; or those of its chain */
    size_t slices;     /* of the chain that it is in; 0: none */
    size_t most_slices; /* what it was made with, and there is room for */
    size_t per_slice;  /* steps of a slice, of all ops of the chain; of the first of them */
    int64_t *status;   /* its status word; NULL: it cannot fail */
    krt_loop *loop;    /* of a region; else NULL */
} krt_record;

/* Whether it is called by looking up, and not by steps. */
static inline bool krt_has_no_steps(const krt_record *record)
{
    return record->kind == KRT_CUSTOM || record->kind == KRT_REGION;
}

/* Whether it is called with the steps of an op before it. */
static inline bool krt_follows(const krt_record *record)
{
    return record->slices && record->flags & KRT_FOLLOWS;
}

typedef struct krt_graph krt_graph;

struct krt_plan {
    krt_stop *stops;
    krt_host host;
    int64_t cost_ns;
    int64_t last_poll_ns;
    bool stale;      /* chunk counts changed: steps and stops must be laid out again */
    bool marked;     /* a run has not ended, or not well: status words may be set */
    int max_threads; /* 0: as many as the process has */
    size_t stack_bytes; /* what arrays of one kernel take there at most */
    krt_graph *graph; /* NULL: no two of its ops may ever run together */
    krt_plan *parent; /* whose region has it as a body; NULL: nobody's */
    bool quiet;       /* a body: the host is not to be asked in this execution */
    int64_t unpolled_ns; /* estimated work of turns since the host was asked; of who has no parent */

    size_t n_ops;
    krt_record *records;
    void **pointers;
    size_t *deps;
    int64_t *rows;
    krt_step *steps;
    int64_t *status; /* the status words, `n_status` of them */
    size_t n_status;
};

/* Lay steps and stops out after the records. Cannot fail: the tables are large enough. */
void krt_plan_lay_out(krt_plan *plan);

/* The op behind the chain that `op` begins; the next one where it begins none. */
size_t krt_chain_end(const krt_plan *plan, size_t op);

/* The estimate for all that is called with the steps of `op`: 0 for what follows another. */
int64_t krt_unit_cost(const krt_plan *plan, size_t op);

/* What the execution of a body has from the one that it is part of. */
typedef struct krt_context {
    krt_aside *aside;  /* calls the kernels where this thread has too little stack; else NULL */
    int64_t origin_ns; /* when a profiled execution began; 0: it is none */
} krt_context;

/* What a stop, or an op of the graph, asks for. KRT_OK: go on. */
krt_status krt_plan_look_up(krt_plan *plan, size_t op, unsigned action,
                            const krt_context *context, size_t *failed_op);

/* The estimate for one op with its present number of chunks. */
int64_t krt_record_cost(const krt_record *record);

/* Call the steps of some slices of the chain that `op` begins, with a clock; what each op took is
 * added to its sample, by several threads at once. False: there is no stack to call them on. */
bool krt_chain_run_profiled(const krt_plan *plan, size_t op, size_t begin, size_t end,
                            const krt_context *context, krt_sample *samples);

/* Of a chain that ran from `start_ns` to `end_ns`: the sample of each op becomes its share of that,
 * as if one had run after the other. */
void krt_chain_end_samples(const krt_plan *plan, size_t op, int64_t start_ns, int64_t end_ns,
                           int64_t worker, krt_sample *samples);

/* Ask the host whether to go on, at most once in 20 ms: that of the plan whose body's body it is. */
krt_status krt_plan_poll(krt_plan *plan);

/* ---- A body's execution, in parts: ready it, ask how, and run it as often as there are turns -- */

void krt_plan_begin(krt_plan *plan);

/* How many threads to run on: 1 unless more are estimated to pay. */
int krt_plan_threads(krt_plan *plan, const krt_context *context);

/* On one thread. */
krt_status krt_plan_run_serial(krt_plan *plan, const krt_context *context, size_t *failed_op);

/* On several, unless one was found to be quicker. */
krt_status krt_plan_run_shared(krt_plan *plan, const krt_context *context, size_t *failed_op);

/* On so many, with samples, which count from its own begin. */
krt_status krt_plan_run_profiled(krt_plan *plan, int threads, const krt_context *context,
                                 krt_sample *samples, size_t *failed_op);

/* ---- region.c: ops that run plans ---------------------------------------------------------- */

/* Check what a region says of itself, but for whom its bodies belong to. */
krt_status krt_region_check(const krt_op *op, size_t index, krt_fault *fault);

/* Make record->loop, and its bodies those of `plan`. What fails leaves it to krt_loop_destroy. */
krt_status krt_loop_create(krt_plan *plan, size_t index, const krt_op *op, krt_fault *fault);

/* NULL is allowed. The bodies may be gone. */
void krt_loop_destroy(krt_loop *loop);

/* Give the bodies back to nobody. */
void krt_loop_disown(krt_loop *loop);

/* Run the region `op`. `quiet`: lasting state was written, or may be by this region. */
krt_status krt_loop_run(krt_plan *plan, size_t op, bool quiet, const krt_context *context);

void krt_loop_set_threads(krt_loop *loop, int threads);
size_t krt_loop_stack_bytes(const krt_loop *loop);

/* Have nothing of earlier profiles in the samples of bodies. */
void krt_loop_forget_samples(krt_loop *loop);
void krt_plan_forget_samples(krt_plan *plan);

/* Write down the samples of all bodies, theirs included; gives where these end. */
size_t krt_loop_n_samples(const krt_loop *loop);
krt_sample *krt_loop_collect(const krt_loop *loop, krt_sample *samples);
krt_sample *krt_plan_collect(const krt_plan *plan, krt_sample *samples);

/* ---- graph.c: the same plan on several threads ------------------------------------------- */

/* Make plan->graph where the plan could use one. KRT_NO_MEMORY leaves it NULL. */
krt_status krt_graph_create(krt_plan *plan);
void krt_graph_destroy(krt_graph *graph);

/* Take over new chunk counts and costs. Cannot fail. */
void krt_graph_lay_out(krt_plan *plan);

/* How an execution went. */
typedef struct krt_trace {
    int64_t elapsed_ns;
    int64_t waited_ns; /* of that, the caller had nothing to do */
    bool helped;       /* another thread had a part in it */
} krt_trace;

/* krt_plan_execute on the threads that the choice allows; `samples` may be NULL. Fills `*trace`
 * but for its elapsed time. */
krt_status krt_graph_execute(krt_plan *plan, const krt_context *context, krt_sample *samples,
                             size_t *failed_op, krt_trace *trace);

/* ---- choice.c: which of the two ------------------------------------------------------------ */

/* Whether there is anything to choose, by estimate. If so: ask, execute, and tell how it went. */
bool krt_choice_is_open(krt_plan *plan, int threads);
bool krt_choose_parallel(krt_plan *plan);
void krt_choice_learn(krt_plan *plan, const krt_trace *trace);

#ifdef KRT_TEST_HOOKS
void krt_test_always_parallel(bool always);
#endif

#endif
