# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Structural keys of graphs: everything except which memory the graphs read."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from kernelrt.native.node cimport Node, Stack, Step, arg_hash, mix, same_arg, type_of

cdef uint64_t walks = 0
cdef object ZERO = 0

# Ops and classes that the traversals need; set by the _name_ functions.
cdef object BUFFER = None
cdef object NUMBER = None
cdef object DETACH = None
cdef object KEPT = None
cdef object LEAF = None
cdef object STALE = None
cdef object CUSTOM = None
cdef object HOOKED = None
cdef object SEVERED = None
cdef object GIVEN = None
cdef tuple FLOATS = ()
cdef object INT64 = None
cdef object SIZED = frozenset()
cdef object SHRINK = None
cdef object PAD = None
cdef object IM2COL = None
cdef object COL2IM = None
cdef object ROUTINE = None
cdef object OUTCOME = None
cdef object LOOP = None
cdef object REGION = None
cdef object FLOWS = None


def _name_ops(buffer, number, detach, int64, tuple floats, sized, shrink, pad, window, unwindow):
    """Set the ops of memory, numbers and tags, some dtypes, and the ops with sizes in their args.

    The args of the ops in `sized` are shapes.
    """
    global BUFFER, NUMBER, DETACH, INT64, FLOATS, SIZED, SHRINK, PAD, IM2COL, COL2IM
    BUFFER, NUMBER, DETACH, INT64, FLOATS = buffer, number, detach, int64, floats
    SIZED, SHRINK, PAD, IM2COL, COL2IM = sized, shrink, pad, window, unwindow


def _name_programs(routine, outcome, loop):
    """Set the classes of routines, of args of REGIONs, and of programs of loops."""
    global ROUTINE, OUTCOME, LOOP
    ROUTINE, OUTCOME, LOOP = routine, outcome, loop


def _name_marks(kept, leaf, stale, custom, hooked, severed, given):
    """Set the classes of tags, which are args of DETACH nodes."""
    global KEPT, LEAF, STALE, CUSTOM, HOOKED, SEVERED, GIVEN
    KEPT, LEAF, STALE, CUSTOM, HOOKED = kept, leaf, stale, custom, hooked
    SEVERED, GIVEN = severed, given


def _name_flows(region, flows):
    """Set the op of loop and branch results, and the function that finds where gradients flow."""
    global REGION, FLOWS
    REGION, FLOWS = region, flows


cdef Node unmarked(Node node):
    """Return the node below the tags of `node`; for a kept value, its storage."""
    while node.op is DETACH:
        if type_of(node.arg) is KEPT:
            node = node.arg.storage
        else:
            node = <Node> PyTuple_GET_ITEM(node.src, 0)
    return node


cdef class Words:
    """Growable array of integers."""

    cdef int64_t *words
    cdef Py_ssize_t n, room

    def __dealloc__(self):
        PyMem_Free(self.words)

    cdef int put(self, int64_t word) except -1:
        cdef int64_t *bigger
        if self.n == self.room:
            bigger = <int64_t *> PyMem_Realloc(
                self.words, <size_t> (2 * self.room + 256) * sizeof(int64_t))
            if bigger == NULL:
                raise MemoryError("out of memory: cannot store the structure of a graph")
            self.words = bigger
            self.room = 2 * self.room + 256
        self.words[self.n] = word
        self.n += 1
        return 0


@cython.final
cdef class StructuralKey:
    """Structural key: graphs that differ only in the buffers they read have equal keys."""

    cdef list args
    cdef Words words
    cdef size_t content
    #: Whether strip() may change more than tags: a tensor has no elements, or there is a loop.
    cdef readonly bint needs_strip

    def __hash__(self):
        return <Py_hash_t> (self.content >> 1)

    def __eq__(self, other):
        cdef StructuralKey that
        cdef Py_ssize_t i
        if type(other) is not StructuralKey:
            return NotImplemented
        that = <StructuralKey> other
        if self is that:
            return True
        if (self.content != that.content or self.words.n != that.words.n
                or memcmp(self.words.words, that.words.words,
                          <size_t> self.words.n * sizeof(int64_t)) != 0
                or len(self.args) != len(that.args)):
            return False
        for i in range(len(self.args)):
            if not same_arg(self.args[i], that.args[i]):
                return False
        return True


