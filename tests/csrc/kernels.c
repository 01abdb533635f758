/* Hand-made kernels for the tests of the boundary; the signature is that of compiled ones. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* out[0 .. n) += a[0 .. n); vals = (n,) */
void add(void *const *bufs, const int64_t *vals)
{
    float *out = bufs[0];
    const float *a = bufs[1];
    for (int64_t i = 0; i < vals[0]; ++i)
        out[i] += a[i];
}

void nothing(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
}

/* Ctrl-C, at this point of the plan. */
void interrupt(void *const *bufs, const int64_t *vals)
{
    (void)bufs;
    (void)vals;
    kill(getpid(), SIGINT);
}

/* log[core_id] += scale; vals = (scale, core_id) */
void mark(void *const *bufs, const int64_t *vals)
{
    int64_t *log = bufs[0];
    log[vals[1]] += vals[0];
}

/* *counter += 1, and the status word becomes vals[0]. */
void fail(void *const *bufs, const int64_t *vals)
{
    *(int64_t *)bufs[0] += 1;
    *(int64_t *)bufs[1] = vals[0];
}

/* Waits until *counter is at least `wanted`, for some seconds at most; whether it is. */
int reaches(const int64_t *counter, int64_t wanted, int64_t seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t until = now.tv_sec + seconds;
    while (__atomic_load_n(counter, __ATOMIC_RELAXED) < wanted && now.tv_sec < until) {
        usleep(100);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return __atomic_load_n(counter, __ATOMIC_RELAXED) >= wanted;
}

/* Takes vals[0] microseconds of processor time, then counts in bufs[0]. */
void burn(void *const *bufs, const int64_t *vals)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 <
           vals[0]);
    __atomic_fetch_add((int64_t *)bufs[0], 1, __ATOMIC_RELAXED);
}

/* Counts itself in bufs[0] and waits until vals[0] were counted: those are within at the same time,
 * on threads of their own. Gives up after vals[1] microseconds, and counts that in bufs[1]. */
void meet(void *const *bufs, const int64_t *vals)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    __atomic_fetch_add((int64_t *)bufs[0], 1, __ATOMIC_RELAXED);
    while (__atomic_load_n((int64_t *)bufs[0], __ATOMIC_RELAXED) < vals[0]) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 >
            vals[1]) {
            __atomic_fetch_add((int64_t *)bufs[1], 1, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Needs two megabytes of stack, as a user's kernel may; counts in bufs[0]. */
void deep(void *const *bufs, const int64_t *vals)
{
    volatile char scratch[2 << 20];
    for (size_t i = 0; i < sizeof scratch; i += 4096)
        scratch[i] = (char)vals[0];
    __atomic_fetch_add((int64_t *)bufs[0], 1 + scratch[4096], __ATOMIC_RELAXED);
}
