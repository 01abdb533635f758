/* plan.h - internal structures of a plan, shared by build.c, plan.c, graph.c and region.c. */
#ifndef KRT_PLAN_H
#define KRT_PLAN_H

#include "krt.h"
#include "thread.h"

/* The serial loop polls the host after this much estimated work, or after this many ops. Each poll
 * reads the clock, which takes about 25 ns. Once in 512 ops or iterations, that is negligible even
 * if they are empty. */
#define POLL_COST_NS 1000000
#define POLL_OPS 512

/* One call in the serial loop, in execution order. */
typedef struct krt_step {
    krt_kernel fn;
    void *const *bufs;
    const int64_t *vals;
} krt_step;

/* A point where the serial loop does more than call steps. */
typedef struct krt_stop {
    const krt_step *end; /* run the steps before this one, then do what `action` says */
    size_t op;           /* the last op before the stop; or the custom function or region to run */
    unsigned action;
} krt_stop;

enum {
    STOP_CUSTOM = 1, /* call the custom function */
    STOP_CHECK = 2,  /* check the status word */
    STOP_POLL = 4,   /* poll the host for interrupts */
    STOP_END = 8,    /* the plan is done */
    STOP_REGION = 16, /* run the region */
    STOP_QUIET = 32   /* do not poll in the region: lasting state may be written from here on */
};

typedef struct krt_loop krt_loop;

/* The stored form of a krt_op. Offsets count elements of the plan's tables. */
typedef struct krt_record {
    krt_kernel fn;
    krt_kind kind;
    unsigned flags;
    size_t bufs, n_bufs;
    size_t rows, n_vals; /* the values of chunk c start at rows + c * n_vals */
    size_t deps, n_deps;
    size_t chunks;
    size_t capacity;   /* number of prepared rows; at least chunks, and at least one */
    int64_t core_slot; /* -1: none */
    int64_t cost_ns;   /* estimate for cost_chunks chunks */
    int64_t cost_chunks;
    size_t first_step; /* index in steps of its `chunks` steps, or of those of its pipeline */
    size_t slices;     /* number of slices of its pipeline; 0: it is in none */
    size_t most_slices; /* number of slices at creation; the capacity */
    size_t per_slice;  /* in the first op of a pipeline: steps of one slice of all its ops */
    int64_t *status;   /* its status word; NULL: it cannot fail */
    krt_loop *loop;    /* of a region; else NULL */
} krt_record;

/* Whether an op runs at a stop instead of as steps. */
static inline bool krt_has_no_steps(const krt_record *record)
{
    return record->kind == KRT_CUSTOM || record->kind == KRT_REGION;
}

/* Whether an op runs with the steps of the first op of its pipeline. */
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
    bool marked;     /* a run has not ended or has failed: status words may be set */
    int max_threads; /* 0: the limit of the process */
    size_t stack_bytes; /* maximum stack bytes of the arrays of one kernel */
    krt_graph *graph; /* NULL: no two of its ops can ever run in parallel */
    krt_plan *parent; /* the plan whose region has this one as a body; NULL: none */
    bool quiet;       /* of a body: do not poll the host in this execution */
    int64_t unpolled_ns; /* of the outermost plan: estimated work of loops since the last poll */

    size_t n_ops;
    krt_record *records;
    void **pointers;
    size_t *deps;
    int64_t *rows;
    krt_step *steps;
    int64_t *status; /* `n_status` status words */
    size_t n_status;
};

/* Lay out steps and stops as the records say. Cannot fail: the tables are large enough. */
void krt_plan_lay_out(krt_plan *plan);

/* The op after the pipeline that `op` begins; the next op if it begins none. */
size_t krt_pipeline_end(const krt_plan *plan, size_t op);

/* The estimate for all ops that run with the steps of `op`; 0 if `op` runs with the steps of
 * another op. */
int64_t krt_unit_cost(const krt_plan *plan, size_t op);

/* Data that the execution of a body gets from the execution of the plan around it. */
typedef struct krt_context {
    krt_helper *helper; /* calls the kernels if this thread has too little stack; else NULL */
    int64_t origin_ns; /* start of a profiled execution; 0: not profiled */
    krt_profile *profile; /* receives the claims of threads; NULL in a body, or if not profiled */
} krt_context;

/* Do the action of a stop or of an op of the graph. KRT_OK: continue. */
krt_status krt_plan_act(krt_plan *plan, size_t op, unsigned action,
                        const krt_context *context, size_t *failed_op);

/* The estimate for one op with its current number of chunks. */
int64_t krt_record_cost(const krt_record *record);

