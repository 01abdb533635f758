# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Fast paths of eager code: nodes of tensors, and operations on operands without special cases.

A fast path is taken only if cheap checks pass: no trace is active but the one that made the
operands, no assignment to memory that is read is pending, and no outside code can write the memory.
Otherwise the function returns None or False, and the method in Python handles the call.
"""

from cpython.dict cimport PyDict_Contains, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from kernelrt.native.array_handle cimport ArrayHandle, HandleRegistry, Link
from kernelrt.native.memory cimport Exporter, Memory
from kernelrt.native.graph_key cimport lineage_of
from kernelrt.native.thread_modes cimport (
    KRT_SCOPE, KRT_TRACE, Moment, Operation, TraceMode, debugging, debugs, disturbed, get,
    is_nested, new_instance, now, records_gradients, tracing,
)
from kernelrt.native.node cimport Node, intern, is_plain, mix, moved
from kernelrt.native.source_lines cimport epoch, here_of
from kernelrt.native.write_barrier cimport pending_memory, reads_now

from kernelrt.native.array_handle import put_all

cdef dict pending = None
cdef list steady = None
cdef list births = None
cdef HandleRegistry watched = None
cdef list shared = None
cdef dict units = None
cdef object lock = None


def _name_state(dict now_pending, list now_steady, list now_births, HandleRegistry now_watched,
                list now_shared, dict now_units, now_lock):
    """Set the registers of the process; see kernelrt.tensor.state."""
    global pending, steady, births, watched, shared, units, lock
    pending, steady, births = now_pending, now_steady, now_births
    watched, shared, units, lock = now_watched, now_shared, now_units, now_lock


cdef object note_made = None


def _name_debugging(note):
    """Set the function that is called for each tensor that a debugging thread makes."""
    global note_made
    note_made = note


cdef object MOVES = frozenset()
cdef object CONST = None
cdef object BUFFER = None
cdef object RESHAPE = None
cdef object EXPAND = None
cdef object DETACH = None
cdef int CUT_DEPTH = 0
cdef int MOST_DEPTH = 0


def _name_ops(moves, constant, buffer, reshape, expand, detach, int cut_depth, int most_depth):
    """Set some ops, the ops that move elements, and the depths at which graphs are cut."""
    global MOVES, CONST, BUFFER, RESHAPE, EXPAND, DETACH, CUT_DEPTH, MOST_DEPTH
    MOVES, CONST, BUFFER, RESHAPE, EXPAND = moves, constant, buffer, reshape, expand
    DETACH = detach
    CUT_DEPTH, MOST_DEPTH = cut_depth, most_depth


cpdef bint is_changing(ArrayHandle handle, Node node) except -1:
    """Return whether an assignment to a handle, or to memory that its node reads, is pending."""
    if PyDict_Size(pending) == 0:
        return False
    return PyDict_Contains(pending, <size_t> <PyObject *> handle) or reads_now(
        node, pending_memory(pending, steady))


cdef object flush = None


cdef int settle(ArrayHandle self) except -1:
    """Carry out pending assignments if they change memory that a tensor reads."""
    if PyDict_Size(pending) == 0 or tracing():
        return 0
    if self._link is not None:
        if (<Link> self._link).root is None:
            return 0
        self = <ArrayHandle> (<Link> self._link).root
    if self._link is None and self._uop is not None and is_changing(self, <Node> self._uop):
        flush(self)
    return 0


cdef bint shows_current(Link link) except -1:
    """Return whether a view's node reads the current value of the root, and no write is pending.

    Also False if Python code has to decide.
    """
    cdef ArrayHandle root
    if link.root is None or link.below is None:  # the collector has begun to clear the view
        return False
    root = <ArrayHandle> link.root
    if root._uop is not link.below:
        return False
    if link.fixed is not None:
        for index, node in <tuple> link.fixed:
            if (<ArrayHandle> index)._uop is not node:
                return False
        return not is_changing(root, <Node> link.node)  # this node reads the indices, too
    return not is_changing(root, <Node> link.below)


cdef bint lend(ArrayHandle view) except -1:
    """Bind a view to the memory of its root, if its elements are contiguous there.

    Return False, and do nothing, if Python code has to do it: see `views.enter` and `borrow`.
    """
    cdef Link link = <Link> view._link
    cdef ArrayHandle root
    cdef Exporter buffer
    cdef Node node, shown
    settle(view)
    if view.data != NULL or view._leaf is not None:
        return False
    if (view._born is not None or tracing() or not shows_current(link)
            or (<ArrayHandle> link.root)._link is not None):
        return False
    root = <ArrayHandle> link.root
    node = shown = <Node> link.node
    while node.op is RESHAPE:
        node = <Node> PyTuple_GET_ITEM(node.src, 0)
    if node.op is BUFFER and root.data != NULL:
        buffer = <Exporter?> node.arg
        view._bind(buffer, buffer.keep(), buffer.dtype.code, shown.shape, shown)
        link.lent = root.memory
    return node.op is not DETACH


def shows_memory(ArrayHandle view not None):
    cdef Link link = <Link?> view._link
    lend(view)
    if view._born is not None or tracing() or not shows_current(link):
        return False
    return (<ArrayHandle> link.root)._link is None and (<ArrayHandle> link.root).data != NULL


cdef Node live(ArrayHandle self):
    """Return the node that `TensorBase._live` returns; None if Python code has to find it."""
    cdef Link link
    cdef Node node
    self._used = True
    if self._uop is None and not adopted(self):
        return None
    node = <Node> self._uop
    if tracing():
        trace = get(KRT_TRACE)
        if (self.data != NULL or self._link is not None or self._born is not trace
                or PyDict_Contains((<TraceMode> trace)._states, <size_t> <PyObject *> self)
                or is_changing(self, node) or hasattr(self, "_whose")):
            return None
        return node if self._plain or records_gradients() else detached(node)
    if self._link is not None:
        link = <Link> self._link
        if self.data != NULL or self._born is not None or not shows_current(link):
            return None
        return node if link.plain or records_gradients() else detached(node)
    if (self.data == NULL and self._born is not None) or is_changing(self, node):
        return None
    return node if self._plain or records_gradients() else detached(node)


cdef Node detached(Node node):
    """Return `node` under a DETACH, which stops gradients."""
    cdef Node found
    if node.op is CONST or (node.op is DETACH and node.arg is None):
        return node
    found = intern(DETACH, node.dtype, (node,), None)
    found.cached_shape = node.shape
    return found


cdef bint is_outside(ArrayHandle self):
    """Return False only if no outside code can write the memory of a tensor."""
    if self._link is not None:
        if (<Link> self._link).root is None:
            return True
        self = <ArrayHandle> (<Link> self._link).root
    return isinstance(self.memory, Exporter) and not (
        (<Exporter> self.memory)._storage.is_own())


cdef Node node_of(ArrayHandle self):
    """Return the node that `TensorBase.uop` returns; None if Python code has to find it."""
    cdef Node node = live(self)
    return None if node is not None and shared[0] and is_outside(self) else node


cdef ArrayHandle bare(object kind, Node node, object code):
    """Return a tensor of a node, in no register yet."""
    cdef ArrayHandle tensor = <ArrayHandle?> new_instance(kind)
    tensor._uop = node
    tensor._plain = not records_gradients()
    if node.origin is None or (<tuple> node.origin)[5] != epoch:
        node.origin = here_of(get(KRT_SCOPE), code)
    return tensor


cdef ArrayHandle made(object kind, Node node, object code):
    """Return a lazy tensor of a node; in a trace, a tensor of that trace."""
    cdef ArrayHandle tensor = bare(kind, node, code)
    if tracing():
        tensor._born = get(KRT_TRACE)
        return tensor
    births[0] += 1
    watched.join(tensor)
    if debugging and debugs() and note_made is not None:
        note_made(tensor)
    if (node.depth > CUT_DEPTH and node.op not in MOVES
            and (tensor._plain or lineage_of(node) is not True)
            and (node.depth > MOST_DEPTH or (not is_nested() and recurs(node)))):
        tensor._cut()
    return tensor


cdef ArrayHandle shown(
    object kind, Node node, object code, ArrayHandle root, tuple path, Node below, object layout
):
    cdef ArrayHandle tensor = bare(kind, node, code)
    cdef Link link = <Link> new_instance(Link)
    link.root, link.path, link.plain, link.layout = root, path, tensor._plain, layout
    link.below, link.node = below, node
    tensor._link = link
    births[0] += 1
    return tensor


cdef enum:
    #: Two nodes of a graph are alike if this many operations, downwards from each, are equal.
    N_ALIKE = 8
    #: Maximum number of operations that are searched for nodes that are alike.
    N_SEARCHED = 256
    #: Maximum number of cut positions that are remembered.
    N_CUTS = 1024

#: Hashes of the operations, downwards from nodes, at which the graphs of loops are cut.
cdef set cut_hashes = set()


cdef bint recurs(Node node) except -1:
    """Return whether a loop without `realize()` computes this value in each iteration.

    The graph below the node repeats: the operations downwards from it occur at least twice more, at
    equal distances, and start at values of tensors there, too. One such value is chosen for each
    loop. So the graphs that are cut there have the same structure, and use one plan.
    """
    cdef uint64_t[N_SEARCHED] path
    cdef PyObject *nodes[N_SEARCHED]
    cdef Py_ssize_t i, distance
    cdef Py_ssize_t n = descend(node, path, nodes, N_ALIKE)
    cdef size_t window = N_ALIKE * sizeof(uint64_t)
    if hash_of(path) in cut_hashes:
        return True
    n = descend(node, path, nodes, N_SEARCHED)
    for distance in range(1, (n - N_ALIKE) // 2 + 1):
        if (memcmp(path, path + distance, window) == 0
                and memcmp(path, path + 2 * distance, window) == 0
                and (<Node> nodes[distance]).origin is not None
                and (<Node> nodes[2 * distance]).origin is not None):
            break
    else:
        return False
    for i in range(1, distance):
        if hash_of(path + i) in cut_hashes:
            return False  # iterations of this loop are cut at another value
    if len(cut_hashes) == N_CUTS:
        cut_hashes.clear()
    cut_hashes.add(hash_of(path))
    return True


cdef uint64_t hash_of(const uint64_t *path) noexcept:
    """Return a hash of the first `N_ALIKE` operations of a path."""
    cdef Py_ssize_t i
    cdef uint64_t hashed = 0
    for i in range(N_ALIKE):
        hashed = mix(hashed, path[i])
    return hashed


cdef Py_ssize_t descend(
    Node node, uint64_t *path, PyObject **nodes, Py_ssize_t most
) noexcept:
    """Write at most `most` operations of the longest path down from `node`; return the number."""
    cdef Node below
    cdef Py_ssize_t i, n = 0
    while n < most and PyTuple_GET_SIZE(node.src):
        nodes[n] = <PyObject *> node
        path[n] = mix(<size_t> <PyObject *> node.op, <size_t> <PyObject *> node.dtype)
        n += 1
        below = <Node> PyTuple_GET_ITEM(node.src, 0)
        for i in range(1, PyTuple_GET_SIZE(node.src)):
            if (<Node> PyTuple_GET_ITEM(node.src, i)).depth > below.depth:
                below = <Node> PyTuple_GET_ITEM(node.src, i)
        node = below
    return n


cdef extern from "Python.h":
    bint PySlice_Check(object item)
    int PySlice_Unpack(object item, Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t *step) except -1
    Py_ssize_t PySlice_AdjustIndices(
        Py_ssize_t length, Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t step) noexcept


cdef class LazyHandle(ArrayHandle):
    """Handle that may have a node and no data yet."""

    @property
    def uop(self):
        """Node with the value of this tensor.

        Operations read it to use the tensor as an operand. If outside code can write the memory,
        the node has the elements of the moment of this call.
        """
        cdef Node node = node_of(self)
        return self._taken_node() if node is None else node

    def _live(self):
        """Return the node with the value of this tensor; it reads shared memory without a copy."""
        cdef Node node = live(self)
        return self._live_node() if node is None else node

    @classmethod
    def _of(cls, Node node not None):
        """Return a lazy tensor with the value of `node`."""
        return made(cls, node, None)


# ---- memory


cdef Node flat_node(Exporter buffer):
    """Return the BUFFER node of `buffer`."""
    cdef Node node = intern(BUFFER, buffer.dtype, (), buffer)
    if node.cached_shape is None:
        shape = (buffer.size,)
        node.cached_shape = shape if is_plain(shape) else None
    return node


cpdef Node storage_node(Exporter buffer, tuple shape):
    """Return the elements of `buffer` as a node of `shape`; None if no tensor can have it."""
    return moved(RESHAPE, flat_node(buffer), shape)


cpdef bint adopted(ArrayHandle handle) except -1:
    cdef Exporter buffer
    cdef Node node
    cdef Memory data
    if type(handle.memory) is not Memory or handle.nbytes == 0 or handle.severed != NULL:
        return False
    data = <Memory> handle.memory
    dtype = TYPES[handle.code]
    buffer = Buffer._lent(data, handle.nbytes // <Py_ssize_t> dtype.itemsize, handle.nbytes,
                          dtype, next(ids), allocator)
    node = storage_node(buffer, handle.shape)
    handle._begin(buffer, buffer.keep(), handle.code, handle.shape, node, True)
    return True


def commits_of(handles):
    cdef list writes = [], resets = []
    cdef ArrayHandle handle
    for entry in handles:
        handle = <ArrayHandle?> entry
        node = handle._uop
        if node is not None and handle._leaf is None and handle.severed == NULL and (
                type(handle.memory) is Buffer):
            writes.append((flat_node(<Exporter> handle.memory), node))
            resets.append((handle, node, storage_node(<Exporter> handle.memory, handle.shape)))
        else:
            writes.append((handle._storage(), node))
            resets.append((handle, node, handle._at_rest()))
    return writes, resets


# ---- arithmetic


cdef object DOUBLE = None
cdef object FLOAT = None
cdef tuple WIDE = ()  # dtypes whose intermediates have the same dtype
cdef dict TYPES = {}


def _name_types(narrow, broad, tuple wide, dict by_code):
    """Set two dtypes, the dtypes that are their own accumulation dtypes, and all dtypes by code."""
    global FLOAT, DOUBLE, WIDE, TYPES
    FLOAT, DOUBLE, WIDE, TYPES = narrow, broad, wide, by_code


cdef class Rule:
    """Op of a method with two operands."""

    cdef object op
    cdef bint swapped
    cdef bint whole  # whether the op also holds for integers


cdef bint is_wide(object dtype) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(WIDE)):
        if PyTuple_GET_ITEM(WIDE, i) == <PyObject *> dtype:
            return True
    return False


cdef bint same_sizes(Node a, Node b) except -1:
    """Return whether two nodes have the same static shape."""
    cdef tuple one = a.shape, two = b.shape
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(one)
    if n != PyTuple_GET_SIZE(two):
        return False
    for i in range(n):
        if not (PyLong_CheckExact(<object> PyTuple_GET_ITEM(one, i))
                and PyLong_CheckExact(<object> PyTuple_GET_ITEM(two, i))
                and PyObject_RichCompareBool(
                    <object> PyTuple_GET_ITEM(one, i), <object> PyTuple_GET_ITEM(two, i), Py_EQ)):
            return False
    return True


cdef tuple joint_shape(tuple one, tuple two):
    """Broadcast two static shapes; return None if they do not broadcast or are not static."""
    cdef Py_ssize_t i, more
    cdef list sizes
    if PyTuple_GET_SIZE(one) < PyTuple_GET_SIZE(two):
        one, two = two, one
    more = PyTuple_GET_SIZE(one) - PyTuple_GET_SIZE(two)
    sizes = list(one)
    for i in range(PyTuple_GET_SIZE(one)):
        if not PyLong_CheckExact(sizes[i]):
            return None
        if i >= more:
            size = <object> PyTuple_GET_ITEM(two, i - more)
            if not PyLong_CheckExact(size) or (size != sizes[i] and size != 1 and sizes[i] != 1):
                return None
            if sizes[i] == 1:
                sizes[i] = size
    return tuple(sizes)


cdef Node broadcast_to(Node x, tuple shape):
    cdef Py_ssize_t missing = PyTuple_GET_SIZE(shape) - PyTuple_GET_SIZE(<tuple> x.cached_shape)
    if missing:
        x = moved(RESHAPE, x, (1,) * missing + <tuple> x.cached_shape)
    return None if x is None else moved(EXPAND, x, shape)


cdef Node number(object value, Node like):
    """Return a Python number as an operand for use with a node; None if dtypes need promotion."""
    cdef Node node
    cdef double exact
    cdef tuple shape = like.shape
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(shape)
    cdef bint ones = True
    for i in range(n):
        size = <object> PyTuple_GET_ITEM(shape, i)
        if not PyLong_CheckExact(size):
            return None
        ones = ones and size == 1
    if PyFloat_CheckExact(value):
        exact = PyFloat_AS_DOUBLE(value)
    elif PyLong_CheckExact(value) and -(1 << 31) <= value < (1 << 31):
        exact = <double> <long> value
    else:
        return None
    if like.dtype is FLOAT:
        node = intern(CONST, FLOAT, (), <double> <float> exact)
    elif like.dtype is DOUBLE:
        node = intern(CONST, DOUBLE, (), exact)
    elif PyLong_CheckExact(value):
        node = intern(CONST, like.dtype, (), value)
    else:
        return None
    if n:
        node.cached_shape = ()
        node = intern(RESHAPE, like.dtype, (node,), (1,) * n)
        node.cached_shape = node.arg
        if not ones:
            node = intern(EXPAND, like.dtype, (node,), shape)
            node.cached_shape = shape
    return node


cdef object combined(object rule, object code, object self, object other):
    cdef Rule known = <Rule> rule
    cdef Node a, b, node
    cdef Moment begun
    if not isinstance(self, LazyHandle):
        return None
    settle(<ArrayHandle> self)
    if type(other) is type(self):
        settle(<ArrayHandle> other)
    begun = now()
    a = node_of(<ArrayHandle> self)
    if a is None or not (is_wide(a.dtype) if known.whole else a.dtype is FLOAT
                         or a.dtype is DOUBLE):
        return None
    if type(other) is type(self):
        b = node_of(<ArrayHandle> other)
        if b is None or b.dtype is not a.dtype:
            return None
        if not same_sizes(a, b):
            shape = joint_shape(a.shape, b.shape)
            if shape is None:
                return None
            a, b = broadcast_to(a, shape), broadcast_to(b, shape)
            if a is None or b is None:
                return None
    else:
        b = number(other, a)
        if b is None:
            return None
    node = intern(known.op, a.dtype, (b, a) if known.swapped else (a, b), None)
    if node.cached_shape is None:
        node.cached_shape = a.cached_shape
    tensor = made(type(self), node, code)
    return None if disturbed(begun) else tensor


def quicken(Operation operation not None, op, bint swapped=False, bint whole=True):
    cdef Rule rule = Rule()
    rule.op, rule.swapped, rule.whole = op, swapped, whole
    operation.rule = rule
    operation.fast_path = combined


# ---- contiguous rows


cdef object ALL = slice(None)
cdef object Buffer = None
cdef object INDEX = None
cdef object ids = None
cdef object allocator = None


def _name_views(buffer, numbers, memory, index):
    """Set the class of buffers, the iterator of their ids, their allocator, and the INDEX kind."""
    global Buffer, ids, allocator, INDEX
    Buffer, ids, allocator, INDEX = buffer, numbers, memory, index


cdef Node part_of(Node memory, size_t first, size_t size):
    """Return the BUFFER node of `size` elements, beginning at `first`."""
    cdef Exporter whole = <Exporter> memory.arg
    cdef Exporter part = <Exporter> new_instance(Buffer)
    cdef size_t width = whole.nbytes // whole.size
    part._storage = whole._storage
    part.base = whole if whole.base is None else whole.base
    part.dtype, part.label = whole.dtype, whole.label
    part.id = next(ids)
    part.size, part.nbytes = size, size * width
    part.offset = whole.offset + first * width
    return flat_node(part)


cdef struct Run:
    Py_ssize_t start  # index of the first element
    Py_ssize_t size


cdef bint is_end(object end) noexcept:
    return end is None or PyLong_CheckExact(end)


cdef bint is_whole(object item) noexcept:
    return (PySlice_Check(item) and item.start is None and item.stop is None
            and item.step is None)


cdef tuple items_of(object index):
    return <tuple> index if type(index) is tuple else (index,)


cdef bint read_integer(ArrayHandle index, Py_ssize_t *found) except -1:
    """Read a computed 0-d integer tensor; return False for any other tensor."""
    cdef Node node
    cdef Exporter buffer
    cdef const char *data
    cdef int64_t wide = 0
    cdef size_t width
    if index._uop is None and index._link is None:
        adopted(index)
    settle(index)
    node = None if tracing() else live(index)
    if node is None or not node.dtype.is_int or node.shape != ():
        return False
    width, data = node.dtype.itemsize, index.data
    if index._link is not None or data == NULL:
        while node.op is RESHAPE or (node.op is DETACH and node.arg is None):
            node = <Node> PyTuple_GET_ITEM(node.src, 0)
        if node.op is not BUFFER or type(node.arg) is not Buffer:
            return False
        buffer = <Exporter> node.arg
        data = buffer.address()
    if data == NULL or (width == 8 and not node.dtype.is_signed):
        return False
    memcpy(&wide, data, width)  # fills the low bytes: all supported machines are little-endian
    if node.dtype.is_signed and width < 8 and wide >> (8 * width - 1):
        wide -= <int64_t> 1 << (8 * width)
    found[0] = wide
    return True


cdef tuple with_numbers(tuple items):
    """Return the items of an index with computed 0-d integer tensors replaced by their numbers."""
    cdef list found = None
    cdef Py_ssize_t i, number = 0
    for i in range(PyTuple_GET_SIZE(items)):
        item = <object> PyTuple_GET_ITEM(items, i)
        if isinstance(item, LazyHandle) and read_integer(<ArrayHandle> item, &number):
            if found is None:
                found = list(items)
            found[i] = number
    return items if found is None else tuple(found)


cdef bint has_rows(ArrayHandle self) noexcept:
    """Return whether a tensor is realized, and views of its rows can be made here."""
    return self.data != NULL and self.nbytes != 0 and self._link is None and not tracing()


cdef tuple run_of(tuple shape, tuple items, Run *run):
    """Find the contiguous range of elements that an index selects in a tensor of this shape.

    Such an index has integers first, then at most one slice, and then whole axes. Return the shape
    of the selection; None if it is the whole tensor, empty, or not contiguous.
    """
    cdef Py_ssize_t n = PyTuple_GET_SIZE(items), axis = 0, i, at, length, count
    cdef Py_ssize_t stop = 0, step = 0
    if n == 0 or n > PyTuple_GET_SIZE(shape):
        return None
    run.start, run.size = 0, 1
    for size in shape:
        run.size *= <Py_ssize_t> size
    if run.size == 0:
        return None
    while axis < n and PyLong_CheckExact(<object> PyTuple_GET_ITEM(items, axis)):
        item = <object> PyTuple_GET_ITEM(items, axis)
        length = <object> PyTuple_GET_ITEM(shape, axis)
        if not -length <= item < length:
            return None
        at = item
        run.size //= length
        run.start += run.size * (at + length if at < 0 else at)
        axis += 1
    if axis == n:
        return shape[axis:]
    item = <object> PyTuple_GET_ITEM(items, axis)
    if not (PySlice_Check(item) and item.step is None and is_end(item.start)
            and is_end(item.stop)):
        return None
    for i in range(axis + 1, n):
        if not is_whole(<object> PyTuple_GET_ITEM(items, i)):
            return None
    length = <object> PyTuple_GET_ITEM(shape, axis)
    PySlice_Unpack(item, &at, &stop, &step)
    count = PySlice_AdjustIndices(length, &at, &stop, step)
    if count == 0 or (axis == 0 and count == length):
        return None
    run.size //= length
    run.start += at * run.size
    run.size *= count
    return (count,) + shape[axis + 1:]


cdef Node memory_below(ArrayHandle self):
    """Return the BUFFER node of a realized tensor, after carrying out pending assignments to it."""
    cdef Node node
    cdef Exporter buffer
    settle(self)
    node = live(self)
    if node is None or self.data == NULL:
        return None
    if node.op is RESHAPE:
        node = <Node> PyTuple_GET_ITEM(node.src, 0)
    if node.op is not BUFFER or type(node.arg) is not Buffer:
        return None
    buffer = <Exporter> node.arg
    if buffer.size == 0 or <size_t> buffer.address() % (buffer.nbytes // buffer.size):
        return None
    return node


cdef Node run_node(Node memory, Run run, tuple shape):
    """Return the node of a contiguous range of elements."""
    cdef Node found = part_of(memory, <size_t> run.start, <size_t> run.size)
    if PyTuple_GET_SIZE(shape) != 1:
        found = intern(RESHAPE, found.dtype, (found,), shape)
        found.cached_shape = shape
    return found


cdef tuple packed(tuple shape):
    """Return the row-major layout of a shape: sizes, and strides in elements."""
    cdef Py_ssize_t i, stride = 1
    cdef list strides = list(shape)
    for i in range(PyTuple_GET_SIZE(shape) - 1, -1, -1):
        strides[i] = stride
        stride *= <Py_ssize_t> <object> PyTuple_GET_ITEM(shape, i)
    return shape, tuple(strides)


cdef object rows(object rule, object code, object self, object index):
    """Return the view of a contiguous range of elements; None if Python code has to make it."""
    cdef ArrayHandle handle
    cdef Node memory
    cdef Moment begun
    cdef Run run
    cdef tuple shape, items
    if not isinstance(self, LazyHandle):
        return None
    handle = <ArrayHandle> self
    items = items_of(index)
    shape = run_of(handle.shape, items, &run) if has_rows(handle) else None
    memory = None if shape is None else memory_below(handle)
    if memory is None:
        return None
    begun = now()
    items = items + (ALL,) * (PyTuple_GET_SIZE(handle.shape) - PyTuple_GET_SIZE(items))
    handle = shown(type(self), run_node(memory, run, shape), code, handle,
                   (None, INDEX, (items, index, ())), <Node> handle._uop, packed(shape))
    return None if disturbed(begun) else handle


cdef object copy_now = None
cdef object compute = None


def _name_copy(copy, carry_out, realize):
    """Set the functions that copy a value, carry out assignments and compute a tensor."""
    global copy_now, flush, compute
    copy_now, flush, compute = copy, carry_out, realize


cdef bint no_history(ArrayHandle self) except -1:
    return self._plain or self._uop is None or lineage_of(<Node> self._uop) is False


cdef bint is_own(ArrayHandle self) except -1:
    """Return whether writes concern no trace, no owner of a ``data`` alias and no outside code."""
    return (not tracing() and getattr(self, "_whose", None) is None
            and not (shared[0] and is_outside(self)))


cdef bint takes_values(ArrayHandle self) except -1:
    """Return whether parts of a tensor may be assigned here: no leaf, history or shared memory."""
    return self._leaf is None and no_history(self) and is_own(self)


cdef ArrayHandle bound(object kind, Node found):
    """Return a tensor over the part of memory that a node reads."""
    cdef Exporter buffer = <Exporter> memory_node(found).arg
    cdef ArrayHandle part = <ArrayHandle?> new_instance(kind)
    part._plain = True
    part._uop = found
    part._bind(buffer, buffer.keep(), buffer.dtype.code, found.shape)
    return part


cdef Node memory_node(Node found):
    return <Node> PyTuple_GET_ITEM(found.src, 0) if found.op is RESHAPE else found


cdef bint is_filled(Node node) noexcept:
    """Return whether a lazy value may be one number for all elements."""
    return PyTuple_GET_SIZE(node.src) == 0 or node.op is EXPAND


cdef bint reads_elsewhere(Node node, Exporter part, int *left) except -1:
    """Return whether a graph reads other bytes of the storage of `part`.

    At most `left` nodes are visited; the others count as not reading it.
    """
    cdef Exporter read
    if left[0] <= 0:
        return False
    left[0] -= 1
    if node.op is BUFFER and type(node.arg) is Buffer:
        read = <Exporter> node.arg
        return read._storage is part._storage and (
            read.offset != part.offset or read.nbytes != part.nbytes)
    for source in node.src:
        if reads_elsewhere(<Node> source, part, left):
            return True
    return False


cdef bint put_value(
    object kind, Node found, ArrayHandle given, ArrayHandle part=None
) except -1:
    """Assign a value to the part of memory that a node reads; return False if nothing was done.

    `part` is a tensor over that part; it is made if it is None.
    """
    cdef unsigned long writes
    cdef int left = 64
    cdef Node node = node_of(given)
    if (node is None or node.dtype is not found.dtype
            or (<Exporter> memory_node(found).arg)._storage.readonly
            or (records_gradients() and not no_history(given)) or not same_sizes(found, node)):
        return False
    if given.data == NULL and is_filled(node):
        return False  # the caller may fill the elements with one number
    if part is None:
        part = bound(kind, found)
    with lock:
        if is_changing(part, found):
            return False  # another thread has assigned to the memory in the meantime
        if given.data == NULL and reads_elsewhere(node, <Exporter> memory_node(found).arg, &left):
            # A plan for both would depend on the distance between the memory read and written.
            try:
                compute(given)
            except Warning:  # a warning raised as an error; the value is computed
                if given.data != NULL:
                    put_value(kind, found, given, part)
                raise
        writes = now().writes  # before node_of, which may run other code
        node = node_of(given)
        if node is None:
            return False
        node = detached(node)
        if given.data != NULL and copy_now is not None and copy_now(part, given):
            return True
        return put_all([(part, node)], [], [], pending, births, steady, units, {}, writes)


cdef bint is_written_as(object value, Node found) except -1:
    """Return whether a number can be written directly as an element of a node's dtype."""
    return number(value, found) is not None and (
        is_wide(found.dtype) or found.dtype is FLOAT or found.dtype is DOUBLE)


