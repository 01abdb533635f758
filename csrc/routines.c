/* routines.c - the tables of all routines, and a search by name. */
#include "routines.h"

#include "cumsum.h"
#include "linalg.h"
#include "running.h"
#include "sort.h"

#include <stdlib.h>
#include <string.h>

static const krt_named order[] = {
    {"argsort_u32", krt_argsort_u32}, {"argsort_u64", krt_argsort_u64}, {NULL, NULL}};

const krt_named *krt_routine_table(int bits, int number)
{
    if (!krt_linalg(bits)) /* this processor lacks such vectors */
        return NULL;
    switch (number) {
    case 0: return order;
    case 1: return krt_linalg(bits);
    case 2: return krt_cumsum(bits);
    case 3: return krt_running(bits);
    default: return NULL;
    }
}

krt_routine *krt_find_routine(void *self, const char *name)
{
    (void)self;
    const char *at = strchr(name, '@');
    if (!at)
        return NULL;
    const size_t length = (size_t)(at - name);
    const int bits = atoi(at + 1);
    const krt_named *entry;
    for (int number = 0; (entry = krt_routine_table(bits, number)); ++number)
        for (; entry->name; ++entry)
            if (strlen(entry->name) == length && !memcmp(entry->name, name, length))
                return entry->at;
    return NULL;
}
