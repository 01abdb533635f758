/* Cumulative sums: cumsum_body.h, compiled once per instruction set. */
#include "cumsum.h"
#include "versions.h"

#include <string.h>

enum { BLOCK = KRT_SUM_BLOCK, TILE = KRT_SUM_TILE, STRIP = KRT_SUM_STRIP };

/* A copy of a function for each constant argument. */
#define COPIED static inline __attribute__((always_inline))

#define BODY "cumsum_body.h"
#include "each_version.h"

const krt_named *krt_cumsum(int bits)
{
    return krt_version(bits);
}
