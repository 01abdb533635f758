# cython: language_level=3
"""The modes of a thread as C variables, and the calls of operations."""

from cpython.object cimport PyObject


cdef enum Field:
    KRT_GRAD = 0
    KRT_TRACE = 1
    KRT_SCOPE = 2
    KRT_OBSERVED = 3
    KRT_NONFINITE = 4
    KRT_STEPWISE = 5


# Return the value of a mode of this thread.
cdef object get(int field)

# Return whether operations of this thread are recorded for gradients.
cdef bint records_gradients() noexcept

# Return whether this thread traces a function.
cdef bint tracing() noexcept

# Set once a thread has entered debug_nans or disable_jit. It is cheaper to read than debugs().
cdef bint debugging

# Return whether this thread is in debug_nans or disable_jit.
cdef bint debugs() noexcept


# Numbers of writes to memory and of computations of lazy tensors, at one moment.
cdef struct Moment:
    unsigned long writes  # of this thread
    unsigned long all_writes  # of all threads
    unsigned long values  # computations of all threads

cdef Moment now() noexcept

# Return whether, since `begun`, memory was written and lazy tensors were computed.
cdef bint disturbed(Moment begun) noexcept


# Return whether the running operation of this thread was called by another operation.
cdef bint is_nested() noexcept


# Return a new instance of a class from __new__ without arguments, without __init__.
cdef object new_instance(object kind)


ctypedef PyObject *(*vectorcallfunc)(PyObject *, PyObject **, size_t, PyObject *) except NULL


cdef class Operation:
    cdef vectorcallfunc call
    cdef object function
    cdef object code  # of the function
    cdef dict aliases
    cdef tuple several
    # Fast path for two arguments, which returns the result or None. Its arguments are `rule`, the
    # code that origins name, and the operands.
    cdef object (*fast_path)(object rule, object code, object self, object other)
    cdef object rule
    cdef dict templates  # key -> template; see kernelrt.native.graph_templates
    cdef int refused  # number of keys without a template since the last one with
    cdef int uses  # uses of templates since they were last cleared
    cdef bint waits  # whether templates are recorded at the second call with a key
    cdef dict __dict__
    cdef object __weakref__


cdef class TraceMode:
    cdef list handlers  # signal handlers that are kept out of this trace
    cdef public object around  # the enclosing trace, or None
    cdef public object draws  # detector of random-number use, or None
    cdef public dict _states  # identity -> (tensor that was assigned to, value)
    cdef int keep_out(self) except -1
    cdef int leave(self) except -1


# A call whose result may become a template.
cdef class Recording:
    cdef int record(self, object found) except -1


ctypedef object (*look_up_t)(Operation, PyObject **, size_t, PyObject *)

# Set the function that each call asks first. It returns a result, a Recording, or None.
cdef void use_templates(look_up_t look_up) noexcept

# Return the number of reads of tensor values by this thread.
cdef unsigned long reads() noexcept
