# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Multi-step runs: consecutive steps of replays over rows at fixed addresses."""

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kernelrt.native.array_handle cimport DIMS, LINEAGE_WHOLE, ArrayHandle, lineage, world
from kernelrt.native.replay cimport StepBatch, Replay, Source
from kernelrt.native.signature cimport KIND_ARRAY, Input, calloc_for

from sys import getswitchinterval

from kernelrt import errors
from kernelrt.native.memory import no_copies

cnp.import_array()

cdef extern from *:
    """
    /* Map any `x` to a number below `n`: the upper half of the product. The bias is n / 2**64. */
    static inline uint64_t below(uint64_t x, uint64_t n)
    {
        return (uint64_t)(((unsigned __int128)x * n) >> 64);
    }
    """
    uint64_t below(uint64_t x, uint64_t n) nogil

# Numbers that are shuffled between two checks for signals.
cdef Py_ssize_t SHUFFLED_PER_CHECK = 1 << 20
# Up to so many are shuffled with the GIL: they are not worth waiting for it again.
cdef Py_ssize_t SHUFFLED_WITH_GIL = 1 << 16

# Maximum steps under one exclusive access.
cdef Py_ssize_t MOST_AHEAD = 64

# Plans of a few microseconds run with the GIL. A thread that waits for the GIL requests it only
# after a whole switch interval; if it is released earlier, the interval starts again.
cdef double SWITCH_INTERVALS = 1.5


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec


