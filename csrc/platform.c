/* platform.c - see platform.h; also the functions of krt.h that only query the system. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "platform.h"

#include "krt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#else
#include <pthread.h>
#include <sys/mman.h>
#endif

#define NS_PER_S 1000000000LL

int64_t krt_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- Waiting ----------------------------------------------------------------------------- */

#ifdef __linux__

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void krt_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    futex(word, FUTEX_WAIT, expected, timeout_ns < 0 ? NULL : &timeout);
}

void krt_wake(_Atomic uint32_t *word, int count)
{
    futex(word, FUTEX_WAKE, (uint32_t)count, NULL);
}

int krt_core(void) { return sched_getcpu(); }

int krt_thread_number(void) { return (int)syscall(SYS_gettid); }

void krt_keep_off(int core, int thread, krt_cores *cores)
{
    enum { BITS = 8 * sizeof *cores->allowed };
    unsigned long kept[KRT_CPU_WORDS];
    long nbytes = syscall(SYS_sched_getaffinity, thread, sizeof kept, cores->allowed);
    if (core < 0 || core >= KRT_CPU_WORDS * BITS || nbytes <= 0)
        return;
    size_t words = (size_t)nbytes / sizeof *kept;
    memset(cores->allowed + words, 0, sizeof kept - words * sizeof *kept);
    memcpy(kept, cores->allowed, sizeof kept);
    kept[core / BITS] &= ~(1UL << core % BITS);
    unsigned long others = 0;
    for (size_t i = 0; i < words; ++i)
        others |= kept[i];
    if (others && kept[core / BITS] != cores->allowed[core / BITS])
        cores->narrowed = !syscall(SYS_sched_setaffinity, thread, sizeof kept, kept);
}

void krt_allow_again(krt_cores *cores)
{
    if (!cores->narrowed)
        return;
    cores->narrowed = false;
    syscall(SYS_sched_setaffinity, 0, sizeof cores->allowed, cores->allowed);
}

#else

/* One queue for all words: waking is rare, and a thread woken for another word checks and sleeps
 * again. */
static pthread_mutex_t wait_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_queue = PTHREAD_COND_INITIALIZER;

void krt_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(timeout_ns / NS_PER_S);
    until.tv_nsec += (long)(timeout_ns % NS_PER_S);
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_nsec -= NS_PER_S;
        until.tv_sec += 1;
    }
    pthread_mutex_lock(&wait_mutex);
    if (atomic_load(word) == expected) {
        if (timeout_ns < 0)
            pthread_cond_wait(&wait_queue, &wait_mutex);
        else
            pthread_cond_timedwait(&wait_queue, &wait_mutex, &until);
    }
    pthread_mutex_unlock(&wait_mutex);
}

void krt_wake(_Atomic uint32_t *word, int count)
{
    (void)word;
    (void)count;
    pthread_mutex_lock(&wait_mutex);
    pthread_cond_broadcast(&wait_queue);
    pthread_mutex_unlock(&wait_mutex);
}

int krt_core(void) { return -1; }

int krt_thread_number(void) { return 0; }

void krt_keep_off(int core, int thread, krt_cores *cores)
{
    (void)core;
    (void)thread;
    (void)cores;
}

void krt_allow_again(krt_cores *cores) { (void)cores; }

#endif

/* ---- Memory ------------------------------------------------------------------------------ */

static void *aligned(size_t nbytes, size_t alignment, bool zero)
{
    void *memory = NULL;
    /* No allocator can serve more than PTRDIFF_MAX, and some check badly. */
    if (nbytes > PTRDIFF_MAX - alignment)
        return NULL;
    if (alignment <= _Alignof(max_align_t))
        memory = malloc(nbytes ? nbytes : 1);
    else if (posix_memalign(&memory, alignment, nbytes ? nbytes : 1))
        return NULL;
    if (zero && memory)
        memset(memory, 0, nbytes);
    return memory;
}

#ifdef KRT_TEST_HOOKS

static _Atomic long allocs_until_failure;
static _Atomic long threads_until_failure;
static _Atomic long live_allocs;

void krt_test_fail_alloc(long nth) { allocs_until_failure = nth; }
void krt_test_fail_thread(long nth) { threads_until_failure = nth; }
bool krt_test_thread_fails(void) { return threads_until_failure && !--threads_until_failure; }
long krt_test_live_allocs(void) { return live_allocs; }

void *krt_alloc(size_t nbytes)
{
    if (allocs_until_failure && !--allocs_until_failure)
        return NULL;
    void *memory = aligned(nbytes, KRT_CACHE_LINE, true);
    live_allocs += memory != NULL;
    return memory;
}

void krt_free(void *memory)
{
    live_allocs -= memory != NULL;
    free(memory);
}

#else

void *krt_alloc(size_t nbytes) { return aligned(nbytes, KRT_CACHE_LINE, true); }
void krt_free(void *memory) { free(memory); }

#endif

/* Blocks of a huge page or more use huge pages. Small pages cost TLB misses, and hardware
 * prefetching stops at their ends: on a Zen 4, sums of 4096 x 4096 numbers take 1.3 times as long
 * with them, a layer norm of 1024 x 1024 with its gradient 1.6 times (`python -m bench.report
 * rows`).
 *
 * Equal offsets in aligned blocks map to the same cache set, so a kernel that reads several blocks
 * together gets conflict misses: with four blocks of 262,144 numbers it takes twice as long. So
 * each block begins half a page and a cache line further than the previous one. */
