# cython: language_level=3
"""Interpreter of graphs, for other extension modules."""

from libc.stdint cimport int64_t

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
    cdef public double spent, limit


cdef class Interpretation:
    cdef krt_step *steps
    cdef int64_t *numbers_of_steps  # storage of `layout` and `more` of all steps
    cdef Py_ssize_t n_steps, n_buffers, n_results, arena
    cdef readonly Budget budget
    cdef readonly double cost
    cdef bytes constants
    cdef list numbers, calls, writes
    cdef object keeps

    # Return whether the next run would exceed the budget. If so, the graphs are compiled.
    cdef bint is_spent(self) noexcept

    # Run all steps and the calls between them. Return False if an index is out of range.
    cdef bint compute(self, char **bases) except -1
