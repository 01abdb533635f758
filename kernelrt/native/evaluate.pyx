# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Evaluation of lazy tensors: find the plan of their graphs, run it, and hand over the results."""

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_REFCNT
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t

from kernelrt.native.eager_plan cimport KRT_EAGER_CHANGED, KRT_EAGER_UNFIT, number_memory, settlement
from kernelrt.native.array_handle cimport (
    FLOAT32, FLOAT64, INT64, ArrayHandle, HandleRegistry, Link, is_current,
)
from kernelrt.native.interpreter cimport Interpretation
from kernelrt.native.memory cimport BlockCache, Exporter, Memory, new_memory
from kernelrt.native.fast_paths cimport adopted, lend
from kernelrt.native.thread_modes cimport KRT_NONFINITE, KRT_STEPWISE, KRT_TRACE, get, new_instance, now
from kernelrt.native.node cimport Node, Stack, Step, hand_on, intern, is_plain, type_of
from kernelrt.native.graph_key cimport lineage_of

from kernelrt import errors
from kernelrt.native.eager_plan import give, write_unless_born
from kernelrt.native.array_handle import exchange
from kernelrt.native.fast_paths import commits_of
from kernelrt.native.memory import wrote
from kernelrt.native.thread_modes import began_write, computed
from kernelrt.native.graph_key import shared, structural_key
from kernelrt.native.write_barrier import latest_lazy, memory_of, overlaps_of, readers_of, reads


# Modules of kernelrt.tensor, registers of live tensors, and the class of buffers with the iterator
# of their ids and their allocator.
cdef object state = None
cdef object plan_cache = None
cdef object hints = None
cdef object execute = None
cdef object views = None
cdef object weak = None
cdef object realize = None
cdef dict pending = None
cdef list steady = None
cdef list births = None
cdef HandleRegistry watched = None
cdef object Buffer = None
cdef object ids = None
cdef BlockCache allocator = None


def _name_modules(now_state, now_plan_cache, now_hints, now_execute, now_views, now_weak,
                  now_realize):
    """Set the modules of kernelrt.tensor that this module calls."""
    global state, plan_cache, hints, execute, views, weak, realize, pending, steady, watched
    global births
    state, plan_cache, hints, execute = now_state, now_plan_cache, now_hints, now_execute
    views, weak, realize = now_views, now_weak, now_realize
    pending, steady, watched, births = state.pending, state.steady, state.watched, state.births


def _name_memory(buffer, numbers, BlockCache memory not None):
    """Set the class of buffers, the iterator of their ids, and their allocator."""
    global Buffer, ids, allocator
    Buffer, ids, allocator = buffer, numbers, memory


# ---- tables with least-recently-used eviction


cdef unsigned long long n_uses = 0


cdef enum:
    #: A value weighs 1, plus 1 for each WEIGHED_NODES nodes of its graph.
    WEIGHED_NODES = 512


cdef class LruValue:
    cdef unsigned long long last  # value of `n_uses` at the last use of this value
    cdef Py_ssize_t weight  # weight in its table, in addition to 1

    def weigh(self, Py_ssize_t nodes):
        self.weight = nodes // WEIGHED_NODES


@cython.final
cdef class LruTable:
    cdef dict values
    cdef Py_ssize_t most, total

    def __init__(self, Py_ssize_t most):
        self.most = most
        self.values = {}

    def __len__(self):
        return PyDict_Size(self.values)

    cpdef LruValue get(self, key):
        global n_uses
        cdef PyObject *found = PyDict_GetItem(self.values, key)
        if found == NULL:
            return None
        n_uses += 1
        (<LruValue> found).last = n_uses
        return <LruValue> found

    def put(self, key, LruValue value not None):
        global n_uses
        cdef LruValue old
        n_uses += 1
        value.last = n_uses
        self.pop(key)
        self.values[key] = value
        self.total += 1 + value.weight
        if self.total <= self.most:
            return
        # Evict more values than necessary, because finding the oldest takes a pass over all.
        for name, old in sorted(self.values.items(), key=age_of):
            if self.total <= self.most - self.most // 16 or old is value:
                break
            self.pop(name)

    cpdef int pop(self, key) except -1:
        cdef LruValue old = self.values.pop(key, None)
        if old is not None:
            self.total -= 1 + old.weight
        return 0

    def items(self):
        return list(self.values.items())

    def clear(self):
        self.values.clear()
        self.total = 0