cdef bint put_number(object kind, Node found, object value) except -1:
    """Write a number to the part of memory that a node reads; return False if nothing was done."""
    if (<Exporter> memory_node(found).arg)._storage.readonly or not is_written_as(value, found):
        return False
    with lock:
        return copy_now is not None and copy_now(bound(kind, found), value)


cdef bint shows_run(ArrayHandle view, ArrayHandle root, Run run) except -1:
    """Return whether a view shows exactly this range of elements of its root."""
    cdef Link link = <Link> view._link
    cdef Run own
    return (link.root is root and link.path[0] is None and link.path[1] is INDEX
            and has_rows(root)
            and run_of(root.shape, with_numbers(link.path[2][0]), &own) is not None
            and own.start == run.start and own.size == run.size)


cdef tuple shape_of_lazy(ArrayHandle self):
    """Return the shape of a lazy tensor; None if it depends on Variables."""
    cdef Node node = None if self._uop is None or self._born is not None else <Node> self._uop
    return None if node is None or not is_plain(<tuple> node.shape) else <tuple> node.shape


def put_rows(ArrayHandle self not None, object index, object value):
    cdef ArrayHandle given
    cdef Node memory
    cdef Run run
    cdef tuple whole = <tuple> self.shape if self.data != NULL else shape_of_lazy(self)
    cdef bint is_number = PyFloat_CheckExact(value) or PyLong_CheckExact(value)
    if (whole is None or self._link is not None or tracing()
            or not (is_number or type(value) is type(self)) or not takes_values(self)):
        return False
    shape = run_of(whole, with_numbers(items_of(index)), &run)
    if shape is None:
        return False
    if self.data == NULL:  # compute it first; else each row written makes its graph longer
        if not is_number and records_gradients() and not no_history(<ArrayHandle> value):
            return False
        compute(self)
    if not is_number:
        given = <ArrayHandle> value
        if given._link is not None and shows_run(given, self, run):
            return True  # the second step of x[index] += 1, which has already changed x
        if given._link is not None and ((<Link> given._link).root is self or given.data != NULL):
            return False
    memory = memory_below(self)
    if memory is None:
        return False
    memory = run_node(memory, run, shape)
    return put_number(type(self), memory, value) if is_number else put_value(
        type(self), memory, given)


