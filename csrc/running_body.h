/* Included by running.c for each version: the routines of all dtypes. */

/* Comparisons of vectors of 512 bits give masks, which take longer to combine. */
enum { VERSION(BYTES) = VECTOR > 32 ? 32 : VECTOR };
typedef uint64_t VERSION(words) __attribute__((vector_size(VERSION(BYTES))));

#define NAME(name) VERSION(name##_float32)
#define ELEMENT float
#define SUM double
#define FLOATS 1
#include "running_chains.h"
#include "running_slopes.h"
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_float64)
#define ELEMENT double
#include "running_chains.h"
#include "running_slopes.h"
#include "running_records.h"
#undef NAME
#undef ELEMENT
#undef SUM
#undef FLOATS

#define FLOATS 0

#define NAME(name) VERSION(name##_int64)
#define ELEMENT int64_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_int32)
#define ELEMENT int32_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_int16)
#define ELEMENT int16_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_int8)
#define ELEMENT int8_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_uint64)
#define ELEMENT uint64_t
#define SUM uint64_t
#include "running_chains.h"
#include "running_records.h"
#undef NAME
#undef ELEMENT
#undef SUM

#define NAME(name) VERSION(name##_uint32)
#define ELEMENT uint32_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_uint16)
#define ELEMENT uint16_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#define NAME(name) VERSION(name##_uint8)
#define ELEMENT uint8_t
#include "running_records.h"
#undef NAME
#undef ELEMENT

#undef FLOATS

#define ENTRY(name, dtype, kind) {#name "_" #dtype, VERSION(krt_##name##_##kind)}
#define RECORDS(dtype, kind)                                        \
    ENTRY(cummax, dtype, kind), ENTRY(cummin, dtype, kind),         \
        ENTRY(argcummax, dtype, kind), ENTRY(argcummin, dtype, kind)
static const krt_named VERSION(table)[] = {
    RECORDS(float32, float32), RECORDS(float64, float64), RECORDS(int8, int8),
    RECORDS(int16, int16), RECORDS(int32, int32), RECORDS(int64, int64), RECORDS(bool, uint8),
    RECORDS(uint8, uint8), RECORDS(uint16, uint16), RECORDS(uint32, uint32),
    RECORDS(uint64, uint64), ENTRY(cumprod, float32, float32), ENTRY(cumprod, float64, float64),
    ENTRY(cumprod, int64, uint64), ENTRY(recurrence, float32, float32),
    ENTRY(recurrence, float64, float64), ENTRY(level, float32, float32),
    ENTRY(level, float64, float64), ENTRY(slopes, float32, float32),
    ENTRY(slopes, float64, float64), {NULL, NULL},
};
#undef RECORDS
#undef ENTRY
