# cython: language_level=3
"""Interpreter of graphs, for other extension modules."""

from libc.stdint cimport int64_t

from kernelrt.native.node cimport Node

cdef extern from "interpret.h" nogil:
    enum:
        KRT_STEP_AXES
        KRT_STEP_OPERANDS
        KRT_STEP_BLOCK

    ctypedef bint krt_loop(
        const krt_step *step, char *const *at, const int64_t *strides, int64_t n) noexcept
    ctypedef void krt_block_code(void *const *bufs, const int64_t *vals) noexcept

    ctypedef struct krt_step:
        krt_loop *loop
        krt_loop *combine
        krt_block_code *code
        int n_axes
        int n_reduced
        int n_operands
        const int64_t *layout
        const int64_t *more

    size_t krt_interpret(const krt_step *steps, size_t n_steps, char *const *bases)

    ctypedef struct krt_named_loop:
        const char *name
        int operand "from"
        int result "to"
        krt_loop *loop

    const krt_named_loop *krt_loops


cdef class Budget:
    cdef readonly double spent
    cdef public double limit

    cpdef bint allows(self, double cost=*) noexcept
    cpdef int add(self, double cost) except -1
    cpdef int exhaust(self) except -1


cdef class View:
    cdef readonly Py_ssize_t slot
    cdef readonly int64_t offset
    cdef readonly tuple shape
    cdef readonly tuple strides


cdef class Slot:
    cdef public Py_ssize_t base
    cdef public int64_t offset
    cdef public int64_t nbytes
    cdef public bint permanent


# The steps of a program. The words of a step are the `layout` and `more` of its krt_step. While a
# program is being written, a layout holds slots and offsets in slots; `resolve` replaces them by
# bases and offsets from these.
cdef class Steps:
    cdef krt_step *steps
    cdef int64_t *words
    cdef Py_ssize_t *begins  # index of the first word of each step
    cdef Py_ssize_t n, n_words, room, room_for_words
    cdef bint resolved

    # Make room for another step, and for its words.
    cdef int extend(self, Py_ssize_t n_words) except -1

    # Replace the slots and offsets in layouts by bases and offsets from these.
    cdef int resolve(self, list slots) except -1


cdef class ProgramBuilder:
    cdef public double cost
    cdef readonly Py_ssize_t length
    cdef readonly list slots
    cdef readonly dict views
    cdef readonly list calls
    cdef readonly bytearray constant_data
    cdef readonly list number_slots
    cdef readonly list size_positions
    cdef readonly Steps steps
    cdef readonly set constant_nodes
    cdef readonly dict buffer_positions, number_positions

    cpdef Py_ssize_t slot(self, Py_ssize_t base, int64_t offset, int64_t nbytes) except -1
    cpdef View new(self, tuple shape, int64_t itemsize)
    cdef bint write_node(self, Node node) except -1
    cdef View buffer(self, Node node)
    cdef View reshape(self, View view, tuple shape, int64_t itemsize)


cdef class Interpretation:
    cdef Steps steps
    cdef Py_ssize_t n_buffers, n_results, arena
    cdef Py_ssize_t n_inputs  # number of nodes that a run reads: of buffers, then of numbers
    cdef readonly Budget budget
    cdef readonly double cost
    cdef bytes constants
    cdef list numbers, calls, writes
    cdef object keeps

    # Return whether the next run would exceed the budget. If so, the graphs are compiled.
    cdef bint is_spent(self) noexcept

    # Run all steps and the calls between them. Return False if an index is out of range.
    cdef bint compute(self, char **bases) except -1
