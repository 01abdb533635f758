# cython: language_level=3
"""The fields of the table of a plan, for other extensions."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport krt_fault, krt_host, krt_lock, krt_plan, krt_profile, krt_status
from kernelrt.native.krt_model cimport krt_model
from kernelrt.native.op_structs cimport Ops


# Return whether the process is exiting; if so, executions keep the GIL from now on.
cdef bint is_exiting() noexcept nogil

# Mark the beginning and the end of an execution without the GIL. Call both with the GIL held.
cdef void begin() noexcept
cdef void end() noexcept

# Return whether the exiting process waits for this thread to leave its plan.
cdef bint must_end() noexcept nogil

# Return whether Python runs signal handlers on this thread.
cdef bint handles_signals() noexcept nogil


# Raise the exception for a status. `cause` is the exception of a custom function or signal handler,
# `name` the text by which errors name its op, `index_error` the exception for KRT_OUT_OF_BOUNDS,
# and `iteration` the iteration number of the loop around the op.
cdef int raise_status(krt_status status, const krt_fault *fault, size_t op, object cause,
                      object name=*, object index_error=*, object iteration=*) except -1

# Raise the exception for a run that stopped at `op`. Within regions (`path`, see
# `Table.stopped_in`) the op `at` of the innermost body `plan` stopped; its status word is `word`.
cdef int raise_stopped(krt_status status, size_t op, object cause, object plan, size_t at,
                       int64_t word, list path) except -1


# Whether a thread could not be started and no warning has been issued yet.
cdef bint start_failed


# If a run must take the GIL to ask Python whether to continue, return the time in ns; else 0.
cdef int64_t poll_due() noexcept nogil

# Schedule the next question. Call with the GIL held, before asking; the run has waited for the GIL
# since `since_ns`.
cdef int schedule_poll(int64_t since_ns) except -1


# Maximum time of consecutive runs while other threads wait for the GIL. They wait ten times as long
# for Python code.
cdef enum:
    BURST_NS = 500_000


cdef class Model:
    cdef krt_model *model
    cdef dict routines
    cdef object allocate
    cdef object error  # raised by `allocate`
    cdef object __weakref__

    cdef int check(self, int function) except -1
    cdef int check_live(self) except -1
    cdef int check_plan(self, size_t plan) except -1
    cdef int check_op(self, size_t plan, size_t op) except -1
    cdef int fill(self, int64_t *given, size_t plan, values) except -1


cdef class ModelPlan:
    cdef Model model
    cdef size_t number
    cdef tuple bodies  # of its regions: (op, tables)


cdef class Table:
    cdef krt_lock lock
    cdef krt_plan *plan
    cdef Model lender  # the model that owns the plan, kept alive; None if there is none
    cdef bint lent  # whether a model owns the plan: the collector may have cleared `lender`
    cdef size_t count
    cdef size_t most_claims  # limit of the claims that a profiled run records
    cdef size_t samples  # number of samples of a profiled run: of its ops and of those of bodies
    cdef int limit  # maximum number of threads; 0: no limit
    cdef dict customs
    cdef bint foreign  # whether it calls C functions of users
    cdef tuple bodies  # bodies of its regions: (op, Tables)
    cdef bint owned  # whether it is a body, which only the plan of its region runs and changes
    cdef object bound_by  # the Replay whose values the table holds; changed under exclusive access
    cdef object __weakref__

    # Called once, before all other methods. The object of `host` lives as long as the table.
    cdef int make(self, ops, krt_host host) except -1
    cdef int adopt(self, Ops staged, krt_host host, krt_fault *fault) except -1
    cdef int take(self, ModelPlan given, krt_host host) except -1

    # Exclusive access: call one of these, then any of the methods below, then `leave`. If one of
    # the first three raises, there is no access. Under exclusive access no Python code runs except
    # the callables and values of `assign` and `exchange`, and functions that the plan calls.
    cdef int acquire(self) except -1
    cdef int acquire_to_read(self) except -1
    cdef int acquire_with(self, bind) except -1
    cdef krt_status try_acquire(self) noexcept  # does not wait; succeeds for a released plan, too

    cdef int assign(self, tuple changes) except -1
    cdef int exchange(self, list changes) except -1
    cdef list all_bodies(self)
    cdef void bind(self, size_t op, size_t slot, void *address) noexcept
    cdef krt_status launch(self, krt_profile *profile, size_t *failed_op, bint keep_gil) noexcept
    cdef Py_ssize_t runs_per_clock_read(self, int64_t extra_ns) noexcept
    cdef int64_t now(self) noexcept
    cdef void leave(self) noexcept

    # For the current run, or for the last one until `leave`.
    cdef int call_custom(self, size_t op) except -1
    cdef list stopped_in(self, size_t *op)
    cdef Table body_at(self, size_t op, size_t which)
    cdef int64_t status_word(self, size_t op) noexcept
