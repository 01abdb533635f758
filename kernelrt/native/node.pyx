# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Graph nodes: interned by content, and traversed without a Python call per node."""

cimport cython
from cpython.long cimport PyLong_Check, PyLong_CheckExact
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.object cimport Py_EQ, PyObject, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_REFCNT
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from kernelrt.native.array_handle cimport DIMS

cdef extern from *:
    """
    /* Let calls of `type` run node_call instead of type.__call__, __new__ and __init__. */
    static newfunc make_bare;
    static PyObject *forbid_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
    {
        (void)args, (void)kwargs;
        PyErr_Format(PyExc_TypeError, "%s.__new__ creates no objects; call %s itself", type->tp_name,
                     type->tp_name);
        return NULL;
    }
    static void take_over(PyObject *type, PyObject *base, void *call)
    {
        PyTypeObject *kind = (PyTypeObject *)type;
        make_bare = ((PyTypeObject *)base)->tp_new;
        kind->tp_new = forbid_new;
        kind->tp_vectorcall = (vectorcallfunc)call;
        /* The collector tracks instances of Python classes. Nodes need no tracking, and without it
           the collector also untracks tuples and dicts of nodes. No instance exists yet. */
        kind->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
        kind->tp_traverse = NULL;
        kind->tp_clear = NULL;
        kind->tp_free = PyObject_Free;
        PyType_Modified(kind);
    }
    static PyObject *bare_node(PyObject *type, PyObject *no_args)
    {
        return make_bare((PyTypeObject *)type, no_args, NULL);
    }
    """
    void take_over(object type, object base, void *call)
    object bare_node(object type, tuple no_args)
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf)

cdef tuple NO_ARGS = ()
cdef object node_type = None

# The op of tags, and the tag class that ends a node's depth; see _name_detach and _name_kept.
cdef object DETACH = None
cdef object KEPT = None

# Hash table of all nodes: buckets of chained, borrowed references. The GIL protects it.
cdef PyObject **buckets = NULL
cdef size_t n_buckets = 0
cdef size_t n_nodes = 0
cdef uint64_t n_made = 0  # nodes ever added to the table
cdef uint64_t n_asked = 0  # requests for nodes, in the table or not


cdef int grow() except -1:
    global buckets, n_buckets
    cdef size_t i, wanted = 2 * n_buckets if n_buckets else 1024
    cdef PyObject *node
    cdef PyObject *following
    cdef PyObject **bigger = <PyObject **> PyMem_Calloc(wanted, sizeof(PyObject *))
    if bigger == NULL:
        raise MemoryError("out of memory: cannot extend the table of nodes")
    for i in range(n_buckets):
        node = buckets[i]
        while node != NULL:
            following = <PyObject *> (<Node> node).next
            (<Node> node).next = bigger[(<Node> node).content & (wanted - 1)]
            bigger[(<Node> node).content & (wanted - 1)] = node
            node = following
    PyMem_Free(buckets)
    buckets, n_buckets = bigger, wanted
    return 0


cdef uint64_t float_bits(object value) noexcept:
    """Return the bits of a float; all NaNs have the same."""
    cdef double number = PyFloat_AS_DOUBLE(value)
    cdef uint64_t bits
    if number != number:
        return 0x7FF8000000000000
    memcpy(&bits, &number, sizeof(bits))
    return bits


cdef size_t arg_hash(object arg) except? 0:
    if arg is None:
        return 1
    if PyFloat_CheckExact(arg):
        return mix(2, float_bits(arg))
    return <size_t> PyObject_Hash(arg)