cdef class KeyBuilder:
    """A traversal that writes the structural key of graphs.

    A `deep` key includes tags and the histories behind them. A `loose` key excludes numbers, and an
    `open` key also sizes. No Python code, which might traverse graphs itself, may run meanwhile: so
    no object is made that the collector tracks, and args are hashed at the end.
    """

    cdef Stack stack
    cdef StructuralKey made
    cdef list buffers
    cdef list leaves
    cdef list numbers
    cdef list sizes  # sizes that the key excludes
    cdef list sized  # nodes that have these sizes
    cdef dict leaf_numbers
    cdef Py_ssize_t n_nodes
    cdef uint64_t walk
    cdef bint deep
    cdef bint loose
    cdef bint open_
    cdef bint stale

    def __cinit__(self, bint deep, bint loose, bint open_):
        global walks
        self.stack = Stack()
        self.made = StructuralKey.__new__(StructuralKey)
        self.made.args = []
        self.made.words = Words()
        self.made.needs_strip = False
        self.buffers = []
        if deep:
            self.leaf_numbers = {}
        if deep or not loose:
            self.leaves = []
        if loose:
            self.numbers = []
        if open_:
            self.sizes = []
            self.sized = []
        self.deep = deep
        self.loose = loose
        self.open_ = open_
        walks += 1
        self.walk = walks

    cdef int visit(self, Node node) except -1:
        """Write `node` after its operands."""
        cdef Step step
        node = self.resolved(node)
        self.stack.push(<PyObject *> node, False)
        while self.stack.n_steps:
            self.stack.n_steps -= 1
            step = self.stack.steps[self.stack.n_steps]
            node = <Node> step.node
            if step.expanded:
                if node.visit != self.walk:
                    self.write(node)
            elif node.visit != self.walk:
                self.stack.push(step.node, True)
                self.open(node)
        return 0

    cdef Node resolved(self, Node node):
        return node if self.deep else unmarked(node)

    cdef Node operand(self, Node node, Py_ssize_t i):
        """Return an operand; below a DETACH without a tag, skip tags: no gradient flows there."""
        cdef Node found = <Node> PyTuple_GET_ITEM(node.src, i)
        if self.deep and node.op is DETACH and node.arg is None:
            return unmarked(found)
        return self.resolved(found)

    cdef int open(self, Node node) except -1:
        """Put the operands of `node` on the stack."""
        cdef Py_ssize_t i
        if self.deep and node.op is DETACH and node.arg is not None:
            if type_of(node.arg) is KEPT:
                self.push(node.arg.storage)
            elif type_of(node.arg) is CUSTOM:
                self.push_all(node.arg.inputs)
                self.push_all(node.arg.parts)
        for i in range(PyTuple_GET_SIZE(node.src) - 1, -1, -1):
            self.push(self.operand(node, i))
        return 0

    cdef int push_all(self, tuple nodes) except -1:
        cdef Py_ssize_t i
        for i in range(PyTuple_GET_SIZE(nodes)):
            self.push(<Node?> <object> PyTuple_GET_ITEM(nodes, i))
        return 0

    cdef int push(self, Node node) except -1:
        node = self.resolved(node)
        if node.visit != self.walk:
            self.stack.push(<PyObject *> node, False)
        return 0

    cdef int write(self, Node node) except -1:
        cdef Words words = self.made.words
        cdef Node storage
        cdef Py_ssize_t i
        node.visit = self.walk
        node.number = self.n_nodes
        self.n_nodes += 1
        words.put(<int64_t> <size_t> <PyObject *> node.op)
        words.put(<int64_t> <size_t> <PyObject *> node.dtype)
        if node.op is BUFFER:
            if self.open_:
                self.put_size(node.arg.size)
                self.sized.append(node)
            else:
                words.put(node.arg.size)
            self.buffers.append(node)
            return 0
        if self.loose and node.op is NUMBER:
            if self.open_ and node.dtype is INT64:
                self.sizes.append(node.arg)
                self.sized.append(node)
            else:
                self.numbers.append(node)
            return 0
        words.put(PyTuple_GET_SIZE(node.src))
        for i in range(PyTuple_GET_SIZE(node.src)):
            words.put(self.operand(node, i).number)
        if self.open_ and (node.op is SHRINK or node.op is PAD):
            self.put_pairs(node.arg, node.op is SHRINK)
            self.sized.append(node)
        elif self.open_ and node.op in SIZED:
            self.put_sizes(node.arg)
            self.sized.append(node)
        elif self.open_ and node.op is IM2COL:
            self.put_windows(node.arg)
            self.sized.append(node)
        elif self.open_ and node.op is COL2IM:
            self.put_sizes(node.arg[0])
            self.put_windows(node.arg[1])
            self.sized.append(node)
        elif self.open_ and type_of(node.arg) is ROUTINE:
            self.note(node.arg.name)
            self.sizes.append(node.arg.rows)
            self.sizes.extend(node.arg.numbers)
            self.sized.append(node)
        elif (self.open_ and type_of(node.arg) is OUTCOME
              and type_of(node.arg.program) is LOOP):
            self.put_loop(node.arg)
            self.made.needs_strip = True
            self.sized.append(node)
        elif node.op is not DETACH or not self.deep:
            if type_of(node.arg) is OUTCOME:
                self.made.needs_strip = True
            self.note(node.arg)
        elif type_of(node.arg) is LEAF:
            words.put(-2)
            words.put(self.leaf(node.arg))
        elif type_of(node.arg) is KEPT:
            words.put(-3)
            storage = node.arg.storage
            words.put(storage.number)
        elif type_of(node.arg) is CUSTOM:
            words.put(-4)
            self.note(node.arg.rule)
            self.note(node.arg.arg)
            self.put_numbers(node.arg.inputs)
            self.put_numbers(node.arg.parts)
        elif type_of(node.arg) is HOOKED:
            words.put(-6)  # all Hooked tags are equal here: hooks do not change the computation
        else:
            self.stale = self.stale or type_of(node.arg) is STALE
            self.note(node.arg)
        return 0

    cdef int put_sizes(self, tuple shape) except -1:
        """Add the sizes of a shape to `sizes` instead of the key."""
        cdef Py_ssize_t i
        self.made.words.put(PyTuple_GET_SIZE(shape))
        for i in range(PyTuple_GET_SIZE(shape)):
            self.put_size(<object> PyTuple_GET_ITEM(shape, i))
        return 0

    cdef int put_size(self, size) except -1:
        self.sizes.append(size)
        if size is ZERO:
            self.made.needs_strip = True
        return 0

    cdef int put_pairs(self, tuple pairs, bint bounds) except -1:
        """Add the padding of each axis to `sizes`, or with `bounds` the bounds of its slice."""
        cdef Py_ssize_t i
        self.made.words.put(PyTuple_GET_SIZE(pairs))
        for i in range(PyTuple_GET_SIZE(pairs)):
            start, stop = <tuple?> <object> PyTuple_GET_ITEM(pairs, i)
            self.sizes.append(start)
            self.sizes.append(stop)
            if bounds and type_of(start) is int and start == stop:
                self.made.needs_strip = True
        return 0

    cdef int put_windows(self, tuple windows) except -1:
        """Write windows without their kernel sizes, which are added to `sizes`."""
        cdef Words words = self.made.words
        cdef Py_ssize_t i
        words.put(PyTuple_GET_SIZE(windows))
        for i in range(PyTuple_GET_SIZE(windows)):
            window = <tuple?> <object> PyTuple_GET_ITEM(windows, i)
            words.put(window[0])
            self.sizes.append(window[1])
            words.put(window[2])
            words.put(window[3])
        return 0

    cdef int put_loop(self, object outcome) except -1:
        """Write a result of a loop without the number of iterations, which is added to `sizes`."""
        cdef Words words = self.made.words
        loop = outcome.program
        words.put(outcome.carry)
        self.note(outcome.values)
        self.note(loop.ports)
        self.note(loop.carries)
        words.put(loop.stacked)
        words.put(loop.reverse)
        words.put(loop.conditional)
        words.put(loop.counted)
        words.put(loop.numbered)
        words.put(loop.checkpoint)
        self.sizes.append(loop.trip_count)
        return 0

    cdef int put_numbers(self, tuple nodes) except -1:
        cdef Py_ssize_t i
        self.made.words.put(PyTuple_GET_SIZE(nodes))
        for i in range(PyTuple_GET_SIZE(nodes)):
            self.made.words.put((<Node> PyTuple_GET_ITEM(nodes, i)).number)
        return 0

    cdef int note(self, object arg) except -1:
        if arg is None:
            return self.made.words.put(-1)
        self.made.args.append(arg)
        return self.made.words.put(-5)

    cdef Py_ssize_t leaf(self, object leaf) except -1:
        found = self.leaf_numbers.get(leaf)
        if found is None:
            found = len(self.leaves)
            self.leaf_numbers[leaf] = found
            self.leaves.append(leaf)
        return found

    cdef tuple result(self, tuple roots):
        cdef Py_ssize_t i
        cdef size_t content = 0
        for root in roots:
            self.made.words.put(self.resolved(<Node> root).number)
        for i in range(self.made.words.n):
            content = mix(content, <size_t> self.made.words.words[i])
        for arg in self.made.args:
            content = mix(content, arg_hash(arg))
        self.made.content = content
        if self.open_:
            return self.made, self.buffers, self.numbers, self.sizes, self.sized
        return self.made, self.buffers, self.numbers if self.loose else self.leaves


