/* graph.h - a plan as tasks and stages, shared by graph.c and choice.c. */
#ifndef KRT_GRAPH_H
#define KRT_GRAPH_H

#include "plan.h"
#include "platform.h"

/* Minimum work of a claim of chunks that pays for its atomic operations on a shared cache line. */
int64_t krt_claim_cost_ns(void);

/* Maximum number of claims of an op: each has a bit. */
#define MOST_CLAIMS 64

/* The atomics and the run data of an op, in one cache line. */
typedef struct krt_task {
    KRT_ALIGNED _Atomic uint64_t open; /* bits of the claims that are not taken */
    const krt_step *steps;             /* NULL: no work; the first op of a pipeline has all steps */
    const int64_t *status;             /* NULL: it cannot fail */
    _Atomic uint32_t pending;          /* unfinished predecessors within the stage */
    _Atomic uint32_t left;             /* chunks not yet finished */
    uint32_t chunks;                   /* at least one, so that an op without work finishes, too;
                                          the number of slices for the first op of a pipeline */
    uint32_t grain, claims;            /* chunks per claim; number of claims, at most MOST_CLAIMS */
    uint32_t n_pending;
    uint32_t successors, n_successors; /* range in graph->successors, ascending */
    uint32_t op;
    uint16_t flags;
    uint16_t claim_us; /* estimated cost of a claim, rounded up */
} krt_task;
/* Task flags in addition to those of the op: it runs a pipeline, or runs as part of one. */
enum { RUNS_PIPELINE = 1 << 14, FOLLOWS_PIPELINE = 1 << 15 };
_Static_assert(sizeof(krt_task) == KRT_CACHE_LINE, "a task is a cache line");

typedef struct krt_stage {
    uint32_t begin, end; /* ops */
    bool alone;          /* its ops run in order on the caller */
    int threads;         /* number of useful threads; 1: more do not pay */
    int64_t work_ns;
    int64_t spin_ns; /* time that a thread without work spins */
} krt_stage;

/* RUNNING -> COMMITTING when the first committing op starts; after that the host is not polled any
 * more. RUNNING or COMMITTING -> STOPPED when an op fails. */
enum { RUNNING, COMMITTING, STOPPED };

/* Which way of running the plan is faster, serial or parallel: first by an estimate, then by
 * measured times. choice.c explains the words: a plan is shared, or rests. */
typedef struct krt_choice {
    int made_for;      /* number of threads of the estimates; 0: they are stale */
    bool open;         /* parallel execution is estimated to pay in some stage */
    bool parallel;     /* whether the next execution is parallel */
    bool sharing;      /* whether executions are parallel, except for serial trials */
    bool fresh;        /* do not measure the next execution: the first, or first shared again */
    int64_t left;      /* number of executions until `parallel` changes */
    int64_t interval;  /* number of executions between trials */
    int losses;        /* number of rests in a row that began because sharing had lost time */
    int64_t serial_ns; /* time of an execution on one thread; 0: unknown */
    int64_t gained_ns; /* time that sharing has saved since the last rest; negative: lost */
    int64_t kept_ns;   /* like gained_ns, but limited; when it is too low, a rest begins */
} krt_choice;

struct krt_graph {
    KRT_ALIGNED _Atomic uint32_t head; /* the first ready op with unclaimed chunks */
    KRT_ALIGNED _Atomic uint32_t tail; /* the end of the queue */
    KRT_ALIGNED _Atomic uint32_t unfinished;
    KRT_ALIGNED _Atomic uint32_t phase;
    KRT_ALIGNED const krt_stage *stage; /* the current stage */
    krt_plan *plan;
    krt_sample *samples;
    const krt_context *context;
    int64_t origin_ns;
    krt_status status; /* why the execution stopped; written by the thread that stopped it */
    size_t failed_op;
    krt_status deferred; /* an interrupt that came after a commit */
    uint32_t since_poll_us; /* work of the caller since its last poll */
    int64_t waited_ns;    /* time that the caller waited for others in this execution */
    _Atomic bool helped; /* whether a worker ran a part of the plan */

    krt_task *tasks;
    _Atomic uint32_t *ready; /* op + 1; 0: the slot is not written yet */
    uint32_t *successors;
    int64_t *finish_ns; /* scratch of the estimate: earliest finish time of each op */
    krt_stage *stages;
    size_t n_stages;
    krt_choice choice;
};

#endif
