/* krt.h - the C core of kernelrt: prepared plans of kernels and the threads that run them.
 *
 * A plan is a list of operations over raw addresses, checked and laid out once and then executed
 * many times. The core knows nothing of Python: what it needs from its host (custom functions,
 * "was I interrupted?") comes in as two callbacks.
 *
 * Every function states who owns what, from which thread it may be called, and how it fails.
 * No function sets errno on purpose, prints, or ends the process. */
#ifndef KRT_H
#define KRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum krt_status {
    KRT_OK = 0,
    KRT_NO_MEMORY,     /* an allocation failed; nothing was changed */
    KRT_INVALID,       /* an argument is out of range; see krt_fault or the function's comment */
    KRT_BUSY,          /* the calling thread is executing this very plan */
    KRT_DEADLOCK,      /* whoever holds the lock waits for one that the calling thread holds */
    KRT_TIMEOUT,       /* another thread kept the lock for all of the time given */
    KRT_OUT_OF_BOUNDS, /* an operation stored to its status word */
    KRT_CUSTOM_FAILED, /* a custom function reported failure */
    KRT_INTERRUPTED,   /* the host asked to stop */
    KRT_FORKED,        /* in a child: the threads that had parts of this run do not exist here */
    KRT_NO_STACK       /* too little is left of it here, and no other thread could be started */
} krt_status;

/* ---- Time and memory --------------------------------------------------------------------- */

/* Monotonic nanoseconds since an arbitrary start. Any thread; cannot fail. */
int64_t krt_clock_ns(void);

/* At least `nbytes` bytes (and at least one) at a multiple of `alignment`, a power of two; all
 * zero if `zero`. The caller owns them and gives them to krt_memory_free, with as many bytes as
 * were asked for. NULL: no memory. */
void *krt_memory_alloc(size_t nbytes, size_t alignment, bool zero);
void krt_memory_free(void *memory, size_t nbytes);

/* Returns the whole pages of a block to the system. It stays allocated; its contents are lost. */
void krt_memory_discard(void *memory, size_t nbytes);

/* ---- Operations -------------------------------------------------------------------------- */

typedef void (*krt_kernel)(void *const *bufs, const int64_t *vals);

typedef enum krt_kind {
    KRT_KERNEL = 0, /* fn(bufs, vals), once a chunk */
    KRT_COPY = 1,   /* vals[0] bytes from bufs[1] to bufs[0], which may overlap */
    KRT_CUSTOM = 2, /* host.custom(host.self, op) */
    KRT_NOP = 3,    /* nothing: keeps its place in the numbering */
    KRT_REGION = 4  /* plans of its own, as often as its krt_region says */
} krt_kind;

enum {
    KRT_HOST_PARALLEL_SAFE = 1, /* may run beside ops it is not ordered with */
    KRT_MAY_FAIL = 2,           /* may store to its status word */
    KRT_COMMIT = 4,             /* writes state that outlives the plan */
    KRT_FOLLOWS = 8,            /* goes with the op before, slice by slice: see krt_op.slices */
    KRT_UNKNOWN_COST = 16,      /* cost_ns is a guess: the host is asked after this op */
    KRT_ALL_FLAGS = 31
};

typedef struct krt_plan krt_plan;
typedef struct krt_region krt_region;

/* One operation as the host describes it. Arrays are read during krt_plan_create only.
 *
 * Each op with KRT_MAY_FAIL has a status word of its own, an int64_t that is 0 when a run begins.
 * A null address among its `bufs` stands for it. Several chunks may store there at once (atomic,
 * in any order); what is stored is the host's business, as long as it is not 0. */
typedef struct krt_op {
    krt_kind kind;
    krt_kernel fn;
    void *const *bufs;
    size_t n_bufs;
    const int64_t *vals;
    size_t n_vals;
    int64_t chunks;    /* how many calls; 0 skips the op */
    int64_t core_slot; /* the index in vals that counts the chunks, or -1 */
    unsigned flags;
    int64_t cost_ns; /* estimate for all chunks together */
    const size_t *deps;
    size_t n_deps; /* each dep is the index of an earlier op */
    const krt_region *region; /* of a KRT_REGION; else not read */

    /* A chain is an op and those after it that have KRT_FOLLOWS: kernels that may run beside
     * others, cannot fail and commit to nothing, with equal numbers of slices into which their
     * chunks divide evenly. What slice s of one needs, or may not overwrite, of others in the chain
     * belongs to their slices s. So one slice of all is run before the next, while caches hold what
     * it has written. The first op depends on all that the others depend on outside of the chain,
     * and these on it. 0: it is in none. */
    int64_t slices;
} krt_op;

