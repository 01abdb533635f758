/* krt_model.h - functions saved by kernelrt, loaded and run without Python.
 *
 * A model file holds functions that were traced and compiled ahead of time, the values of the state
 * that they share (parameters, moments of an optimizer, random state), and machine code for one
 * kind of processor. A function reads its inputs from memory of the model, computes, updates the
 * state, and leaves its outputs in memory of the model:
 *
 *     krt_model *model;
 *     krt_message why;
 *     krt_port x, y;
 *     if (krt_model_open("net.krt", NULL, &model, &why))
 *         return fail(why.text);
 *     int net = krt_model_find(model, "predict");
 *     krt_model_input(model, net, 0, &x);
 *     krt_model_output(model, net, 0, &y);
 *     memcpy(x.data, image, x.nbytes);
 *     if (krt_model_run(model, net, &why))
 *         return fail(why.text);
 *     use((const float *)y.data);
 *     krt_model_close(model);
 *
 * A model file is code: trust it as you trust a library. Checksums detect damage, not malice.
 *
 * Two threads may call functions of one model at the same time; the calls take turns. They must
 * agree on who uses the memory of inputs and outputs. For calls at the same time, open the file
 * twice. */
#ifndef KRT_MODEL_H
#define KRT_MODEL_H

#include "krt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A library may be compiled with -fvisibility=hidden: it exports these functions. */
#pragma GCC visibility push(default)

typedef struct krt_model krt_model;

/* The reason of a failure, for people. */
typedef struct krt_message {
    char text[512];
} krt_message;

typedef enum krt_dtype {
    KRT_BOOL = 0, KRT_UINT8, KRT_INT8, KRT_UINT16, KRT_INT16, KRT_UINT32, KRT_INT32, KRT_UINT64,
    KRT_INT64, KRT_FLOAT16, KRT_BFLOAT16, KRT_FLOAT32, KRT_FLOAT64
} krt_dtype;

enum { KRT_MOST_AXES = 32, KRT_MOST_SIZES = 64 };

/* An input, an output or a state of a model: an array in row-major order. */
typedef struct krt_port {
    const char *name;
    krt_dtype dtype;
    int ndim;
    int64_t shape[KRT_MOST_AXES]; /* for the present sizes */
    void *data;                   /* NULL: the input is a constant, see value */
    size_t nbytes;                /* of the elements, for the present sizes */
    const char *value;            /* of a constant: JSON text; else NULL */
} krt_port;

/* How to open a model. A field that is 0 takes its default. */
typedef struct krt_model_options {
    void *self;
    /* Return the address of a routine, such as "cholesky@256"; NULL: unknown. By default there are
     * none; krt_find_routine of routines.h knows those of kernelrt. */
    krt_kernel (*routine)(void *self, const char *name);
    /* Return memory for state and buffers, aligned to 64 bytes; NULL: there is none. Memory from
     * here is not freed by the model, and must outlive it. By default, the model maps pages. */
    void *(*allocate)(void *self, size_t nbytes);
    /* Return KRT_INTERRUPTED to end the present run. Called about every 20 ms. */
    krt_status (*poll)(void *self);
} krt_model_options;

/* Open a model file, or read one in memory, which is not needed afterwards. On KRT_OK `*out`
 * belongs to the caller. KRT_INVALID: there is no such file, it is damaged, made by another
 * version, or made for another processor. `options` may be NULL. */
krt_status krt_model_open(const char *path, const krt_model_options *options, krt_model **out,
                          krt_message *why);
krt_status krt_model_read(const void *bytes, size_t nbytes, const krt_model_options *options,
                          krt_model **out, krt_message *why);

/* Free a model; NULL is allowed. No function of it may be running. */
void krt_model_close(krt_model *model);

/* Functions are numbered from 0; one that does not exist has no inputs, no outputs and the name "".
 * krt_model_find returns -1 if there is none of this name; if there
 * are several, for different arguments, it returns the first. */
int krt_model_n_functions(const krt_model *model);
int krt_model_find(const krt_model *model, const char *name);
const char *krt_model_function_name(const krt_model *model, int function);

int krt_model_n_inputs(const krt_model *model, int function);
int krt_model_n_outputs(const krt_model *model, int function);
int krt_model_n_states(const krt_model *model);

/* Describe an input, output or state. KRT_INVALID: there is none of this number. The addresses stay
 * the same as long as the model is open. The content of an output is valid until the next run of
 * its function. */
krt_status krt_model_input(krt_model *model, int function, int number, krt_port *out);
krt_status krt_model_output(krt_model *model, int function, int number, krt_port *out);
krt_status krt_model_state(krt_model *model, int number, krt_port *out);

/* The number of the input, output or state of a name; -1: there is none. */
int krt_model_find_input(const krt_model *model, int function, const char *name);
int krt_model_find_output(const krt_model *model, int function, const char *name);
int krt_model_find_state(const krt_model *model, const char *name);

/* Set a size that was dynamic when the function was traced. It holds for later runs, and the shapes
 * of inputs and outputs follow. Functions that were saved from one plan share its sizes. KRT_INVALID: there is no such size, or it is out of bounds. */
krt_status krt_model_set_size(krt_model *model, int function, const char *name, int64_t value,
                              krt_message *why);

/* The sizes of a function that may change, and all of them at once, in this order. */
int krt_model_n_sizes(const krt_model *model, int function);
const char *krt_model_size_name(const krt_model *model, int function, int number);
krt_status krt_model_set_sizes(krt_model *model, int function, const int64_t *values,
                               krt_message *why);

/* Run a function. KRT_OUT_OF_BOUNDS: an index or a value is out of range; outputs are undefined,
 * and state is as before the run. KRT_INTERRUPTED: `poll` asked for it. */
krt_status krt_model_run(krt_model *model, int function, krt_message *why);

/* Tell the model that its caller wrote state: values computed from it ahead of runs are stale. */
void krt_model_wrote_state(krt_model *model);

/* Limit the threads of all functions; 0: the limit of the process. */
void krt_model_set_threads(krt_model *model, int threads);

/* Write a file that holds the model with its present state. The file is complete or absent: an
 * earlier one of this name stays until the new one is complete. */
krt_status krt_model_save(krt_model *model, const char *path, krt_message *why);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
