# cython: language_level=3
"""The fields of Replay, and the rows that the steps of `over` read."""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from kernelrt._dispatch cimport PlanCore
from kernelrt.native.array_handle cimport DIMS
from kernelrt.native.krt cimport krt_profile, krt_status
from kernelrt.native.memory cimport BlockCache
from kernelrt.native.name_guards cimport Names
from kernelrt.native.signature cimport Guard, Input, Output, Site


# ---- Rows

cdef extern from *:
    """
    /* Prefetch the first cache lines of a row, which the hardware prefetcher would not predict. */
    static inline void fetch_row(const char *row, Py_ssize_t nbytes)
    {
        Py_ssize_t most = nbytes < 512 ? nbytes : 512;
        for (Py_ssize_t i = 0; i < most; i += 64)
            __builtin_prefetch(row + i);
    }
    """
    void fetch_row(const char *row, Py_ssize_t nbytes) noexcept nogil


cdef struct Source:
    const char *data  # address of the first row; NULL: the argument is used as it was passed
    Py_ssize_t stride  # bytes from one row to the next
    Py_ssize_t nbytes  # bytes of a row
    Py_ssize_t itemsize
    bint whole  # whether a row is contiguous
    bint aligned
    int ndim  # number of axes of a row
    cnp.npy_intp dims[DIMS]
    cnp.npy_intp strides[DIMS]


# Rows of one step, and the destination of its results.
cdef struct StepBatch:
    const Source *sources  # one per input of the replay
    const int64_t *order  # indices of the rows; NULL: the order in memory
    Py_ssize_t first  # position in the order of the step's first row
    Py_ssize_t rows  # number of rows of a step
    Py_ssize_t step  # its index in the results
    Py_ssize_t ahead  # maximum steps under one exclusive access


cdef inline void step_on(StepBatch *batch) noexcept nogil:
    """Advance to the next step."""
    batch.step += 1
    batch.first += batch.rows


# Slightly pessimistic copy times: of eight bytes of a contiguous row, and of an element of a row
# that is not contiguous.
cdef enum:
    EIGHT_BYTES_NS = 1
    ELEMENT_NS = 4


cdef inline bint follows(const Source *source, const StepBatch *batch) noexcept nogil:
    """Return whether the rows of a step are one contiguous byte range."""
    return (batch.order == NULL and source.whole
            and (source.stride == source.nbytes or batch.rows == 1))