def age_of(tuple item):
    return (<LruValue> item[1]).last


# ---- plans by the structure of their graphs


LARGE_BYTES = <Py_ssize_t> 1 << 20


@cython.final
cdef class UseCounts:
    cdef public Py_ssize_t nodes, left, times
    cdef public tuple line

    def __init__(self):
        self.left = 1
        self.line = ("", 0)


@cython.final
cdef class Entry(LruValue):
    cdef readonly object prepared
    cdef readonly tuple sources, sizes
    cdef readonly Py_ssize_t nbytes
    cdef readonly dict given
    cdef readonly object sized
    cdef public UseCounts uses
    cdef public tuple notes, origins
    cdef public list numbers
    cdef tuple lengths  # the bytes of each result, if the plan computes all; else None
    cdef bint large, interpreted

    def __init__(self, prepared, tuple sources not None, tuple sizes not None, Py_ssize_t nbytes,
                 dict given=None, sized=None):
        self.prepared, self.sources, self.sizes, self.nbytes = prepared, sources, sizes, nbytes
        self.given = {} if given is None else given
        self.sized, self.uses = sized, UseCounts()
        self.notes, self.origins, self.numbers = (), (), []
        self.interpreted = isinstance(prepared, Interpretation)
        self.large = nbytes >= LARGE_BYTES or len(self.given) > 0
        if all([isinstance(source, int) for source in sources]):
            self.lengths = tuple([size * dtype.itemsize for size, dtype in sizes])

    def with_numbers(self, list numbers not None):
        cdef Entry other = Entry(self.prepared, self.sources, self.sizes, self.nbytes, self.given,
                                 self.sized)
        other.notes, other.origins, other.uses = self.notes, self.origins, self.uses
        other.numbers = numbers
        return other

    cpdef bint is_spent(self):
        return self.interpreted and (<Interpretation> self.prepared).is_spent()

    cpdef list results(self, list buffers):
        if self.lengths is None:
            return execute.results_of(self, buffers)
        return [new_memory(allocator, nbytes) for nbytes in self.lengths]

    cpdef int run(self, list buffers, list results, list fresh, list resets,
                  tuple born=None) except -1:
        if self.prepared is None:
            return give(fresh, resets, pending)
        if self.lengths is None:
            results = [r for r, s in zip(results, self.sources) if isinstance(s, int)]
        if self.numbers:
            buffers = buffers + self.numbers
        return self.prepared.run(buffers, results, fresh, resets, pending, born)


#: Number of graphs, equal except for numbers, that get plans of their own. For further ones, one
#: plan reads the numbers that vary from memory.
ALIKE = 3


@cython.final
cdef class NumberFamily(LruValue):
    cdef list numbers
    cdef set varied
    cdef Py_ssize_t count
    cdef readonly tuple positions

    def __init__(self, list numbers not None):
        self.numbers = numbers
        self.varied = set()

    cpdef tuple meet(self, list numbers, Py_ssize_t most):
        cdef Py_ssize_t i
        for i in range(PyList_GET_SIZE(numbers)):
            if numbers[i] is not self.numbers[i]:
                self.varied.add(i)
        self.count += 1
        if self.count > most:
            self.positions = tuple(sorted(self.varied))
        return self.positions


@cython.final
cdef class Lookup:
    cdef public Entry entry
    cdef public list buffers
    cdef readonly list read, numbers
    cdef readonly tuple alike, key

    cpdef tuple key_but_for(self, tuple positions):
        cdef list fixed = list(self.numbers)
        for i in positions:
            fixed[i] = None
        return self.alike + (tuple(fixed),)

    cpdef list in_memory(self, tuple positions):
        return [number_buffer(self.numbers[i]) for i in positions]


