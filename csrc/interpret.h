/* interpret.h - interpreter for programs of operations on arrays.
 *
 * A step applies one operation to operands with arbitrary strides. Everything except the addresses
 * is fixed: to run a program again, only a table of addresses is needed. */
#ifndef KRT_INTERPRET_H
#define KRT_INTERPRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum number of axes of a step, after contiguous axes were merged. */
#define KRT_STEP_AXES 12
/* Maximum number of operands, including the result: a gather has one index per axis. */
#define KRT_STEP_OPERANDS (2 + KRT_STEP_AXES)
/* Number of elements that compiled code of a function computes in a call. */
#define KRT_STEP_BLOCK 64

typedef struct krt_step krt_step;

/* Compute `n` elements. `at` contains the address of the first element of each operand, the result
 * first; `strides` contains their strides in bytes. False: an index is out of range. */
typedef bool krt_loop(const krt_step *step, char *const *at, const int64_t *strides, int64_t n);

/* Compiled code that computes a block of elements; the result comes first. */
typedef void krt_block_code(void *const *bufs, const int64_t *vals);

struct krt_step {
    krt_loop *loop;
    krt_loop *combine;    /* of a scatter: combines an element with a new value */
    krt_block_code *code; /* of a function: its compiled code */
    int n_axes;           /* including the reduced ones */
    int n_reduced;        /* number of reduced axes, which are the last ones */
    int n_operands;       /* including the result */
    /* The size of each axis, outermost first; then, for each operand, the index of its base, its
     * byte offset from the base, and its stride along each axis. */
    const int64_t *layout;
    /* For a gather or scatter: size and stride of each indexed axis. For a function: the element
     * size of each operand in bytes. */
    const int64_t *more;
};

/* Run steps in order; return the number of steps done before one failed, or `n_steps`. Offsets of
 * operands are relative to the addresses in `bases`. */
size_t krt_interpret(const krt_step *steps, size_t n_steps, char *const *bases);

/* The loop of an operation. `from` and `to` are codes of kernelrt.dtype; for a loop that moves
 * elements of any type, they are element sizes in bytes. */
typedef struct krt_named_loop {
    const char *name;
    int from; /* the type of the last operand */
    int to;   /* the type of the result */
    krt_loop *loop;
} krt_named_loop;

/* All loops; an entry without a name ends the table. */
extern const krt_named_loop krt_loops[];

#endif