cdef bint same_arg(object a, object b) except -1:
    """Return whether two args are equal. Floats are compared bitwise, and all NaNs are equal."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if PyFloat_CheckExact(a):
        return float_bits(a) == float_bits(b)
    return PyObject_RichCompareBool(a, b, Py_EQ)


cdef bint same_nodes(tuple a, tuple b) noexcept:
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(a)
    if n != PyTuple_GET_SIZE(b):
        return False
    for i in range(n):
        if PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i):
            return False
    return True


cdef object SAME = object()


@cython.no_gc
cdef class Node:
    """Base class of UOp. Nodes form no cycles, so the collector does not track them."""

    def __dealloc__(self):
        global n_nodes
        cdef void **link
        if n_buckets == 0:
            return
        link = <void **> &buckets[self.content & (n_buckets - 1)]
        while link[0] != NULL:
            if link[0] == <void *> self:
                link[0] = self.next
                n_nodes -= 1
                return
            link = &(<Node> <PyObject *> link[0]).next

    def replace(self, *, op=None, dtype=None, src=None, arg=SAME):
        """Return this node with some of op, dtype, src and arg replaced."""
        cdef Node new
        if src is not None and type_of(src) is not tuple:
            raise TypeError(f"src: expected a tuple of nodes, not {src!r}")
        new = intern(
            self.op if op is None else op, self.dtype if dtype is None else dtype,
            self.src if src is None else <tuple> src, self.arg if arg is SAME else arg)
        hand_on(self, new)
        return new

    @property
    def shape(self):
        """Shape of a tensor-level node; scalars in a kernel have shape ()."""
        cdef Node first
        if self.cached_shape is None:
            if self.op in ALIKE:
                first = <Node> PyTuple_GET_ITEM(self.src, 0)
                self.cached_shape = first.cached_shape
            if self.cached_shape is None:
                infer_shape(self)
        return self.cached_shape

    @property
    def bounds(self):
        """Minimum and maximum of an integer or bool node; the limits of the dtype if unknown."""
        return (<tuple> interval(self))[:2]

    @property
    def vmin(self):
        """Minimum value of an integer or bool node."""
        return (<tuple> interval(self))[0]

    @property
    def vmax(self):
        """Maximum value of an integer or bool node."""
        return (<tuple> interval(self))[1]

    @property
    def exact(self):
        """Whether this value equals the same expression over unbounded integers.

        False if a sum or product in the expression may wrap.
        """
        return (<tuple> interval(self))[2]


# Functions that fill in cached_shape and cached_bounds; see _infer_with.
cdef object infer_shape = None
cdef object infer_bounds = None
cdef frozenset ALIKE = frozenset()


def _infer_with(shape, bounds, frozenset alike):
    """Set the functions that infer the shape and the bounds of a node and its operands.

    Nodes of the ops in `alike` have the shape of their first operand.
    """
    global infer_shape, infer_bounds, ALIKE
    infer_shape, infer_bounds, ALIKE = shape, bounds, alike


cdef tuple interval(Node node):
    if node.cached_bounds is None:
        infer_bounds(node)
    return node.cached_bounds


cdef int hand_on(Node old, Node new) except -1:
    """Copy the origin of `old` to `new`, unless `new` has a later one."""
    if old.origin is not None and new.origin is not old.origin and (
            new.origin is None or (<tuple> new.origin)[5] < (<tuple> old.origin)[5]):
        new.origin = old.origin
    return 0


def inherit(Node new not None, Node old not None):
    hand_on(old, new)
    return new


cdef Node find(size_t content, object op, object dtype, tuple src, object arg, list different):
    """Return the node with this content, or None.

    Nodes with the same hash and another arg are added to `different`.
    """
    cdef PyObject *item = buckets[content & (n_buckets - 1)]
    cdef Node node
    while item != NULL:
        # A reference count of zero: the node is dead, and only its deallocation is deferred.
        if ((<Node> item).content == content and Py_REFCNT(<object> item) > 0
                and (<Node> item).op is op and (<Node> item).dtype is dtype
                and same_nodes((<Node> item).src, src)
                and (different is None or not has(different, item))):
            node = <Node> item
            if same_arg(node.arg, arg):
                return node
            # Comparing args may run any code, which may change the table: search again.
            if different is None:
                different = []
            different.append(node)
            item = buckets[content & (n_buckets - 1)]
            continue
        item = <PyObject *> (<Node> item).next
    return None


cdef bint has(list nodes, PyObject *item) noexcept:
    for node in nodes:
        if <PyObject *> node == item:
            return True
    return False


cdef Node intern(object op, object dtype, tuple src, object arg):
    global n_nodes, n_made, n_asked
    cdef Node node, found
    cdef Py_ssize_t i
    cdef uint64_t made_before
    cdef list different
    cdef size_t content = mix(<size_t> <PyObject *> op, <size_t> <PyObject *> dtype)
    for i in range(PyTuple_GET_SIZE(src)):
        content = mix(content, <size_t> PyTuple_GET_ITEM(src, i))
    content = mix(content, arg_hash(arg))
    if n_nodes >= n_buckets:
        grow()
    n_asked += 1
    made_before = n_made
    found = find(content, op, dtype, src, arg, None)
    if found is not None:
        found.asked = n_asked
        return found
    node = new_node(content, op, dtype, src, arg)
    if n_made != made_before:
        # A comparison or a finalizer made nodes, perhaps this one: search again. `different`
        # outlives the search, so that no code runs between its end and the insertion.
        different = []
        found = find(content, op, dtype, src, arg, different)
        if found is not None:
            found.asked = n_asked
            return found
    node.made = n_made
    node.asked = n_asked
    node.next = <void *> buckets[content & (n_buckets - 1)]
    buckets[content & (n_buckets - 1)] = <PyObject *> node
    n_nodes += 1
    n_made += 1
    return node


cdef Node new_node(size_t content, object op, object dtype, tuple src, object arg):
    """Return a new node, which the caller adds to the table."""
    cdef Py_ssize_t i
    cdef Node node
    for operand in src:
        if not isinstance(operand, Node):
            raise TypeError(f"src: expected a tuple of nodes, not {src!r}")
    node = <Node> bare_node(node_type, NO_ARGS)
    node.op, node.dtype, node.src, node.arg = op, dtype, src, arg
    node.content = content
    if op is not DETACH or type_of(arg) is not KEPT:
        for i in range(PyTuple_GET_SIZE(src)):
            node.depth = max(node.depth, (<Node> PyTuple_GET_ITEM(src, i)).depth + 1)
    return node


cdef object node_call(PyObject *type, PyObject **args, size_t nargsf, PyObject *names):
    """``UOp(op, dtype, src=(), arg=None)``."""
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    cdef Py_ssize_t total = n + (0 if names == NULL else PyTuple_GET_SIZE(<tuple> names))
    cdef object src = NO_ARGS
    cdef object arg = None
    if n < 2 or total > 4:
        raise TypeError("expected UOp(op, dtype, src=(), arg=None), op and dtype by position")
    if n > 2:
        src = <object> args[2]
    if n > 3:
        arg = <object> args[3]
    for i in range(n, total):
        name = <object> PyTuple_GET_ITEM(<tuple> names, i - n)
        if name == "src":
            src = <object> args[i]
        elif name == "arg":
            arg = <object> args[i]
        else:
            raise TypeError(f"UOp has no argument {name!r}")
    if type_of(src) is not tuple:
        raise TypeError(f"src: expected a tuple of nodes, not {src!r}")
    return intern(<object> args[0], <object> args[1], <tuple> src, arg)


def _make_nodes_of(kind):
    """Make calls of `kind`, the subclass of Node, return interned nodes."""
    global node_type
    if node_type is not None:
        raise TypeError(f"the class of nodes is already set to {node_type.__name__}")
    node_type = kind
    take_over(kind, Node, <void *> node_call)


def _name_detach(op):
    """Set the op of tags."""
    global DETACH
    DETACH = op


def _name_kept(kind):
    """Set the class of tags of values that are stored in memory."""
    global KEPT
    KEPT = kind


# ---- Static shapes --------------------------------------------------------------------------

cdef object RESHAPE = None
cdef object EXPAND = None
cdef object REDUCE_AXIS = None
cdef int64_t MOST_ELEMENTS = 0
cdef Py_ssize_t MOST_AXES = 0


def _name_moves(reshape, expand, reduce_axis, int64_t most_elements, Py_ssize_t most_axes):
    """Set three ops, and the maximum numbers of elements and axes of a tensor."""
    global RESHAPE, EXPAND, REDUCE_AXIS, MOST_ELEMENTS, MOST_AXES
    RESHAPE, EXPAND, REDUCE_AXIS = reshape, expand, reduce_axis
    MOST_ELEMENTS, MOST_AXES = most_elements, most_axes


def is_static(shape):
    if type(shape) is not tuple:
        shape = tuple(shape)
    for size in <tuple> shape:
        if not PyLong_Check(size):
            return False
    return True


cpdef bint is_plain(tuple shape) except -1:
    cdef int64_t elements = 1, size
    if PyTuple_GET_SIZE(shape) > MOST_AXES:
        return False
    for item in shape:
        if not PyLong_CheckExact(item) or not 0 <= item <= MOST_ELEMENTS:
            return False
        size = item
        if size and elements > MOST_ELEMENTS // size:
            return False
        elements *= size or 1
    return True


cdef Node moved(object op, Node x, tuple shape):
    cdef Node node
    if x.cached_shape is None or not is_plain(shape):
        return None
    if <tuple> x.cached_shape == shape:
        return x
    if x.op is op:
        x = <Node> PyTuple_GET_ITEM(x.src, 0)
        if x.cached_shape is None:
            return None
        if op is RESHAPE:
            return moved(op, x, shape)
    node = intern(op, x.dtype, (x,), shape)
    if node.cached_shape is None:
        node.cached_shape = shape
    return node


cdef tuple as_tuple(const int64_t *values, Py_ssize_t n):
    cdef Py_ssize_t i
    return tuple([values[i] for i in range(n)])


cpdef tuple packed_strides(tuple shape, int64_t itemsize=1):
    cdef int64_t strides[DIMS]
    cdef Py_ssize_t axis, n = PyTuple_GET_SIZE(shape)
    if n > DIMS:
        raise ValueError(f"expected at most {<int> DIMS} axes, not {n}")
    for axis in range(n - 1, -1, -1):
        strides[axis] = itemsize
        itemsize *= <int64_t> shape[axis]
    return as_tuple(strides, n)


cpdef bint are_packed(tuple shape, tuple strides, int64_t itemsize=1) except -1:
    cdef Py_ssize_t axis
    cdef int64_t size
    if PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides):
        raise ValueError(f"expected {len(shape)} strides, not {len(strides)}")
    for axis in range(PyTuple_GET_SIZE(shape) - 1, -1, -1):
        size = shape[axis]
        if size != 1 and <int64_t> strides[axis] != itemsize:
            return False
        itemsize *= size
    return True


cpdef tuple reshaped_strides(tuple sizes, tuple strides, tuple shape):
    cdef int64_t elements[DIMS]  # of blocks of axes that are contiguous among themselves
    cdef int64_t innermost[DIMS]  # strides of the last axes of these blocks
    cdef int64_t found[DIMS]
    cdef int64_t size, step, left = 1, stride = 1
    cdef Py_ssize_t axis, n_blocks = 0
    cdef Py_ssize_t n_sizes = PyTuple_GET_SIZE(sizes), n = PyTuple_GET_SIZE(shape)
    if n_sizes != PyTuple_GET_SIZE(strides):
        raise ValueError(f"expected a stride for each of {n_sizes} axes, not {len(strides)}")
    if max(n_sizes, n) > DIMS:  # no tensor has such a shape
        return None
    for axis in range(n):
        if <int64_t> shape[axis] == 0:
            return packed_strides(shape)
    for axis in range(n_sizes):
        size, step = sizes[axis], strides[axis]
        if size == 1:
            continue
        if n_blocks and innermost[n_blocks - 1] == size * step:
            elements[n_blocks - 1] *= size
            innermost[n_blocks - 1] = step
        else:
            elements[n_blocks], innermost[n_blocks] = size, step
            n_blocks += 1
    for axis in range(n - 1, -1, -1):
        size = shape[axis]
        found[axis] = stride
        if size == 1:
            continue
        if left == 1:
            if n_blocks == 0:
                return None
            n_blocks -= 1
            left, stride = elements[n_blocks], innermost[n_blocks]
            found[axis] = stride
        if left % size:
            return None
        left //= size
        stride *= size
    return as_tuple(found, n)


def reshaped(Node x not None, tuple shape not None):
    return moved(RESHAPE, x, shape)


def expanded(Node x not None, tuple shape not None):
    return moved(EXPAND, x, shape)


def reduced(Node x not None, op, set axes not None):
    cdef tuple shape = x.cached_shape
    cdef list real = [], within = [], kept = []
    cdef Py_ssize_t i
    cdef Node node = x
    if shape is None or x.op is EXPAND or not is_plain(shape):
        return None
    for i in range(PyTuple_GET_SIZE(shape)):
        size = <object> PyTuple_GET_ITEM(shape, i)
        if i not in axes:
            within.append(size)
            kept.append(size)
        elif size == 1:
            within.append(size)
        else:
            real.append(i)
    if real:
        node = intern(REDUCE_AXIS, x.dtype, (x,), (op, tuple(real)))
        if node.cached_shape is None:
            node.cached_shape = tuple(within)
    return moved(RESHAPE, node, tuple(kept))


# ---- Traversals -----------------------------------------------------------------------------


cdef class Stack:
    """Stack of borrowed nodes for a depth-first traversal."""

    def __dealloc__(self):
        PyMem_Free(self.steps)

    cdef int push(self, PyObject *node, bint expanded) except -1:
        cdef Step *bigger
        if self.n_steps == self.room:
            bigger = <Step *> PyMem_Realloc(
                self.steps, <size_t> (2 * self.room + 64) * sizeof(Step))
            if bigger == NULL:
                raise MemoryError("out of memory: cannot traverse a graph")
            self.steps = bigger
            self.room = 2 * self.room + 64
        self.steps[self.n_steps].node = node
        self.steps[self.n_steps].expanded = expanded
        self.n_steps += 1
        return 0


def count_asked():
    return n_asked


def toposort(roots, stop=None, kept=None):
    cdef list order = []
    cdef list held = list(roots)
    cdef set seen = set()
    cdef Stack stack = Stack()
    cdef Step step
    cdef Node node
    cdef Py_ssize_t i
    for root in reversed(held):
        if not isinstance(root, Node):
            raise TypeError(f"expected nodes, not {root!r}")
        stack.push(<PyObject *> root, False)
    while stack.n_steps:
        stack.n_steps -= 1
        step = stack.steps[stack.n_steps]
        node = <Node> step.node
        if step.expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            if PyTuple_GET_SIZE(node.src) == 0 or (stop is not None and stop(node)):
                order.append(node)
                continue
            stack.push(step.node, True)
            if kept is not None and type_of(node.arg) is kept:
                stack.push(<PyObject *> <Node?> node.arg.storage, False)
                continue
            for i in range(PyTuple_GET_SIZE(node.src) - 1, -1, -1):
                if <object> PyTuple_GET_ITEM(node.src, i) not in seen:
                    stack.push(PyTuple_GET_ITEM(node.src, i), False)
    return order


def history_order(roots, stop, type custom not None):
    cdef list order = []
    cdef list held = list(roots)
    cdef set seen = set()
    cdef Stack stack = Stack()
    cdef Step step
    cdef Node node
    cdef tuple reads
    cdef Py_ssize_t i
    for root in held:
        stack.push(<PyObject *> <Node?> root, False)
    while stack.n_steps:
        stack.n_steps -= 1
        step = stack.steps[stack.n_steps]
        node = <Node> step.node
        if step.expanded:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.push(step.node, True)
        if stop(node):
            continue
        reads = node.src
        if isinstance(node.arg, custom):
            reads = reads + node.arg.inputs + node.arg.parts
            held.append(reads)
        for i in range(PyTuple_GET_SIZE(reads)):
            if <object> PyTuple_GET_ITEM(reads, i) not in seen:
                stack.push(PyTuple_GET_ITEM(reads, i), False)
    return order


def substitute(roots, mapping):
    cdef dict done = dict(mapping)
    cdef list held = list(roots)
    cdef Node node, new
    cdef tuple src
    cdef Py_ssize_t i
    cdef bint same
    for item in toposort(held, done.__contains__):
        if item in done:
            continue
        node = <Node> item
        same = True
        for i in range(PyTuple_GET_SIZE(node.src)):
            operand = <object> PyTuple_GET_ITEM(node.src, i)
            if done[operand] is not operand:
                same = False
                break
        if same:
            done[node] = node
        else:
            src = tuple([done[operand] for operand in node.src])
            new = intern(node.op, node.dtype, src, node.arg)
            hand_on(node, new)
            done[node] = new
    return [done[root] for root in held]
