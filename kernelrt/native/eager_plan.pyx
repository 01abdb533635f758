# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Cached plans of eager code: each run binds other buffers and new results."""

cimport cython
from libc.stdint cimport int64_t
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcpy, memmove

from kernelrt._dispatch cimport PlanCore
from kernelrt.native.array_handle cimport FLOAT32, FLOAT64, INT64, ArrayHandle, HandleRegistry
from kernelrt.native.krt cimport KRT_OK, krt_status
from kernelrt.native.memory cimport (
    BlockCache, Memory, Storage, StoredMemory, new_memory, share_bytes,
)
from kernelrt.native.node cimport Node, intern
from kernelrt.native.graph_key cimport lineage_of

from kernelrt import errors
from kernelrt.native.memory import wrote


DONE = <int> KRT_EAGER_DONE
UNFIT = <int> KRT_EAGER_UNFIT
CHANGED = <int> KRT_EAGER_CHANGED


cdef struct Site:
    size_t op
    size_t slot
    Py_ssize_t offset


cdef struct BoundBuffer:
    Site *sites
    Py_ssize_t n_sites
    Py_ssize_t nbytes
    char *data  # address that the sites are bound to
    bint written


cdef struct Output:
    Site *sites
    Py_ssize_t n_sites
    Py_ssize_t nbytes
    const char *source  # where the plan stores a result without sites


cdef void *calloc_for(Py_ssize_t count, size_t size) except NULL:
    cdef void *table = PyMem_Calloc(<size_t> count + 1, size)
    if table == NULL:
        raise errors.OutOfMemoryError("out of memory: cannot store an eager plan")
    return table


cdef char *take(object buffer, list held) except NULL:
    cdef Py_ssize_t offset = buffer.offset
    cdef StoredMemory memory = (<Storage?> buffer.storage).take()
    held.append(memory)
    memory.n_exports += 1
    return memory.data + offset


cdef void let_go(list held) noexcept:
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(held)):
        (<StoredMemory> PyList_GET_ITEM(held, i)).n_exports -= 1


