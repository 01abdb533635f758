# cython: language_level=3
"""C structures of argument specs, and their comparison, for other extensions."""

cimport numpy as cnp
from cpython.float cimport PyFloat_Check
from cpython.long cimport PyLong_AsSsize_t
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint64_t

from kernelrt._dispatch cimport PlanCore
from kernelrt.native.array_handle cimport DIMS, LINEAGE_WHOLE, ArrayHandle, is_current, lineage


cdef enum Kind:
    KIND_ARRAY = 0
    KIND_FLOAT = 1
    KIND_STATIC = 2


cdef struct Site:
    size_t op
    size_t slot
    Py_ssize_t offset
    void *home  # the plan's own buffer, bound again after each call


cdef struct Input:
    Kind kind
    int code
    int typenum  # of NumPy
    int other  # the other type number of the same type
    int ndim
    Py_ssize_t nbytes
    char *home
    Site *sites
    Py_ssize_t n_sites
    PyObject *value  # borrowed from Replay.held: the value of a static, or the shape of an array
    bint by_value  # of a static: whether an equal object matches
    int lineage  # of an array: the maximum lineage of a handle; LINEAGE_WHOLE: any
    uint64_t flag  # of an array that gradients of a result flow into; several may share a flag
    uint64_t copied  # of an array: the last `Replay.turn` in which NumPy copied it
    cnp.npy_intp dims[DIMS]


cdef struct Output:
    const char *source
    int code
    Py_ssize_t nbytes
    Site *sites
    Py_ssize_t n_sites
    PyObject *shape  # borrowed from Replay.held
    PyObject *severed  # tag of the result; borrowed from Replay.held, or NULL
    uint64_t given  # flags of the arguments whose lineage the result continues


cdef struct Guard:
    PyObject *handle  # borrowed from Replay.held
    char *data


# Allocate zeroed memory for `count` + 1 entries. Free it with PyMem_Free.
cdef void *calloc_for(Py_ssize_t count, size_t size) except NULL

# Fill a zeroed entry from a spec. Append the objects that it borrows to `held`. The caller frees
# its sites, even if this raises.
cdef int fill_input(Input *entry, tuple spec, PlanCore plan, list held) except -1

# Do the same for an output.
cdef int fill_output(Output *entry, tuple spec, PlanCore plan, list held) except -1

# Do the same for state and its address.
cdef int fill_guard(Guard *entry, ArrayHandle handle, size_t address, list held) except -1

# Fill entries with the slots of `plan` that take an address within an array of `nbytes` bytes.
# Return their number.
cdef Py_ssize_t fill_sites(Site *entry, tuple sites, Py_ssize_t nbytes, PlanCore plan) except -1

# Return the key by which values that are part of a program are compared and hashed.
cpdef object value_key(object value)

# Return a scalar of NumPy as an array, float, int or bool; any other value as it is.
cpdef object plain_scalar(object value)

# Return whether two such values have equal keys; False if the comparison raises.
cdef int equal_static(object arg, object value) except -1

# Check a structure and return it in the form that `collect` takes.
cdef tuple check_structure(node)

# Return whether `value` has the structure of `node`; append its leaves in order.
cdef int collect(tuple node, object value, list leaves) except -1


cdef inline bint same_shape(PyObject *a, PyObject *b) noexcept:
    """Return whether two tuples of dimensions are equal."""
    cdef Py_ssize_t i, n
    if a == b:
        return True
    n = PyTuple_GET_SIZE(<tuple> a)
    if n != PyTuple_GET_SIZE(<tuple> b):
        return False
    for i in range(n):
        if (PyLong_AsSsize_t(<object> PyTuple_GET_ITEM(<tuple> a, i))
                != PyLong_AsSsize_t(<object> PyTuple_GET_ITEM(<tuple> b, i))):
            return False
    return True


cdef inline bint is_strided(PyObject *arg) noexcept:
    """Return whether `arg` is an array that NumPy has to copy."""
    return (cnp.PyArray_CheckExact(<object> arg)
            and not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> arg))


cdef inline int is_array(const Input *spec, PyObject *arg) except -1:
    """Return whether `arg` is, at this moment, an array that matches `spec`."""
    cdef ArrayHandle handle
    cdef const cnp.npy_intp *dims
    cdef int typenum, i
    if cnp.PyArray_CheckExact(<object> arg):
        typenum = cnp.PyArray_TYPE(<cnp.ndarray> arg)
        if ((typenum != spec.typenum and typenum != spec.other)
                or cnp.PyArray_NDIM(<cnp.ndarray> arg) != spec.ndim
                or not cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray> arg)):
            return False
        dims = cnp.PyArray_DIMS(<cnp.ndarray> arg)
        for i in range(spec.ndim):
            if dims[i] != spec.dims[i]:
                return False
        return True
    if not isinstance(<object> arg, ArrayHandle):
        return False
    handle = <ArrayHandle> arg
    return (handle.data != NULL and handle.code == spec.code
            and is_current(handle)
            and (spec.lineage == LINEAGE_WHOLE or lineage(handle) <= spec.lineage)
            and same_shape(<PyObject *> handle.shape, spec.value))


cdef inline int matches(const Input *spec, PyObject *arg) except -1:
    """Return whether an argument matches `spec`. Any code may run meanwhile."""
    if spec.kind == KIND_ARRAY:
        return is_array(spec, arg)
    if spec.kind == KIND_FLOAT:
        return PyFloat_Check(<object> arg)
    return arg == spec.value or (
        spec.by_value and equal_static(<object> arg, <object> spec.value)
    )
