/* Cumulative sums: cumsum_body.h, compiled once per instruction set. */
#include "cumsum.h"
#include "versions.h"

#include <string.h>

enum { BLOCK = KRT_SUM_BLOCK, TILE = KRT_SUM_TILE, STRIP = KRT_SUM_STRIP };

/* A copy of a function for each constant argument. */
#define COPIED static inline __attribute__((always_inline))

#define VERSION(name) name
#define VECTOR 16
#include "cumsum_body.h"
#undef VERSION
#undef VECTOR

#if defined(__x86_64__)

#define VERSION(name) name##_256
#define VECTOR 32
BEGIN_256
#include "cumsum_body.h"
END
#undef VERSION
#undef VECTOR

#define VERSION(name) name##_512
#define VECTOR 64
BEGIN_512
#include "cumsum_body.h"
END
#undef VERSION
#undef VECTOR

#endif

const krt_named *krt_cumsum(int bits)
{
    if (!krt_runs(bits)) {
        return NULL;
    }
#if defined(__x86_64__)
    if (bits > 128) {
        return bits == 256 ? table_256 : table_512;
    }
#endif
    return table;
}