@cython.final
cdef class Prepared:
    """A plan with the entries of its table that buffers and results are bound to.

    A run holds exclusive access to the plan; other threads that run it wait.
    """

    cdef readonly PlanCore plan
    cdef BoundBuffer *buffers
    cdef Output *outputs
    cdef Py_ssize_t n_buffers, n_outputs
    cdef bint begun
    cdef object bindings  # returns the values of the plan's Variables; None: the plan has none
    cdef object mark  # identifies this object in `plan.bound_by`, which must not keep it alive

    def __init__(self, PlanCore plan not None, buffers, outputs, bindings=None):
        cdef Py_ssize_t i
        if self.begun:
            raise errors.PlanBuildError("already initialised; make a new Prepared")
        self.begun = True  # first, because the code below may call __init__ again
        buffers, outputs = tuple(buffers), tuple(outputs)
        self.plan = plan
        self.bindings = bindings
        self.mark = None if bindings is None else object()
        self.buffers = <BoundBuffer *> calloc_for(len(buffers), sizeof(BoundBuffer))
        self.outputs = <Output *> calloc_for(len(outputs), sizeof(Output))
        for i, (address, nbytes, written, sites) in enumerate(buffers):
            self.buffers[i].data = <char *> <size_t> address
            self.buffers[i].nbytes = nbytes
            self.buffers[i].written = written
            self.n_buffers += 1
            self.buffers[i].n_sites = fill(&self.buffers[i].sites, tuple(sites))
        for i, (address, nbytes, sites) in enumerate(outputs):
            self.outputs[i].source = <const char *> <size_t> address
            self.outputs[i].nbytes = nbytes
            self.n_outputs += 1
            self.outputs[i].n_sites = fill(&self.outputs[i].sites, tuple(sites))

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n_buffers):
            PyMem_Free(self.buffers[i].sites)
        for i in range(self.n_outputs):
            PyMem_Free(self.outputs[i].sites)
        PyMem_Free(self.buffers)
        PyMem_Free(self.outputs)

    def run(self, list buffers not None, list results not None, list fresh not None,
            list resets not None, dict pending not None, tuple born=None):
        """Run with these BUFFER nodes, and hand over the results, in one uninterrupted step.

        Return UNFIT, and do nothing, if the buffers do not fit, or this thread is already running
        the plan.

        Once the plan has run, assignments are carried out, and its results are the only record of
        old values. So no signal handler and no other thread may run between the plan and the end.
        """
        cdef krt_status status
        cdef size_t op = 0
        cdef int outcome = KRT_EAGER_DONE
        cdef list dropped = []
        cdef list held = []
        if len(buffers) != self.n_buffers or len(results) != self.n_outputs:
            raise errors.PlanBuildError(
                f"expected {self.n_buffers} buffers and {self.n_outputs} results, not "
                f"{len(buffers)} and {len(results)}"
            )
        try:
            self.plan.acquire()
        except errors.PlanBusyError:
            return KRT_EAGER_UNFIT  # this code has interrupted a run of the plan on this thread
        try:
            outcome = self.bind(buffers, results, held)
            if outcome == KRT_EAGER_DONE and not unchanged(resets, pending):
                outcome = KRT_EAGER_CHANGED
            if outcome == KRT_EAGER_DONE and born is not None and born[0][0] != born[1]:
                outcome = KRT_EAGER_CHANGED
        except BaseException:
            let_go(held)
            self.plan.leave()
            raise
        if outcome != KRT_EAGER_DONE:
            let_go(held)
            self.plan.leave()
            return outcome
        status = self.plan.run(NULL, &op, False)
        let_go(held)
        if status == KRT_OK:
            try:
                self.copy_out(results)
                hand_over(fresh, resets, pending, dropped)
            except BaseException:
                self.plan.leave()
                raise
        self.plan.finish(status, op)
        return KRT_EAGER_DONE

    cdef int copy_out(self, list results) except -1:
        cdef Py_ssize_t i
        for i in range(self.n_outputs):
            if self.outputs[i].n_sites == 0 and self.outputs[i].nbytes:
                memcpy((<Memory?> results[i]).data, self.outputs[i].source,
                       <size_t> self.outputs[i].nbytes)
        return 0

    cdef int bind(self, list buffers, list results, list held) except -1:
        """Bind buffers and results; return UNFIT, and bind none, if the buffers do not fit."""
        cdef Py_ssize_t i
        cdef bint moved = False
        cdef bint rebind = self.mark is not None and self.plan.bound_by is not self.mark
        cdef char **data
        if rebind:
            self.plan.bound_by = None
            self.plan.assign(self.bindings())
        data = <char **> calloc_for(self.n_buffers, sizeof(char *))
        try:
            for i in range(self.n_buffers):
                data[i] = take((<Node?> buffers[i]).arg, held)
                moved = moved or data[i] != self.buffers[i].data
            if moved and self.differ(data):
                return KRT_EAGER_UNFIT
            for i in range(self.n_outputs):
                self.point(self.outputs[i].sites, self.outputs[i].n_sites,
                           (<Memory?> results[i]).data)
            for i in range(self.n_buffers):
                if rebind or data[i] != self.buffers[i].data:
                    self.point(self.buffers[i].sites, self.buffers[i].n_sites, data[i])
                    self.buffers[i].data = data[i]
            if rebind:
                self.plan.bound_by = self.mark
            return KRT_EAGER_DONE
        finally:
            PyMem_Free(data)

    cdef bint differ(self, char **data) noexcept:
        """Return whether a written buffer overlaps another one differently than when bound.

        The order of the plan's operations is valid only for the overlaps it was made for.
        """
        cdef Py_ssize_t i, j
        cdef BoundBuffer *one
        cdef BoundBuffer *other
        for i in range(self.n_buffers):
            one = &self.buffers[i]
            if not one.written:
                continue
            for j in range(self.n_buffers):
                other = &self.buffers[j]
                if i == j or (<size_t> data[j] - <size_t> data[i]
                              == <size_t> other.data - <size_t> one.data):
                    continue
                if (share_bytes(data[i], one.nbytes, data[j], other.nbytes)
                        or share_bytes(one.data, one.nbytes, other.data, other.nbytes)):
                    return True
        return False

    cdef void point(self, const Site *sites, Py_ssize_t count, char *data) noexcept:
        cdef Py_ssize_t i
        for i in range(count):
            self.plan.bind(sites[i].op, sites[i].slot, data + sites[i].offset)


