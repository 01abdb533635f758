# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Base class of Tensor: data with an address, a dtype and a shape, as C fields."""

cimport numpy as cnp
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT, Py_XDECREF
from cpython.long cimport PyLong_AsSsize_t
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kernelrt.native.memory cimport BlockCache, Memory, new_memory, share_bytes, writes
from kernelrt.native.thread_modes cimport new_instance
from kernelrt.native.node cimport Node
from kernelrt.native.graph_key cimport lineage_of

from kernelrt import dtype as dtypes
from kernelrt import errors
from kernelrt.native.memory import wrote
from kernelrt.native.thread_modes import local

cnp.import_array()

cdef extern from *:
    """
    /* The collector clears the fields of an object one by one, and releasing a field may run code
     * that still sees the object. So clear the pointer into memory before the memory's owner. */
    static void (*krt_forget)(PyObject *handle);
    static inquiry krt_clear_fields;
    static int krt_clear_handle(PyObject *handle)
    {
        krt_forget(handle);
        return krt_clear_fields(handle);
    }
    static void krt_clear_after(PyObject *type, void (*forget)(PyObject *handle))
    {
        krt_forget = forget;
        krt_clear_fields = ((PyTypeObject *)type)->tp_clear;
        ((PyTypeObject *)type)->tp_clear = krt_clear_handle;
    }
    /* The collector does not track nodes. So a handle visits the tags of the nodes that it alone
     * owns. */
    static PyObject *(*krt_behind)(PyObject *handle, int level);
    static traverseproc krt_traverse_fields;
    static int krt_traverse_handle(PyObject *handle, visitproc visit, void *arg)
    {
        const int stop = krt_traverse_fields(handle, visit, arg);
        PyObject *found;
        if (stop) {
            return stop;
        }
        for (int level = 0; (found = krt_behind(handle, level)) != NULL; level++) {
            Py_VISIT(found);
        }
        return 0;
    }
    static void krt_traverse_too(PyObject *type, PyObject *(*behind)(PyObject *handle, int level))
    {
        krt_behind = behind;
        krt_traverse_fields = ((PyTypeObject *)type)->tp_traverse;
        ((PyTypeObject *)type)->tp_traverse = krt_traverse_handle;
    }
    """
    void krt_clear_after(object type, void (*forget)(PyObject *) noexcept)
    void krt_traverse_too(object type, PyObject *(*behind)(PyObject *, int) noexcept)

MAX_DIMS = <int> DIMS

# By DType.code: bool, uint8, int8, uint16, ... int64, float16, bfloat16, float32, float64.
cdef int[N_CODES] ITEM_SIZES
for _dtype in dtypes.ALL:
    ITEM_SIZES[<int> _dtype.code] = _dtype.itemsize
cdef int *NUMPY_TYPES = [
    cnp.NPY_BOOL, cnp.NPY_UINT8, cnp.NPY_INT8, cnp.NPY_UINT16, cnp.NPY_INT16, cnp.NPY_UINT32,
    cnp.NPY_INT32, cnp.NPY_UINT64, cnp.NPY_INT64, cnp.NPY_FLOAT16, -1, cnp.NPY_FLOAT32,
    cnp.NPY_FLOAT64,
]

world = 1


def touch():
    global world
    world += 1


cdef int numpy_type(int code) noexcept:
    return NUMPY_TYPES[code]


cdef int check_code(object code) except -1:
    cdef int value = code
    if not 0 <= value < N_CODES:
        raise errors.DTypeError(f"dtype_code must be a DType.code, not {code!r}")
    return value


cdef Py_ssize_t count_bytes(tuple shape, int code) except -1:
    """Return the bytes of a C-contiguous array."""
    if len(shape) > DIMS:
        raise errors.ShapeError(f"a shape has at most {DIMS} dimensions, not {len(shape)}")
    nbytes = ITEM_SIZES[code]
    for dim in shape:
        if type(dim) is not int:
            raise errors.ShapeError(f"a dimension must be an int, not {dim!r}: {shape}")
        if dim < 0:
            raise errors.ShapeError(f"a dimension must be at least 0, not {dim}: {shape}")
        nbytes *= dim
    try:
        return nbytes
    except OverflowError:
        raise errors.ShapeError(
            f"an array of shape {shape} has {nbytes} bytes, more than an address space; use "
            "smaller sizes") from None


