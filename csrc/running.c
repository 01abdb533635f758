/* Running products, recurrences and extremes: running_body.h, compiled once per instruction set. */
#include "running.h"
#include "versions.h"

#include <math.h>
#include <string.h>

/* FOUR: contiguous rows that are multiplied in turn; TILE: elements of each that are copied; BLOCK:
 * rows of a product whose gradient is computed at once, for COLUMNS columns. */
enum { STRIP = KRT_RUN_STRIP, FOUR = 4, TILE = 64, BLOCK = 16, COLUMNS = 64 };

typedef enum krt_rule { KRT_GREATEST, KRT_LEAST, KRT_LEVEL } krt_rule;

/* A copy of a function for each constant argument. */
#define COPIED static inline __attribute__((always_inline))

#define BODY "running_body.h"
#include "each_version.h"

const krt_named *krt_running(int bits)
{
    return krt_version(bits);
}
