/* interpret.h - programs of operations on arrays, computed one after the other.
 *
 * A step applies one operation to operands that lie in memory with any strides. Everything about it
 * is fixed but the addresses: a program that runs again needs a table of addresses, and no more. */
#ifndef KRT_INTERPRET_H
#define KRT_INTERPRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most axes of a step, after those that follow each other in memory were joined. */
#define KRT_STEP_AXES 12
/* Most operands, the result included: a gather has an index for each axis. */
#define KRT_STEP_OPERANDS (2 + KRT_STEP_AXES)
/* How many elements the code of one function computes in a call. */
#define KRT_STEP_BLOCK 64

typedef struct krt_step krt_step;

/* Compute `n` elements. `at` has the address of the first element of each operand, the result
 * ahead, and `strides` the bytes from one to the next. False: an index is out of range. */
typedef bool krt_loop(const krt_step *step, char *const *at, const int64_t *strides, int64_t n);

/* Compiled code that computes a block of elements; the result comes first. */
typedef void krt_block_code(void *const *bufs, const int64_t *vals);

struct krt_step {
    krt_loop *loop;
    krt_loop *combine;    /* of a scatter: combines an element with a new one */
    krt_block_code *code; /* of a function */
    int n_axes;           /* those that are reduced included */
    int n_reduced;        /* the last ones */
    int n_operands;       /* the result included */
    /* The size of each axis, outermost first; then of each operand its base, its offset from there
     * in bytes, and its stride along each axis. */
    const int64_t *layout;
    /* Of a gather or scatter: the size of each indexed axis, and its stride. Of a function: the
     * bytes of an element of each operand. */
    const int64_t *more;
};

/* Compute steps in order; return how many were done before one failed, all of them if none did.
 * `bases` are the addresses that operands are relative to. */
size_t krt_interpret(const krt_step *steps, size_t n_steps, char *const *bases);

/* The loop of an operation. Types are the codes of kernelrt.dtype; for loops that move elements of
 * any type, the bytes of an element. */
typedef struct krt_named_loop {
    const char *name;
    int from; /* the type of the last operand */
    int to;   /* the type of the result */
    krt_loop *loop;
} krt_named_loop;

/* All loops; an entry without a name ends the table. */
extern const krt_named_loop krt_loops[];

#endif