@cython.final
cdef class MultiStepRun:
    """A multi-step run: the sources of its rows, the memory of its results, and its progress."""

    cdef StepBatch batch
    cdef Source *sources
    cdef list leaves  # for each argument the array or handle of its rows, or None
    cdef list memory  # memory of the handles in `leaves`, kept alive
    cdef Py_ssize_t n_rows
    cdef Py_ssize_t order_length  # length of the order
    cdef Py_ssize_t room  # maximum number of steps
    cdef readonly tuple results
    cdef bint lent  # whether callers may have handles that alias the results
    cdef object order
    cdef int64_t had_gil_since
    cdef int64_t gil_slice_ns

    def __init__(self, Py_ssize_t steps):
        if self.leaves is not None:
            raise errors.JitError("a run can be initialised only once")
        if steps < 0:
            raise errors.ShapeError(f"steps: expected at least 0, not {steps}")
        self.room = steps
        self.leaves = []
        self.memory = []

    def __dealloc__(self):
        PyMem_Free(self.sources)

    def __reduce__(self):
        no_copies(self)

    @property
    def done(self):
        return self.batch.step

    # ---- rows

    def read(self, leaves, Py_ssize_t n_rows):
        cdef list given = list(leaves)
        cdef list memory = []
        cdef Py_ssize_t i
        cdef Source *sources = <Source *> calloc_for(len(given), sizeof(Source))
        try:
            for i, leaf in enumerate(given):
                if leaf is not None:
                    fill_source(sources + i, leaf, n_rows, memory)
        except BaseException:
            PyMem_Free(sources)
            raise
        PyMem_Free(self.sources)
        self.sources = sources
        if n_rows != self.n_rows:
            self.order, self.batch.order, self.order_length = None, NULL, n_rows
        self.leaves, self.memory, self.n_rows = given, memory, n_rows
        self.batch.sources = sources

    def follow(self, order):
        """Take the rows in this order from now on; None: in the order of the arrays."""
        cdef cnp.ndarray found
        cdef const int64_t *numbers
        cdef Py_ssize_t i, n
        if order is None:
            self.order, self.batch.order, self.order_length = None, NULL, self.n_rows
            return
        found = <cnp.ndarray?> order
        if (cnp.PyArray_TYPE(found) != cnp.NPY_INT64 or cnp.PyArray_NDIM(found) != 1
                or not cnp.PyArray_ISCARRAY_RO(found)):
            raise errors.DTypeError("order: expected a contiguous one-dimensional int64 array")
        n = cnp.PyArray_DIMS(found)[0]
        numbers = <const int64_t *> cnp.PyArray_DATA(found)
        for i in range(n):
            if not 0 <= numbers[i] < self.n_rows:
                raise errors.ShapeError(
                    f"order[{i}]: there is no row {numbers[i]} among {self.n_rows} rows")
        self.order, self.batch.order, self.order_length = found, numbers, n

    cdef bint is_there(self) noexcept:
        """Return whether all arrays still have their addresses and axes."""
        cdef Py_ssize_t i
        cdef cnp.ndarray array
        for i in range(len(self.leaves)):
            if self.sources[i].data == NULL:
                continue
            if cnp.PyArray_CheckExact(self.leaves[i]):
                array = <cnp.ndarray> self.leaves[i]
                if (<const char *> cnp.PyArray_DATA(array) != self.sources[i].data
                        or not is_as_it_was(self.sources + i, array, self.n_rows)):
                    return False
            elif (<ArrayHandle> self.leaves[i]).data != self.sources[i].data:
                return False
        return True

    # ---- results

    def begin(self, Replay replay not None):
        """Allocate the results of all steps, unless they are allocated."""
        if self.results is None:
            self.results = replay.make_results(self.room)

    def fits(self, Replay replay not None):
        """Return whether the results of `replay` have the allocated shapes and dtypes."""
        cdef Py_ssize_t i
        cdef ArrayHandle handle
        if self.results is None or len(self.results) != replay.n_outputs:
            return False
        for i in range(replay.n_outputs):
            handle = <ArrayHandle> self.results[i]
            if handle.code != replay.outputs[i].code:
                return False
            if handle.shape[1:] != <tuple> replay.outputs[i].shape:
                return False
        return True

    def so_far(self, Replay replay not None, bint own_memory):
        """Return the results of the steps that have run; with `own_memory`, not as views."""
        cdef Py_ssize_t i
        cdef ArrayHandle whole, part
        cdef tuple parts
        if not own_memory:
            self.lent = True
            parts = replay.make_results(0)
        elif self.batch.step == self.room and not self.lent:
            return self.results
        else:
            parts = replay.make_results(self.batch.step)
        for i in range(len(parts)):
            whole, part = <ArrayHandle> self.results[i], <ArrayHandle> parts[i]
            if own_memory:
                memcpy(part.data, whole.data, <size_t> part.nbytes)
            else:
                part.shape = (self.batch.step, *whole.shape[1:])
                part.nbytes = whole.nbytes // max(self.room, 1) * self.batch.step
                part.memory, part.data = whole.memory, whole.data
            part._severed = whole._severed
        return parts

    # ---- steps

    def find(self, tuple replays not None, tuple args not None, Py_ssize_t rows):
        """Return the first replay that takes `rows` rows and the other arguments, or None."""
        cdef Replay replay
        for replay in replays:
            if (replay.structure is None and self.is_made_for(replay, args, rows)
                    and replay.takes(args, &self.batch)
                    and (replay.watch is None or replay.seen == world or replay.watch.fits())):
                return replay
        return None

    def run(self, Replay replay not None, tuple args not None, Py_ssize_t first, Py_ssize_t rows,
            Py_ssize_t count):
        cdef Py_ssize_t begun = self.batch.step, turns = 0
        if not (0 <= first <= self.order_length and 0 < rows and 0 <= count <= self.room - begun
                and count <= (self.order_length - first) // rows):
            raise errors.ShapeError(
                f"{count} steps of {rows} rows from position {first} on do not fit: there are "
                f"{self.order_length} rows, and memory for {self.room - begun} more steps")
        if not self.fits(replay):
            return 0
        self.batch.first, self.batch.rows = first, rows
        self.gil_slice_ns = <int64_t> (SWITCH_INTERVALS * 1e9 * <double> getswitchinterval())
        self.had_gil_since = now_ns()
        while (self.batch.step - begun < count and self.is_there()
               and self.is_made_for(replay, args, rows)):
            self.batch.ahead = min(MOST_AHEAD, begun + count - self.batch.step)
            if replay.results_of(args, NULL, &self.batch, self.results) is None:
                break
            PyErr_CheckSignals()
            turns += 1
            if self.batch.ahead > 1 or not turns & 15:
                self.breathe()
        return self.batch.step - begun

    cdef bint is_made_for(self, Replay replay, tuple args, Py_ssize_t rows) except -1:
        """Return whether a replay takes arguments of `rows` rows. It checks the others itself."""
        cdef Py_ssize_t i
        if replay.n_inputs != len(self.leaves) or len(args) != len(self.leaves):
            return False
        for i in range(replay.n_inputs):
            if (self.sources[i].data != NULL
                    and not (args[i] is self.leaves[i]
                             and are_rows_of(replay.inputs + i, args[i], rows))):
                return False
        return True

    cdef void breathe(self) noexcept:
        """Release the GIL to other threads if this thread has held it for a time slice."""
        cdef int64_t now = now_ns()
        if now - self.had_gil_since >= self.gil_slice_ns:
            with nogil:
                pass
            self.had_gil_since = now


cdef bint is_as_it_was(const Source *source, cnp.ndarray array, Py_ssize_t n_rows) noexcept:
    """Return whether an array still has the axes that `source` describes."""
    cdef int axis
    if (cnp.PyArray_NDIM(array) != source.ndim + 1 or cnp.PyArray_DIMS(array)[0] != n_rows
            or cnp.PyArray_STRIDES(array)[0] != source.stride
            or cnp.PyArray_ITEMSIZE(array) != source.itemsize):
        return False
    for axis in range(source.ndim):
        if (cnp.PyArray_DIMS(array)[axis + 1] != source.dims[axis]
                or cnp.PyArray_STRIDES(array)[axis + 1] != source.strides[axis]):
            return False
    return True


cdef int fill_source(Source *source, leaf, Py_ssize_t n_rows, list memory) except -1:
    cdef cnp.ndarray array
    cdef ArrayHandle handle
    cdef Py_ssize_t dim, run
    cdef int axis
    if cnp.PyArray_CheckExact(leaf):
        array = <cnp.ndarray> leaf
        check_rows(cnp.PyArray_NDIM(array), n_rows,
                   cnp.PyArray_DIMS(array)[0] if cnp.PyArray_NDIM(array) else -1)
        source.ndim = cnp.PyArray_NDIM(array) - 1
        source.itemsize = cnp.PyArray_ITEMSIZE(array)
        source.stride = cnp.PyArray_STRIDES(array)[0]
        for axis in range(source.ndim):
            source.dims[axis] = cnp.PyArray_DIMS(array)[axis + 1]
            source.strides[axis] = cnp.PyArray_STRIDES(array)[axis + 1]
        source.data = <const char *> cnp.PyArray_DATA(array)
        source.aligned = cnp.PyArray_ISALIGNED(array)
    else:
        handle = <ArrayHandle?> leaf
        if handle.data == NULL:
            raise errors.ShapeError("rows: expected a tensor that has been computed")
        check_rows(<int> len(handle.shape), n_rows, handle.shape[0] if handle.shape else -1)
        source.ndim = <int> len(handle.shape) - 1
        run = handle.nbytes
        for dim in handle.shape:
            run = run // dim if dim else 0
        source.itemsize = run
        for axis in reversed(range(source.ndim)):
            source.dims[axis] = handle.shape[axis + 1]
            source.strides[axis] = run
            run *= source.dims[axis]
        source.stride = run
        source.data = handle.data
        source.aligned = True
        memory.append(handle.memory if handle.hold is None else handle.hold)
    source.nbytes = source.itemsize
    source.whole = True
    for axis in reversed(range(source.ndim)):
        source.whole &= source.dims[axis] == 1 or source.strides[axis] == source.nbytes
        source.nbytes *= source.dims[axis]
    return 0


cdef int check_rows(int ndim, Py_ssize_t expected, Py_ssize_t found) except -1:
    if not 0 < ndim <= DIMS or found != expected:
        raise errors.ShapeError(f"rows: expected {expected} along the first axis, not {found}")
    return 0


cdef bint are_rows_of(const Input *spec, leaf, Py_ssize_t rows) except -1:
    """Return whether `rows` rows of `leaf` are an array that matches `spec`."""
    cdef cnp.ndarray array
    cdef int typenum, axis
    if spec.kind != KIND_ARRAY or not spec.ndim or spec.dims[0] != rows:
        return False
    if not cnp.PyArray_CheckExact(leaf):
        return ((<ArrayHandle> leaf).code == spec.code
                and (spec.lineage == LINEAGE_WHOLE or lineage(<ArrayHandle> leaf) <= spec.lineage)
                and (<ArrayHandle> leaf).shape[1:] == (<tuple> spec.value)[1:])
    array = <cnp.ndarray> leaf
    typenum = cnp.PyArray_TYPE(array)
    if ((typenum != spec.typenum and typenum != spec.other) or cnp.PyArray_NDIM(array) != spec.ndim
            or not cnp.PyArray_ISNOTSWAPPED(array)):
        return False
    for axis in range(1, spec.ndim):
        if cnp.PyArray_DIMS(array)[axis] != spec.dims[axis]:
            return False
    return True


def hand_out(Replay replay not None, tuple results not None):
    """Return `results` in the form in which a call returns them."""
    if replay.build is not None:
        return replay.build(*results)
    return <object> PyTuple_GET_ITEM(results, 0) if len(results) == 1 else results


# ---- Orders ---------------------------------------------------------------------------------


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    """Return an output of SplitMix64 (Steele, Lea, Flood 2014) for the state `x`."""
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EB
    return x ^ (x >> 31)


cdef uint64_t STEP = 0x9E3779B97F4A7C15


cdef uint64_t start_of(seed, epoch) except? 0:
    """Return the initial state for an epoch. It depends on all bits of `seed` and `epoch`."""
    cdef uint64_t x = 0
    for number in (seed, epoch):
        if number < 0:
            raise errors.ShapeError(f"seed and epoch: expected numbers of at least 0, not {number}")
        x = mixed(x + STEP * <uint64_t> (1 + number.bit_length() // 64))
        while number:
            x = mixed(x + STEP) ^ <uint64_t> (number & 0xFFFFFFFFFFFFFFFF)
            number >>= 64
    return mixed(x)


cdef uint64_t insert_randomly(
    int64_t *numbers, Py_ssize_t i, Py_ssize_t end, uint64_t x
) noexcept nogil:
    """Insert i to end - 1 at random positions; the displaced number moves to the end."""
    cdef uint64_t j
    while i < end:
        x += STEP
        j = below(mixed(x), <uint64_t> i + 1)
        numbers[i] = numbers[j]
        numbers[j] = i
        i += 1
    return x


def order_of(Py_ssize_t n, seed, epoch):
    cdef cnp.npy_intp size = n
    cdef uint64_t x = start_of(seed, epoch)
    cdef Py_ssize_t i = 0, end
    cdef int64_t *numbers
    if n < 0:
        raise errors.ShapeError(f"n: expected at least 0, not {n}")
    cdef cnp.ndarray order = cnp.PyArray_SimpleNew(1, &size, cnp.NPY_INT64)
    numbers = <int64_t *> cnp.PyArray_DATA(order)
    if n <= SHUFFLED_WITH_GIL:
        insert_randomly(numbers, 0, n, x)
        return order
    while i < n:
        end = min(n, i + SHUFFLED_PER_CHECK)
        with nogil:
            x = insert_randomly(numbers, i, end, x)
        i = end
        PyErr_CheckSignals()
    return order