enum { HUGE_PAGE = 1 << 21, APART = 2048 + KRT_CACHE_LINE, BEGINNINGS = 16 };
_Static_assert(APART * BEGINNINGS <= HUGE_PAGE, "memory begins in its first huge page");

void *krt_memory_alloc(size_t nbytes, size_t alignment, bool zero)
{
    static _Atomic unsigned taken;
    if (nbytes < HUGE_PAGE)
        return aligned(nbytes, alignment, zero);
    if (nbytes > PTRDIFF_MAX - HUGE_PAGE)
        return NULL;
    size_t begin = (size_t)APART * (atomic_fetch_add(&taken, 1) % BEGINNINGS);
    begin &= ~(alignment - 1);
    char *memory = aligned(begin + nbytes, alignment > HUGE_PAGE ? alignment : HUGE_PAGE, false);
    if (!memory)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, begin + nbytes, MADV_HUGEPAGE); /* a failure has no effect */
#endif
    if (zero)
        memset(memory + begin, 0, nbytes);
    return memory + begin;
}

void krt_memory_free(void *memory, size_t nbytes)
{
    uintptr_t address = (uintptr_t)memory;
    free((void *)(nbytes < HUGE_PAGE ? address : address & ~(uintptr_t)(HUGE_PAGE - 1)));
}

#ifdef __APPLE__
#define KRT_DISCARD MADV_FREE
#elif defined(MADV_DONTNEED)
#define KRT_DISCARD MADV_DONTNEED
#endif

void krt_memory_discard(void *memory, size_t nbytes)
{
#ifdef KRT_DISCARD
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t last = ((uintptr_t)memory + nbytes) & ~(page - 1);
    if (first < last)
        madvise((void *)first, last - first, KRT_DISCARD); /* a failure has no effect */
#else
    (void)memory, (void)nbytes;
#endif
}

/* ---- Memory for machine code ------------------------------------------------------------- */

void *krt_code_map(size_t nbytes)
{
    void *code = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code == MAP_FAILED ? NULL : code;
}

int krt_code_finish(void *code, size_t nbytes)
{
    if (mprotect(code, nbytes, PROT_READ | PROT_EXEC))
        return errno;
    __builtin___clear_cache(code, (char *)code + nbytes);
    return 0;
}

void krt_code_unmap(void *code, size_t nbytes) { munmap(code, nbytes); }

/* ---- Number of CPUs ---------------------------------------------------------------------- */

#ifdef __linux__

int krt_affinity_count(void)
{
    /* The kernel rejects a mask smaller than its own, so grow the mask until it fits. */
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        if (!mask)
            return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int failed = sched_getaffinity(0, size, mask);
        int error = errno;
        int count = failed ? 0 : CPU_COUNT_S(size, mask);
        CPU_FREE(mask);
        if (!failed)
            return count > 0 ? count : 1;
        if (error != EINVAL)
            return 1;
    }
    return 1;
}

/* The limit in the files of one group, in thousandths of a CPU; 0: none. */
static int64_t group_limit(const char *root, const char *group, bool unified)
{
    char path[PATH_MAX];
    long long quota = -1, period = 0;
    int length = snprintf(path, sizeof path, "%s%s/%s", root, group,
                          unified ? "cpu.max" : "cpu.cfs_quota_us");
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    int fields = fscanf(file, "%lld %lld", &quota, &period); /* "max" matches no field */
    fclose(file);
    if (!unified) {
        snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", root, group);
        file = fopen(path, "re");
        if (!file)
            return 0;
        fields += fscanf(file, "%lld", &period);
        fclose(file);
    }
    if (fields != 2 || quota <= 0 || period <= 0 || quota > LLONG_MAX / 1000)
        return 0;
    int64_t milli = quota * 1000 / period;
    return milli > 0 ? milli : 1;
}

/* The lowest limit from `group` up to the root of its hierarchy. Modifies `group`. */
static int64_t hierarchy_limit(const char *root, char *group, bool unified)
{
    int64_t tightest = 0;
    for (;;) {
        int64_t limit = group_limit(root, group, unified);
        if (limit && (!tightest || limit < tightest))
            tightest = limit;
        char *slash = strrchr(group, '/');
        if (!slash)
            return tightest;
        *slash = '\0';
    }
}

/* Whether `name` is one of the comma-separated `controllers`. */
static bool has_controller(const char *controllers, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = controllers; (at = strstr(at, name)); at += length)
        if ((at == controllers || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

int64_t krt_cgroup_milli_cpus(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return 0;
    char line[PATH_MAX + 64];
    int64_t tightest = 0;
    while (fgets(line, sizeof line, file)) {
        /* hierarchy-ID:controllers:path */
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(++controllers, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        bool unified = *controllers == '\0';
        if (!unified && !has_controller(controllers, "cpu"))
            continue;
        if (!strcmp(path, "/"))
            *path = '\0';
        int64_t limit = hierarchy_limit(unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", path,
                                        unified);
        if (limit && (!tightest || limit < tightest))
            tightest = limit;
    }
    fclose(file);
    return tightest;
}

#else

int krt_affinity_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count < INT_MAX ? (int)count : 1;
}

int64_t krt_cgroup_milli_cpus(void) { return 0; }

#endif
