/* krt.h - the C core of kernelrt: prepared plans of kernels and the threads that run them.
 *
 * A plan is a list of operations over raw addresses. It is checked and laid out once and then
 * executed many times. The core does not depend on Python: the host provides custom functions and
 * the check for interrupts as two callbacks.
 *
 * The comment of each function states ownership, the threads that may call it, and its failures.
 * No function sets errno on purpose, prints, or ends the process. */
#ifndef KRT_H
#define KRT_H

#include "krt_types.h"

/* ---- Time and memory --------------------------------------------------------------------- */

/* Monotonic nanoseconds since an arbitrary start. Any thread; cannot fail. */
int64_t krt_clock_ns(void);

/* Allocate at least `nbytes` bytes (and at least one), aligned to `alignment`, a power of two;
 * filled with zeros if `zero`. The caller owns the block and frees it with krt_memory_free and the
 * same `nbytes`. NULL: no memory. */
void *krt_memory_alloc(size_t nbytes, size_t alignment, bool zero);
void krt_memory_free(void *memory, size_t nbytes);

/* Return the whole pages of a block to the system. It stays allocated; its contents are lost. */
void krt_memory_discard(void *memory, size_t nbytes);

/* ---- Operations -------------------------------------------------------------------------- */

typedef enum krt_kind {
    KRT_KERNEL = 0, /* fn(bufs, vals), once per chunk */
    KRT_COPY = 1,   /* vals[0] bytes from bufs[1] to bufs[0], which may overlap */
    KRT_CUSTOM = 2, /* host.custom(host.self, op) */
    KRT_NOP = 3,    /* does nothing; the host's numbering of ops stays as it is */
    KRT_REGION = 4  /* runs other plans, as its krt_region says */
} krt_kind;

enum {
    KRT_HOST_PARALLEL_SAFE = 1, /* may run at the same time as ops it is not ordered with */
    KRT_MAY_FAIL = 2,           /* may store to its status word */
    KRT_COMMIT = 4,             /* writes state that outlives the plan */
    KRT_FOLLOWS = 8,            /* in the pipeline of the op before: see krt_op.slices */
    KRT_UNKNOWN_COST = 16,      /* cost_ns is a guess: poll the host after this op */
    KRT_ALL_FLAGS = 31
};

typedef struct krt_plan krt_plan;
typedef struct krt_region krt_region;

/* One operation, described by the host. Only krt_plan_create reads the arrays.
 *
 * Each op with KRT_MAY_FAIL has its own status word, an int64_t that is 0 when a run begins. A null
 * address among its `bufs` is replaced by the address of the status word. Several chunks may store
 * to it at once (atomically, in any order). The host defines the meaning of nonzero values. */
typedef struct krt_op {
    krt_kind kind;
    krt_kernel fn;
    void *const *bufs;
    size_t n_bufs;
    const int64_t *vals;
    size_t n_vals;
    int64_t chunks;    /* number of calls; 0 skips the op */
    int64_t core_slot; /* the index in vals that receives the chunk number, or -1 */
    unsigned flags;
    int64_t cost_ns; /* estimate for all chunks together */
    const size_t *deps;
    size_t n_deps; /* each dep is the index of an earlier op */
    const krt_region *region; /* of a KRT_REGION; otherwise ignored */

    /* Number of slices of the op's pipeline; 0: the op is in no pipeline. A pipeline is an op and
     * the ops after it that have KRT_FOLLOWS. Its ops are kernels that may run in parallel with
     * others, cannot fail and do not commit. They have the same number of slices, which divides
     * their numbers of chunks. Slice s of an op depends only on slices s of the other ops of the
     * pipeline. So the pipeline runs slice s of all ops before slice s + 1, while caches still hold
     * the written data. The first op depends on all ops outside the pipeline that any op of it
     * depends on; the others depend on the first. */
    int64_t slices;
} krt_op;