def was_visited(Node node not None):
    return node.visit == walks


def structural_key(roots, bint deep=False, bint loose=False):
    cdef tuple held = tuple(roots)
    cdef KeyBuilder walk
    for root in held:
        if not isinstance(root, Node):
            raise TypeError(f"expected nodes, not {root!r}")
    walk = KeyBuilder(deep, loose, False)
    for root in held:
        walk.visit(<Node> root)
    return None if walk.stale else walk.result(held)


def size_free_key(roots):
    cdef tuple held = tuple(roots)
    cdef KeyBuilder walk = KeyBuilder(False, True, True)
    for root in held:
        walk.visit(<Node?> root)
    return walk.result(held)


cdef uint64_t mark_all(list roots) except 0:
    """Mark all nodes of graphs as visited by a new traversal; return its number."""
    global walks
    cdef Stack stack = Stack()
    cdef Node node
    cdef Py_ssize_t i
    walks += 1
    cdef uint64_t walk = walks  # a copy: a finalizer may traverse other graphs
    for root in roots:
        stack.push(<PyObject *> <Node?> root, False)
        while stack.n_steps:
            stack.n_steps -= 1
            node = unmarked(<Node> stack.steps[stack.n_steps].node)
            if node.visit == walk:
                continue
            node.visit = walk
            for i in range(PyTuple_GET_SIZE(node.src)):
                stack.push(PyTuple_GET_ITEM(node.src, i), False)
    return walk


