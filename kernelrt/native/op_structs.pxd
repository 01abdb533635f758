# cython: language_level=3
"""Op tuples as C structures, and conversions whose errors name the op and the field."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport (
    krt_binding, krt_edit, krt_edit_kind, krt_fault, krt_initial, krt_op, krt_plan, krt_region,
    krt_status,
)


cdef class Region:
    """The description of a region op. The creator of the plan fills in the bodies' addresses."""

    cdef krt_region region
    cdef tuple bodies
    cdef krt_plan **plans  # of `bodies`
    cdef krt_initial *initial
    cdef krt_binding *bindings


cdef class Ops:
    """A sequence of op tuples as C structures, which live as long as this object."""

    cdef krt_op *ops
    cdef void **bufs
    cdef int64_t *vals
    cdef size_t *deps
    cdef size_t n
    cdef dict customs  # op -> callable
    cdef dict regions  # op -> Region

    cdef int allocate(self, list rows) except -1
    cdef int fill(self, list rows) except -1


cdef class Edits:
    """Changes of a plan, converted before the first of them is made."""

    cdef krt_edit *items
    cdef size_t n

    cdef int add(self, krt_edit_kind kind, size_t op, size_t slot, int64_t value) except -1


cdef class Exchange:
    """Replacement kernels, converted before the first of them is put into the plan."""

    cdef size_t *where
    cdef Ops ops


cdef class Addressed:
    """A custom function that receives views of its op's buffers."""

    cdef object function
    cdef tuple nbytes
    cdef Py_ssize_t n_results


# The type of krt_plan_get_pointer, which returns the address of a slot of an op. Other extensions
# are not linked to that function.
ctypedef krt_status (*krt_finder)(
    const krt_plan *plan, size_t op, size_t slot, void **out, krt_fault *fault) noexcept nogil

cdef int call(object function, krt_plan *plan, size_t op, krt_finder find) except -1
cdef int64_t integer(size_t op, str field, value) except? -7
cdef void *address_of(size_t op, str field, value) except? NULL