/* ---- Regions -----------------------------------------------------------------------------
 *
 * A region is an op that executes other plans, its bodies: it runs one body in each iteration.
 * Before each iteration it sets addresses in the body, computed from the addresses of its own op.
 * No other plan may use the rest of the memory that a body writes. Bodies are created before the
 * region's plan. A body belongs to one region forever and is borrowed for the life of the region's
 * plan. It is executed and changed only under the lock of that plan. */

/* A copy between two buffers of the op. It is made before the first iteration, and also if there is
 * no iteration. It is skipped if both buffers have the same address. */
typedef struct krt_initial {
    size_t dst, src, nbytes;
} krt_initial;

/* In each iteration, buffer `at` of op `op` of a body has the address of buffer `slot` of the
 * region's op plus `offset + iteration * stride`. KRT_ITERATION as the slot: the buffer is an
 * int64_t that holds the iteration number. */
#define KRT_ITERATION SIZE_MAX
typedef struct krt_binding {
    size_t body, op, at;
    size_t slot;
    int64_t offset, stride;
} krt_binding;

/* Slots are buffers of the region's op, or -1 for none. Only krt_plan_create reads this. */
struct krt_region {
    krt_plan *const *bodies;
    size_t n_bodies;
    int64_t count;          /* the maximum number of iterations */
    bool reverse;           /* number iterations from the last one down to 0 */
    int64_t count_slot;     /* an int64_t: number of iterations, clamped to 0 to `count` */
    int64_t condition_slot; /* a byte: no iteration begins if it is 0 */
    int64_t choice_slot;    /* an int64_t: index of the body, clamped; if there are several */
    const krt_initial *initial;
    size_t n_initial;
    const krt_binding *bindings;
    size_t n_bindings;
};

/* Location and reason of a KRT_INVALID. The strings are constants. */
typedef struct krt_fault {
    size_t op;
    const char *field;
    const char *reason;
} krt_fault;

/* Callbacks of the host, always called on the thread that called execute. */
typedef struct krt_host {
    void *self;
    krt_status (*custom)(void *self, size_t op); /* KRT_OK, or KRT_CUSTOM_FAILED to stop */
    krt_status (*poll)(void *self); /* KRT_OK, or KRT_INTERRUPTED to stop; at most every 20 ms */
} krt_host;

/* ---- Plans ------------------------------------------------------------------------------- */

/* A lock for exclusive access to a plan. It outlives the plan, so that waiting threads never touch
 * freed memory. A zero-initialised lock is free. After a fork, a lock that was held by a thread
 * that does not exist in the child is free there. It must not move while it is held. */
typedef struct krt_lock {
    _Atomic uint32_t word;
    _Atomic bool overdue;        /* a thread has waited long: it is served next */
    _Atomic int64_t reserved_ns; /* when the lock was last left for such a thread */
    _Atomic uintptr_t holder;    /* identifies the thread that holds it; 0: none */
    struct krt_lock *below;      /* the lock that the holder took before */
} krt_lock;

/* Take `lock` for the calling thread, waiting up to `timeout_ns` (0: not at all).
 * KRT_BUSY: the calling thread holds it already. KRT_TIMEOUT: another thread still holds it.
 * KRT_DEADLOCK: waiting would never end. */
krt_status krt_lock_acquire(krt_lock *lock, int64_t timeout_ns);

/* Release a lock that this thread holds. The order is free: coroutines may be interleaved. */
void krt_lock_release(krt_lock *lock);

/* Check and lay out `n` operations. On KRT_OK `*out` belongs to the caller. On KRT_INVALID
 * `*fault` names the op and the field. KRT_NO_MEMORY leaves nothing allocated. Buffers and code are
 * borrowed for the life of the plan. Any thread. */
krt_status krt_plan_create(const krt_op *ops, size_t n, krt_host host, krt_plan **out,
                           krt_fault *fault);

/* Free a plan; NULL is allowed. The plan must not be in use. */
void krt_plan_destroy(krt_plan *plan);

/* Replace the callbacks of a plan. The caller holds the plan's lock. */
void krt_plan_set_host(krt_plan *plan, krt_host host);