def shared(list roots not None, list others not None, Py_ssize_t most):
    """Find nodes of the graphs of `roots` that other graphs read; see graph_key.pyi."""
    cdef list found = []
    cdef list stack = []
    cdef set seen = set()
    cdef Node node
    cdef Py_ssize_t i
    cdef uint64_t walk = mark_all(roots)
    for _, other, deep in others:
        node = unmarked(<Node?> other)
        if node.visit == walk:
            found.append(node)
        elif deep:
            stack.append(node)
        while stack:
            node = <Node> stack.pop()
            for i in range(PyTuple_GET_SIZE(node.src)):
                below = unmarked(<Node> PyTuple_GET_ITEM(node.src, i))
                if below in seen:
                    continue
                if most == 0:
                    return found
                most -= 1
                seen.add(below)
                if below.visit == walk:
                    found.append(below)
                else:
                    stack.append(below)
    return found


# ---- histories


cdef tuple NOTHING = ()


cdef bint is_float(object dtype) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(FLOATS)):
        if PyTuple_GET_ITEM(FLOATS, i) == <PyObject *> dtype:
            return True
    return False


cdef tuple flows_to(Node node):
    """Return the operands that a gradient of `node` flows to."""
    if not is_float(node.dtype):
        return NOTHING
    if node.op is not DETACH:
        if node.op is not REGION:
            return node.src
        if node.cached_flow is None:
            node.cached_flow = <tuple?> FLOWS(node)
        return <tuple> node.cached_flow
    kind = type_of(node.arg)
    if kind is CUSTOM:
        return <tuple?> node.arg.inputs
    if node.arg is None or kind is LEAF or kind is STALE or kind is SEVERED or kind is GIVEN:
        return NOTHING
    return node.src


def gradient_operands(Node node not None):
    return flows_to(node)


cdef object lineage_here(Node node):
    """Return the lineage of a node from the cached lineages of its operands."""
    cdef Py_ssize_t i
    cdef tuple operands
    found = False
    if node.op is DETACH:
        kind = type_of(node.arg)
        if kind is LEAF or kind is STALE:
            return True
        if kind is SEVERED:
            return node.arg
    operands = flows_to(node)
    for i in range(PyTuple_GET_SIZE(operands)):
        below = (<Node> PyTuple_GET_ITEM(operands, i)).cached_history
        if below is True:
            return True
        if found is False:
            found = below
    return found


cdef object lineage_of(Node root):
    cdef Stack stack
    cdef Step step
    cdef Node node
    cdef tuple operands
    cdef Py_ssize_t i
    cdef bint ready = True
    if root.cached_history is not None:
        return root.cached_history
    operands = flows_to(root)
    for i in range(PyTuple_GET_SIZE(operands)):
        ready = ready and (<Node> PyTuple_GET_ITEM(operands, i)).cached_history is not None
    if ready:  # the usual case while graphs are built
        root.cached_history = lineage_here(root)
        return root.cached_history
    stack = Stack()
    stack.push(<PyObject *> root, False)
    while stack.n_steps:
        stack.n_steps -= 1
        step = stack.steps[stack.n_steps]
        node = <Node> step.node
        if node.cached_history is not None:
            continue
        operands = NOTHING if step.expanded else flows_to(node)
        if PyTuple_GET_SIZE(operands) == 0:
            node.cached_history = lineage_here(node)
            continue
        stack.push(step.node, True)
        for i in range(PyTuple_GET_SIZE(operands)):
            stack.push(PyTuple_GET_ITEM(operands, i), False)
    return root.cached_history


def lineage(Node node not None):
    return lineage_of(node)