cdef class PlanTable:
    cdef readonly LruTable entries, families
    cdef public Py_ssize_t hits

    def __init__(self, Py_ssize_t most):
        self.entries = LruTable(most)
        self.families = LruTable(4 * most)

    def __len__(self):
        return len(self.entries)

    def note_memory(self, Entry entry):
        pass

    cpdef Entry get(self, key):
        cdef Entry entry = <object> self.entries.get(key)
        if entry is not None and entry.is_spent():
            return None
        if entry is not None:
            self.hits += 1
            entry.uses.left -= 1
            if entry.uses.left <= 0:
                hints.look(entry.uses)
            if entry.large:
                self.note_memory(entry)
        return entry

    cpdef Lookup look_up(self, list values, list commits):
        cdef Lookup found = Lookup()
        cdef NumberFamily family
        cdef list roots = values
        overlaps = ()
        if commits:
            roots = values + [node for pair in commits for node in pair]
        shape, found.read, found.numbers = structural_key(roots, False, True)
        if commits:
            # A plan for writes orders its operations by how memory overlaps.
            overlaps = overlaps_of([storage for storage, _ in commits], found.read)
        found.alike = ("alike", len(values), shape, overlaps)
        found.key = found.alike + (tuple(found.numbers),)
        found.buffers = found.read
        found.entry = self.get(found.key)
        if found.entry is None:
            family = <object> self.families.get(found.alike) if found.numbers else None
            positions = None if family is None else family.positions
            found.entry = self.get(found.alike)  # an interpreting entry also takes the numbers
            if found.entry is not None:
                found.buffers = found.read + found.numbers
                if family is not None:
                    family.meet(found.numbers, ALIKE)
            elif positions is not None:
                found.entry = self.get(found.key_but_for(positions))
                if found.entry is not None:
                    found.buffers = found.read + found.in_memory(positions)
        return found


cpdef Node number_buffer(Node node):
    cdef Node known = number_memory(node, allocator, Buffer, next(ids))
    return <Node?> execute.number_buffer(node) if known is None else known


# ---- values that a run stores in addition


cdef enum:
    #: Maximum number of the newest lazy tensors that are searched for values to store.
    MOST_TENSORS = 64
    #: Maximum number of nodes of their graphs that are visited.
    MOST_NODES = 256
    #: A value is stored if it has at most this many bytes more than the run reads.
    STORED_BYTES = 1 << 20


# The op IOTA, the class of tags of kept values, and the ops that compute nothing.
cdef object IOTA = None
cdef object KEPT = None
cdef object STILL = frozenset()


def _name_values(iota, kept, still):
    """Set the op IOTA, the class of tags of kept values, and the ops that compute nothing."""
    global IOTA, KEPT, STILL
    IOTA, KEPT, STILL = iota, kept, still


cdef Node shown_by(Node node):
    """Return the node below the ops that compute nothing, whose elements `node` shows."""
    while node.op in STILL:
        if type_of(node.arg) is KEPT:
            node = <Node> node.arg.storage
        else:
            node = <Node> PyTuple_GET_ITEM(node.src, 0)
    return node


cdef object size_of(Node node):
    """Return the bytes of a value; None if its size is known only at run time."""
    nbytes = node.dtype.itemsize
    for size in <tuple> node.shape:
        if not isinstance(size, int):
            return None
        nbytes *= size
    return nbytes


cdef object read_bytes(list roots):
    """Return the bytes of memory that graphs read."""
    _, buffers, _ = structural_key(roots, False, True)
    return sum([(<Node> node).arg.nbytes for node in buffers])


