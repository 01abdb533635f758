/*
 * Code for several instruction sets. A file includes its body once for each, between BEGIN and END.
 *
 * Function multiversioning by the compiler (target_clones) needs features that some linkers and
 * sanitizers lack.
 */
#ifndef KRT_VERSIONS_H
#define KRT_VERSIONS_H

#define DO(text) _Pragma(#text)
#if defined(__clang__)
#define BEGIN(features) \
    DO(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END DO(clang attribute pop)
#else
#define BEGIN(features) DO(GCC push_options) DO(GCC target(features))
#define END DO(GCC pop_options)
#endif

#define BEGIN_256 BEGIN("avx2,fma")
#define BEGIN_512 BEGIN("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")

/* Whether this processor runs the version for vectors of `bits` bits. */
static inline int krt_runs(int bits)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    const int wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (bits == 256) {
        return wide;
    }
    if (bits == 512) {
        return wide && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw");
    }
#endif
    return bits == 128;
}

#endif
