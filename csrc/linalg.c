/*
 * Linear algebra of small matrices: linalg_body.h, compiled once per instruction set.
 *
 * Function multiversioning by the compiler (target_clones) needs features that some linkers and
 * sanitizers lack; so the file is included several times with different target settings.
 */
#include "linalg.h"

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

#define DO(text) _Pragma(#text)
#if defined(__clang__)
#define BEGIN(features) \
    DO(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END DO(clang attribute pop)
#else
#define BEGIN(features) DO(GCC push_options) DO(GCC target(features))
#define END DO(GCC pop_options)
#endif

#define VERSION(name) name
#define VECTOR 16
#include "linalg_body.h"
#undef VERSION
#undef VECTOR

#if defined(__x86_64__)

#define VERSION(name) name##_256
#define VECTOR 32
BEGIN("avx2,fma")
#include "linalg_body.h"
END
#undef VERSION
#undef VECTOR

#define VERSION(name) name##_512
#define VECTOR 64
BEGIN("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#include "linalg_body.h"
END
#undef VERSION
#undef VECTOR

#endif

const krt_named *krt_linalg(int bits)
{
    if (bits == 128) {
        return table;
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (bits == 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return table_256;
    }
    if (bits == 512 && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return table_512;
    }
#endif
    return NULL;
}
