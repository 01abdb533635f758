/*
 * Routines: functions with the calling convention of kernels, for what loops over elements do not
 * say.
 *
 * bufs[0] is the result, the others are the operands; where a routine may fail, the last one is
 * the status word. All are arrays in row-major order, and none overlaps the result. vals holds
 * the number of problems, into how many calls they are shared, the routine's own numbers, and
 * last which of these calls this one is.
 *
 * Routines allocate nothing and keep nothing: what they need beside the result is part of it.
 */
#ifndef KRT_ROUTINES_H
#define KRT_ROUTINES_H

#include <stddef.h>
#include <stdint.h>

typedef void krt_routine(void *const *bufs, const int64_t *vals);

/* The problems of one call: from `first` up to `last`, which it does not solve. */
typedef struct krt_share {
    int64_t first, last;
} krt_share;

enum { KRT_NUMBERS = 2 }; /* where in vals the routine's own numbers begin */

/* `count` is how many numbers the routine takes. */
static inline krt_share krt_own_share(const int64_t *vals, size_t count)
{
    const int64_t rows = vals[0], chunks = vals[1], chunk = vals[KRT_NUMBERS + count];
    const int64_t size = rows / chunks, rest = rows % chunks;
    const int64_t first = chunk * size + (chunk < rest ? chunk : rest);
    krt_share share = {first, first + size + (chunk < rest)};
    return share;
}

/* Tell that problem `row` has no solution; whoever comes last is heard. */
static inline void krt_fail(void *status, int64_t row)
{
    /* As ir/status.py has it: 1 plus the number of the check in the low eight bits. */
    __atomic_store_n((int64_t *)status, (int64_t)((uint64_t)row << 8 | 1), __ATOMIC_RELAXED);
}

#endif
