/*
 * Includes BODY, which defines a table of functions, once for each instruction set. There, VERSION
 * adds the version to a name, and VECTOR is the size of vectors in bytes.
 */
#define VERSION(name) name
#define VECTOR 16
#include BODY
#undef VERSION
#undef VECTOR

#if defined(__x86_64__)

#define VERSION(name) name##_256
#define VECTOR 32
BEGIN_256
#include BODY
END
#undef VERSION
#undef VECTOR

#define VERSION(name) name##_512
#define VECTOR 64
BEGIN_512
#include BODY
END
#undef VERSION
#undef VECTOR

#endif

/* Return the table for vectors of `bits` bits; NULL if this processor does not run it. */
static const krt_named *krt_version(int bits)
{
    if (!krt_runs(bits)) {
        return NULL;
    }
#if defined(__x86_64__)
    if (bits > 128) {
        return bits == 256 ? table_256 : table_512;
    }
#endif
    return table;
}
