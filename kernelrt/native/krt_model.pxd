# cython: language_level=3
"""Cython declarations of csrc/krt_model.h, csrc/model_host.h and csrc/model.h."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport krt_edit, krt_kernel, krt_plan, krt_status

cdef extern from "model.h" nogil:
    void krt_processor_identity(char *out, size_t nbytes)

cdef extern from "model_host.h" nogil:
    ctypedef struct krt_model:
        pass

    ctypedef struct krt_message:
        char text[512]

    ctypedef enum krt_dtype:
        pass

    enum:
        KRT_MOST_AXES
        KRT_MOST_SIZES

    ctypedef struct krt_port:
        const char *name
        krt_dtype dtype
        int ndim
        int64_t shape[32]
        void *data
        size_t nbytes
        const char *value

    ctypedef struct krt_model_options:
        void *self
        krt_kernel (*routine)(void *self, const char *name) noexcept nogil
        void *(*allocate)(void *self, size_t nbytes) noexcept nogil
        krt_status (*poll)(void *self) noexcept nogil

    krt_status krt_model_open(const char *path, const krt_model_options *options, krt_model **out,
                              krt_message *why)
    krt_status krt_model_read(const void *data, size_t nbytes, const krt_model_options *options,
                              krt_model **out, krt_message *why)
    void krt_model_close(krt_model *model)
    int krt_model_n_functions(const krt_model *model)
    const char *krt_model_function_name(const krt_model *model, int function)
    int krt_model_n_inputs(const krt_model *model, int function)
    int krt_model_n_outputs(const krt_model *model, int function)
    int krt_model_n_states(const krt_model *model)
    krt_status krt_model_input(krt_model *model, int function, int number, krt_port *out)
    krt_status krt_model_output(krt_model *model, int function, int number, krt_port *out)
    krt_status krt_model_state(krt_model *model, int number, krt_port *out)
    krt_status krt_model_save(krt_model *model, const char *path, krt_message *why)
    size_t krt_model_n_plans(const krt_model *model)
    krt_plan *krt_model_plan(const krt_model *model, size_t plan)
    void *krt_model_memory(const krt_model *model, size_t *nbytes)
    size_t krt_model_bodies(const krt_model *model, size_t plan, size_t op, const int64_t **out)
    int krt_model_function_plan(const krt_model *model, int function, int *preparation)
    bint krt_model_writes_state(const krt_model *model, size_t plan)

    ctypedef struct krt_variable:
        const char *name
        int64_t least
        int64_t most
        int64_t initial

    size_t krt_model_n_variables(const krt_model *model, size_t plan)
    krt_status krt_model_variable(const krt_model *model, size_t plan, size_t number,
                                  krt_variable *out)
    size_t krt_model_most_edits(const krt_model *model, size_t plan)
    krt_status krt_model_launch(const krt_model *model, size_t plan, const int64_t *values,
                                krt_edit *edits, size_t *n_edits, krt_message *why)
    krt_status krt_model_shape(const krt_model *model, int function, int side, int number,
                               const int64_t *values, int64_t *shape, krt_message *why)
    size_t krt_model_sites(const krt_model *model, int function, int side, int number,
                           const int64_t **out)
    size_t krt_model_written(const krt_model *model, int function, const int64_t **out)

    ctypedef enum krt_check_kind:
        KRT_CHECK_INDEX
        KRT_CHECK_DOMAIN
        KRT_CHECK_SOLVE

    ctypedef struct krt_problem:
        krt_check_kind kind
        int64_t index
        int64_t size
        double value
        krt_message message

    void krt_model_explain(const krt_model *model, size_t plan, size_t op, int64_t word,
                           const int64_t *values, krt_problem *out)
    const char *krt_model_op_name(const krt_model *model, size_t plan, size_t op)
    const char *krt_model_region_name(const krt_model *model, size_t plan, size_t op)
    const char *krt_model_python(const krt_model *model)
