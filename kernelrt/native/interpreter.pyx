# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Interpreter of graphs: programs of C loops that run step by step, without a compiled plan."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.long cimport PyLong_Check
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
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
from kernelrt.native.node cimport Node, is_plain, packed_strides, reshaped_strides

from kernelrt import errors
from kernelrt.native.memory import wrote


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

    cpdef bint allows(self, double cost=0.0) noexcept:
        return self.spent + cost <= self.limit

    cpdef int add(self, double cost) except -1:
        self.spent += cost
        return 0

    cpdef int exhaust(self) except -1:
        self.spent = INFINITY
        return 0


# ---- strided arrays


@cython.final
@cython.freelist(64)
cdef class View:
    def __init__(self, Py_ssize_t slot, int64_t offset, tuple shape not None, tuple strides not None):
        if len(shape) != len(strides):
            raise ValueError(f"expected {len(shape)} strides, not {len(strides)}")
        self.slot, self.offset, self.shape, self.strides = slot, offset, shape, strides


cdef View view_of(Py_ssize_t slot, int64_t offset, tuple shape, tuple strides):
    cdef View view = View.__new__(View)
    view.slot, view.offset, view.shape, view.strides = slot, offset, shape, strides
    return view


cdef tuple zeros(Py_ssize_t n):
    return (0,) * n


cdef double elements(tuple shape) except -1:
    cdef double n = 1
    for size in shape:
        n *= <int64_t> size
    return n


cdef int join(list views, int64_t *sizes, int64_t (*strides)[KRT_STEP_AXES]) except -1:
    """Drop axes of size 1, and merge axes that are contiguous in all views; return their number.

    All views have the shape of the first one.
    """
    cdef tuple shape = (<View?> views[0]).shape
    cdef int axis, n = 0
    cdef Py_ssize_t k, n_views = len(views)
    cdef int64_t size
    cdef bint follows
    if n_views > KRT_STEP_OPERANDS:
        raise Unfit
    for view in views:
        if len((<View?> view).strides) != len(shape):
            raise ValueError(f"expected views of {len(shape)} axes")
    for axis in range(len(shape)):
        size = shape[axis]
        if size == 1:
            continue
        follows = n > 0
        for k in range(n_views):
            if follows:
                follows = strides[k][n - 1] == size * <int64_t> (<View> views[k]).strides[axis]
        if follows:
            sizes[n - 1] *= size
        elif n == KRT_STEP_AXES:
            raise Unfit
        else:
            sizes[n] = size
            n += 1
        for k in range(n_views):
            strides[k][n - 1] = (<View> views[k]).strides[axis]
    return n


def merged_axes(list views not None):
    cdef int64_t sizes[KRT_STEP_AXES]
    cdef int64_t strides[KRT_STEP_OPERANDS][KRT_STEP_AXES]
    return join(views, sizes, strides)


# ---- writing programs


class Unfit(Exception):
    """Raised if the interpreter cannot run a graph, which is then compiled. Users never see it."""


# Costs in nanoseconds, and a limit in bytes; see _name_costs.
cdef double STEP_NS = 0.0
cdef double ELEMENT_NS = 0.0
cdef int64_t MOST_BYTES = 0

# Ops that the builder writes by itself; see _name_rules.
cdef object CONST = None
cdef object BUFFER = None
cdef object EXPAND = None
cdef object RESHAPE = None
cdef object PERMUTE = None
cdef object SHRINK = None
cdef object DETACH = None
cdef object CONTIGUOUS = None
cdef object REDUCE_AXIS = None
cdef object ADD = None
cdef object MUL = None
cdef dict ELEMENT_LOOPS = {}
cdef object KEPT = None
cdef object BUFFER_CLASS = None
cdef frozenset HALVES = frozenset()
cdef frozenset SUMMED = frozenset()


def _name_costs(double step_ns, double element_ns, int64_t most_bytes):
    global STEP_NS, ELEMENT_NS, MOST_BYTES
    STEP_NS, ELEMENT_NS, MOST_BYTES = step_ns, element_ns, most_bytes