def moment():
    cdef Moment found = now()
    return found.all_writes, found.values


def put_whole(ArrayHandle self not None, ArrayHandle value not None, tuple begun not None):
    cdef Node memory
    cdef Moment before = now()
    if (self.data == NULL or self._link is not None or value._link is not None
            or type(value) is not type(self) or not takes_values(self)):
        return False
    memory = memory_below(self)
    if memory is None:  # another thread may have assigned to it meanwhile
        return None if self._uop is not None and is_changing(self, <Node> self._uop) else False
    before.all_writes, before.values = begun
    return None if disturbed(before) else put_value(type(self), <Node?> self._uop, value, self)


def fill_or_copy(ArrayHandle self not None, object value):
    cdef ArrayHandle given
    cdef Node node, own
    if (self.data == NULL or self._link is not None or copy_now is None
            or not (self._leaf is not None or no_history(self)) or not is_own(self)):
        return False
    settle(self)
    if self.data == NULL or (self._uop is None and not adopted(self)):
        return False
    own = <Node> self._uop
    if PyFloat_CheckExact(value) or PyLong_CheckExact(value):
        if not is_written_as(value, own):
            return False
    elif type(value) is type(self):
        given = <ArrayHandle> value
        node = node_of(given)
        if (node is None or given._link is not None or node.dtype is not own.dtype
                or (records_gradients() and not no_history(given)) or not same_sizes(own, node)):
            return False
        if given.data == NULL and not is_filled(node):
            return self._leaf is None and memory_below(self) is not None and put_value(
                type(self), <Node?> self._uop, given, self)
    else:
        return False
    with lock:
        return self._uop is own and not is_changing(self, own) and copy_now(self, value)


def put_shown(ArrayHandle view not None, ArrayHandle value not None):
    cdef ArrayHandle root = <ArrayHandle> (<Link?> view._link).root
    cdef Link link = <Link> view._link
    cdef Node node, below
    cdef Run run
    if root.data == NULL or value._link is not None or not takes_values(root):
        return False
    settle(view)
    node = live(view)
    if node is None or root.data == NULL or type(value) is not type(view):
        return False
    if link.fixed is not None:  # an index by tensors
        if link.path[0] is not None or link.path[1] is not INDEX:
            return False
        shape = None
        if has_rows(root):
            shape = run_of(root.shape, with_numbers(link.path[2][0]), &run)
        node = None if shape is None else memory_below(root)
        return node is not None and put_value(type(view), run_node(node, run, shape), value)
    below = <Node> PyTuple_GET_ITEM(node.src, 0) if node.op is RESHAPE else node
    if below.op is not BUFFER or type(below.arg) is not Buffer or below.arg is root.memory:
        return False
    return put_value(type(view), node, value)


def quicken_rows(Operation operation not None):
    operation.fast_path = rows
