# cython: language_level=3
"""The class that Tensor extends, with the fields that a replay reads."""

from cpython.dict cimport PyDict_Check, PyDict_Size
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE


cdef enum:
    DIMS = 64  # the most dimensions, as in NumPy

    # Some of DType.code, and how many there are.
    INT64 = 8
    FLOAT32 = 11
    FLOAT64 = 12
    N_CODES = 13


# How a handle shows elements of another one; see kernelrt.tensor.views.
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
    cdef object hold  # an export of the memory; goes before the memory does
    cdef object memory
    cdef char *data  # NULL: not realized
    cdef int code
    cdef tuple shape
    cdef Py_ssize_t nbytes
    cdef public object _uop
    cdef public object _leaf
    cdef public object _grad
    cdef public object _link  # a Link; None where the handle shows elements of its own
    cdef public object _born  # the trace that made it; None outside of any, as of replays' results
    cdef public bint _plain
    cdef public bint _used
    # Says that the history of the value stayed in a jitted function; NULL where none did. Owned,
    # and counted as little as the roster: it refers to no tensor.
    cdef PyObject *severed
    # That this is a member of, or NULL. Counted here, and not known to the collector: it would
    # clear the field of a handle in a cycle before the handle has left the list.
    cdef PyObject *roster
    cdef PyObject *older  # its neighbours there, borrowed
    cdef PyObject *newer


# A register of live handles that does not keep them alive.
cdef class Roster:
    cdef PyObject *oldest
    cdef PyObject *newest
    cdef Py_ssize_t count

    cdef void join(self, ArrayHandle handle) noexcept


# Whether nothing is in any of the registers, each a dict or a Roster.
cdef inline bint all_empty(tuple registers) noexcept:
    cdef Py_ssize_t i
    cdef PyObject *register
    for i in range(PyTuple_GET_SIZE(registers)):
        register = PyTuple_GET_ITEM(registers, i)
        if PyDict_Check(<object> register):
            if PyDict_Size(<object> register) != 0:
                return False
        elif (<Roster> register).count != 0:
            return False
    return True

# A tuple of registers, each as `all_empty` relies on it.
cdef tuple check_registers(registers)

# Grows whenever Python objects change that a plan may depend on.
cdef unsigned long long world

# Returns whether the data of a handle are up to date; only those of views can be stale.
cdef bint is_current(ArrayHandle handle) noexcept

# What becomes of a gradient that flows into the handle: there is nothing behind it, or what is
# behind it is cut off, or it flows on.
cdef enum:
    LINEAGE_NONE = 0
    LINEAGE_SEVERED = 1
    LINEAGE_WHOLE = 2
cdef int lineage(ArrayHandle handle) except -1

# Give each of (handle, value) its gradient. What they had goes to `dropped`.
cdef int set_gradients(list gradients, list dropped) except -1

# Do what a run of a plan leaves to be done: copy (handle, address, bytes) and set gradients.
cdef int hand_over(tuple handover, list dropped) except -1

cdef int check_code(object code) except -1

# Bytes of a C-contiguous array. Raises where they cannot be counted.
cdef Py_ssize_t count_bytes(tuple shape, int code) except -1

# NumPy's type number; -1 for bfloat16, which it does not have.
cdef int numpy_type(int code) noexcept
