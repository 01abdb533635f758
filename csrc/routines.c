/* routines.c - finds routines by name, for programs that run model files without Python. */
#include "routines.h"

#include "cumsum.h"
#include "linalg.h"
#include "sort.h"

#include <stdlib.h>
#include <string.h>

krt_routine *krt_find_routine(void *self, const char *name)
{
    static const krt_named order[] = {
        {"argsort_u32", krt_argsort_u32}, {"argsort_u64", krt_argsort_u64}, {NULL, NULL}};
    (void)self;
    const char *at = strchr(name, '@');
    if (!at)
        return NULL;
    const size_t length = (size_t)(at - name);
    const int bits = atoi(at + 1);
    const krt_named *tables[] = {order, krt_linalg(bits), krt_cumsum(bits)};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; ++t)
        for (const krt_named *entry = tables[t]; entry && entry->name; ++entry)
            if (strlen(entry->name) == length && !memcmp(entry->name, name, length))
                return entry->at;
    return NULL;
}