cdef class HandleRegistry:
    """Live handles, oldest first. No method runs Python code, so none can be interrupted."""

    def add(self, ArrayHandle handle not None):
        self.join(handle)

    cdef void join(self, ArrayHandle handle) noexcept:
        if handle.registry != NULL:
            return
        Py_INCREF(self)
        handle.registry = <PyObject *> self
        handle.older, handle.newer = self.newest, NULL
        if self.newest != NULL:
            (<ArrayHandle> self.newest).newer = <PyObject *> handle
        else:
            self.oldest = <PyObject *> handle
        self.newest = <PyObject *> handle
        self.count += 1

    def discard(self, ArrayHandle handle not None):
        if handle.registry == <PyObject *> self:
            unlink(handle)

    def members(self):
        cdef list found = []
        cdef PyObject *item = self.oldest
        while item != NULL:
            if Py_REFCNT(<object> item) > 0:
                found.append(<object> item)
            item = (<ArrayHandle> item).newer
        return found

    def latest(self, Py_ssize_t most):
        cdef list found = []
        cdef PyObject *item = self.newest
        while item != NULL and most > 0:
            if Py_REFCNT(<object> item) > 0:
                found.append(<object> item)
            item = (<ArrayHandle> item).older
            most -= 1
        return found

    def __len__(self):
        return self.count


cdef void unlink(ArrayHandle handle) noexcept:
    cdef HandleRegistry registry = <HandleRegistry> handle.registry
    if handle.older != NULL:
        (<ArrayHandle> handle.older).newer = handle.newer
    else:
        registry.oldest = handle.newer
    if handle.newer != NULL:
        (<ArrayHandle> handle.newer).older = handle.older
    else:
        registry.newest = handle.older
    registry.count -= 1
    handle.registry = NULL
    Py_DECREF(registry)


cdef tuple check_registers(registers):
    registers = tuple(registers)
    for register in registers:
        if type(register) is not HandleRegistry and not isinstance(register, dict):
            raise errors.JitError(
                f"a register must be a dict or a HandleRegistry, not {register!r}")
    return registers


cdef class Link:
    def __init__(self, ArrayHandle root not None, tuple path not None, bint plain, below, node):
        self.root = root
        self.path = path
        self.plain = plain
        self.below = below
        self.node = node


cdef bint is_current(ArrayHandle handle) noexcept:
    cdef Link link
    if handle._link is None:
        return True
    link = <Link> handle._link
    if (<ArrayHandle> link.root).data == NULL:
        return False
    if link.lent is not None:
        return link.lent is (<ArrayHandle> link.root).memory
    return link.seen == writes


cdef class ArrayHandle:
    """Base class of Tensor: optional realized, C-contiguous data."""

    def __cinit__(self, *args, **kwargs):
        self.code = -1

    def __dealloc__(self):
        if self.registry != NULL:
            unlink(self)
        Py_XDECREF(self.severed)

    @property
    def _severed(self):
        return <object> self.severed if self.severed != NULL else None

    @_severed.setter
    def _severed(self, mark):
        cdef PyObject *before = self.severed
        self.severed = NULL
        if mark is not None:
            Py_INCREF(mark)
            self.severed = <PyObject *> mark
        Py_XDECREF(before)

    @property
    def _memory(self):
        return self.memory

    @property
    def _hold(self):
        return self.hold

    @property
    def _address(self):
        return <size_t> self.data if self.data != NULL else None

    @property
    def _dtype_code(self):
        return self.code

    @property
    def _shape(self):
        return self.shape

    @property
    def _nbytes(self):
        return self.nbytes

    def _bind(self, memory, export, dtype_code, tuple shape, node=None):
        bind(self, memory, export, dtype_code, shape, node, False, False)

    def _begin(self, memory, export, dtype_code, tuple shape, node not None, bint plain):
        bind(self, memory, export, dtype_code, shape, node, True, plain)

    def _copy_out(self):
        cdef cnp.npy_intp dims[DIMS]
        cdef Py_ssize_t i, n
        cdef cnp.ndarray array
        if self.data == NULL or NUMPY_TYPES[self.code] < 0:
            return None
        n = PyTuple_GET_SIZE(self.shape)
        for i in range(n):
            dims[i] = PyLong_AsSsize_t(<object> PyTuple_GET_ITEM(self.shape, i))
        array = cnp.PyArray_SimpleNew(<int> n, dims, NUMPY_TYPES[self.code])
        memcpy(cnp.PyArray_DATA(array), self.data, <size_t> self.nbytes)
        return array

    def _only(self):
        if self.data == NULL or self.nbytes != ITEM_SIZES[self.code]:
            return None
        if self.code == FLOAT32:
            return <double> (<float *> self.data)[0]
        array = self._copy_out()
        return None if array is None else array.item()

    def _unbind(self):
        before = self.hold, self.memory
        forget(<PyObject *> self)
        self.hold = None
        self.memory = None
        self.code = -1
        self.shape = None


