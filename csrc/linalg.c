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

#define BODY "linalg_body.h"
#include "each_version.h"

const krt_named *krt_linalg(int bits)
{
    return krt_version(bits);
}