def _name_rules(tuple ops, dict element_loops not None, kept, buffer, frozenset halves not None,
                frozenset summed not None):
    global CONST, BUFFER, EXPAND, RESHAPE, PERMUTE, SHRINK, DETACH, CONTIGUOUS
    global REDUCE_AXIS, ADD, MUL, ELEMENT_LOOPS, KEPT, BUFFER_CLASS, HALVES, SUMMED
    (CONST, BUFFER, EXPAND, RESHAPE, PERMUTE, SHRINK, DETACH, CONTIGUOUS,
     REDUCE_AXIS, ADD, MUL) = ops
    ELEMENT_LOOPS, KEPT, BUFFER_CLASS, HALVES, SUMMED = (
        element_loops, kept, buffer, halves, summed)


@cython.final
@cython.freelist(64)
cdef class Slot:
    pass


@cython.final
cdef class Steps:
    def __len__(self):
        return self.n

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.words)
        PyMem_Free(self.begins)

    cdef int extend(self, Py_ssize_t n_words) except -1:
        cdef void *bigger
        cdef Py_ssize_t room = 2 * self.room + 16
        if self.n == self.room:
            bigger = resized(self.steps, <size_t> room * sizeof(krt_step))
            self.steps = <krt_step *> bigger
            bigger = resized(self.begins, <size_t> room * sizeof(Py_ssize_t))
            self.begins = <Py_ssize_t *> bigger
            self.room = room  # after both have grown
        if self.n_words + n_words > self.room_for_words:
            room = 2 * self.room_for_words + n_words + 256
            bigger = resized(self.words, <size_t> room * sizeof(int64_t))
            self.words = <int64_t *> bigger
            self.room_for_words = room
        return 0

    def slots_of(self, Py_ssize_t i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        cdef krt_step *step = &self.steps[i]
        cdef int64_t *operands = self.words + self.begins[i] + step.n_axes
        cdef int k
        return [operands[k * (2 + step.n_axes)] for k in range(step.n_operands)]

    cdef int resolve(self, list slots) except -1:
        if self.resolved:
            raise errors.PlanBuildError("the steps belong to a program; write them again")
        self.resolved = True
        cdef Py_ssize_t i
        cdef int k
        cdef krt_step *step
        cdef int64_t *words
        cdef Slot slot
        for i in range(self.n):
            step = &self.steps[i]
            words = self.words + self.begins[i]
            step.layout = words
            words += step.n_axes
            for k in range(step.n_operands):
                if not 0 <= words[0] < len(slots):
                    raise errors.PlanBuildError(f"step {i}: there is no slot {words[0]}")
                slot = slots[words[0]]
                words[0] = slot.base
                words[1] += slot.offset
                words += 2 + step.n_axes
            step.more = words
        return 0


cdef void *resized(void *block, size_t nbytes) except NULL:
    cdef void *found = PyMem_Realloc(block, nbytes)
    if found == NULL:
        raise errors.OutOfMemoryError("out of memory: cannot store the steps of a graph")
    return found


cdef class ProgramBuilder:
    def __init__(self, read, numbers):
        self.slots, self.views, self.calls = [], {}, []
        self.number_slots, self.size_positions = [], []
        self.constant_data, self.steps, self.constant_nodes = bytearray(), Steps(), set()
        self.buffer_positions = {node: i for i, node in enumerate(read)}
        self.number_positions = {node: i for i, node in enumerate(numbers)}

    # ---- memory

    cpdef Py_ssize_t slot(self, Py_ssize_t base, int64_t offset, int64_t nbytes) except -1:
        cdef Slot slot = Slot.__new__(Slot)
        slot.base, slot.offset, slot.nbytes = base, offset, nbytes
        self.slots.append(slot)
        return len(self.slots) - 1

    cpdef View new(self, tuple shape, int64_t itemsize):
        cdef int64_t size
        cdef double n = elements(shape)
        if n * itemsize > MOST_BYTES:
            raise Unfit
        size = <int64_t> n
        return view_of(self.slot(ARENA, 0, size * itemsize), 0, shape,
                       packed_strides(shape, itemsize))

    def add_constant(self, bytes data not None):
        self.constant_data += bytes(-len(self.constant_data) % 8)
        self.constant_data += data
        return self.slot(CONSTANTS, len(self.constant_data) - len(data), len(data))

    # ---- steps

    def step(self, size_t loop, list views not None, *, size_t code=0, more=(), each_ns=None):
        cdef tuple shape = (<View?> views[0]).shape
        cdef double each = ELEMENT_NS if each_ns is None else each_ns
        self.cost += STEP_NS + each * elements(shape)
        self.append(loop, views, code=code, more=more)

    def append(self, size_t loop, list views not None, list inner=None, *, size_t combine=0,
               size_t code=0, more=()):
        cdef int64_t sizes[2 * KRT_STEP_AXES]
        cdef int64_t outer[KRT_STEP_OPERANDS][KRT_STEP_AXES]
        cdef int64_t along[KRT_STEP_OPERANDS][KRT_STEP_AXES]
        cdef Py_ssize_t k, n_operands = len(views)
        cdef int axis, n_outer, n_inner = 0
        cdef krt_step *step
        cdef int64_t *words
        cdef View view
        if 0 in (<View?> views[0]).shape:
            return
        n_outer = join(views, sizes, outer)
        if inner is not None:
            if len(inner) != n_operands:
                raise ValueError("expected as many views along the reduced axes as operands")
            n_inner = join(inner, sizes + n_outer, along)
            if n_inner == 0:  # all reduced axes have one element
                sizes[n_outer], n_inner = 1, 1
                for k in range(n_operands):
                    along[k][0] = 0
        if n_outer + n_inner > KRT_STEP_AXES:
            raise Unfit
        more = tuple(more)
        self.steps.extend(n_outer + n_inner + n_operands * (2 + n_outer + n_inner) + len(more))
        step = &self.steps.steps[self.steps.n]
        step.loop, step.combine = <krt_loop *> loop, <krt_loop *> combine
        step.code = <krt_block_code *> code
        step.n_axes, step.n_reduced, step.n_operands = n_outer + n_inner, n_inner, <int> n_operands
        words = self.steps.words + self.steps.n_words
        for axis in range(n_outer + n_inner):
            words[axis] = sizes[axis]
        words += n_outer + n_inner
        for k in range(n_operands):
            view = <View> views[k]
            words[0], words[1] = view.slot, view.offset
            words += 2
            for axis in range(n_outer):
                words[axis] = outer[k][axis]
            words += n_outer
            for axis in range(n_inner):
                words[axis] = along[k][axis]
            words += n_inner
        for number in more:
            words[0] = number
            words += 1
        self.steps.begins[self.steps.n] = self.steps.n_words
        self.steps.n += 1
        self.steps.n_words = words - self.steps.words

    def copied(self, View view not None, int64_t itemsize):
        cdef View out = self.new(view.shape, itemsize)
        self.step(LOOPS["COPY", itemsize, itemsize], [out, view])
        return out

    def computed(self, int64_t itemsize, list views not None):
        cdef View first = views[0], view, part, out
        cdef Py_ssize_t axis, n = len(first.shape)
        cdef list sizes = list(first.shape)
        cdef list repeated = []
        for axis in range(n):
            for view in views:
                if <int64_t> view.strides[axis] != 0:
                    break
            else:
                repeated.append(axis)
                sizes[axis] = min(<int64_t> sizes[axis], 1)
        if not repeated:
            out = self.new(first.shape, itemsize)
            return out, out, views
        part = self.new(tuple(sizes), itemsize)
        steps = list(part.strides)
        for axis in repeated:
            steps[axis] = 0
        out = view_of(part.slot, 0, first.shape, tuple(steps))
        return out, part, [view_of(view.slot, view.offset, part.shape, view.strides)
                           for view in views]

    def elementwise(self, size_t loop, int64_t itemsize, list views not None, each_ns=None):
        out, part, given = self.computed(itemsize, views)
        self.step(loop, [part, *given], each_ns=each_ns)
        return out

    def reduced(self, size_t loop, int64_t itemsize, list views not None, tuple axes not None,
                double each_ns):
        cdef View first = views[0], view, part
        cdef list outer = [], inner = []
        cdef tuple along = tuple([first.shape[axis] for axis in axes])
        remaining = [axis for axis in range(len(first.shape)) if axis not in axes]
        shape = tuple([first.shape[axis] for axis in remaining])
        for view in views:
            outer.append(view_of(view.slot, view.offset, shape,
                                 tuple([view.strides[axis] for axis in remaining])))
            inner.append(view_of(view.slot, 0, along, tuple([view.strides[axis] for axis in axes])))
        out, part, given = self.computed(itemsize, outer)
        self.cost += STEP_NS + each_ns * elements(part.shape) * elements(along)
        self.append(loop, [part, *given], [view_of(part.slot, 0, along, zeros(len(along))), *inner])
        return out

    # ---- nodes

    def write(self, list order not None, roots):
        cdef Node node, source
        cdef set fused = fused_products(order, roots)
        for node in order:
            self.length += 1 if node.src else 0
            if node.op is CONST:
                self.constant_nodes.add(node)
            elif node.src:  # constant if computed from constant nodes alone
                for source in node.src:
                    if source not in self.constant_nodes:
                        break
                else:
                    self.constant_nodes.add(node)
            if node.dtype in HALVES or not is_plain(node.shape):
                raise Unfit
            if node not in fused and not self.write_node(node):
                self.write_rare(node)

    def write_rare(self, Node node not None):
        raise Unfit

    cdef bint write_node(self, Node node) except -1:
        """Write a node without calling Python functions, if possible; return whether it was."""
        cdef object op = node.op
        cdef Node source
        cdef View view
        if op is CONST:
            position = self.number_positions.get(node)
            if position is None:
                return False
            slot = self.slot(ARENA, 0, sizeof(int64_t))
            (<Slot> self.slots[slot]).permanent = True
            self.number_slots.append((slot, node.dtype.code, position))
            self.views[node] = view_of(slot, 0, (), ())
            return True
        if op is BUFFER:
            self.views[node] = self.buffer(node)
            return True
        if op is DETACH or op is CONTIGUOUS:
            is_kept = op is DETACH and type(node.arg) is KEPT
            self.views[node] = self.views[node.arg.storage if is_kept else node.src[0]]
            return True
        if op is EXPAND or op is RESHAPE or op is PERMUTE or op is SHRINK:
            source = node.src[0]
            view = self.views[source]
            if op is EXPAND:
                view = expanded(view, node.shape)
            elif op is RESHAPE:
                view = self.reshape(view, node.shape, node.dtype.itemsize)
            elif op is PERMUTE:
                view = view_of(view.slot, view.offset, node.shape,
                               tuple([view.strides[axis] for axis in node.arg]))
            else:
                view = view_of(view.slot, view.offset + begin_of(node.arg, view.strides),
                               node.shape, view.strides)
            self.views[node] = view
            return True
        if not node.src:
            return False
        source = node.src[0]
        found = ELEMENT_LOOPS.get((op, source.dtype, node.dtype))
        if found is None:
            return False
        loop, each_ns = found
        self.views[node] = self.elementwise(
            loop, node.dtype.itemsize, [self.views[operand] for operand in node.src], each_ns)
        return True

    cdef View buffer(self, Node node):
        cdef tuple shape = node.shape
        cdef int64_t itemsize = node.dtype.itemsize
        index = self.buffer_positions.get(node)
        if index is None or type(node.arg) is not BUFFER_CLASS:  # a StandIn has no memory
            raise Unfit
        return view_of(self.slot(FIRST_BUFFER + <Py_ssize_t> index, 0,
                                 <int64_t> elements(shape) * itemsize),
                       0, shape, packed_strides(shape, itemsize))

    cdef View reshape(self, View view, tuple shape, int64_t itemsize):
        cdef tuple strides = reshaped_strides(view.shape, view.strides, shape)
        if strides is None:
            view = self.copied(view, itemsize)
            strides = packed_strides(shape, itemsize)
        return view_of(view.slot, view.offset, shape, strides)


cdef set fused_products(list order, roots):
    """Return the products whose only reader is a sum, which computes them without storing them."""
    cdef Node node, source
    cdef dict uses
    cdef set found = set()
    for node in order:
        if node.op is REDUCE_AXIS and node.dtype in SUMMED and node.arg[0] is ADD:
            source = node.src[0]
            if source.op is MUL:
                found.add(source)
    found.difference_update(roots)
    if found:
        uses = dict.fromkeys(found, 0)
        for node in order:
            for source in node.src:
                if source in uses:
                    uses[source] += 1
        found = {source for source, n in uses.items() if n == 1}
    return found


cdef View expanded(View view, tuple shape):
    cdef list strides = list(view.strides)
    cdef Py_ssize_t axis
    for axis in range(len(shape)):
        if <int64_t> shape[axis] != <int64_t> view.shape[axis]:
            strides[axis] = 0
    return view_of(view.slot, view.offset, shape, tuple(strides))


cdef int64_t begin_of(tuple ends, tuple strides) except? -1:
    """Return the offset in bytes of the first element that a SHRINK keeps."""
    cdef Py_ssize_t axis
    cdef int64_t begin = 0
    for axis in range(len(ends)):
        low, high = ends[axis]
        if not PyLong_Check(low) or not PyLong_Check(high):  # a Variable
            raise Unfit
        begin += <int64_t> low * <int64_t> strides[axis]
    return begin


# ---- programs

@cython.final
cdef class Interpretation:
    plan = None

    def __init__(self, Steps steps not None, list slots not None, calls, bytes constants not None,
                 Py_ssize_t arena, list numbers not None, Py_ssize_t n_buffers,
                 Py_ssize_t n_results, list writes not None, double cost, Budget budget not None,
                 keeps=None):
        if self.steps is not None:
            raise errors.PlanBuildError("already initialised; make a new Interpretation")
        self.n_inputs = n_buffers
        for _, _, position in numbers:
            self.n_inputs = max(self.n_inputs, <Py_ssize_t> position + 1)
        steps.resolve(slots)
        self.steps = steps
        self.arena, self.constants, self.numbers = arena, constants, numbers
        self.calls, self.writes, self.keeps = list(calls), writes, keeps
        self.n_buffers, self.n_results = n_buffers, n_results
        self.cost, self.budget = cost, budget

    cdef bint is_spent(self) noexcept:
        return not self.budget.allows(self.cost)

    def run(self, list buffers not None, list results not None, list fresh not None,
            list resets not None, dict pending not None, tuple born=None):
        cdef list held = []
        cdef list dropped = []
        cdef Memory memory
        cdef char **bases
        cdef Py_ssize_t i, offset, nbytes
        cdef bint done
        if len(buffers) < self.n_inputs or len(results) != self.n_results:
            raise errors.PlanBuildError(
                f"expected {self.n_inputs} buffers and {self.n_results} results, not "
                f"{len(buffers)} and {len(results)}"
            )
        self.budget.add(self.cost)
        bases = <char **> PyMem_Calloc(
            <size_t> (FIRST_BUFFER + self.n_buffers + self.n_results), sizeof(char *))
        if bases == NULL:
            raise errors.OutOfMemoryError("out of memory: cannot store the addresses of a graph")
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
                self.budget.exhaust()
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
            if krt_interpret(self.steps.steps + done, n, bases) != n:
                return False
            done = position
            arrays = []
            for base, offset, shape, strides, kind, nbytes in operands:
                memory = PyMemoryView_FromMemory(bases[<Py_ssize_t> base], nbytes, PyBUF_WRITE)
                arrays.append(ndarray(shape, kind, memory, offset, strides))
            function(*arrays)
        n = <size_t> (self.steps.n - done)
        return krt_interpret(self.steps.steps + done, n, bases) == n


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
