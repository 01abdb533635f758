#include "foreign.h"

typedef void function(void *const *bufs, const int64_t *vals);

void krt_each(void *const *bufs, const int64_t *vals)
{
    enum { HEAD = 3 };
    const int64_t rows = vals[0], n = vals[1];
    function *call = (function *)(uintptr_t)vals[2];
    const int64_t *slots = vals + HEAD, *bytes = slots + n, *sizes = bytes + n;
    void *row[KRT_EACH_MOST];
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < n; ++k)
            row[k] = (char *)bufs[slots[k]] + i * bytes[k];
        call(row, sizes);
    }
}