/* Run the plan once. The caller holds the plan's lock. On KRT_OUT_OF_BOUNDS and KRT_CUSTOM_FAILED
 * `*failed_op` is the op that failed. Allocates only if this thread's stack is too small: see
 * krt_plan_need_stack. */
krt_status krt_plan_execute(krt_plan *plan, size_t *failed_op);

/* Timing of an op. The ops of a pipeline alternate, so their times are made up: each op gets its
 * share of the pipeline's time, as if the ops had run one after the other on the thread that began
 * the pipeline. */
typedef struct krt_sample {
    int64_t start_ns; /* since the start of the plan; start of the op, or of its earliest claim */
    int64_t elapsed_ns;
    int64_t worker; /* the thread that began the op; 0 is the calling thread */
    int64_t chunks; /* 0: the op did not run */
    int64_t runs;   /* number of runs; 0 if it did not run */
} krt_sample;

/* A claim: chunks of an op that a thread took together, in an execution on several threads. */
typedef struct krt_claim_sample {
    int64_t op;
    int64_t worker;     /* 0 is the calling thread */
    int64_t begin, end; /* numbers of chunks; of slices if `op` is the first op of a pipeline */
    int64_t start_ns;   /* since the start of the plan */
    int64_t elapsed_ns;
} krt_claim_sample;

/* Results of a profiled execution. */
typedef struct krt_profile {
    krt_sample *samples;      /* krt_plan_n_samples of them */
    krt_claim_sample *claims; /* at least krt_plan_most_claims of them; NULL: do not record any */
    size_t n_claims;          /* number of recorded claims, which have no order; none of bodies */
} krt_profile;

/* The number of samples that a profiled execution fills. First comes one sample for each op of the
 * plan. Then come the samples of the bodies, region by region and body by body; the samples of each
 * body are followed by those of its own regions. */
size_t krt_plan_n_samples(const krt_plan *plan);

/* Maximum number of claims that a profiled execution records; 0: it never uses several threads. */
size_t krt_plan_most_claims(const krt_plan *plan);

/* Like krt_plan_execute, and fill `profile`. For an op of a body that ran several times the sample
 * has the first start, the total time, and the other fields of the last run. This is a function of
 * its own, so that profiling does not slow down krt_plan_execute. */
krt_status krt_plan_execute_profiled(krt_plan *plan, krt_profile *profile, size_t *failed_op);

/* The value that `op` stored to its status word in the last run; 0 if it stored none or has no
 * status word. The caller has held the plan's lock since that run. */
int64_t krt_plan_status(const krt_plan *plan, size_t op);

/* The body, the op of the body and the iteration number in which a region stopped. */
typedef struct krt_failure {
    size_t body, op;
    int64_t iteration;
} krt_failure;

/* Return where `op`, which stopped the last run, stopped; false if `op` is not a region. The op of
 * the body that stopped it may be a region, too. The caller has held the plan's lock since that
 * run. */
bool krt_region_failure(const krt_plan *plan, size_t op, krt_failure *out);

/* One change of a plan: an address, a value in the rows of all chunks, or a number of chunks. */
typedef enum krt_edit_kind { KRT_SET_POINTER, KRT_SET_VALUE, KRT_SET_CHUNKS } krt_edit_kind;
typedef struct krt_edit {
    krt_edit_kind kind;
    size_t op, slot;
    int64_t value; /* an address as its bits */
} krt_edit;

/* Make all `n` changes, in order, or none. The caller holds the plan's lock. KRT_INVALID: a change
 * is not legal; `*fault` names it. KRT_NO_MEMORY: no memory for more chunks than ever before. */
krt_status krt_plan_edit(krt_plan *plan, const krt_edit *edits, size_t n, krt_fault *fault);

/* New code for `n` kernels of a plan, at the ascending indices `where`. The function, values,
 * chunks, core slot, estimate and slices of an item are used; the op keeps its buffers, flags and
 * dependencies. A skipped op stays skipped. */
typedef struct krt_exchange {
    krt_plan *plan;
    const size_t *where;
    const krt_op *items;
    size_t n;
    struct krt_tables { /* filled by krt_exchange_all */
        int64_t *rows;
        void *steps;
    } made;
} krt_exchange;

