/* graph.h - a plan as tasks and stages, shared by graph.c and choice.c. */
#ifndef KRT_GRAPH_H
#define KRT_GRAPH_H

#include "plan.h"
#include "platform.h"

/* A claim of chunks should take so long, to be worth its operations on a shared line. */
int64_t krt_claim_cost_ns(void);

/* Claims of an op that there may be: a bit for each. */
#define MOST_CLAIMS 64

/* The atomics of an op, and all that a thread needs to run it, in one cache line. */
typedef struct krt_task {
    KRT_ALIGNED _Atomic uint64_t open; /* the claims that nobody has made */
    const krt_step *steps;             /* NULL: nothing to run; of the first of a chain: of all */
    const int64_t *status;             /* NULL: it cannot fail */
    _Atomic uint32_t pending;          /* unfinished predecessors within the stage */
    _Atomic uint32_t left;             /* chunks not yet finished */
    uint32_t chunks;                   /* at least one: an op that does nothing finishes too; of the
                                          first of a chain: its slices */
    uint32_t grain, claims;            /* chunks a claim, and how many that makes: MOST_CLAIMS */
    uint32_t n_pending;
    uint32_t successors, n_successors; /* range in graph->successors, ascending */
    uint32_t op;
    uint16_t flags;
    uint16_t claim_us; /* what a claim costs by estimate, rounded up */
} krt_task;
/* Of a task's flags, beside those of the op: it runs a chain, or is run with one. */
enum { RUNS_CHAIN = 1 << 14, FOLLOWS_CHAIN = 1 << 15 };
_Static_assert(sizeof(krt_task) == KRT_CACHE_LINE, "a task is a cache line");

typedef struct krt_stage {
    uint32_t begin, end; /* ops */
    bool alone;          /* its ops run in order on the caller */
    int threads;         /* how many it can use; 1: more do not pay */
    int64_t work_ns;
    int64_t spin_ns; /* how long a thread without work spins for it */
} krt_stage;

/* RUNNING -> COMMITTING when the first committing op starts, after which the host is no longer
 * asked whether to stop; either -> STOPPED when an op fails. */
enum { RUNNING, COMMITTING, STOPPED };

/* Which way of running the plan is quicker: an estimate first, then what executions took. */
typedef struct krt_choice {
    int made_for;      /* threads that the estimates are for; 0: they are stale */
    bool open;         /* some stage is estimated to pay */
    bool parallel;     /* the way of the next execution */
    bool sharing;      /* parallel, or serial only for a trial */
    bool fresh;        /* the next execution is the first one its way, and tells nothing */
    int64_t left;      /* executions until that changes */
    int64_t interval;  /* executions between trials */
    int losses;        /* rests one after the other before which sharing had lost */
    int64_t serial_ns; /* an execution on one thread; 0: unknown */
    int64_t gained_ns; /* by sharing since the last rest */
    int64_t kept_ns;   /* of that, what later losses are held against */
} krt_choice;

struct krt_graph {
    KRT_ALIGNED _Atomic uint32_t head; /* the first ready op with unclaimed chunks */
    KRT_ALIGNED _Atomic uint32_t tail; /* the end of the queue */
    KRT_ALIGNED _Atomic uint32_t unfinished;
    KRT_ALIGNED _Atomic uint32_t phase;
    KRT_ALIGNED const krt_stage *stage; /* the one that runs */
    krt_plan *plan;
    krt_sample *samples;
    const krt_context *context;
    int64_t origin_ns;
    krt_status status; /* why it stopped; written by whoever stopped it */
    size_t failed_op;
    krt_status deferred; /* an interrupt that came too late to stop for */
    uint32_t since_poll_us; /* work of the caller since it last looked for signals */
    int64_t waited_ns;    /* what the caller has waited for others in this execution */
    _Atomic bool helped; /* whether a worker had a part in it */

    krt_task *tasks;
    _Atomic uint32_t *ready; /* op + 1; 0: the slot is not written yet */
    uint32_t *successors;
    int64_t *finish_ns; /* scratch of the estimate: when each op could be done */
    krt_stage *stages;
    size_t n_stages;
    krt_choice choice;
};

#endif
