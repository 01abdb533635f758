# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Interpreter of graphs: programs of C loops that run step by step, without a compiled plan."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_WRITE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from kernelrt.native.eager_plan cimport (
    KRT_EAGER_CHANGED, KRT_EAGER_DONE, KRT_EAGER_UNFIT, hand_over, let_go, take, unchanged,
)
from kernelrt.native.array_handle cimport FLOAT32, FLOAT64
from kernelrt.native.memory cimport BlockCache, Memory, new_memory
from kernelrt.native.node cimport Node

from kernelrt import errors
from kernelrt.native.memory import wrote


AXES = <int> KRT_STEP_AXES
BLOCK = <int> KRT_STEP_BLOCK

cpdef enum:
    CONSTANTS = 0
    ARENA = 1
    FIRST_BUFFER = 2

cdef object ndarray = None
cdef BlockCache allocator = None


def _name_memory(array, BlockCache memory not None):
    """Set NumPy's array class, and the allocator of the memory of runs."""
    global ndarray, allocator
    ndarray, allocator = array, memory


cdef dict loops():
    cdef const krt_named_loop *entry = krt_loops
    found = {}
    while entry.name != NULL:
        found[entry.name.decode(), entry.operand, entry.result] = <size_t> entry.loop
        entry += 1
    return found


LOOPS = loops()


@cython.final
cdef class Budget:
    def __init__(self):
        self.limit = INFINITY


# ---- helpers for writing programs


def joined(sizes, list strides not None):
    cdef list kept = [], mine
    cdef list steps = [[] for _ in strides]
    cdef Py_ssize_t axis, k, n = len(strides), last = -1
    cdef int64_t size
    cdef bint follow
    for axis in range(len(sizes)):
        size = sizes[axis]
        if size == 1:
            continue
        follow = last >= 0
        for k in range(n):
            if follow:
                mine = <list> steps[k]
                follow = <int64_t> mine[last] == size * <int64_t> strides[k][axis]
        if follow:
            kept[last] = <int64_t> kept[last] * size
        else:
            kept.append(size)
            last += 1
        for k in range(n):
            mine = <list> steps[k]
            if follow:
                mine[last] = strides[k][axis]
            else:
                mine.append(strides[k][axis])
    return tuple(kept), [tuple(mine) for mine in steps]


cdef void *zeroed(Py_ssize_t count, size_t size) except NULL:
    cdef void *found = PyMem_Calloc(<size_t> count + 1, size)
    if found == NULL:
        raise errors.OutOfMemoryError("out of memory: cannot store the steps of a graph")
    return found


@cython.final
cdef class Interpretation:
    plan = None

    def __init__(self, list steps not None, calls, bytes constants not None,
                 Py_ssize_t arena, list numbers not None, Py_ssize_t n_buffers,
                 Py_ssize_t n_results, list writes not None, double cost, Budget budget not None,
                 keeps=None):
        cdef Py_ssize_t used = 0
        cdef krt_step *step
        if self.steps != NULL:
            raise errors.PlanBuildError("already initialised; make a new Interpretation")
        self.arena, self.constants, self.numbers = arena, constants, numbers
        self.calls, self.writes, self.keeps = list(calls), writes, keeps
        self.n_buffers, self.n_results = n_buffers, n_results
        self.cost, self.budget = cost, budget
        self.steps = <krt_step *> zeroed(len(steps), sizeof(krt_step))
        self.numbers_of_steps = <int64_t *> zeroed(
            sum([len(layout) + len(more) for _, _, _, _, _, _, layout, more in steps]),
            sizeof(int64_t))
        for loop, combine, code, n_axes, n_reduced, n_operands, layout, more in steps:
            step = &self.steps[self.n_steps]
            step.loop = <krt_loop *> <size_t> loop
            step.combine = <krt_loop *> <size_t> combine
            step.code = <krt_block_code *> <size_t> code
            step.n_axes, step.n_reduced, step.n_operands = n_axes, n_reduced, n_operands
            step.layout = self.numbers_of_steps + used
            for number in layout:
                self.numbers_of_steps[used] = number
                used += 1
            step.more = self.numbers_of_steps + used
            for number in more:
                self.numbers_of_steps[used] = number
                used += 1
            self.n_steps += 1

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.numbers_of_steps)

    cdef bint is_spent(self) noexcept:
        return self.budget.spent + self.cost > self.budget.limit

    def run(self, list buffers not None, list results not None, list fresh not None,
            list resets not None, dict pending not None, tuple born=None):
        cdef list held = []
        cdef list dropped = []
        cdef Memory memory
        cdef char **bases
        cdef Py_ssize_t i, offset, nbytes
        cdef bint done
        if len(buffers) < self.n_buffers or len(results) != self.n_results:
            raise errors.PlanBuildError(
                f"expected {self.n_buffers} buffers and {self.n_results} results, not "
                f"{len(buffers)} and {len(results)}"
            )
        self.budget.spent += self.cost
        bases = <char **> zeroed(FIRST_BUFFER + self.n_buffers + self.n_results, sizeof(char *))
        try:
            for i in range(self.n_buffers):
                bases[FIRST_BUFFER + i] = take((<Node?> buffers[i]).arg, held)
            for i in range(self.n_results):
                bases[FIRST_BUFFER + self.n_buffers + i] = (<Memory?> results[i]).data
            try:
                memory = new_memory(allocator, self.arena)
                bases[CONSTANTS] = PyBytes_AS_STRING(self.constants)
                bases[ARENA] = memory.data
                for offset, code, i in self.numbers:
                    put_number(memory.data + offset, code, (<Node?> buffers[i]).arg)
                done = self.compute(bases)
            except MemoryError:  # compiled code fuses operations and needs less memory
                done = False
            if not done:
                self.budget.spent = INFINITY
                return KRT_EAGER_UNFIT
            # From here on, no Python code runs until the results are handed over.
            if not unchanged(resets, pending) or (born is not None and born[0][0] != born[1]):
                return KRT_EAGER_CHANGED
            for i, offset, nbytes in self.writes:
                memcpy(bases[FIRST_BUFFER + i], memory.data + offset, <size_t> nbytes)
            if self.writes:
                wrote()
            hand_over(fresh, resets, pending, dropped)
            return KRT_EAGER_DONE
        finally:
            let_go(held)
            PyMem_Free(bases)

    cdef bint compute(self, char **bases) except -1:
        cdef Py_ssize_t done = 0
        cdef size_t n
        for position, function, operands in self.calls:
            n = <size_t> (<Py_ssize_t> position - done)
            if krt_interpret(self.steps + done, n, bases) != n:
                return False
            done = position
            arrays = []
            for base, offset, shape, strides, kind, nbytes in operands:
                memory = PyMemoryView_FromMemory(bases[<Py_ssize_t> base], nbytes, PyBUF_WRITE)
                arrays.append(ndarray(shape, kind, memory, offset, strides))
            function(*arrays)
        n = <size_t> (self.n_steps - done)
        return krt_interpret(self.steps + done, n, bases) == n


cdef int put_number(char *destination, int code, number) except -1:
    """Write the number of a CONST as an element of the dtype with this code."""
    cdef uint64_t bits
    if code == FLOAT32:
        (<float *> destination)[0] = <float> <double> number
    elif code == FLOAT64:
        (<double *> destination)[0] = <double> number
    else:
        # On little-endian machines, the lowest bytes are the number in any narrower type.
        bits = <uint64_t> (int(number) & 0xFFFFFFFFFFFFFFFF)
        memcpy(destination, &bits, sizeof(bits))
    return 0
