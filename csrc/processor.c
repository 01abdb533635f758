/* processor.c - the features of this processor, under LLVM's names. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>

/* In a virtual machine, each CPUID takes 10 to 20 us: read what the C library read at its start. */
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
#include <sys/platform/x86.h>
#define HAS_CPUID_FEATURE_LEAF
#endif
#endif

typedef struct feature {
    const char *name;
    unsigned leaf, subleaf;
    char reg;          /* a, b, c or d: the register of CPUID */
    unsigned char bit;
    char state;        /* registers that the system must save: y for 256 bits, z for 512, else 0 */
} feature;

/* Intel's Software Developer's Manual, volume 2, CPUID; AMD's Programmer's Manual, volume 3. */
static const feature features[] = {
    {"sse", 1, 0, 'd', 25, 0},         {"sse2", 1, 0, 'd', 26, 0},
    {"sse3", 1, 0, 'c', 0, 0},         {"pclmul", 1, 0, 'c', 1, 0},
    {"ssse3", 1, 0, 'c', 9, 0},        {"fma", 1, 0, 'c', 12, 'y'},
    {"cx16", 1, 0, 'c', 13, 0},        {"sse4.1", 1, 0, 'c', 19, 0},
    {"sse4.2", 1, 0, 'c', 20, 0},      {"crc32", 1, 0, 'c', 20, 0},
    {"movbe", 1, 0, 'c', 22, 0},       {"popcnt", 1, 0, 'c', 23, 0},
    {"aes", 1, 0, 'c', 25, 0},         {"xsave", 1, 0, 'c', 27, 0},
    {"avx", 1, 0, 'c', 28, 'y'},       {"f16c", 1, 0, 'c', 29, 'y'},
    {"bmi", 7, 0, 'b', 3, 0},          {"avx2", 7, 0, 'b', 5, 'y'},
    {"bmi2", 7, 0, 'b', 8, 0},         {"avx512f", 7, 0, 'b', 16, 'z'},
    {"avx512dq", 7, 0, 'b', 17, 'z'},  {"adx", 7, 0, 'b', 19, 0},
    {"avx512ifma", 7, 0, 'b', 21, 'z'}, {"avx512cd", 7, 0, 'b', 28, 'z'},
    {"avx512bw", 7, 0, 'b', 30, 'z'},  {"avx512vl", 7, 0, 'b', 31, 'z'},
    {"avx512vbmi", 7, 0, 'c', 1, 'z'}, {"avx512vbmi2", 7, 0, 'c', 6, 'z'},
    {"gfni", 7, 0, 'c', 8, 0},         {"vaes", 7, 0, 'c', 9, 'y'},
    {"vpclmulqdq", 7, 0, 'c', 10, 'y'}, {"avx512vnni", 7, 0, 'c', 11, 'z'},
    {"avx512bitalg", 7, 0, 'c', 12, 'z'}, {"avx512vpopcntdq", 7, 0, 'c', 14, 'z'},
    {"avx512vp2intersect", 7, 0, 'd', 8, 'z'}, {"avx512fp16", 7, 0, 'd', 23, 'z'},
    {"avxvnni", 7, 1, 'a', 4, 'y'},    {"avx512bf16", 7, 1, 'a', 5, 'z'},
    {"avxifma", 7, 1, 'a', 23, 'y'},   {"avxvnniint8", 7, 1, 'd', 4, 'y'},
    {"avxneconvert", 7, 1, 'd', 5, 'y'}, {"avxvnniint16", 7, 1, 'd', 10, 'y'},
    {"evex512", 7, 0, 'b', 16, 'z'},   {"avx10.1", 7, 1, 'd', 19, 'z'},
    {"egpr", 7, 1, 'd', 21, 0},        {"push2pop2", 7, 1, 'd', 21, 0},
    {"ppx", 7, 1, 'd', 21, 0},         {"ndd", 7, 1, 'd', 21, 0},
    {"ccmp", 7, 1, 'd', 21, 0},        {"cf", 7, 1, 'd', 21, 0},
    {"nf", 7, 1, 'd', 21, 0},          {"zu", 7, 1, 'd', 21, 0},
    {"sahf", 0x80000001, 0, 'c', 0, 0}, {"lzcnt", 0x80000001, 0, 'c', 5, 0},
    {"sse4a", 0x80000001, 0, 'c', 6, 0}, {"xop", 0x80000001, 0, 'c', 11, 'y'},
    {"fma4", 0x80000001, 0, 'c', 16, 'y'}, {"tbm", 0x80000001, 0, 'c', 21, 0},
};

