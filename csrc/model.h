/* model.h - the format of model files, and the processor that a model needs.
 *
 * A file is a header, a table of sections, and the sections, each at a multiple of 64 bytes. All
 * numbers are little endian. Sections are arrays of one type; items refer to each other by index,
 * and to memory by *places*: offsets in the one block of memory that the model has. DATA is the
 * initial content of the first bytes of that block; the rest is written before it is read. CODE runs at any
 * address. kernelrt/runtime/image.py writes the format. */
#ifndef KRT_MODEL_FORMAT_H
#define KRT_MODEL_FORMAT_H

#include "krt.h"

#define KRT_MODEL_MAGIC "krtmodel"
#define KRT_MODEL_VERSION 1

typedef enum krt_section {
    KRT_S_MODEL, KRT_S_CODE, KRT_S_DATA, KRT_S_TEXT, KRT_S_INTS, KRT_S_ROUTINES, KRT_S_PLANS,
    KRT_S_OPS, KRT_S_REGIONS, KRT_S_VARS, KRT_S_SIZES, KRT_S_CHECKS, KRT_S_FUNCS, KRT_S_PORTS,
    KRT_N_SECTIONS
} krt_section;

typedef struct krt_r_header {
    char magic[8];
    uint32_t version, n_sections;
    uint64_t nbytes; /* of the file */
    uint32_t crc;    /* of the table of sections */
    uint32_t unused;
} krt_r_header;

typedef struct krt_r_section {
    char name[8];
    uint64_t offset, nbytes;
    uint32_t crc, unused;
} krt_r_section;

/* Items `first` to `first + n` of a section. */
typedef struct krt_r_range {
    uint32_t first, n;
} krt_r_range;

/* The one item of MODEL. Texts are offsets in TEXT, whose strings end with a null byte. */
typedef struct krt_r_model {
    uint32_t architecture, features, cpu, maker; /* texts */
    uint32_t python;                             /* text: see krt_model_python */
    uint32_t unused;
    krt_r_range states; /* in PORTS */
    int64_t memory;     /* bytes */
    int64_t thread_costs[4];
} krt_r_model;

typedef struct krt_r_plan {
    krt_r_range ops, variables, sizes;
    uint32_t writes_state, unused;
    int64_t stack_bytes;
} krt_r_plan;

/* Places below 0 in the buffers of an op. */
enum { KRT_PLACE_STATUS = -1 /* the status word */, KRT_PLACE_PORT = -2 /* bound by a region */ };

typedef struct krt_r_op {
    uint32_t kind, flags;
    int64_t code; /* offset in CODE; -1 - i: routine i */
    int64_t chunks, core_slot, cost_ns, slices;
    krt_r_range bufs, vals, deps; /* in INTS */
    krt_r_range checks;
    uint32_t region; /* 1 + index in REGIONS; 0: none */
    uint32_t name;   /* text */
} krt_r_op;

typedef struct krt_r_region {
    krt_r_range bodies, copies, bindings; /* in INTS: numbers, triples, and rows of six numbers */
    uint32_t reverse, title;
    int64_t count, count_slot, condition_slot, choice_slot;
} krt_r_region;

typedef struct krt_r_variable {
    uint32_t name, unused;
    int64_t least, most, initial;
} krt_r_variable;

enum { KRT_SIZE_VALUE = 0, KRT_SIZE_CHUNKS = 1 };

/* A value or a number of chunks that follows from variables. */
typedef struct krt_r_size {
    uint32_t op, slot, kind, unused;
    krt_r_range code; /* a program in INTS: pairs of a krt_code and its argument */
} krt_r_size;

/* Instructions of a stack machine on integers. KRT_C_CONST and KRT_C_VAR push their argument or the
 * variable of this number; the others replace the topmost numbers by their result. */
typedef enum krt_code {
    KRT_C_CONST, KRT_C_VAR, KRT_C_NEG, KRT_C_ABS, KRT_C_NOT, KRT_C_TRUTH, KRT_C_CAST, KRT_C_ADD,
    KRT_C_SUB, KRT_C_MUL, KRT_C_MAX, KRT_C_MIN, KRT_C_AND, KRT_C_OR, KRT_C_XOR, KRT_C_LT, KRT_C_LE,
    KRT_C_EQ, KRT_C_NE, KRT_C_IDIV, KRT_C_MOD, KRT_C_SHL, KRT_C_SHR, KRT_C_WHERE,
    KRT_N_CODES
} krt_code;

typedef struct krt_r_check {
    int32_t number; /* of the check in the status word; -1: any */
    uint32_t kind;  /* a krt_check_kind */
    uint32_t text;  /* with {index}, {size}, {takes}, {wraps} and {value} to fill in */
    uint32_t wraps; /* 1: negative indices count from the end of the axis */
    krt_r_range size; /* a program: the size of the axis */
} krt_r_check;

typedef struct krt_r_function {
    uint32_t name, plan;
    uint32_t preparation; /* 1 + a plan; 0: none */
    uint32_t unused;
    krt_r_range inputs, outputs; /* in PORTS */
    krt_r_range written;         /* in INTS: pairs of places */
} krt_r_function;

enum { KRT_PORT_ARRAY = 0, KRT_PORT_NUMBER = 1, KRT_PORT_CONSTANT = 2 };

typedef struct krt_r_port {
    uint32_t name, value; /* texts */
    uint32_t kind, dtype, ndim;
    uint32_t dims; /* in INTS: for each axis a pair, the range of a program */
    krt_r_range sites; /* in INTS: triples */
    int64_t place, nbytes; /* room for the largest sizes */
} krt_r_port;

typedef struct krt_model_file {
    const void *at[KRT_N_SECTIONS]; /* CODE and DATA are elsewhere */
    size_t n[KRT_N_SECTIONS];       /* items */
} krt_model_file;

/* ---- processor.c --------------------------------------------------------------------------- */

/* The architecture of this process: "x86_64" or "aarch64". */
const char *krt_processor(void);

/* Whether this processor lacks one of the features in a comma-separated list of LLVM's names; write
 * those that it lacks to `out`. */
bool krt_processor_lacks(const char *features, char *out, size_t nbytes);

/* Write all that LLVM reads to tell the name and the features of this processor, as hexadecimal
 * digits; nothing where that is not known. */
void krt_processor_identity(char *out, size_t nbytes);

/* The name for KERNELRT_TARGET of the newest target that this processor runs. */
const char *krt_processor_target(void);

#endif
