# cython: language_level=3
"""Cython declarations of csrc/krt.h and csrc/signals.h."""

from libc.stdint cimport int64_t, uint32_t

cdef extern from "krt.h" nogil:
    ctypedef enum krt_status:
        KRT_OK
        KRT_NO_MEMORY
        KRT_INVALID
        KRT_BUSY
        KRT_DEADLOCK
        KRT_TIMEOUT
        KRT_OUT_OF_BOUNDS
        KRT_CUSTOM_FAILED
        KRT_INTERRUPTED
        KRT_FORKED
        KRT_NO_STACK

    int64_t krt_clock_ns()
    void *krt_memory_alloc(size_t nbytes, size_t alignment, bint zero)
    void krt_memory_free(void *memory, size_t nbytes)
    void krt_memory_discard(void *memory, size_t nbytes)

    ctypedef void (*krt_kernel)(void *const *bufs, const int64_t *vals) noexcept

    ctypedef enum krt_kind:
        KRT_KERNEL
        KRT_COPY
        KRT_CUSTOM
        KRT_NOP
        KRT_REGION

    enum:
        KRT_HOST_PARALLEL_SAFE
        KRT_MAY_FAIL
        KRT_COMMIT
        KRT_FOLLOWS
        KRT_UNKNOWN_COST

    ctypedef struct krt_plan:
        pass

    size_t KRT_ITERATION

    ctypedef struct krt_initial:
        size_t dst
        size_t src
        size_t nbytes

    ctypedef struct krt_binding:
        size_t body
        size_t op
        size_t at
        size_t slot
        int64_t offset
        int64_t stride

    ctypedef struct krt_region:
        krt_plan *const *bodies
        size_t n_bodies
        int64_t count
        bint reverse
        int64_t count_slot
        int64_t condition_slot
        int64_t choice_slot
        const krt_initial *initial
        size_t n_initial
        const krt_binding *bindings
        size_t n_bindings

    ctypedef struct krt_op:
        krt_kind kind
        krt_kernel fn
        void *const *bufs
        size_t n_bufs
        const int64_t *vals
        size_t n_vals
        int64_t chunks
        int64_t core_slot
        unsigned int flags
        int64_t cost_ns
        const size_t *deps
        size_t n_deps
        const krt_region *region
        int64_t slices

    ctypedef struct krt_fault:
        size_t op
        const char *field
        const char *reason

    ctypedef struct krt_host:
        void *self
        krt_status (*custom)(void *self, size_t op) noexcept nogil
        krt_status (*poll)(void *self) noexcept nogil

    ctypedef struct krt_lock:
        pass

    krt_status krt_lock_acquire(krt_lock *lock, int64_t timeout_ns)
    void krt_lock_release(krt_lock *lock)

    krt_status krt_plan_create(const krt_op *ops, size_t n, krt_host host, krt_plan **out,
                               krt_fault *fault)
    void krt_plan_destroy(krt_plan *plan)
    void krt_plan_set_host(krt_plan *plan, krt_host host)
    krt_status krt_plan_execute(krt_plan *plan, size_t *failed_op)

    ctypedef struct krt_sample:
        int64_t start_ns
        int64_t elapsed_ns
        int64_t worker
        int64_t chunks
        int64_t runs

    ctypedef struct krt_claim_sample:
        int64_t op
        int64_t worker
        int64_t begin
        int64_t end
        int64_t start_ns
        int64_t elapsed_ns

    ctypedef struct krt_profile:
        krt_sample *samples
        krt_claim_sample *claims
        size_t n_claims

    size_t krt_plan_n_samples(const krt_plan *plan)
    size_t krt_plan_most_claims(const krt_plan *plan)
    krt_status krt_plan_execute_profiled(krt_plan *plan, krt_profile *profile, size_t *failed_op)
    int64_t krt_plan_status(const krt_plan *plan, size_t op)

    ctypedef struct krt_failure:
        size_t body
        size_t op
        int64_t iteration

    bint krt_region_failure(const krt_plan *plan, size_t op, krt_failure *out)

    ctypedef enum krt_edit_kind:
        KRT_SET_POINTER
        KRT_SET_VALUE
        KRT_SET_CHUNKS

    ctypedef struct krt_edit:
        krt_edit_kind kind
        size_t op
        size_t slot
        int64_t value

    krt_status krt_plan_edit(krt_plan *plan, const krt_edit *edits, size_t n, krt_fault *fault)

    ctypedef struct krt_exchange:
        krt_plan *plan
        const size_t *where
        const krt_op *items
        size_t n

    krt_status krt_exchange_all(krt_exchange *exchanges, size_t n, krt_fault *fault)
    size_t krt_plan_n_ops(const krt_plan *plan)
    void krt_plan_set_threads(krt_plan *plan, int threads)
    void krt_plan_need_stack(krt_plan *plan, size_t nbytes)
    int64_t krt_plan_cost_ns(krt_plan *plan)
    krt_status krt_plan_get_pointer(const krt_plan *plan, size_t op, size_t slot, void **out,
                                    krt_fault *fault)
    krt_status krt_plan_set_pointer(krt_plan *plan, size_t op, size_t slot, void *address,
                                    krt_fault *fault)
    krt_status krt_plan_get_value(const krt_plan *plan, size_t op, size_t slot, int64_t *out,
                                  krt_fault *fault)
    krt_status krt_plan_set_value(krt_plan *plan, size_t op, size_t slot, int64_t value,
                                  krt_fault *fault)
    size_t krt_plan_slices(const krt_plan *plan, size_t op)
    krt_status krt_plan_get_chunks(const krt_plan *plan, size_t op, int64_t *out,
                                   krt_fault *fault)
    krt_status krt_plan_set_chunks(krt_plan *plan, size_t op, int64_t chunks, krt_fault *fault)

    int krt_affinity_count()
    int64_t krt_cgroup_milli_cpus()
    int krt_pool_limit()
    int krt_get_num_threads()
    void krt_set_num_threads(int n)
    ctypedef struct krt_thread_costs:
        int64_t hand_over_ns
        int64_t chunk_ns
        int64_t part_ns
        int64_t wake_ns
    void krt_set_thread_costs(krt_thread_costs costs)
    bint krt_pool_take_start_failure()

cdef extern from "signals.h" nogil:
    bint krt_signals_find_handler(int signal, const void *host_code)
    uint32_t krt_signals_count()
    bint krt_signals_are_counted()
    void krt_signals_start_counting()
