# cython: language_level=3
"""The modes of a thread as C fields, and the calls of operations."""

from cpython.object cimport PyObject


cdef enum Field:
    KRT_GRAD = 0
    KRT_TRACE = 1
    KRT_SCOPE = 2
    KRT_OBSERVED = 3
    KRT_NONFINITE = 4
    KRT_STEPWISE = 5


# The value of a mode of this thread.
cdef object get(int field)

# Whether operations of this thread are recorded for gradients.
cdef bint records_gradients() noexcept

# Whether this thread traces a function.
cdef bint tracing() noexcept

# Set once a thread has entered debug_nans or disable_jit. It is cheaper to read than debugs().
cdef bint debugging

# Return whether this thread is in debug_nans or disable_jit.
cdef bint debugs() noexcept


# Counts of all threads, but for `writes`: writes to memory, and times that tensors were computed.
cdef struct Moment:
    unsigned long writes  # of this thread
    unsigned long all_writes
    unsigned long values

cdef Moment now() noexcept

# Whether memory was written since that lazy tensors were computed for.
cdef bint disturbed(Moment begun) noexcept


# Return whether the running operation of this thread was called by another operation.
cdef bint is_nested() noexcept


# An instance of a class, as its __new__ gives it without arguments.
cdef object new_instance(object kind)


ctypedef PyObject *(*vectorcallfunc)(PyObject *, PyObject **, size_t, PyObject *) except NULL


cdef class Operation:
    cdef vectorcallfunc call
    cdef object function
    cdef object code  # of the function
    cdef dict aliases
    cdef tuple several
    # What gives the result for two arguments at once, or None; it is given `rule`, and the code
    # that origins name.
    cdef object (*short_road)(object rule, object code, object self, object other)
    cdef object rule
    cdef dict templates  # by keys; see kernelrt.native.graph_templates
    cdef int refused  # number of keys without a template since the last one with
    cdef int uses  # uses of templates since they were last cleared
    cdef bint waits  # whether templates are recorded at the second call with a key
    cdef dict __dict__
    cdef object __weakref__


cdef class TraceMode:
    cdef list handlers  # those of signals that are kept out of this trace
    cdef public object around  # the trace that this one is a part of
    cdef public object draws  # who looks at generators from outside, None where nobody does
    cdef public dict _states  # the tensors that were assigned to, with their values, by identity
    cdef int keep_out(self) except -1
    cdef int leave(self) except -1


# A call whose result may become a template.
cdef class Recording:
    cdef int record(self, object found) except -1


ctypedef object (*look_up_t)(Operation, PyObject **, size_t, PyObject *)

# Set the function that calls ask first: it returns a result, a Recording, or None.
cdef void use_templates(look_up_t look_up) noexcept

# How often this thread has read values of tensors.
cdef unsigned long reads() noexcept
