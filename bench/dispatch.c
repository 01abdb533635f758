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
