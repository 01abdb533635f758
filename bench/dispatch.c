/* What dispatch is measured against: the least that C can do for a list of prepared kernels. */
#include <stddef.h>
#include <stdint.h>

typedef void (*kernel)(void *const *bufs, const int64_t *vals);

void empty_kernel(void *const *bufs, const int64_t *vals) {
    (void)bufs;
    (void)vals;
}

void add_kernel(void *const *bufs, const int64_t *vals) {
    float *restrict out = bufs[0];
    const float *restrict a = bufs[1], *restrict b = bufs[2];
    (void)vals;
    for (int i = 0; i < 16; i++) {
        out[i] = a[i] + b[i];
    }
}

void bare_loop(size_t repeat, size_t n, const kernel *kernels, void *const *const *bufs,
               const int64_t *const *vals) {
    while (repeat-- > 0) {
        for (size_t i = 0; i < n; i++) {
            kernels[i](bufs[i], vals[i]);
        }
    }
}

/* vals[0] dependent multiply-adds: work that takes time on a core and no memory bandwidth. */
void busy_kernel(void *const *bufs, const int64_t *vals) {
    float *restrict out = bufs[0];
    float value = out[0];
    for (int64_t i = 0; i < vals[0]; i++) {
        value = value * 0.999f + 0.5f;
    }
    out[0] = value;
}

/* vals[0] rounds of as many independent multiply-adds of whole vectors as hide their latency: the
 * most arithmetic that a core does. A round is ROUND_FLOPS operations. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
enum { INDEPENDENT = 12, LANES = VECTOR_BYTES / sizeof(float) };
typedef float vector __attribute__((vector_size(VECTOR_BYTES), aligned(4)));
const int64_t round_flops = 2 * INDEPENDENT * LANES;

void multiply_adds(void *const *bufs, const int64_t *vals) {
    vector sums[INDEPENDENT], rate = *(const vector *)bufs[0];
    for (int k = 0; k < INDEPENDENT; k++) {
        sums[k] = rate + (float)k;
    }
    for (int64_t i = 0; i < vals[0]; i++) {
        for (int k = 0; k < INDEPENDENT; k++) {
            sums[k] = sums[k] * rate + rate;
        }
    }
    for (int k = 1; k < INDEPENDENT; k++) {
        sums[0] += sums[k];
    }
    *(vector *)bufs[0] = sums[0] * 0.0f + 0.5f;
}