/* Run some slices of the pipeline that `op` begins and add the time of each op to its sample.
 * Several threads may do so at once. False: no thread with enough stack. */
bool krt_pipeline_run_profiled(const krt_plan *plan, size_t op, size_t begin, size_t end,
                               const krt_context *context, krt_sample *samples);

/* Set the samples of a pipeline that ran from `start_ns` to `end_ns`: each op gets its share of
 * that time, as if the ops had run one after the other. */
void krt_pipeline_end_samples(const krt_plan *plan, size_t op, int64_t start_ns, int64_t end_ns,
                              int64_t worker, krt_sample *samples);

/* Poll the host of the outermost plan, at most once in 20 ms. */
krt_status krt_plan_poll(krt_plan *plan);

/* ---- Execution of a body: begin once, choose the threads, run once per iteration ------------- */

void krt_plan_begin(krt_plan *plan);

/* The number of threads to run on: 1 unless more are estimated to pay. */
int krt_plan_threads(krt_plan *plan, const krt_context *context);

/* Run on one thread. */
krt_status krt_plan_run_serial(krt_plan *plan, const krt_context *context, size_t *failed_op);

/* Run on several threads, unless one was measured to be faster. */
krt_status krt_plan_run_shared(krt_plan *plan, const krt_context *context, size_t *failed_op);

/* Run on `threads` threads and fill samples; times count from the start of this run. */
krt_status krt_plan_run_profiled(krt_plan *plan, int threads, const krt_context *context,
                                 krt_sample *samples, size_t *failed_op);

/* ---- region.c: ops that run plans ---------------------------------------------------------- */

/* Check a region, except for the owner of its bodies. */
krt_status krt_region_check(const krt_op *op, size_t index, krt_fault *fault);

/* Create record->loop and make `plan` the parent of its bodies. After a failure, the caller cleans
 * up with krt_loop_destroy. */
krt_status krt_loop_create(krt_plan *plan, size_t index, const krt_op *op, krt_fault *fault);

/* Free a loop; NULL is allowed. The bodies may be freed already. */
void krt_loop_destroy(krt_loop *loop);

/* Clear the parent of the bodies. */
void krt_loop_disown(krt_loop *loop);

/* Run the region `op`. `quiet`: lasting state was written, or may be by this region. */
krt_status krt_loop_run(krt_plan *plan, size_t op, bool quiet, const krt_context *context);

void krt_loop_set_threads(krt_loop *loop, int threads);
size_t krt_loop_stack_bytes(const krt_loop *loop);

/* Clear the samples of bodies from earlier profiles. */
void krt_loop_forget_samples(krt_loop *loop);
void krt_plan_forget_samples(krt_plan *plan);

/* Write the samples of all bodies, including nested ones; return the end. */
size_t krt_loop_n_samples(const krt_loop *loop);
krt_sample *krt_loop_collect(const krt_loop *loop, krt_sample *samples);
krt_sample *krt_plan_collect(const krt_plan *plan, krt_sample *samples);

/* ---- graph.c: the same plan on several threads ------------------------------------------- */

/* Create plan->graph if the plan could use one. KRT_NO_MEMORY leaves it NULL. */
krt_status krt_graph_create(krt_plan *plan);
void krt_graph_destroy(krt_graph *graph);

/* Apply new chunk counts and costs. Cannot fail. */
void krt_graph_lay_out(krt_plan *plan);

/* Measurements of an execution. */
typedef struct krt_trace {
    int64_t elapsed_ns;
    int64_t waited_ns; /* time during which the caller had no work */
    bool helped;       /* whether another thread ran a part of the plan */
} krt_trace;

/* Execute a plan on one thread or several, as choice.c decides; `samples` may be NULL. Fills
 * `*trace` except the elapsed time. */
krt_status krt_graph_execute(krt_plan *plan, const krt_context *context, krt_sample *samples,
                             size_t *failed_op, krt_trace *trace);

/* ---- choice.c: serial or parallel ---------------------------------------------------------- */

/* Whether parallel execution may pay, by estimate. If it may, the caller asks krt_choose_parallel,
 * executes the plan that way, and passes the measured times to krt_choice_learn. */
bool krt_choice_is_open(krt_plan *plan, int threads);
/* Whether a laid-out plan has enough work for two threads. If not, no choice of it is open. */
bool krt_choice_has_work(const krt_plan *plan);
bool krt_choose_parallel(krt_plan *plan);
void krt_choice_learn(krt_plan *plan, const krt_trace *trace);

#ifdef KRT_TEST_HOOKS
void krt_test_always_parallel(bool always);
#endif

#endif