/* What CPUID and XGETBV tell. */
typedef struct processor {
    unsigned of[4][4]; /* registers a to d of the leaves 1, 7, 7 with subleaf 1, and 0x80000001 */
    unsigned saved;    /* registers that the system saves: bits of XCR0 */
} processor;

static int leaf_of(const feature *f)
{
    return f->leaf == 1 ? 0 : f->leaf == 7 ? 1 + (int)f->subleaf : 3;
}

/* Write the registers a to d of a leaf; zeros if the processor does not have it. */
static void cpuid(unsigned leaf, unsigned subleaf, unsigned of[4])
{
#ifdef HAS_CPUID_FEATURE_LEAF
    static const struct {
        unsigned leaf, subleaf, index;
    } known[] = {
        {1, 0, CPUID_INDEX_1}, {7, 0, CPUID_INDEX_7}, {7, 1, CPUID_INDEX_7_ECX_1},
        {0x19, 0, CPUID_INDEX_19}, {0xD, 1, CPUID_INDEX_D_ECX_1},
        {0x80000001, 0, CPUID_INDEX_80000001}, {0x80000008, 0, CPUID_INDEX_80000008},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        if (known[i].leaf == leaf && known[i].subleaf == subleaf) {
            memcpy(of, __x86_get_cpuid_feature_leaf(known[i].index)->cpuid_array, 4 * sizeof *of);
            return;
        }
#endif
    memset(of, 0, 4 * sizeof *of);
    __get_cpuid_count(leaf, subleaf, &of[0], &of[1], &of[2], &of[3]);
}

static void ask(processor *here)
{
    cpuid(1, 0, here->of[0]);
    cpuid(7, 0, here->of[1]);
    cpuid(7, 1, here->of[2]);
    if (here->of[1][0] < 1) /* the last subleaf of leaf 7 */
        memset(here->of[2], 0, sizeof here->of[2]);
    cpuid(0x80000001, 0, here->of[3]);
    here->saved = 0;
    if (here->of[0][2] >> 27 & 1) {
        unsigned high;
        __asm__ volatile("xgetbv" : "=a"(here->saved), "=d"(high) : "c"(0));
    }
}

static bool has(const processor *here, const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; ++i) {
        const feature *f = features + i;
        if (strlen(f->name) != length || memcmp(f->name, name, length))
            continue;
        const unsigned needs = f->state == 'z' ? 0xE6 : f->state == 'y' ? 0x6 : 0;
        return here->of[leaf_of(f)][f->reg - 'a'] >> f->bit & 1 && (here->saved & needs) == needs;
    }
    return false; /* unknown: it may be missing */
}

const char *krt_processor(void) { return "x86_64"; }

void krt_processor_identity(char *out, size_t nbytes)
{
    /* Leaf, subleaf, and the registers that LLVM reads. Bits of other registers change from core to
     * core. */
    static const struct {
        unsigned leaf, subleaf;
        const char *registers;
    } asked[] = {
        {0, 0, "abcd"}, {1, 0, "acd"}, {7, 0, "abcd"}, {7, 1, "abcd"}, {0xD, 1, "a"},
        {0x14, 0, "b"}, {0x19, 0, "b"}, {0x1E, 1, "a"}, {0x24, 0, "b"}, {0x80000001, 0, "cd"},
        {0x80000008, 0, "b"},
    };
    processor here;
    ask(&here);
    size_t n = (size_t)snprintf(out, nbytes, "%x", here.saved);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; ++i) {
        unsigned of[4];
        cpuid(asked[i].leaf, asked[i].subleaf, of);
        for (const char *reg = asked[i].registers; *reg && n < nbytes; ++reg)
            n += (size_t)snprintf(out + n, nbytes - n, " %x", of[*reg - 'a']);
    }
}