/* ---- Regions -----------------------------------------------------------------------------
 *
 * A region is an op that executes plans, its bodies: one of them, turn after turn. Bodies read and
 * write what their addresses say, which are set for each turn from those of the region's op; what
 * else they write nobody else may use. They are made first, belong to one region for good, are
 * borrowed for the life of its plan, and are executed and changed in turns of that plan alone. */

/* Before the first turn, and where there is none: so many bytes from one of the op's buffers to
 * another, unless they are at one address. */
typedef struct krt_initial {
    size_t dst, src, nbytes;
} krt_initial;

/* Buffer `at` of op `op` of a body lies `offset + turn * stride` bytes behind buffer `slot` of the
 * region's op. KRT_TURN as the slot: it is an int64_t that has the number of the turn. */
#define KRT_TURN SIZE_MAX
typedef struct krt_binding {
    size_t body, op, at;
    size_t slot;
    int64_t offset, stride;
} krt_binding;

/* Slots are buffers of the region's op, or -1 for none. Read during krt_plan_create only. */
struct krt_region {
    krt_plan *const *bodies;
    size_t n_bodies;
    int64_t count;          /* the most turns */
    bool reverse;           /* the last turn's number first, down to 0 */
    int64_t count_slot;     /* an int64_t: how many turns, of 0 to `count` what is nearest */
    int64_t condition_slot; /* a byte: while it is 0 no turn begins */
    int64_t choice_slot;    /* an int64_t: which body, the nearest there is; if there are several */
    const krt_initial *initial;
    size_t n_initial;
    const krt_binding *bindings;
    size_t n_bindings;
};

/* Where and why krt_plan_create or a setter said KRT_INVALID. The strings are constants. */
typedef struct krt_fault {
    size_t op;
    const char *field;
    const char *reason;
} krt_fault;

/* What the core asks of its host, always on the thread that called execute. */
typedef struct krt_host {
    void *self;
    krt_status (*custom)(void *self, size_t op); /* KRT_OK, or KRT_CUSTOM_FAILED to stop */
    krt_status (*poll)(void *self); /* KRT_OK, or KRT_INTERRUPTED to stop; every 20 ms */
} krt_host;

/* ---- Plans ------------------------------------------------------------------------------- */

/* A lock that outlives its plan, so that threads waiting for a turn never touch freed memory.
 * Zero-initialised means free. It knows about fork: a lock held by a thread that does not exist
 * in the child is free there. It stays where it is while it is held. */
typedef struct krt_lock {
    _Atomic uint32_t word;
    _Atomic uintptr_t holder; /* stands for the thread that holds it; 0: none */
    struct krt_lock *below;   /* the lock that this thread took before; the holder's */
} krt_lock;

/* Take `lock` for the calling thread, waiting up to `timeout_ns` (0: not at all).
 * KRT_BUSY: the calling thread holds it already. KRT_TIMEOUT: it is someone else's still.
 * KRT_DEADLOCK: waiting would never end. */
krt_status krt_lock_acquire(krt_lock *lock, int64_t timeout_ns);

/* Give back a lock that this thread holds, in any order: coroutines may be interleaved. */
void krt_lock_release(krt_lock *lock);

/* Check and lay out `n` operations. On KRT_OK `*out` belongs to the caller; on KRT_INVALID
 * `*fault` says which op and field; KRT_NO_MEMORY leaves nothing behind. Buffer addresses and
 * code are borrowed for the life of the plan. Any thread. */
krt_status krt_plan_create(const krt_op *ops, size_t n, krt_host host, krt_plan **out,
                           krt_fault *fault);

/* Free a plan; NULL is allowed. Nobody may be using it. */
void krt_plan_destroy(krt_plan *plan);

/* Run the plan once. The caller holds the plan's lock. On KRT_OUT_OF_BOUNDS and
 * KRT_CUSTOM_FAILED `*failed_op` is the op that stopped it. Allocates nothing, unless this thread's
 * stack is too small: see krt_plan_need_stack. */
krt_status krt_plan_execute(krt_plan *plan, size_t *failed_op);

/* When an op ran. Ops of a chain run in turns: of each it is its share of the time of all, as if one
 * had run after the other, and the thread that began. */
typedef struct krt_sample {
    int64_t start_ns; /* since the start of the plan */
    int64_t elapsed_ns;
    int64_t worker; /* 0 is the calling thread */
    int64_t chunks; /* 0: the op did not run */
    int64_t runs;   /* how often it ran; else 0 */
} krt_sample;

/* How many samples a profiled execution fills: one an op, and behind these, region by region and
 * body by body, those of the bodies, each followed by those of its own regions. */
size_t krt_plan_n_samples(const krt_plan *plan);

/* krt_plan_execute that also fills `samples`. Of the op of a body that ran in several turns the
 * sample has the first start, the time of all together, and the rest of the last. A function of
 * its own, so that the plain loop does not know that profiling exists. */
