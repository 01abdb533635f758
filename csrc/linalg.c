/* Linear algebra of small matrices: linalg_body.h, compiled once per instruction set. */
#include "linalg.h"
#include "versions.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_QR_STEPS = 60 }; /* maximum average number of steps per value; usually few are needed */

#define ON_STACK(name) _Alignas(64) REAL name[KRT_FRAME]

/* The numbers of workspace that follow the outputs of a result. */
static inline int64_t krt_workspace(int64_t work)
{
    return work > KRT_FRAME ? work + KRT_BLOCK : 0;
}

/* The first address after the outputs that is a multiple of 64 bytes. */
static inline void *krt_align_up(void *end)
{
    return (void *)(((uintptr_t)end + 63) / 64 * 64);
}

#define VERSION(name) name
#define VECTOR 16
#include "linalg_body.h"
#undef VERSION
#undef VECTOR

#if defined(__x86_64__)

#define VERSION(name) name##_256
#define VECTOR 32
BEGIN_256
#include "linalg_body.h"
END
#undef VERSION
#undef VECTOR

#define VERSION(name) name##_512
#define VECTOR 64
BEGIN_512
#include "linalg_body.h"
END
#undef VERSION
#undef VECTOR

#endif

const krt_named *krt_linalg(int bits)
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
