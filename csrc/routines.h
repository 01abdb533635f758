/*
 * Routines: functions with the calling convention of kernels, for operations that loops over
 * elements cannot express.
 *
 * bufs[0] is the result, the others are the operands; if a routine may fail, the last one is the
 * status word. All are arrays in row-major order, and none overlaps the result. vals contains the
 * number of problems, the number of calls that share them, the routine's own numbers, and last the
 * index of this call.
 *
 * Routines allocate nothing and keep no state: their workspace is part of the result.
 */
#ifndef KRT_ROUTINES_H
#define KRT_ROUTINES_H

#include <stddef.h>
#include <stdint.h>

typedef void krt_routine(void *const *bufs, const int64_t *vals);

/* An entry of a table of routines; one without a name ends the table. */
typedef struct krt_named {
    const char *name;
    krt_routine *at;
} krt_named;

/* Table `number` of the routines for vectors of `bits` bits, from 0; NULL: there is none. */
const krt_named *krt_routine_table(int bits, int number);

/* The routine of a name with the width of its vectors, as in "cholesky@256"; NULL: unknown, or this
 * processor lacks such vectors. For krt_model_options.routine. */
krt_routine *krt_find_routine(void *self, const char *name);

/* The parts of all problems that one call solves: from `first` up to and excluding `last`. */
typedef struct krt_share {
    int64_t first, last;
} krt_share;

enum { KRT_NUMBERS = 2 }; /* index in vals of the routine's own numbers */

/* The share of this call in `all` parts; `count`: how many numbers the routine takes. */
static inline krt_share krt_share_of(const int64_t *vals, size_t count, int64_t all)
{
    const int64_t chunks = vals[1], chunk = vals[KRT_NUMBERS + count];
    const int64_t size = all / chunks, rest = all % chunks;
    const int64_t first = chunk * size + (chunk < rest ? chunk : rest);
    krt_share share = {first, first + size + (chunk < rest)};
    return share;
}

/* The same if each problem is split into `parts` parts. */
static inline krt_share krt_own_share(const int64_t *vals, size_t count, int64_t parts)
{
    return krt_share_of(vals, count, vals[0] * parts);
}

/* Report that problem `row` has no solution. The last report wins. */
static inline void krt_fail(void *status, int64_t row)
{
    /* As in ir/status.py: 1 plus the number of the check in the low eight bits. */
    __atomic_store_n((int64_t *)status, (int64_t)((uint64_t)row << 8 | 1), __ATOMIC_RELAXED);
}

#endif