krt_status krt_plan_execute_profiled(krt_plan *plan, krt_sample *samples, size_t *failed_op);

/* What `op` stored to its status word in the last run; 0 for nothing, or where it has none. The
 * caller holds the plan's lock since that run. */
int64_t krt_plan_status(const krt_plan *plan, size_t op);

/* Which op of which body stopped a region in the last run, and in the turn of which number. */
typedef struct krt_failure {
    size_t body, op;
    int64_t turn;
} krt_failure;

/* Where `op`, which stopped the last run, is a region. What stopped it may be one as well, of the
 * plan that is the body. The caller holds the plan's lock since that run. False: it is no region. */
bool krt_region_failure(const krt_plan *plan, size_t op, krt_failure *out);

/* One change of a plan: an address, a value in the rows of all chunks, or a number of chunks. */
typedef enum krt_edit_kind { KRT_SET_POINTER, KRT_SET_VALUE, KRT_SET_CHUNKS } krt_edit_kind;
typedef struct krt_edit {
    krt_edit_kind kind;
    size_t op, slot;
    int64_t value; /* an address as its bits */
} krt_edit;

/* Make all of `n` changes, in order, or none. The caller holds the plan's lock. KRT_INVALID: one
 * of them is not legal, and `*fault` says which. KRT_NO_MEMORY: for more chunks than ever. */
krt_status krt_plan_edit(krt_plan *plan, const krt_edit *edits, size_t n, krt_fault *fault);

/* Other code for `n` kernels of a plan, at `where`, ascending. Of an item its function, values,
 * chunks, core slot, estimate and slices count; buffers, flags and dependencies stay those of the
 * op, and one that is skipped stays so. */
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

/* Let other code that does the same take the place of kernels of `n` plans, a plan and bodies of its
 * regions, each once: all of it, or nothing. What was made as a chain is one from then on if all of
 * it has equal slices, at most as many as it was made with. The caller holds the locks of all plans.
 * KRT_INVALID: an op is no kernel, or an item is malformed, and `*fault` says which. */
krt_status krt_exchange_all(krt_exchange *exchanges, size_t n, krt_fault *fault);

/* Accessors. The caller holds the plan's lock for the setters. KRT_INVALID: `op` or `slot` does
 * not exist, or the value is not legal there; `*fault` says which. krt_plan_set_chunks alone
 * allocates, only to grow, and KRT_NO_MEMORY leaves the plan as it was. */
size_t krt_plan_n_ops(const krt_plan *plan);

/* Of the chain that `op` is in; 0 where it is in none. */
size_t krt_plan_slices(const krt_plan *plan, size_t op);

/* At most so many threads for the plan and the bodies of its regions; 0: no own limit. */
void krt_plan_set_threads(krt_plan *plan, int threads);

/* Some kernel of the plan has arrays of `nbytes` on the stack, far below a megabyte. An execution
 * on a thread that has less left calls kernels on another thread, and runs serially. A plan needs
 * what the bodies of its regions needed when it was made. */
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
/* Another number than before: the chain of the op, if it is in one, is none any more. */
krt_status krt_plan_set_chunks(krt_plan *plan, size_t op, int64_t chunks, krt_fault *fault);

/* ---- Threads ----------------------------------------------------------------------------- */

/* CPUs this process may run on, at least 1. */
int krt_affinity_count(void);

/* The CPU limit of this process's control group in thousandths of a CPU; 0 where none is set. */
int64_t krt_cgroup_milli_cpus(void);

/* min(affinity, cgroup quota, KERNELRT_THREADS), read once a process; at least 1. */
int krt_pool_limit(void);

/* How many threads, the caller included, a plan may use: unless it was set, OMP_NUM_THREADS where
 * KERNELRT_THREADS gives no number, else krt_pool_limit(). Setting it above krt_pool_limit() means
 * krt_pool_limit(). Takes effect with the next execute. Any thread. */
int krt_get_num_threads(void);
void krt_set_num_threads(int n);

/* What threads cost, in nanoseconds. */
typedef struct krt_thread_costs {
    int64_t hand_over_ns; /* passing a chunk, or another op, to a thread */
    int64_t chunk_ns;     /* what is worth that */
    int64_t part_ns;      /* what is worth another thread */
    int64_t wake_ns;      /* from calling a thread that sleeps until it works */
} krt_thread_costs;

/* What plans estimate with; all 0 in the beginning. Before the first plan is made. */
void krt_set_thread_costs(krt_thread_costs costs);

/* How often this process came out of a fork as the child. */
uint32_t krt_fork_count(void);

/* Whether a thread could not be started since the last call of this function. */
bool krt_pool_take_start_failure(void);

#endif
