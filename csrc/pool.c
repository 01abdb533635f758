/* pool.c - how many threads a plan may use. */
#include "krt.h"
#include "platform.h"

#include <stdlib.h>

static _Atomic int limit;     /* 0: not yet read */
static _Atomic int requested; /* 0: as many as allowed */

static int read_limit(void)
{
    int threads = krt_affinity_count();
    int64_t quota = krt_cgroup_milli_cpus();
    if (quota && (quota + 999) / 1000 < threads)
        threads = (int)((quota + 999) / 1000);
    const char *text = getenv("KERNELRT_THREADS");
    char *end = NULL;
    long wanted = text ? strtol(text, &end, 10) : 0;
    if (wanted > 0 && *end == '\0' && wanted < threads)
        threads = (int)wanted;
    return threads;
}

int krt_pool_limit(void)
{
    int threads = atomic_load_explicit(&limit, memory_order_relaxed);
    if (!threads) {
        threads = read_limit();
        atomic_store_explicit(&limit, threads, memory_order_relaxed);
    }
    return threads;
}

int krt_get_num_threads(void)
{
    int threads = atomic_load_explicit(&requested, memory_order_relaxed);
    return threads && threads < krt_pool_limit() ? threads : krt_pool_limit();
}

void krt_set_num_threads(int n)
{
    atomic_store_explicit(&requested, n < 1 ? 1 : n, memory_order_relaxed);
}

bool krt_pool_take_start_failure(void) { return false; }