cdef bint unchanged(list resets, dict pending) except -1:
    for handle, expected, _ in resets:
        if (<ArrayHandle?> handle)._uop is not expected or id(handle) not in pending:
            return False
    return True


def write_unless_born(list births not None, born, target not None, source not None):
    cdef list held = []
    cdef char *destination
    cdef char *data
    cdef Py_ssize_t nbytes = target.nbytes
    if source.nbytes != nbytes:
        raise errors.ShapeError(f"expected {nbytes} bytes to write, not {source.nbytes}")
    try:
        destination, data = take(target, held), take(source, held)
        if births[0] != born:
            return False
        memmove(destination, data, <size_t> nbytes)
        wrote()
        return True
    finally:
        let_go(held)


cdef int hand_over(list fresh, list resets, dict pending, list dropped) except -1:
    cdef ArrayHandle handle
    for entry, expected, memory, hold, address, code, shape, nbytes, node, stays in fresh:
        handle = <ArrayHandle> entry
        if handle.data != NULL or handle._uop is not expected:
            continue  # other code gave it a value, the same or a later one
        dropped.append(expected)
        handle.hold = hold
        handle.memory = memory
        handle.data = <char *> <size_t> address
        handle.code = code
        handle.shape = <tuple> shape
        handle.nbytes = nbytes
        handle._uop = node
        if not stays and handle.registry != NULL:
            (<HandleRegistry> handle.registry).discard(handle)
    for entry, expected, node in resets:
        handle = <ArrayHandle> entry
        dropped.append(expected)
        handle._uop = node
        pending.pop(id(handle), None)
    return 0


def give(list fresh not None, list resets not None, dict pending not None):
    """Hand over results that exist, and finish assignments that need no plan."""
    cdef list dropped = []
    if not unchanged(resets, pending):
        return KRT_EAGER_CHANGED
    hand_over(fresh, resets, pending, dropped)
    return KRT_EAGER_DONE


cdef Py_ssize_t fill(Site **table, tuple sites) except -1:
    cdef Site *entry = <Site *> calloc_for(len(sites), sizeof(Site))
    table[0] = entry
    for op, slot, offset in sites:
        entry.op, entry.slot, entry.offset = op, slot, offset
        entry += 1
    return len(sites)


def new_result(BlockCache cache not None, Py_ssize_t nbytes):
    """Return uninitialised memory for a result."""
    return new_memory(cache, nbytes)


# ---- results and numbers


cdef object BUFFER = None


def _name_buffer(op):
    """Set the op of nodes that read memory."""
    global BUFFER
    BUFFER = op


cpdef tuple settlement(ArrayHandle handle, Node node, Memory data):
    cdef size_t nbytes
    if (handle._link is not None or handle._leaf is not None or handle._grad is not None
            or not (handle._plain or lineage_of(node) is False)):
        return None
    handle._severed = None
    dtype = node.dtype
    nbytes = dtype.itemsize
    for size in <tuple> node.shape:
        nbytes *= <size_t> size
    return (handle, node, data, None, <size_t> data.data, dtype.code, node.shape, nbytes, None,
            False)


cdef Node number_memory(Node node, BlockCache cache, object kind, object number):
    cdef Memory data
    cdef size_t width
    cdef int code = node.dtype.code
    if code != FLOAT32 and code != FLOAT64 and code != INT64:
        return None
    width = 4 if code == FLOAT32 else 8
    data = new_memory(cache, <Py_ssize_t> width)
    if code == FLOAT32:
        (<float *> data.data)[0] = <float> <double> node.arg
    elif code == FLOAT64:
        (<double *> data.data)[0] = <double> node.arg
    else:
        (<int64_t *> data.data)[0] = <int64_t> node.arg
    node = intern(BUFFER, node.dtype, (), kind._lent(data, 1, width, node.dtype, number, cache))
    node.cached_shape = (1,)
    return node