cdef list values_to_store(list tensors, list computed_now):
    """Return (tensor, node) for values that `tensors` read and other lazy tensors have or read.

    Tensors in `computed_now` get their values in any case. A loop that reads or assigns a tensor in
    each iteration carries such values to the next iteration. If they were not stored, the graph of
    each iteration would contain all earlier ones, and need a plan of its own.
    """
    cdef dict lazy = {}
    cdef set seen = set()
    cdef list found = []
    cdef list others, roots
    cdef Node node, base
    cdef ArrayHandle twin
    if watched.count <= PyList_GET_SIZE(computed_now):
        return found  # no other tensors are lazy
    others = latest_lazy(watched, MOST_TENSORS, {id(t) for t in computed_now})
    if not others:
        return found
    roots = [(<ArrayHandle> t)._uop for t in tensors if (<ArrayHandle> t)._uop is not None]
    met = shared(roots, others, MOST_NODES)
    for entry in others:
        lazy[entry[1]] = entry[0]
    for node in met:
        base = shown_by(node)
        if PyTuple_GET_SIZE(base.src) == 0 or base.op is IOTA or base in seen:
            continue
        nbytes = size_of(base)
        if nbytes is None:
            continue
        seen.add(base)
        if nbytes > STORED_BYTES and nbytes > STORED_BYTES + read_bytes(roots):
            continue
        known = lazy.get(base)
        if known is not None:
            found.append((known, base))
        elif lineage_of(base) is False:
            twin = <ArrayHandle?> new_instance(type(others[0][0]))
            twin._uop, twin._plain = base, True
            found.append((twin, base))
            # Watch `twin`: if interrupting code writes memory that the twin reads, that code
            # computes the twin first. `births` stays the same, because the twin reads only memory
            # that watched tensors read already.
            watched.join(twin)
    return found


cdef Node exchanged(Node root, dict put, int least):
    """Return `root` with the keys of `put`, of depth `least` or more, replaced by their values."""
    cdef Stack stack = Stack()
    cdef dict done = dict(put)
    cdef Step step
    cdef Node node, new
    cdef Py_ssize_t i
    cdef bint same
    stack.push(<PyObject *> root, False)
    while stack.n_steps:
        stack.n_steps -= 1
        step = stack.steps[stack.n_steps]
        node = <Node> step.node
        if node in done:
            continue
        if node.depth <= least or PyTuple_GET_SIZE(node.src) == 0:
            done[node] = node
            continue
        if not step.expanded:
            stack.push(step.node, True)
            for i in range(PyTuple_GET_SIZE(node.src)):
                stack.push(PyTuple_GET_ITEM(node.src, i), False)
            continue
        same = True
        for operand in node.src:
            same = same and done[operand] is operand
        new = node
        if not same:
            new = intern(node.op, node.dtype, tuple([done[s] for s in node.src]), node.arg)
            hand_on(node, new)
        done[node] = new
    return <Node> done[root]


cdef int read_stored(list stored, unsigned long writes) except -1:
    """Make the graphs of lazy tensors read the values in `stored`: (tensor, node).

    A graph is left as it is if memory was written since this thread had `writes` writes: the tensor
    may have another value by now.
    """
    cdef dict put = {}
    cdef Node node, root, new
    cdef ArrayHandle tensor
    cdef int least
    for entry in stored:
        tensor, node = <ArrayHandle> entry[0], <Node> entry[1]
        if tensor.data != NULL and lineage_of(node) is False:
            if tensor._uop is None:
                adopted(tensor)
            memory = tensor._entered() if tensor._uop is None else tensor._uop
            if id(tensor) not in pending:  # else the node is that of the assigned value
                put[node] = memory
    if not put:
        return 0
    least = min([(<Node> n).depth for n in put])
    for entry in latest_lazy(watched, MOST_TENSORS, ()):
        root = <Node> entry[1]
        if entry[2] and root.depth > least:
            new = exchanged(root, put, least)
            if new is not root:
                exchange(entry[0], root, new, writes)
    return 0


# ---- evaluation


