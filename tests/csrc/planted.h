/* planted.h - the same defects in C. */
#include <limits.h>
#include <stdlib.h>

static inline int planted_overflow(int n)
{
    volatile char *memory = malloc((size_t)n);
    if (!memory)
        return 0;
    memory[n] = 1;
    int found = memory[n];
    free((void *)memory);
    return found;
}

static inline int planted_use_after_free(int n)
{
    volatile char *memory = malloc((size_t)n);
    if (!memory)
        return 0;
    memory[0] = 1;
    free((void *)memory);
    return memory[0];
}

static inline int planted_undefined(int n)
{
    volatile int most = INT_MAX;
    return most + n;
}

static inline void planted_count(int n)
{
    static volatile int counted;
    for (int i = 0; i < n; ++i)
        counted = counted + 1;
}
