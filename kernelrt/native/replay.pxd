# cython: language_level=3
"""Replay with its fields, for the extension that tries replays."""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from kernelrt._dispatch cimport PlanCore
from kernelrt.native.batch_slices cimport Feed, Source
from kernelrt.native.krt cimport krt_sample, krt_status
from kernelrt.native.memory cimport BlockCache
from kernelrt.native.name_guards cimport Names
from kernelrt.native.signature cimport Guard, Input, Output, Site


cdef struct Range:
    char *begin
    char *end


@cython.final
cdef class Replay:
    cdef readonly PlanCore plan
    cdef Py_ssize_t n_args  # -1 until everything is in place
    cdef Py_ssize_t n_calls
    cdef public Py_ssize_t most_calls  # from so many on, calls ask Python; 0: never
    cdef type result_type
    cdef readonly object build
    cdef readonly tuple structure
    cdef tuple registers
    cdef object make_way
    cdef list births  # grows with each lazy tensor; or None
    cdef object watch
    cdef object entry  # held from the look at the watch until the run is over; or None
    cdef Names names  # variables that the function read, or None
    cdef int records  # 0 and 1: for calls that do not or do record gradients; -1: for all
    cdef unsigned long long seen  # `world` at a run that `watch` had nothing to do for
    cdef readonly object bindings  # gives the values and chunk counts to run with, or None
    cdef BlockCache results_from
    cdef list held
    cdef list owners  # of the memory of tensors that are bound: a thread may take it from them
    cdef uint64_t turn
    cdef dict strided  # input index -> an ndarray over its home, to copy strided arrays into
    cdef Input *inputs
    cdef Output *outputs
    cdef Guard *guards
    cdef Range *writes
    cdef Py_ssize_t n_inputs, n_outputs, n_guards, n_writes
    cdef bint binds
    cdef bint aliased  # in the plan's turn: whether it writes what it was given whole
    cdef bint severs  # whether a result is marked in any case
    cdef uint64_t given  # in the plan's turn: flags of arguments that have a lineage
    cdef object by_argument  # what marks the results that continue it
    cdef bint begun

    # The results for arguments as they were passed, or `mismatch`.
    cdef object attempt(self, tuple args)
    cdef int sever(self, Py_ssize_t i, mark, given) except -1
    cdef object with_leaves(self, tuple args)
    cdef bint takes(self, tuple args, const Feed *feed) except -1
    cdef tuple results_of(self, tuple args, krt_sample *samples, Feed *feed, tuple into)
    cdef tuple watched(self, tuple args, krt_sample *samples, Feed *feed, tuple into)
    cdef tuple run(self, tuple args, tuple handover, unsigned long long known, bint *late,
                   krt_sample *samples, Feed *feed, tuple into)
    cdef krt_status go_on(self, tuple results, Feed *feed, size_t *op) noexcept
    cdef bint overtaken(self, births) except -1
    cdef int settle(self, tuple handover, list dropped) except -1
    cdef bint settled(self) except -1
    cdef bint guarded(self) noexcept
    cdef bint copy_in(self, tuple args, bint bind, const Feed *feed) except -1
    cdef int take_array(self, Input *spec, object arg, bint bind) except -1
    cdef bint stays(self, const Input *spec, const Source *source, const Feed *feed) noexcept
    cdef bint changes(self, const Input *spec, PyObject *arg) noexcept
    cdef void take_rows(self, Input *spec, const Source *source, const Feed *feed) noexcept
    cdef int copy_strided(self, Input *spec, Py_ssize_t index, cnp.ndarray arg) except -1
    cdef bint overlaps(self, const char *data, Py_ssize_t nbytes) noexcept
    cdef char *place_of(self, tuple results, Py_ssize_t i, const Feed *feed) noexcept
    cdef void bind_results(self, tuple results, const Feed *feed) noexcept
    cdef void place_results(self, tuple results, const Feed *feed) noexcept
    cdef void point(self, const Site *sites, Py_ssize_t count, char *data) noexcept
    cdef list unbind(self)
    cdef tuple make_results(self, Py_ssize_t steps)
    cdef void mark(self, tuple results) noexcept
    cdef void copy_out(self, tuple results, const Feed *feed) noexcept


# What a replay gives where the arguments are not those that it was made for.
cdef object mismatch