def entered(tuple tensors not None):
    cdef ArrayHandle handle
    cdef Py_ssize_t i
    trace = get(KRT_TRACE)
    for i in range(PyTuple_GET_SIZE(tensors)):
        if not isinstance(<object> PyTuple_GET_ITEM(tensors, i), ArrayHandle):
            realize.check_tensors(tensors)
    for entry in tensors:
        handle = <ArrayHandle> entry
        lent = handle._link is not None and lend(handle)
        if not lent and (handle._link is not None or handle._uop is None or (
                handle.data == NULL and handle._born is not trace)):
            handle._enter()
        node = handle._uop
        if node is not None and not is_plain(<tuple> (<Node> node).shape):
            realize.check_static(handle)
        if handle._link is not None and not lent:
            views.borrow(handle, handle._link)


cdef bint shows_temporary(ArrayHandle view) except -1:
    """Return whether only this view refers to its lazy root, and no gradient flows into it."""
    cdef ArrayHandle root = (<Link> view._link).root
    # The two references are that of the view and the variable `root`.
    return (Py_REFCNT(root) == 2 and root.data == NULL and root._link is None
            and root._leaf is None and root._grad is None and view._uop is not None
            and lineage_of(<Node> view._uop) is False)


def computed_alone(ArrayHandle handle not None):
    trace = get(KRT_TRACE)
    if handle._link is not None and trace is None and shows_temporary(handle):
        views.unlink(handle)
    node = handle._uop  # held: another thread may compute it while its shape is inferred
    if (handle._link is not None or node is None or handle.data != NULL or pending
            or trace is not None or handle._born is not trace or state.changing is not None
            or not is_plain(<tuple> (<Node> node).shape)):
        return False
    with state.lock:
        if pending or handle._uop is None or handle.data != NULL or state.changing is not None:
            return False
        return attempt([handle], [], None)


def lazy_ones(tensors):
    return [t for t in tensors
            if (<ArrayHandle?> t)._uop is not None and not is_realized(<ArrayHandle> t)]


cdef bint is_realized(ArrayHandle handle) noexcept:
    return handle.data != NULL and is_current(handle)


def due(deferred):
    changing = state.changing
    return [
        t for t in list(pending.values())
        if (not deferred or id(t) not in deferred)
        and (changing is None or not changing.overlaps((<ArrayHandle> t).memory))
    ]


def attempt(list targets not None, list commits not None, more):
    cdef set readers = set()
    cdef list chosen = targets
    cdef list stored
    cdef unsigned long writes
    written = None
    if commits or more is not None:
        written = memory_of(commits, more)
        realize.check_unneeded(written)
        began_write()
        found = readers_of(watched, written)
        if found:
            readers = {id(t) for t in found}
            known = {id(t) for t in targets}
            chosen = targets + [t for t in found if id(t) not in known]
    writes = now().writes
    stored = [] if state.computing else values_to_store(chosen + commits, chosen)
    if stored:
        chosen = chosen + [t for t, _ in stored]
    if not evaluate(chosen, commits, readers, written if more is None else None):
        return False
    if stored:
        read_stored(stored, writes)
    if written is not None and watched.count:
        realize.expire(written)
    return True


cpdef bint evaluate(list targets, list commits, set readers, written) except -1:
    if not targets and not commits:
        return True
    before = state.computing
    try:
        state.computing = True
        return carried_out(targets, commits, readers, written)
    finally:
        state.computing = before


cdef bint carried_out(list targets, list commits, set readers, written) except -1:
    cdef Lookup found
    cdef Entry entry
    cdef list nodes, writes = [], resets = []
    cdef int outcome
    if targets:
        computed()
    nodes = [(<ArrayHandle?> t)._uop for t in targets]
    if commits:
        writes, resets = commits_of(commits)
    for node in nodes:
        if node is None:
            return False  # a finalizer or a signal handler has computed the tensor
    if get(KRT_NONFINITE):
        realize.check_finite(nodes, writes)
    plans = plan_cache.plans
    found = (<PlanTable?> plans).look_up(nodes, writes)
    if found.entry is None:
        plans.complete(found, nodes, writes)
    if commits and written is None:
        written = memory_of(commits)
    try:
        outcome = run_entry(found.entry, found.buffers, targets, nodes, readers, resets, written)
    except (errors.IndexBoundsError, errors.DomainError):
        if realize.names_lines_of(found.entry, nodes, writes):
            raise
        outcome = KRT_EAGER_UNFIT  # a new plan names the lines of these graphs
    if outcome == KRT_EAGER_UNFIT and found.entry.interpreted:
        plans.complete(found, nodes, writes)
        outcome = run_entry(found.entry, found.buffers, targets, nodes, readers, resets, written)
    if outcome == KRT_EAGER_UNFIT:
        entry = <Entry?> plans.make(found.key, nodes, writes, found.read)
        outcome = run_entry(entry, found.read, targets, nodes, readers, resets, written)
    steady[0] = None
    if get(KRT_STEPWISE):
        weak.note_computed(targets, nodes)
    return outcome != KRT_EAGER_CHANGED