cdef int bind(ArrayHandle self, memory, export, dtype_code, tuple shape, node, bint bare,
              bint plain) except -1:
    """Make `self` realized; with `bare`, only if it has no node yet."""
    cdef int code = check_code(dtype_code)
    cdef Py_ssize_t nbytes = count_bytes(shape, code)
    if not PyMemoryView_Check(export):
        raise errors.DTypeError(
            f"export: expected a memoryview, not {type(export).__name__}"
        )
    cdef Py_buffer *view = PyMemoryView_GET_BUFFER(export)
    if view.buf == NULL or view.len != nbytes or not PyBuffer_IsContiguous(view, b'C'):
        raise errors.ShapeError(
            f"export: expected {nbytes} contiguous bytes for shape {shape}, not {view.len}"
        )
    before = self.hold, self.memory  # held until all fields agree: freeing them may run any code
    if bare and self._uop is not None:
        return 0  # interrupting code has given it a node, and may have done more
    self.hold = export
    self.memory = memory
    self.data = <char *> view.buf
    self.code = code
    self.shape = shape
    self.nbytes = nbytes
    if bare:
        self._leaf = None
        self._plain = plain
        self._grad = None
        self._born = None
    if node is not None:
        self._uop = node
    return 0


def array_copy(kind, array, BlockCache cache not None):
    cdef ArrayHandle handle
    cdef Memory memory
    cdef Py_ssize_t nbytes
    cdef int code, typenum
    if type(array) is not cnp.ndarray or not cnp.PyArray_ISCARRAY_RO(array):
        return None
    typenum = cnp.PyArray_TYPE(array)
    nbytes = cnp.PyArray_NBYTES(array)
    for code in range(N_CODES):
        if NUMPY_TYPES[code] == typenum:
            break
    else:
        return None
    if nbytes == 0 or cnp.PyArray_NDIM(array) > DIMS:
        return None
    memory = new_memory(cache, nbytes)
    memcpy(memory.data, cnp.PyArray_DATA(array), <size_t> nbytes)
    handle = <ArrayHandle?> new_instance(kind)
    handle._leaf = handle._grad = handle._born = None
    handle._plain = True
    handle.memory = memory
    handle.data = memory.data
    handle.code = code
    handle.shape = array.shape
    handle.nbytes = nbytes
    return handle


cdef void forget(PyObject *handle) noexcept:
    (<ArrayHandle> handle).data = NULL
    (<ArrayHandle> handle).nbytes = 0


krt_clear_after(ArrayHandle, forget)


cdef object mark_op = None


def _name_mark(op):
    """Set the op of nodes that tag a value."""
    global mark_op
    mark_op = op


cdef PyObject *behind(PyObject *handle, int level) noexcept:
    """Return the tag at a level of the handle's graph, from the root down, or NULL.

    Only tags of nodes that the handle alone owns are returned: the collector counts references, so
    objects with other owners must not be visited. No reference count may change meanwhile. A tag
    can have a hook that refers to its own tensor, which is a cycle.
    """
    cdef PyObject *node = <PyObject *> (<ArrayHandle> handle)._uop
    cdef PyObject *operands
    if node == NULL or node == <PyObject *> None or Py_REFCNT(<object> node) != 1:
        return NULL
    for _ in range(level):
        operands = <PyObject *> (<Node> node).src
        if Py_REFCNT(<object> operands) != 1 or PyTuple_GET_SIZE(<tuple> operands) != 1:
            return NULL
        node = PyTuple_GET_ITEM(<tuple> operands, 0)
        if Py_REFCNT(<object> node) != 1:
            return NULL
    return <PyObject *> (<Node> node).arg if (<Node> node).op is mark_op else NULL


krt_traverse_too(ArrayHandle, behind)


