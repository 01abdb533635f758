# cython: language_level=3
"""The table of a plan with its fields, for the extensions that build on it."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport krt_fault, krt_host, krt_lock, krt_plan, krt_sample, krt_status
from kernelrt.native.op_structs cimport Ops


# Whether the process ends: then executions keep the GIL from now on.
cdef bint is_exiting() noexcept nogil

# This thread executes without the GIL, between the first and the second. Both are called with it.
cdef void begin() noexcept
cdef void end() noexcept

# Whether the process waits for this thread to come out of its plan.
cdef bint must_end() noexcept nogil

# Whether Python runs handlers of signals on this thread.
cdef bint handles_signals() noexcept nogil


# `cause` is what a custom function or a signal handler raised, `name` what errors call its
# operation, `index_error` what to raise for an index, `turn` that of the loop around either.
cdef int raise_status(krt_status status, const krt_fault *fault, size_t op, object cause,
                      object name=*, object index_error=*, object turn=*) except -1

# As above for a run of a plan, which stopped at `op`: within regions (`path`, see
# `Table.stopped_in`) at the op `at` of `plan`, the last of their bodies, which stored `word`.
cdef int raise_stopped(krt_status status, size_t op, object cause, object plan, size_t at,
                       int64_t word, list path) except -1


# A thread could not be started, and nobody was told yet.
cdef bint start_failed


# Whether a run has to take the GIL to ask whether to go on, and then what time it is; else 0.
cdef int64_t when_to_ask() noexcept nogil

# To be called before it asks, with the GIL, for which it has waited since then.
cdef int ask_from_now_on(int64_t since_ns) except -1


# Runs that follow each other while other threads wait for the GIL: so long in all. They wait ten
# times as long for code in Python.
cdef enum:
    BURST_NS = 500_000


cdef class Table:
    cdef krt_lock lock
    cdef krt_plan *plan
    cdef size_t count
    cdef size_t samples  # of a profiled run: of its ops, and of those of bodies
    cdef int limit  # threads that were asked for; 0: none
    cdef dict customs
    cdef bint foreign  # whether it calls C functions that somebody gave
    cdef tuple bodies  # of its regions: (op, Tables)
    cdef bint owned  # a body, which only the plan of its region runs and changes
    cdef object bound_by  # whose values the table holds; changed within a turn
    cdef object __weakref__

    # Once, before all else. What `host` points to lives as long as the table.
    cdef int make(self, ops, krt_host host) except -1
    cdef int adopt(self, Ops staged, krt_host host, krt_fault *fault) except -1

    # A turn: one of these, any of the methods below, then leave. Where one of the first three
    # raises there is no turn; within one only what `assign` and `exchange` are given and what the
    # plan itself calls is Python.
    cdef int acquire(self) except -1
    cdef int acquire_to_read(self) except -1
    cdef int acquire_with(self, bind) except -1
    cdef krt_status try_acquire(self) noexcept  # without waiting, also where it was released

    cdef int assign(self, tuple changes) except -1
    cdef int exchange(self, list changes) except -1
    cdef list all_bodies(self)
    cdef void bind(self, size_t op, size_t slot, void *address) noexcept
    cdef krt_status launch(self, krt_sample *samples, size_t *failed_op, bint keep_gil) noexcept
    cdef Py_ssize_t in_a_burst(self, int64_t beside_ns) noexcept
    cdef int64_t now(self) noexcept
    cdef void leave(self) noexcept

    # Of the run that goes on or, until the turn is over, of the last one.
    cdef int call_custom(self, size_t op) except -1
    cdef list stopped_in(self, size_t *op)
    cdef Table body_at(self, size_t op, size_t which)
    cdef int64_t status_word(self, size_t op) noexcept
