/* model_host.h - for hosts that run the plans of a model themselves, as Python does. */
#ifndef KRT_MODEL_HOST_H
#define KRT_MODEL_HOST_H

#include "krt.h"
#include "krt_model.h"

/* Plans are numbered such that the bodies of a plan come before it. */
size_t krt_model_n_plans(const krt_model *model);
krt_plan *krt_model_plan(const krt_model *model, size_t plan);
void *krt_model_memory(const krt_model *model, size_t *nbytes);

/* The bodies of the region `op` of a plan, as numbers of plans; their count, 0 if it is none. */
size_t krt_model_bodies(const krt_model *model, size_t plan, size_t op, const int64_t **out);

/* The plan of a function, and the plan that has to run first if state has changed; -1: none. */
int krt_model_function_plan(const krt_model *model, int function, int *preparation);

/* Whether a plan writes state. */
bool krt_model_writes_state(const krt_model *model, size_t plan);

/* Variables of a plan: sizes that a caller may set. */
typedef struct krt_variable {
    const char *name;
    int64_t least, most, initial;
} krt_variable;
size_t krt_model_n_variables(const krt_model *model, size_t plan);
krt_status krt_model_variable(const krt_model *model, size_t plan, size_t number,
                              krt_variable *out);

/* The changes of a plan's table for values of its variables. `edits` has room for
 * krt_model_most_edits. KRT_INVALID: a value or a result is out of bounds. */
size_t krt_model_most_edits(const krt_model *model, size_t plan);
krt_status krt_model_launch(const krt_model *model, size_t plan, const int64_t *values,
                            krt_edit *edits, size_t *n_edits, krt_message *why);

/* The shape of an input (side 0) or output (side 1) for values of its function's variables. */
krt_status krt_model_shape(const krt_model *model, int function, int side, int number,
                           const int64_t *values, int64_t *shape, krt_message *why);

/* Slots of the function's plan that hold an address in an input or output: triples of op, slot and
 * offset. Return their number; 0: copy the array. */
size_t krt_model_sites(const krt_model *model, int function, int side, int number,
                       const int64_t **out);

/* Ranges of the model's memory that the function writes: pairs of begin and end. */
size_t krt_model_written(const krt_model *model, int function, const int64_t **out);

/* What failed. */
typedef enum krt_check_kind {
    KRT_CHECK_INDEX = 0, /* an index is out of range */
    KRT_CHECK_DOMAIN,    /* a value is outside the domain of a function */
    KRT_CHECK_SOLVE,     /* a linear system has no solution */
} krt_check_kind;

typedef struct krt_problem {
    krt_check_kind kind;
    int64_t index, size; /* of KRT_CHECK_INDEX */
    double value;        /* of KRT_CHECK_DOMAIN */
    krt_message message;
} krt_problem;

/* Describe the failure that `op` of a plan reported with `word`, for values of its variables. */
void krt_model_explain(const krt_model *model, size_t plan, size_t op, int64_t word,
                       const int64_t *values, krt_problem *out);

/* Names for errors: of an op, and of a region in loops; "" if it is a choice. */
const char *krt_model_op_name(const krt_model *model, size_t plan, size_t op);
const char *krt_model_region_name(const krt_model *model, size_t plan, size_t op);

/* Descriptions of functions that only Python needs: JSON text. */
const char *krt_model_python(const krt_model *model);

#endif