cdef inline int64_t gather_ns(const Source *source, const StepBatch *batch) noexcept nogil:
    """Return the maximum time of copying the rows of a step."""
    if source.whole:
        return batch.rows * (EIGHT_BYTES_NS * source.nbytes // 8 + ELEMENT_NS)
    return batch.rows * ELEMENT_NS * (source.nbytes // source.itemsize)


cdef inline const char *first_row(const Source *source, const StepBatch *batch) noexcept nogil:
    """Return the address of the rows of a step, which are one contiguous byte range."""
    return source.data + batch.first * source.stride


cdef inline char *put_row(
    char *target, const char *data, const Source *source, int axis
) noexcept nogil:
    """Copy the axes from `axis` on of a row with any strides; return the end of the copy."""
    cdef cnp.npy_intp i
    if axis == source.ndim:
        memcpy(target, data, <size_t> source.itemsize)
        return target + source.itemsize
    for i in range(source.dims[axis]):
        target = put_row(target, data + i * source.strides[axis], source, axis + 1)
    return target


cdef inline const char *row_at(
    const Source *source, const StepBatch *batch, Py_ssize_t i
) noexcept nogil:
    """Return the address of the i-th row of a step."""
    cdef int64_t row = batch.first + i
    return source.data + (row if batch.order == NULL else batch.order[row]) * source.stride


cdef inline void gather(char *target, const Source *source, const StepBatch *batch) noexcept nogil:
    """Copy the rows of a step to consecutive addresses."""
    cdef Py_ssize_t i, nbytes = source.nbytes
    if follows(source, batch):
        memcpy(target, first_row(source, batch), <size_t> (batch.rows * nbytes))
    elif not source.whole:
        for i in range(batch.rows):
            target = put_row(target, row_at(source, batch, i), source, 0)
    elif nbytes == 8:  # memcpy of a constant size is inlined
        for i in range(batch.rows):
            memcpy(target + 8 * i, row_at(source, batch, i), 8)
    elif nbytes == 4:
        for i in range(batch.rows):
            memcpy(target + 4 * i, row_at(source, batch, i), 4)
    else:
        for i in range(batch.rows):
            if i + 2 < batch.rows:
                fetch_row(row_at(source, batch, i + 2), nbytes)
            memcpy(target + nbytes * i, row_at(source, batch, i), <size_t> nbytes)


# ---- Replays

cdef struct Range:
    char *begin
    char *end


@cython.final
cdef class Replay:
    cdef readonly PlanCore plan
    cdef Py_ssize_t n_args  # -1 until __init__ has finished
    cdef Py_ssize_t n_calls
    cdef public Py_ssize_t most_calls  # from this number of calls on, `_slow` is called; 0: never
    cdef type result_type
    cdef readonly object build
    cdef readonly tuple structure
    cdef tuple registers
    cdef object make_way
    cdef list births  # grows with each lazy tensor; or None
    cdef object watch
    cdef object entry  # lock that is held while `watch` is asked and the plan runs; or None
    cdef Names names  # Python variables that the function read, or None
    cdef int records  # 0, 1: only for calls that do not, or do, record gradients; -1: for all
    cdef unsigned long long seen  # `world` at the last run for which `watch` had nothing to do
    cdef readonly object bindings  # returns the values and chunk counts to run with; or None
    cdef BlockCache results_from
    cdef list held
    cdef list owners  # owners of the memory of bound tensors: a thread may take it from these
    cdef uint64_t turn
    cdef dict strided  # input index -> ndarray over its home, to copy strided arrays into
    cdef Input *inputs
    cdef Output *outputs
    cdef Guard *guards
    cdef Range *writes
    cdef Py_ssize_t n_inputs, n_outputs, n_guards, n_writes
    cdef bint binds
    cdef bint aliased  # during a run: whether the plan writes an argument that is not read by rows
    cdef bint severs  # whether a result is tagged in any case
    cdef uint64_t given  # during a run: flags of arguments that have a lineage
    cdef object by_argument  # tag of the results that continue such a lineage
    cdef bint begun

    # Return the results for arguments as they were passed, or `mismatch`.
    cdef object attempt(self, tuple args)
    cdef int sever(self, Py_ssize_t i, mark, given) except -1
    cdef object with_leaves(self, tuple args)
    cdef bint takes(self, tuple args, const StepBatch *batch) except -1
    cdef tuple results_of(self, tuple args, krt_profile *profile, StepBatch *batch, tuple into)
    cdef tuple watched(self, tuple args, krt_profile *profile, StepBatch *batch, tuple into)
    cdef tuple run(self, tuple args, tuple handover, unsigned long long known, bint *late,
                   krt_profile *profile, StepBatch *batch, tuple into)
    cdef krt_status go_on(self, tuple results, StepBatch *batch, size_t *op) noexcept
    cdef bint overtaken(self, births) except -1
    cdef int settle(self, tuple handover, list dropped) except -1
    cdef bint settled(self) except -1
    cdef bint guarded(self) noexcept
    cdef bint copy_in(self, tuple args, bint bind, const StepBatch *batch) except -1
    cdef int take_array(self, Input *spec, object arg, bint bind) except -1
    cdef bint stays(self, const Input *spec, const Source *source, const StepBatch *batch) noexcept
    cdef bint changes(self, const Input *spec, PyObject *arg) noexcept
    cdef void take_rows(self, Input *spec, const Source *source, const StepBatch *batch) noexcept
    cdef int copy_strided(self, Input *spec, Py_ssize_t index, cnp.ndarray arg) except -1
    cdef bint overlaps(self, const char *data, Py_ssize_t nbytes) noexcept
    cdef char *result_address(self, tuple results, Py_ssize_t i, const StepBatch *batch) noexcept
    cdef void bind_results(self, tuple results, const StepBatch *batch) noexcept
    cdef void bind_outputs(self, tuple results, const StepBatch *batch) noexcept
    cdef void point(self, const Site *sites, Py_ssize_t count, char *data) noexcept
    cdef list unbind(self)
    cdef tuple make_results(self, Py_ssize_t steps)
    cdef void mark(self, tuple results) noexcept
    cdef void copy_out(self, tuple results, const StepBatch *batch) noexcept


# The value that a replay returns if the arguments do not match.
cdef object mismatch