/* Replace kernels by equivalent code in `n` plans: a plan and bodies of its regions, each once. All
 * replacements are made, or none. Ops that were created as a pipeline are a pipeline afterwards if
 * their numbers of slices are equal and at most the original one. The caller holds the locks of all
 * plans. KRT_INVALID: an op is not a kernel, or an item is malformed; `*fault` names it. */
krt_status krt_exchange_all(krt_exchange *exchanges, size_t n, krt_fault *fault);

/* Accessors. The caller of a setter holds the plan's lock. KRT_INVALID: `op` or `slot` does not
 * exist, or the value is not legal there; `*fault` says which. Only krt_plan_set_chunks allocates,
 * to grow; on KRT_NO_MEMORY the plan is unchanged. */
size_t krt_plan_n_ops(const krt_plan *plan);

/* The number of slices of the pipeline that `op` is in; 0 if it is in none. */
size_t krt_plan_slices(const krt_plan *plan, size_t op);

/* Limit the threads for the plan and the bodies of its regions; 0: no limit of its own. */
void krt_plan_set_threads(krt_plan *plan, int threads);

/* Note that a kernel of the plan has arrays of `nbytes` on the stack; it must be far below a
 * megabyte. If the executing thread has less stack left, the plan runs serially, and another thread
 * calls its kernels. When a plan is created, it takes over the needs of its regions' bodies. */
void krt_plan_need_stack(krt_plan *plan, size_t nbytes);
int64_t krt_plan_cost_ns(krt_plan *plan);
krt_status krt_plan_get_pointer(const krt_plan *plan, size_t op, size_t slot, void **out,
                                krt_fault *fault);
krt_status krt_plan_set_pointer(krt_plan *plan, size_t op, size_t slot, void *address,
                                krt_fault *fault);
krt_status krt_plan_get_value(const krt_plan *plan, size_t op, size_t slot, int64_t *out,
                              krt_fault *fault);
krt_status krt_plan_set_value(krt_plan *plan, size_t op, size_t slot, int64_t value,
                              krt_fault *fault);
krt_status krt_plan_get_chunks(const krt_plan *plan, size_t op, int64_t *out, krt_fault *fault);
/* If the number changes, the op's pipeline, if it is in one, is dissolved. */
krt_status krt_plan_set_chunks(krt_plan *plan, size_t op, int64_t chunks, krt_fault *fault);

/* ---- Threads ----------------------------------------------------------------------------- */

/* CPUs this process may run on, at least 1. */
int krt_affinity_count(void);

/* The CPU limit of this process's control group in thousandths of a CPU; 0 if none is set. */
int64_t krt_cgroup_milli_cpus(void);

/* min(affinity, cgroup quota, KERNELRT_THREADS), read once per process; at least 1. */
int krt_pool_limit(void);

/* The number of threads, including the caller, that a plan may use. Default: OMP_NUM_THREADS if
 * KERNELRT_THREADS gives no number, else krt_pool_limit(). Larger values than krt_pool_limit() are
 * clamped to it. Takes effect with the next execute. Any thread. */
int krt_get_num_threads(void);
void krt_set_num_threads(int n);

/* What threads cost, in nanoseconds. */
typedef struct krt_thread_costs {
    int64_t hand_over_ns; /* time to pass a chunk or an op to another thread */
    int64_t chunk_ns;     /* least work for which a chunk of its own pays */
    int64_t part_ns;      /* least work for which another thread pays */
    int64_t wake_ns;      /* time from waking a sleeping thread until it works */
} krt_thread_costs;

/* Set the costs for estimates of plans; initially all 0. Call before the first plan is made. */
void krt_set_thread_costs(krt_thread_costs costs);

/* The same, unless krt_set_thread_costs was called. */
void krt_default_thread_costs(krt_thread_costs costs);

/* The number of forks between the original process and this one. */
uint32_t krt_fork_count(void);

/* Return whether starting a thread has failed since the last call of this function. */
bool krt_pool_take_start_failure(void);

#endif