const char *krt_processor_target(void)
{
    static const char *const levels[][2] = {
        {"x86-64-v4", "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"},
        {"x86-64-v3", "avx2,fma,f16c,bmi,bmi2,lzcnt,movbe"},
        {"x86-64-v2", "sse4.2,popcnt,ssse3"},
    };
    char lacking[256];
    for (size_t i = 0; i < sizeof levels / sizeof *levels; ++i)
        if (!krt_processor_lacks(levels[i][1], lacking, sizeof lacking))
            return levels[i][0];
    return "x86-64";
}

#elif defined(__aarch64__)

#ifdef __linux__
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

typedef struct feature {
    const char *name;
    int word; /* of the auxiliary vector: 1 for AT_HWCAP, 2 for AT_HWCAP2 */
    int bit;
    const char *apple; /* name for sysctl, after "hw.optional.arm." */
} feature;

/* Linux: arch/arm64/include/uapi/asm/hwcap.h; macOS: sysctl hw.optional.arm. */
static const feature features[] = {
    {"fp-armv8", 1, 0, NULL},           {"neon", 1, 1, NULL},
    {"aes", 1, 3, "FEAT_AES"},          {"crc", 1, 7, "FEAT_CRC32"},
    {"lse", 1, 8, "FEAT_LSE"},          {"fullfp16", 1, 10, "FEAT_FP16"},
    {"rdm", 1, 12, "FEAT_RDM"},         {"rcpc", 1, 15, "FEAT_LRCPC"},
    {"dotprod", 1, 20, "FEAT_DotProd"}, {"sve", 1, 22, "FEAT_SVE"},
    {"sve2", 2, 1, "FEAT_SVE2"},        {"i8mm", 2, 13, "FEAT_I8MM"},
    {"bf16", 2, 14, "FEAT_BF16"},
};

typedef struct processor {
    char unused;
} processor;

static void ask(processor *here) { here->unused = 0; }

static bool has(const processor *here, const char *name, size_t length)
{
    (void)here;
    for (size_t i = 0; i < sizeof features / sizeof *features; ++i) {
        const feature *f = features + i;
        if (strlen(f->name) != length || memcmp(f->name, name, length))
            continue;
#ifdef __linux__
        return getauxval(f->word == 1 ? AT_HWCAP : AT_HWCAP2) >> f->bit & 1;
#elif defined(__APPLE__)
        char key[64];
        int value = 0;
        size_t nbytes = sizeof value;
        if (!f->apple)
            return true;
        snprintf(key, sizeof key, "hw.optional.arm.%s", f->apple);
        return !sysctlbyname(key, &value, &nbytes, NULL, 0) && value;
#endif
    }
    return false;
}

const char *krt_processor(void) { return "aarch64"; }

const char *krt_processor_target(void)
{
    processor here;
    ask(&here);
    if (has(&here, "i8mm", 4))
        return "armv8.6-a";
    return has(&here, "dotprod", 7) ? "armv8.2-a" : "armv8-a";
}

#else

typedef struct processor {
    char unused;
} processor;

static void ask(processor *here) { here->unused = 0; }

static bool has(const processor *here, const char *name, size_t length)
{
    (void)here, (void)name, (void)length;
    return false;
}

const char *krt_processor(void) { return "an unknown processor"; }
const char *krt_processor_target(void) { return "native"; }

#endif

#ifndef __x86_64__
void krt_processor_identity(char *out, size_t nbytes)
{
    if (nbytes)
        *out = '\0';
}
#endif

bool krt_processor_lacks(const char *list, char *out, size_t nbytes)
{
    size_t n = 0;
    processor here;
    ask(&here);
    out[0] = '\0';
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length && !has(&here, list, length) && n + length + 3 < nbytes)
            n += (size_t)snprintf(out + n, nbytes - n, "%s%.*s", n ? ", " : "", (int)length, list);
        list += length + (list[length] == ',');
    }
    return n > 0;
}