def put_all(list values not None, list gradients not None, list found not None,
            dict pending not None, list births not None, list steady not None,
            dict units not None, dict unit not None, writes):
    cdef ArrayHandle handle
    cdef list dropped = []  # released at the end, because that may run code
    if local.writes != writes:
        return False
    for entry, node, gradient in found:
        handle = <ArrayHandle?> entry
        if handle._uop is not node or handle._grad is not gradient:
            return False
    for entry, node in values:
        if type((<ArrayHandle?> entry).memory) is Memory:
            return False  # the handle was computed meanwhile: no node reads its memory yet
    if not pending:
        units.clear()
    units.update(unit)
    for entry, node in values:
        handle = <ArrayHandle?> entry
        dropped.append(handle._uop)
        handle._plain = handle._leaf is None
        handle._uop = node
        if handle.severed != NULL:
            dropped.append(<object> handle.severed)
            Py_DECREF(<object> handle.severed)
            handle.severed = NULL
        births[0] += 1
        if handle.data != NULL:
            # If handles share memory, the last assignment counts, so it must come last.
            pending.pop(id(handle), None)
            pending[id(handle)] = handle
            dropped.append(steady[0])
            steady[0] = None
    set_gradients(gradients, dropped)
    return True


def exchange(ArrayHandle handle not None, expected, node, writes=None):
    cdef object before = handle._uop
    if before is not expected or (writes is not None and local.writes != writes):
        return False
    handle._uop = node
    return True


cdef int set_gradients(list gradients, list dropped) except -1:
    """Set the gradient of each handle in (handle, value) pairs, if it changes."""
    cdef bint changed = False
    for handle, value in gradients:
        before = handle._grad
        if before is not value:
            dropped.append(before)
            handle._grad = value
            changed = True
    if changed:
        touch()
    return changed


cdef int hand_over(tuple handover, list dropped) except -1:
    cdef ArrayHandle handle
    cdef size_t address
    copies, gradients = handover
    for handle, address, nbytes in copies:
        if nbytes != handle.nbytes or handle.data == NULL:
            raise errors.ShapeError(f"expected {handle.nbytes} bytes to copy, not {nbytes}")
        memmove(handle.data, <const char *> address, <size_t> handle.nbytes)
        wrote()
    set_gradients(<list?> gradients, dropped)
    return 0


def finish(tuple handover not None):
    hand_over(handover, [])


def become(ArrayHandle handle not None, expected, leaf, node, list flips not None):
    cdef object before = handle._uop
    if before is not expected:
        return False
    handle._leaf = leaf
    if leaf is not None:
        handle._plain = False
    handle._uop = node
    flips[0] += 1
    touch()
    return True


def draw(ArrayHandle key not None, ArrayHandle counter not None, uint64_t n, list taken not None):
    cdef uint32_t *words = <uint32_t *> key.data
    cdef uint64_t *count = <uint64_t *> counter.data
    if key.data == NULL or key.nbytes != 8 or counter.data == NULL or counter.nbytes != 8:
        raise errors.ShapeError("key and counter: expected realized data of 8 bytes each")
    taken.append((words[0], words[1], count[0]))
    count[0] += n
    wrote()


def undraw(
    ArrayHandle key not None, ArrayHandle counter not None, uint64_t n, uint32_t first_word,
    uint32_t second_word, uint64_t first,
):
    cdef uint32_t *words = <uint32_t *> key.data
    cdef uint64_t *count = <uint64_t *> counter.data
    if words[0] == first_word and words[1] == second_word and count[0] == first + n:
        count[0] = first
        wrote()


cdef int lineage(ArrayHandle handle) except -1:
    if handle._uop is None:
        return LINEAGE_NONE if handle.severed == NULL else LINEAGE_SEVERED
    if handle._plain:
        return LINEAGE_NONE
    found = lineage_of(<Node> handle._uop)
    return LINEAGE_NONE if found is False else LINEAGE_WHOLE if found is True else LINEAGE_SEVERED


def copy_over(list pairs not None, list births not None, expected):
    cdef ArrayHandle target, source, other
    cdef Py_ssize_t i, j, n = len(pairs)
    if births[0] != expected:
        return False
    for i in range(n):
        target, source = pairs[i]
        if target._link is not None or source._link is not None:
            return False  # the data of a view may be stale
        if (target.data == NULL or source.data == NULL or target.code != source.code
                or target.nbytes != source.nbytes):
            return False
        for j in range(n):
            other, _ = pairs[j]
            if (share_bytes(other.data, other.nbytes, source.data, source.nbytes)
                    and not (i == j and source.data == target.data)):
                return False
    for i in range(n):
        target, source = pairs[i]
        memmove(target.data, source.data, <size_t> target.nbytes)
        wrote()
    return True
