# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Write barrier: memory that is about to be written, and the graphs that read it.

No Python code runs during a traversal: it allocates no object that the collector tracks, and frees
none. So a traversal sees one state of the process, and needs no lock.
"""

cimport cython
from cpython.dict cimport PyDict_Next
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_REFCNT
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memmove

from kernelrt.native.array_handle cimport ArrayHandle, HandleRegistry
from kernelrt.native.memory cimport Exporter, Memory, StoredMemory, share_bytes
from kernelrt.native.node cimport Node, Stack, Step, type_of
from kernelrt.native.graph_key cimport lineage_of

cdef uint64_t n_walks = 0
cdef uint64_t n_written = 0
cdef uint64_t n_looks = 0  # overlap checks of memory, for tests of the cost of a step

# Ops and tag classes, set by _name_nodes.
cdef object BUFFER = None
cdef object DETACH = None
cdef object KEPT = None
cdef object CUSTOM = None


def _name_nodes(buffer, detach, kept, custom):
    """Set the ops of memory and of tags, and two tag classes."""
    global BUFFER, DETACH, KEPT, CUSTOM
    BUFFER, DETACH, KEPT, CUSTOM = buffer, detach, kept, custom


def count_looks():
    return n_looks


# ---- address ranges


cdef class Spans:
    """Sorted address ranges that neither overlap nor touch."""

    def __dealloc__(self):
        PyMem_Free(self.spans)

    cdef Py_ssize_t count_before(self, size_t address) noexcept:
        """Return the number of ranges that begin before `address`."""
        cdef Py_ssize_t low = 0, high = self.n, middle
        while low < high:
            middle = (low + high) // 2
            if self.spans[middle].start < address:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint meets(self, size_t start, size_t stop) noexcept:
        cdef Py_ssize_t i = self.count_before(stop)
        return start < stop and i > 0 and self.spans[i - 1].stop > start

    cdef bint covers(self, size_t start, size_t stop) noexcept:
        cdef Py_ssize_t i = self.count_before(start + 1)
        return i > 0 and self.spans[i - 1].stop >= stop

    cdef int add(self, size_t start, size_t stop) except -1:
        cdef Span *bigger
        cdef Py_ssize_t first, last
        if start >= stop:
            return 0
        if self.n == self.room:
            bigger = <Span *> PyMem_Realloc(
                self.spans, <size_t> (2 * self.room + 4) * sizeof(Span))
            if bigger == NULL:
                raise MemoryError("out of memory: cannot extend the list of written ranges")
            self.spans = bigger
            self.room = 2 * self.room + 4
        first = self.count_before(start)
        if first > 0 and self.spans[first - 1].stop >= start:
            first -= 1
        last = first
        while last < self.n and self.spans[last].start <= stop:
            start = min(start, self.spans[last].start)
            stop = max(stop, self.spans[last].stop)
            last += 1
        memmove(self.spans + first + 1, self.spans + last,
                <size_t> (self.n - last) * sizeof(Span))
        self.spans[first].start = start
        self.spans[first].stop = stop
        self.n += first + 1 - last
        return 0

    cdef int add_all(self, Spans others) except -1:
        cdef Py_ssize_t i
        for i in range(others.n):
            self.add(others.spans[i].start, others.spans[i].stop)
        return 0

    cdef bint covers_all(self, Spans others) noexcept:
        cdef Py_ssize_t i
        for i in range(others.n):
            if not self.covers(others.spans[i].start, others.spans[i].stop):
                return False
        return True


cdef class WrittenMemory:
    def __cinit__(self, buffers=(), WrittenMemory more=None):
        global n_written
        self.bytes = Spans()
        self.storages = Spans()
        n_written += 1
        self.serial = n_written
        for buffer in buffers:
            self.add(buffer)
        if more is not None:
            self.bytes.add_all(more.bytes)
            self.storages.add_all(more.storages)

    cdef int add(self, object buffer) except -1:
        """Add the memory of `buffer`; allocate it if necessary."""
        cdef Exporter exporter
        cdef StoredMemory memory
        cdef size_t start
        if isinstance(buffer, Exporter):
            exporter = <Exporter> buffer
            if exporter.nbytes:
                memory = exporter._storage.take()
                start = <size_t> memory.data + exporter.offset
                self.bytes.add(start, start + exporter.nbytes)
                self.storages.add(<size_t> memory.data, <size_t> memory.data + memory.size)
        elif isinstance(buffer, Memory):
            start = <size_t> (<Memory> buffer).data
            self.bytes.add(start, start + (<Memory> buffer).size)
            self.storages.add(start, start + (<Memory> buffer).size)
        elif buffer is not None:
            raise TypeError(f"expected a Buffer, not {type(buffer).__name__}")
        return 0

    cdef bint meets(self, object buffer) noexcept:
        """Return whether `buffer` is a buffer with memory, and any of its bytes is written."""
        global n_looks
        cdef char *start
        n_looks += 1
        if not isinstance(buffer, Exporter):
            return False
        start = (<Exporter> buffer).address()
        return start != NULL and self.bytes.meets(
            <size_t> start, <size_t> start + (<Exporter> buffer).nbytes)

    def overlaps(self, buffer):
        return self.meets(buffer)


def overlaps_of(list storages not None, list read not None):
    cdef Spans written = Spans()
    cdef set own = set(storages)
    cdef list found = []
    cdef Exporter buffer
    cdef char *start
    cdef char *address
    cdef Py_ssize_t i, j
    cdef bint disjoint
    for node in storages:
        buffer = <Exporter?> (<Node?> node).arg
        address = buffer.address()
        if address != NULL:
            written.add(<size_t> address, <size_t> address + buffer.nbytes)
    disjoint = written.n == len(storages)  # then no two storages overlap
    for i, node in enumerate(read):
        buffer = <Exporter?> (<Node?> node).arg
        start = buffer.address()
        if start == NULL or (disjoint and node in own) or not written.meets(
                <size_t> start, <size_t> start + buffer.nbytes):
            continue
        for j, storage in enumerate(storages):
            address = (<Exporter> (<Node> storage).arg).address()
            if storage is not node and address != NULL and share_bytes(
                    start, buffer.nbytes, address, (<Exporter> (<Node> storage).arg).nbytes):
                found.append((i, j, <object> <size_t> start - <object> <size_t> address))
    return tuple(found)


cdef WrittenMemory pending_memory(dict pending, list known):
    """Return the memory of the tensors in `pending`; ``known[0]`` caches it."""
    cdef Py_ssize_t at = 0
    cdef PyObject *key
    cdef PyObject *value
    cdef WrittenMemory written = <WrittenMemory> known[0] if known[0] is not None else None
    if written is not None:
        return written
    written = WrittenMemory()
    while PyDict_Next(pending, &at, &key, &value):
        memory = (<ArrayHandle?> <object> value).memory
        if not isinstance(memory, Exporter) or (<Exporter> memory).address() != NULL:
            written.add(memory)
    known[0] = written
    return written


@cython.final
cdef class History:
    """Storages that were written while lazy tensors existed.

    Each state has a version number that is unique over all History objects.
    """

    cdef Spans spans
    cdef long version

    def __cinit__(self):
        self.spans = Spans()
        self.next()

    cdef void next(self) noexcept:
        global n_versions
        n_versions += 1
        self.version = n_versions

    cdef long note(self, WrittenMemory written) except -1:
        """Add the written storages, and return the version."""
        if not self.spans.covers_all(written.storages):
            # First: if add_all runs out of memory, no node relies on the incomplete state.
            self.next()
            if self.spans.n > MOST_SPANS:
                self.spans = Spans()
            self.spans.add_all(written.storages)
        return self.version

    cdef bint may_change(self, object buffer) noexcept:
        """Return whether memory was ever written.

        True also for a buffer without memory, which may be given such memory.
        """
        global n_looks
        cdef char *start
        n_looks += 1
        if not isinstance(buffer, Exporter):
            return True
        start = (<Exporter> buffer).address()
        return start == NULL or self.spans.meets(
            <size_t> start, <size_t> start + (<Exporter> buffer).nbytes)


cdef long n_versions = 0
cdef enum:
    MOST_SPANS = 4096


# The storages written so far.
cdef History history = History()


def forget_history():
    """Start a new, empty history."""
    global history
    history = History()


def history_version():
    return history.version


# ---- traversals


# Nodes that a traversal has reached. Traversals do not nest, so they share the array.
cdef PyObject **queue = NULL
cdef Py_ssize_t room = 0


cdef int enlarge() except -1:
    global queue, room
    cdef PyObject **bigger = <PyObject **> PyMem_Realloc(
        queue, <size_t> (2 * room + 256) * sizeof(PyObject *))
    if bigger == NULL:
        raise MemoryError("out of memory: cannot traverse a graph")
    queue = bigger
    room = 2 * room + 256
    return 0


cdef bint is_kept(PyObject *node) noexcept:
    return (<Node> node).op is DETACH and type_of((<Node> node).arg) is KEPT


cdef list memory_below(Node storage):
    """Return the memory that the storage of a kept value reads.

    The storage is a graph over memory. For a view by index tensors it reads the indices, too.
    """
    cdef list found = [], stack
    cdef set seen
    cdef Node node
    while PyTuple_GET_SIZE(storage.src) == 1 and not is_kept(<PyObject *> storage):
        storage = <Node> PyTuple_GET_ITEM(storage.src, 0)
    if storage.op is BUFFER:
        return [storage.arg]
    seen, stack = set(), [storage]
    while stack:
        node = <Node> stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is BUFFER:
            found.append(node.arg)
        elif is_kept(<PyObject *> node):
            stack.append(node.arg.storage)
        else:
            stack.extend(node.src)
    return found


cdef bint lies_in(Node storage, WrittenMemory written) except -1:
    """Return whether the storage of a kept value reads `written`."""
    for memory in memory_below(storage):
        if written.meets(memory):
            return True
    return False


cdef uint64_t bits_of(object memory, WrittenMemory written) except? 0:
    """Return a bit set: bit 0 if memory is `written`, bit 1 if it may change."""
    if not history.may_change(memory):
        return 0
    return 3 if written.meets(memory) else 2


cdef bint reads_now(Node root, WrittenMemory written) except -1:
    """Return whether the value or the history of `root` reads `written`.

    Nodes that do not read it are marked with its serial number.
    """
    global n_walks
    cdef Py_ssize_t i, n = 0, at = 0
    cdef PyObject *operand
    cdef Node node
    if root.clear_of == written.serial:
        return False
    n_walks += 1
    cdef uint64_t walk = n_walks << 2
    if room == 0:
        enlarge()
    queue[0] = <PyObject *> root
    root.seen = walk
    n = 1
    while at < n:
        node = <Node> queue[at]
        at += 1
        if node.op is BUFFER:
            if written.meets(node.arg):
                return True
        elif is_kept(<PyObject *> node) and lies_in(<Node> node.arg.storage, written):
            return True
        for i in range(PyTuple_GET_SIZE(node.src)):
            operand = PyTuple_GET_ITEM(node.src, i)
            if (<Node> operand).seen == walk or (<Node> operand).clear_of == written.serial:
                continue
            (<Node> operand).seen = walk
            if n == room:
                enlarge()
            queue[n] = operand
            n += 1
    for at in range(n):
        (<Node> queue[at]).clear_of = written.serial
    return False


def reads(Node root not None, WrittenMemory written not None):
    return reads_now(root, written)


cdef int follow(Stack stack, Node root, WrittenMemory written, uint64_t walk) except -1:
    """Note for each node whether it reads `written` (bit 0) or memory that may change (bit 1)."""
    cdef Step step
    cdef Node node
    cdef Py_ssize_t i
    cdef uint64_t bits
    stack.push(<PyObject *> root, False)
    while stack.n_steps:
        stack.n_steps -= 1
        step = stack.steps[stack.n_steps]
        node = <Node> step.node
        if node.seen & ~(<uint64_t> 3) == walk:
            continue
        if node.cached_steady == history.version:
            node.seen = walk
            continue
        if not step.expanded and PyTuple_GET_SIZE(node.src):
            stack.push(step.node, True)
            for i in range(PyTuple_GET_SIZE(node.src)):
                if (<Node> PyTuple_GET_ITEM(node.src, i)).seen & ~(<uint64_t> 3) != walk:
                    stack.push(PyTuple_GET_ITEM(node.src, i), False)
            continue
        bits = 0
        for i in range(PyTuple_GET_SIZE(node.src)):
            bits |= (<Node> PyTuple_GET_ITEM(node.src, i)).seen & 3
        if node.op is BUFFER:
            bits = bits_of(node.arg, written)
        elif is_kept(step.node):
            bits &= 2  # a run reads the stored value and does not compute the history
            for memory in memory_below(<Node> node.arg.storage):
                bits |= bits_of(memory, written)
        node.seen = walk | bits
        if not bits & 2:
            node.cached_steady = history.version
    return 0


def memory_of(tensors, WrittenMemory more=None):
    return WrittenMemory([(<ArrayHandle?> tensor).memory for tensor in tensors], more)


def readers_of(HandleRegistry registry not None, WrittenMemory written not None):
    global n_walks
    cdef Stack stack = Stack()
    cdef list found = []
    cdef PyObject *item = registry.oldest
    cdef PyObject *node
    history.note(written)
    n_walks += 1
    cdef uint64_t walk = n_walks << 2
    while item != NULL:
        node = lazy_node(item)
        if node != NULL:
            follow(stack, <Node> node, written, walk)
            if (<Node> node).seen & 1:
                found.append(<object> item)
        item = (<ArrayHandle> item).newer
    return [handle for handle, _ in with_nodes(found)]


cdef list with_nodes(list handles):
    """Return the lazy handles with static shapes, with their nodes."""
    cdef list found = []
    for handle in handles:
        node = (<ArrayHandle> handle)._uop
        if (<ArrayHandle> handle).data == NULL and node is not None and is_static(<Node> node):
            found.append((handle, node))
    return found


cdef PyObject *lazy_node(PyObject *item) noexcept:
    """Return the node of a registry member without data; NULL if it has data or no node.

    A handle that the collector has begun to clear has no node.
    """
    if (Py_REFCNT(<object> item) == 0 or (<ArrayHandle> item).data != NULL
            or (<ArrayHandle> item)._uop is None):
        return NULL
    return <PyObject *> (<ArrayHandle> item)._uop


cdef bint is_static(Node node) except -1:
    for size in <tuple> node.shape:
        if not isinstance(size, int):
            return False
    return True


def latest_lazy(HandleRegistry registry not None, Py_ssize_t most, chosen):
    cdef list found = []
    cdef ArrayHandle handle
    for entry in registry.latest(most):
        handle = <ArrayHandle> entry
        node = handle._uop
        if (handle.data == NULL and node is not None and handle._link is None
                and not (chosen and id(handle) in chosen)):
            found.append((handle, node, lineage_of(<Node> node) is False))
    return found


def kept_members(HandleRegistry registry not None):
    cdef list found = []
    cdef PyObject *item = registry.oldest
    while item != NULL:
        if Py_REFCNT(<object> item) > 0 and (<ArrayHandle> item).data != NULL:
            found.append(<object> item)
        item = (<ArrayHandle> item).newer
    return found


cdef int put(PyObject *node, Py_ssize_t n, uint64_t walk) except -1:
    """Append a node to the queue, at `n`, unless the traversal has visited it.

    Return the number of nodes appended.
    """
    if (<Node> node).seen == walk:
        return 0
    (<Node> node).seen = walk
    if n == room:
        enlarge()
    queue[n] = node
    return 1


def over_kept(HandleRegistry registry not None):
    cdef list found = []
    cdef PyObject *item = registry.oldest
    cdef PyObject *node
    while item != NULL:
        node = lazy_node(item)
        if node != NULL and is_over_kept(node):
            found.append(<object> item)
        item = (<ArrayHandle> item).newer
    return with_nodes(found)


cdef bint is_over_kept(PyObject *root) except -1:
    """Return whether a graph reads kept values whose histories may go stale."""
    global n_walks
    cdef Py_ssize_t i, n, at = 0
    cdef Node node
    cdef tuple operands
    n_walks += 1
    n = put(root, 0, n_walks << 2)
    while at < n:
        node = <Node> queue[at]
        at += 1
        if node.cached_steady == history.version:
            continue
        if is_kept(<PyObject *> node):
            return True
        for i in range(PyTuple_GET_SIZE(node.src)):
            n += put(PyTuple_GET_ITEM(node.src, i), n, n_walks << 2)
        if node.op is DETACH and type_of(node.arg) is CUSTOM:
            operands = <tuple> node.arg.inputs
            for i in range(PyTuple_GET_SIZE(operands)):
                n += put(PyTuple_GET_ITEM(operands, i), n, n_walks << 2)
            operands = <tuple> node.arg.parts
            for i in range(PyTuple_GET_SIZE(operands)):
                n += put(PyTuple_GET_ITEM(operands, i), n, n_walks << 2)
    return False
