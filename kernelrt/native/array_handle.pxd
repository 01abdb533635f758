# cython: language_level=3
"""Base class of Tensor, with the fields that a replay reads."""

from cpython.dict cimport PyDict_Check, PyDict_Size
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE


cdef enum:
    DIMS = 64  # maximum number of dimensions, as in NumPy

    # Some values of DType.code, and their number.
    INT64 = 8
    FLOAT32 = 11
    FLOAT64 = 12
    N_CODES = 13


# Makes a handle a view of another one; see kernelrt.tensor.views.
cdef class Link:
    cdef readonly object root
    cdef readonly tuple path
    cdef readonly bint plain
    cdef public object below
    cdef public object node
    cdef public unsigned long long seen
    cdef public object lent
    cdef public object layout
    cdef public tuple fixed


cdef class ArrayHandle:
    cdef object hold  # an export of the memory; released before the memory
    cdef object memory
    cdef char *data  # NULL: not realized
    cdef int code
    cdef tuple shape
    cdef Py_ssize_t nbytes
    cdef public object _uop
    cdef public object _leaf
    cdef public object _grad
    cdef public object _link  # a Link if the handle is a view, else None
    cdef public object _born  # the trace that made it; None outside traces, as for replay results
    cdef public bint _plain
    cdef public bint _used
    # Severed tag, if the history of the value stayed in a jitted function, else NULL. An owned
    # reference that the collector does not visit: it refers to no tensor.
    cdef PyObject *severed
    # The HandleRegistry that has this handle, or NULL. An owned reference that the collector does
    # not visit: it would clear the field of a handle in a cycle before the handle leaves the list.
    cdef PyObject *registry
    cdef PyObject *older  # neighbours in the registry, borrowed
    cdef PyObject *newer


# A register of live handles that does not keep them alive.
cdef class HandleRegistry:
    cdef PyObject *oldest
    cdef PyObject *newest
    cdef Py_ssize_t count

    cdef void join(self, ArrayHandle handle) noexcept


# Return whether all registers, each a dict or a HandleRegistry, are empty.
cdef inline bint all_empty(tuple registers) noexcept:
    cdef Py_ssize_t i
    cdef PyObject *register
    for i in range(PyTuple_GET_SIZE(registers)):
        register = PyTuple_GET_ITEM(registers, i)
        if PyDict_Check(<object> register):
            if PyDict_Size(<object> register) != 0:
                return False
        elif (<HandleRegistry> register).count != 0:
            return False
    return True

# Return the registers as a tuple; raise JitError if one has another type than `all_empty` expects.
cdef tuple check_registers(registers)

# Incremented whenever Python objects change that a plan may depend on.
cdef unsigned long long world

# Return whether the data of a handle are current; only data of views can be stale.
cdef bint is_current(ArrayHandle handle) noexcept

# History of a handle: it has none, the history was cut off (Severed), or gradients flow through it.
cdef enum:
    LINEAGE_NONE = 0
    LINEAGE_SEVERED = 1
    LINEAGE_WHOLE = 2
cdef int lineage(ArrayHandle handle) except -1

# Set the gradient of each handle in (handle, value) pairs; append the old gradients to `dropped`.
cdef int set_gradients(list gradients, list dropped) except -1

# Finish a run of a plan: copy (handle, address, bytes) and set gradients.
cdef int hand_over(tuple handover, list dropped) except -1

cdef int check_code(object code) except -1

# Return the bytes of a C-contiguous array; raise ShapeError for an invalid shape.
cdef Py_ssize_t count_bytes(tuple shape, int code) except -1

# Return NumPy's type number; -1 for bfloat16, which NumPy does not have.
cdef int numpy_type(int code) noexcept