cdef int run_entry(Entry entry, list buffers, list targets, list nodes, set readers,
                   list resets, written) except -1:
    cdef list results = entry.results(buffers)
    cdef list fresh = []
    cdef Py_ssize_t i
    cdef bint stale
    before = state.changing
    try:
        # User functions that a plan calls must not read memory that the plan is writing. An
        # interpreter writes only at the end, in one step, if no assignment has changed meanwhile.
        if resets and not entry.interpreted:
            state.changing = before or written
        for i in range(PyList_GET_SIZE(targets)):
            stale = len(readers) > 0 and id(targets[i]) in readers
            made = None if stale else settlement(
                <ArrayHandle> targets[i], <Node> nodes[i], <Memory?> results[i])
            if made is None:
                made = targets[i]._settlement(nodes[i], results[i], stale=stale)
            fresh.append(made)
        return entry.run(buffers, results, fresh, resets)
    finally:
        state.changing = before


# ---- values that are copied, without a plan


cdef enum:
    #: Maximum number of pending assignments with which a value is copied immediately.
    MOST_PENDING = 8


def copied(ArrayHandle target not None, value not None, part=None, index=...):
    cdef ArrayHandle given
    cdef Exporter buffer
    cdef list others
    source = None
    if part is None and isinstance(value, ArrayHandle):
        _ = value.uop  # carries out pending assignments to the value
    born = births[0]
    memory = target._buffer if target._uop is None else target.memory
    if not isinstance(memory, Exporter) or (<Exporter> memory)._storage.readonly:
        return False
    buffer = <Exporter> memory
    if part is not None:
        pass
    elif isinstance(value, ArrayHandle):
        given = <ArrayHandle> value
        if given._link is not None:
            return False
        if given.data != NULL:
            source = given._buffer
        elif given._uop is not None:
            source = execute.filled_like(given._uop, buffer)
        if source is None:
            return False
    elif target.code != FLOAT32 and target.code != FLOAT64 and target.code != INT64:
        return False
    others = list(pending.values())
    if len(others) > MOST_PENDING or state.computing or state.changing is not None:
        return False
    written = memory_of((target,))
    for tensor in others:  # values of other pending assignments must not see this write
        if written.overlaps((<ArrayHandle> tensor).memory) or reads(tensor._entered(), written):
            return False
    began_write()
    if readers_of(watched, written):
        return False
    if source is not None:
        if not write_unless_born(births, born, buffer, source):
            return False
    elif births[0] != born:
        return False
    else:
        if part is None:
            fill(target, value)
        else:
            try:
                part[index] = value  # NumPy's C code, which checks indices before it writes
            except IndexError:
                return False
        wrote()
    if watched.count:
        realize.expire(written)
    steady[0] = None
    return True


cdef int fill(ArrayHandle target, object number) except -1:
    """Write a number to all elements of a float32, float64 or int64 tensor."""
    cdef double broad = number
    cdef int64_t whole = number if target.code == INT64 else 0
    cdef Py_ssize_t i, n = target.nbytes // (4 if target.code == FLOAT32 else 8)
    for i in range(n):
        if target.code == FLOAT32:
            (<float *> target.data)[i] = <float> broad
        elif target.code == FLOAT64:
            (<double *> target.data)[i] = broad
        else:
            (<int64_t *> target.data)[i] = whole
    return 0
