/* model.c - reads and writes model files; see krt_model.h for the interface and model.h for the
 * format. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "krt_model.h"

#include "model.h"
#include "model_host.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(void *) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "model files hold 64-bit little endian numbers");

/* Addresses of ports before a region binds them; never read. */
#define NOWHERE ((void *)64)
#define MOST_DEPTH 64 /* of the stack of a size program */
/* Slices of a pipeline for each processor, if its kernels have as many chunks: FOR_EACH of
 * runtime/slice_pipelining.py. */
#define FEWEST_SLICES 8
#define PAGE 4096
#define HUGE ((size_t)1 << 21) /* bytes of a huge page */

struct krt_model {
    krt_model_file file; /* the sections, as read */
    char *table;         /* one block that holds all sections but CODE and DATA */
    size_t table_bytes;
    unsigned char *code; /* executable */
    size_t code_bytes;
    unsigned char *memory;
    size_t memory_bytes;
    bool lent; /* the host's `allocate` gave the memory */
    krt_model_options options;
    krt_kernel *routines;
    krt_plan **plans;
    int64_t **values; /* of the variables of each plan */
    krt_edit *edits;  /* room for the largest change of sizes */
    uint64_t writes;  /* incremented when state is written */
    uint64_t *prepared; /* of each function: `writes` when its preparation last ran; at first 0 */
    krt_lock lock;
};

static krt_status fail(krt_message *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static krt_status fail(krt_message *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (why)
        vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return KRT_INVALID;
}

static krt_status no_memory(krt_message *why)
{
    fail(why, "there is not enough memory for the model");
    return KRT_NO_MEMORY;
}

/* ---- Checksums --------------------------------------------------------------------------- */

/* CRC-32 of ISO 3309 with the reversed polynomial, as zlib's crc32; eight bytes at a time, with a
 * table for each. */
typedef struct crc_tables {
    uint32_t of[8][256];
} crc_tables;

static void fill_tables(crc_tables *tables)
{
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; ++bit)
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        tables->of[0][i] = c;
    }
    for (int t = 1; t < 8; ++t)
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t c = tables->of[t - 1][i];
            tables->of[t][i] = c >> 8 ^ tables->of[0][c & 255];
        }
}

static uint32_t crc_of(const crc_tables *tables, const unsigned char *data, size_t nbytes)
{
    const uint32_t(*of)[256] = tables->of;
    uint32_t c = 0xFFFFFFFFu;
    for (; nbytes >= 8; nbytes -= 8, data += 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= c;
        c = of[7][low & 255] ^ of[6][low >> 8 & 255] ^ of[5][low >> 16 & 255] ^ of[4][low >> 24] ^
            of[3][high & 255] ^ of[2][high >> 8 & 255] ^ of[1][high >> 16 & 255] ^ of[0][high >> 24];
    }
    for (; nbytes; --nbytes, ++data)
        c = c >> 8 ^ of[0][(c ^ *data) & 255];
    return ~c;
}

/* ---- Where the bytes come from ------------------------------------------------------------- */

typedef struct source {
    const unsigned char *bytes; /* NULL: a file */
    int fd;
    uint64_t nbytes;
} source;

static krt_status fetch(const source *from, uint64_t offset, void *to, size_t nbytes,
                        krt_message *why)
{
    if (offset > from->nbytes || nbytes > from->nbytes - offset)
        return fail(why, "the file is damaged: it ends at byte %" PRIu64 ", before a section does",
                    from->nbytes);
    if (from->bytes) {
        if (nbytes)
            memcpy(to, from->bytes + offset, nbytes);
        return KRT_OK;
    }
    for (char *at = to; nbytes;) {
        ssize_t n = pread(from->fd, at, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(why, "the file cannot be read: %s", n ? strerror(errno) : "it was cut off");
        at += n;
        offset += (uint64_t)n;
        nbytes -= (size_t)n;
    }
    return KRT_OK;
}

/* ---- Sections ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t item; /* bytes of an item */
} sections[] = {
    [KRT_S_MODEL] = {"MODEL", sizeof(krt_r_model)},
    [KRT_S_CODE] = {"CODE", 1},
    [KRT_S_DATA] = {"DATA", 1},
    [KRT_S_TEXT] = {"TEXT", 1},
    [KRT_S_INTS] = {"INTS", 8},
    [KRT_S_ROUTINES] = {"ROUTINES", 8},
    [KRT_S_PLANS] = {"PLANS", sizeof(krt_r_plan)},
    [KRT_S_OPS] = {"OPS", sizeof(krt_r_op)},
    [KRT_S_REGIONS] = {"REGIONS", sizeof(krt_r_region)},
    [KRT_S_VARS] = {"VARS", sizeof(krt_r_variable)},
    [KRT_S_SIZES] = {"SIZES", sizeof(krt_r_size)},
    [KRT_S_CHECKS] = {"CHECKS", sizeof(krt_r_check)},
    [KRT_S_FUNCS] = {"FUNCS", sizeof(krt_r_function)},
    [KRT_S_PORTS] = {"PORTS", sizeof(krt_r_port)},
};

static krt_status read_sections(krt_model *model, const source *from, const crc_tables *tables,
                                krt_r_section found[KRT_N_SECTIONS], krt_message *why)
{
    krt_r_header header;
    krt_status status = KRT_OK;
    if (from->nbytes < sizeof header)
        return fail(why, "this is no model file: it has %" PRIu64 " bytes, and a model file has at "
                    "least %zu", from->nbytes, sizeof header);
    if ((status = fetch(from, 0, &header, sizeof header, why)))
        return status;
    if (memcmp(header.magic, KRT_MODEL_MAGIC, sizeof header.magic))
        return fail(why, "this is no model file: it does not begin with " KRT_MODEL_MAGIC
                    "; kernelrt.nn.load reads state dicts and tensors");
    if (header.version != KRT_MODEL_VERSION)
        return fail(why, "the model file has format %" PRIu32 ", but this version of kernelrt reads "
                    "format %d; save the model again with this version", header.version,
                    KRT_MODEL_VERSION);
    if (header.nbytes != from->nbytes)
        return fail(why, "the file is damaged: it has %" PRIu64 " bytes and should have %" PRIu64,
                    from->nbytes, header.nbytes);
    if (header.n_sections != KRT_N_SECTIONS)
        return fail(why, "the file is damaged: it has %" PRIu32 " sections and should have %d",
                    header.n_sections, KRT_N_SECTIONS);
    if ((status = fetch(from, sizeof header, found, KRT_N_SECTIONS * sizeof *found, why)))
        return status;
    if (crc_of(tables, (const unsigned char *)found, KRT_N_SECTIONS * sizeof *found) != header.crc)
        return fail(why, "the file is damaged: the checksum of the table of sections differs");
    size_t total = 0;
    for (int s = 0; s < KRT_N_SECTIONS; ++s) {
        if (found[s].nbytes % sections[s].item || found[s].nbytes > from->nbytes)
            return fail(why, "the file is damaged: section %s has a wrong length", sections[s].name);
        if (s != KRT_S_CODE && s != KRT_S_DATA &&
            !krt_add_bytes(&total, (size_t)found[s].nbytes + 16, 1))
            return fail(why, "the file is damaged: section %s has a wrong length", sections[s].name);
    }
    model->table_bytes = total + 16;
    model->table = krt_alloc(model->table_bytes);
    if (!model->table)
        return no_memory(why);
    char *at = model->table;
    for (int s = 0; s < KRT_N_SECTIONS; ++s) {
        model->file.n[s] = (size_t)found[s].nbytes / sections[s].item;
        if (s == KRT_S_CODE || s == KRT_S_DATA)
            continue;
        if ((status = fetch(from, found[s].offset, at, (size_t)found[s].nbytes, why)))
            return status;
        if (crc_of(tables, (const unsigned char *)at, (size_t)found[s].nbytes) != found[s].crc)
            return fail(why, "the file is damaged: the checksum of section %s differs",
                        sections[s].name);
        model->file.at[s] = at;
        at += (found[s].nbytes + 15) & ~(uint64_t)15;
    }
    return KRT_OK;
}

#define ITEMS(model, section, type) ((const type *)(const void *)(model)->file.at[section])
#define INTS(model) ITEMS(model, KRT_S_INTS, int64_t)

static const char *text(const krt_model *model, uint32_t at)
{
    return ITEMS(model, KRT_S_TEXT, char) + at;
}

static const krt_r_model *head(const krt_model *model)
{
    return ITEMS(model, KRT_S_MODEL, krt_r_model);
}

static const krt_r_plan *plan_at(const krt_model *model, size_t plan)
{
    return ITEMS(model, KRT_S_PLANS, krt_r_plan) + plan;
}

static const krt_r_function *function_at(const krt_model *model, int function)
{
    return ITEMS(model, KRT_S_FUNCS, krt_r_function) + function;
}

static const krt_r_op *op_at(const krt_model *model, size_t plan, size_t op)
{
    return ITEMS(model, KRT_S_OPS, krt_r_op) + plan_at(model, plan)->ops.first + op;
}

/* ---- Checking what was read ---------------------------------------------------------------- */

static bool within(krt_r_range range, size_t count)
{
    return range.first <= count && range.n <= count - range.first;
}

static bool is_text(const krt_model *model, uint32_t at)
{
    return at < model->file.n[KRT_S_TEXT];
}

static bool is_place(int64_t place, int64_t nbytes, int64_t memory)
{
    return place >= 0 && nbytes >= 0 && place <= memory && nbytes <= memory - place;
}

/* A program pushes and pops integers and leaves one; its stack is bounded. */
static bool is_program(const krt_model *model, krt_r_range code, size_t variables)
{
    static const int pops[KRT_N_CODES] = {
        [KRT_C_NEG] = 1, [KRT_C_ABS] = 1, [KRT_C_NOT] = 1, [KRT_C_TRUTH] = 1, [KRT_C_CAST] = 1,
        [KRT_C_ADD] = 2, [KRT_C_SUB] = 2, [KRT_C_MUL] = 2, [KRT_C_MAX] = 2, [KRT_C_MIN] = 2,
        [KRT_C_AND] = 2, [KRT_C_OR] = 2, [KRT_C_XOR] = 2, [KRT_C_LT] = 2, [KRT_C_LE] = 2,
        [KRT_C_EQ] = 2, [KRT_C_NE] = 2, [KRT_C_IDIV] = 2, [KRT_C_MOD] = 2, [KRT_C_SHL] = 2,
        [KRT_C_SHR] = 2, [KRT_C_WHERE] = 3,
    };
    if (!within(code, model->file.n[KRT_S_INTS]) || code.n % 2)
        return false;
    int depth = 0;
    for (size_t i = 0; i < code.n; i += 2) {
        const int64_t *step = INTS(model) + code.first + i;
        if (step[0] < 0 || step[0] >= KRT_N_CODES)
            return false;
        if (step[0] == KRT_C_VAR && (step[1] < 0 || (uint64_t)step[1] >= variables))
            return false;
        depth += 1 - pops[step[0]];
        if (depth < 1 || depth > MOST_DEPTH)
            return false;
    }
    return depth == 1;
}

static bool is_region(const krt_model *model, const krt_r_op *op, size_t plan)
{
    if (!op->region)
        return op->kind != KRT_REGION;
    if (op->kind != KRT_REGION || op->region > model->file.n[KRT_S_REGIONS])
        return false;
    const krt_r_region *region = ITEMS(model, KRT_S_REGIONS, krt_r_region) + op->region - 1;
    const size_t ints = model->file.n[KRT_S_INTS];
    const int64_t memory = head(model)->memory;
    if (!within(region->bodies, ints) || !within(region->copies, ints) || region->copies.n % 3 ||
        !within(region->bindings, ints) || region->bindings.n % 6 || !is_text(model, region->title))
        return false;
    for (size_t i = 0; i < region->bodies.n; ++i) {
        int64_t body = INTS(model)[region->bodies.first + i];
        if (body < 0 || (uint64_t)body >= plan)
            return false;
    }
    for (size_t i = 0; i < region->copies.n; i += 3) {
        const int64_t *copy = INTS(model) + region->copies.first + i;
        for (int k = 0; k < 2; ++k) {
            if (copy[k] < 0 || (uint64_t)copy[k] >= op->bufs.n)
                return false;
            int64_t place = INTS(model)[op->bufs.first + (size_t)copy[k]];
            if (place >= 0 && !is_place(place, copy[2], memory))
                return false;
        }
    }
    return true;
}

static bool is_op(const krt_model *model, const krt_r_op *op, size_t plan)
{
    const size_t ints = model->file.n[KRT_S_INTS];
    const int64_t memory = head(model)->memory;
    if (!within(op->bufs, ints) || !within(op->vals, ints) || !within(op->deps, ints) ||
        !within(op->checks, model->file.n[KRT_S_CHECKS]) || !is_text(model, op->name))
        return false;
    for (size_t i = 0; i < op->bufs.n; ++i) {
        int64_t place = INTS(model)[op->bufs.first + i];
        if (place < KRT_PLACE_PORT || place > memory)
            return false;
    }
    for (size_t i = 0; i < op->deps.n; ++i)
        if (INTS(model)[op->deps.first + i] < 0)
            return false;
    if (op->kind == KRT_COPY) {
        if (op->bufs.n != 2 || op->vals.n != 1)
            return false;
        for (size_t i = 0; i < 2; ++i) {
            int64_t place = INTS(model)[op->bufs.first + i];
            if (place >= 0 && !is_place(place, INTS(model)[op->vals.first], memory))
                return false;
        }
    }
    if (op->kind == KRT_KERNEL) {
        if (op->code < 0 ? (uint64_t)(-1 - op->code) >= model->file.n[KRT_S_ROUTINES]
                         : (uint64_t)op->code >= model->file.n[KRT_S_CODE])
            return false;
    } else if (op->kind > KRT_REGION || op->kind == KRT_CUSTOM) {
        return false;
    }
    return is_region(model, op, plan);
}

static bool is_plan(const krt_model *model, size_t plan)
{
    const krt_r_plan *record = plan_at(model, plan);
    if (!within(record->ops, model->file.n[KRT_S_OPS]) ||
        !within(record->variables, model->file.n[KRT_S_VARS]) ||
        record->variables.n > KRT_MOST_SIZES ||
        !within(record->sizes, model->file.n[KRT_S_SIZES]) || record->stack_bytes < 0 ||
        record->stack_bytes > 1 << 20)
        return false;
    for (size_t i = 0; i < record->ops.n; ++i)
        if (!is_op(model, op_at(model, plan, i), plan))
            return false;
    for (size_t i = 0; i < record->variables.n; ++i) {
        const krt_r_variable *v = ITEMS(model, KRT_S_VARS, krt_r_variable) +
                                  record->variables.first + i;
        if (!is_text(model, v->name) || v->least > v->initial || v->initial > v->most)
            return false;
    }
    for (size_t i = 0; i < record->sizes.n; ++i) {
        const krt_r_size *size = ITEMS(model, KRT_S_SIZES, krt_r_size) + record->sizes.first + i;
        if (size->op >= record->ops.n || !is_program(model, size->code, record->variables.n))
            return false;
        if (size->kind != KRT_SIZE_CHUNKS &&
            (size->kind != KRT_SIZE_VALUE || size->slot >= op_at(model, plan, size->op)->vals.n))
            return false;
    }
    for (size_t i = 0; i < record->ops.n; ++i) {
        krt_r_range checks = op_at(model, plan, i)->checks;
        for (size_t k = 0; k < checks.n; ++k) {
            const krt_r_check *check = ITEMS(model, KRT_S_CHECKS, krt_r_check) + checks.first + k;
            if (!is_text(model, check->text) || check->kind > KRT_CHECK_SOLVE ||
                (check->kind == KRT_CHECK_INDEX &&
                 !is_program(model, check->size, record->variables.n)))
                return false;
        }
    }
    return true;
}

static const int item_bytes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

static bool is_port(const krt_model *model, const krt_r_port *port, size_t variables)
{
    const size_t ints = model->file.n[KRT_S_INTS];
    if (!is_text(model, port->name) || !is_text(model, port->value) ||
        port->dtype > KRT_FLOAT64 || port->ndim > KRT_MOST_AXES ||
        port->dims > ints || 2 * (size_t)port->ndim > ints - port->dims ||
        !within(port->sites, ints) || port->sites.n % 3)
        return false;
    if (port->kind != KRT_PORT_CONSTANT &&
        (!is_place(port->place, port->nbytes, head(model)->memory) ||
         port->place % item_bytes[port->dtype]))
        return false;
    for (size_t axis = 0; axis < port->ndim; ++axis) {
        const int64_t *pair = INTS(model) + port->dims + 2 * axis;
        if (pair[0] < 0 || pair[1] < 0 || pair[0] > UINT32_MAX || pair[1] > UINT32_MAX)
            return false;
        krt_r_range code = {(uint32_t)pair[0], (uint32_t)pair[1]};
        if (!is_program(model, code, variables))
            return false;
    }
    return true;
}

static bool is_function(const krt_model *model, int function)
{
    const krt_r_function *record = function_at(model, function);
    const size_t plans = model->file.n[KRT_S_PLANS], ports = model->file.n[KRT_S_PORTS];
    const size_t ints = model->file.n[KRT_S_INTS];
    if (!is_text(model, record->name) || record->plan >= plans || record->preparation > plans ||
        !within(record->inputs, ports) || !within(record->outputs, ports) ||
        !within(record->written, ints) || record->written.n % 2)
        return false;
    for (size_t i = 0; i < record->written.n; i += 2) {
        const int64_t *range = INTS(model) + record->written.first + i;
        if (range[0] < 0 || range[1] < range[0] || range[1] > head(model)->memory)
            return false;
    }
    const krt_r_range both[] = {record->inputs, record->outputs};
    const size_t variables = plan_at(model, record->plan)->variables.n;
    for (int side = 0; side < 2; ++side)
        for (size_t i = 0; i < both[side].n; ++i) {
            const krt_r_port *port = ITEMS(model, KRT_S_PORTS, krt_r_port) + both[side].first + i;
            if (!is_port(model, port, variables))
                return false;
            for (size_t k = 0; k < port->sites.n; k += 3) {
                const int64_t *site = INTS(model) + port->sites.first + k;
                if (site[0] < 0 || (uint64_t)site[0] >= plan_at(model, record->plan)->ops.n ||
                    site[1] < 0 || site[2] < 0 || site[2] > port->nbytes ||
                    (uint64_t)site[1] >= op_at(model, record->plan, (size_t)site[0])->bufs.n)
                    return false;
            }
        }
    return true;
}

static krt_status check(const krt_model *model, krt_message *why)
{
    const size_t *n = model->file.n;
    bool ok = n[KRT_S_MODEL] == 1 && n[KRT_S_TEXT] && n[KRT_S_PLANS] <= INT32_MAX &&
              n[KRT_S_FUNCS] <= INT32_MAX && n[KRT_S_TEXT] <= UINT32_MAX;
    ok = ok && !text(model, (uint32_t)n[KRT_S_TEXT] - 1)[0];
    const krt_r_model *h = head(model);
    ok = ok && is_text(model, h->architecture) && is_text(model, h->features) &&
         is_text(model, h->cpu) && is_text(model, h->maker) && is_text(model, h->python) &&
         h->memory >= 0 && h->memory <= PTRDIFF_MAX / 2 &&
         n[KRT_S_DATA] <= (uint64_t)h->memory && within(h->states, n[KRT_S_PORTS]);
    for (size_t i = 0; ok && i < n[KRT_S_ROUTINES]; ++i) {
        int64_t name = ITEMS(model, KRT_S_ROUTINES, int64_t)[i];
        ok = name >= 0 && name < (int64_t)n[KRT_S_TEXT];
    }
    for (size_t i = 0; ok && i < n[KRT_S_PLANS]; ++i)
        ok = is_plan(model, i);
    for (size_t i = 0; ok && i < n[KRT_S_FUNCS]; ++i)
        ok = is_function(model, (int)i);
    for (size_t i = 0; ok && i < h->states.n; ++i)
        ok = is_port(model, ITEMS(model, KRT_S_PORTS, krt_r_port) + h->states.first + i, 0);
    return ok ? KRT_OK : fail(why, "the file is damaged: an index or an offset in its tables is out of range");
}

static krt_status check_processor(const krt_model *model, krt_message *why)
{
    const krt_r_model *h = head(model);
    char lacking[256];
    const char *here = krt_processor();
    if (strcmp(text(model, h->architecture), here))
        return fail(why, "the model was saved for %s, and this process runs on %s; save it on such "
                    "a machine", text(model, h->architecture), here);
    if (krt_processor_lacks(text(model, h->features), lacking, sizeof lacking))
        return fail(why, "the model was saved for the processor %s, and this one lacks %s; save it "
                    "again with KERNELRT_TARGET set to a target that both run, such as %s",
                    text(model, h->cpu), lacking, krt_processor_target());
    return KRT_OK;
}

/* ---- Making it run ------------------------------------------------------------------------- */

static krt_status map_code(krt_model *model, const source *from, const krt_r_section *section,
                           const crc_tables *tables, krt_message *why)
{
    if (!section->nbytes)
        return KRT_OK;
    model->code_bytes = (size_t)section->nbytes;
    model->code = krt_code_map(model->code_bytes);
    if (!model->code)
        return no_memory(why);
    krt_status status = fetch(from, section->offset, model->code, model->code_bytes, why);
    if (status)
        return status;
    if (crc_of(tables, model->code, model->code_bytes) != section->crc)
        return fail(why, "the file is damaged: the checksum of section CODE differs");
    int refused = krt_code_finish(model->code, model->code_bytes);
    return refused ? fail(why, "the system does not let this process run new code: %s; allow it "
                          "executable memory (execmem in SELinux, MemoryDenyWriteExecute in systemd)",
                          strerror(refused))
                   : KRT_OK;
}

static krt_status fill_memory(krt_model *model, const source *from, const krt_r_section *section,
                              const crc_tables *tables, krt_message *why)
{
    model->memory_bytes = (size_t)head(model)->memory;
    size_t nbytes = model->memory_bytes + KRT_CACHE_LINE; /* an empty array has an address, too */
    if (model->options.allocate) {
        model->memory = model->options.allocate(model->options.self, nbytes);
        model->lent = true;
    } else {
        void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        model->memory = memory == MAP_FAILED ? NULL : memory;
#ifdef MADV_HUGEPAGE
        if (model->memory && nbytes >= HUGE)
            madvise(memory, nbytes, MADV_HUGEPAGE); /* a failure has no effect */
#endif
    }
    if (!model->memory)
        return no_memory(why);
    krt_status status = fetch(from, section->offset, model->memory, (size_t)section->nbytes, why);
    if (status)
        return status;
    if (crc_of(tables, model->memory, (size_t)section->nbytes) != section->crc)
        return fail(why, "the file is damaged: the checksum of section DATA differs");
    /* A masked load from a page that was never written takes microseconds each time: it faults in
     * lanes that are off, which does not map the page. */
    for (size_t at = (size_t)section->nbytes; at < nbytes; at += PAGE)
        model->memory[at] = 0;
    return KRT_OK;
}

static krt_status find_routines(krt_model *model, krt_message *why)
{
    size_t n = model->file.n[KRT_S_ROUTINES];
    model->routines = krt_alloc((n + 1) * sizeof *model->routines);
    if (!model->routines)
        return no_memory(why);
    for (size_t i = 0; i < n; ++i) {
        const char *name = text(model, (uint32_t)ITEMS(model, KRT_S_ROUTINES, int64_t)[i]);
        if (model->options.routine)
            model->routines[i] = model->options.routine(model->options.self, name);
        if (!model->routines[i])
            return fail(why, "the model calls the routine %s, which this program does not have; "
                        "link csrc/routines.c and give krt_find_routine as the option `routine`",
                        name);
    }
    return KRT_OK;
}

static krt_status no_custom(void *self, size_t op)
{
    (void)self, (void)op;
    return KRT_CUSTOM_FAILED;
}

static krt_status poll_host(void *self)
{
    krt_model *model = self;
    return model->options.poll ? model->options.poll(model->options.self) : KRT_OK;
}

/* One block with the arrays that describe a plan; freed when the plan is made. */
typedef struct staged {
    int64_t fewest_slices;
    krt_op *ops;
    void **bufs;
    size_t *deps;
    krt_region *regions;
    krt_plan **bodies;
    krt_initial *copies;
    krt_binding *bindings;
} staged;

static size_t *as_sizes(size_t *to, const int64_t *from, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        to[i] = from[i] == -1 ? SIZE_MAX : (size_t)from[i];
    return to + n;
}

static void stage_region(krt_model *model, const krt_r_region *from, krt_region *to, staged *at)
{
    const int64_t *ints = INTS(model);
    *to = (krt_region){
        .bodies = at->bodies, .n_bodies = from->bodies.n, .count = from->count,
        .reverse = from->reverse, .count_slot = from->count_slot,
        .condition_slot = from->condition_slot, .choice_slot = from->choice_slot,
        .initial = at->copies, .n_initial = from->copies.n / 3, .bindings = at->bindings,
        .n_bindings = from->bindings.n / 6,
    };
    for (size_t i = 0; i < from->bodies.n; ++i)
        *at->bodies++ = model->plans[ints[from->bodies.first + i]];
    for (size_t i = 0; i < from->copies.n; i += 3) {
        const int64_t *copy = ints + from->copies.first + i;
        *at->copies++ = (krt_initial){(size_t)copy[0], (size_t)copy[1], (size_t)copy[2]};
    }
    for (size_t i = 0; i < from->bindings.n; i += 6) {
        const int64_t *b = ints + from->bindings.first + i;
        *at->bindings++ = (krt_binding){
            (size_t)b[0], (size_t)b[1], (size_t)b[2], b[3] < 0 ? KRT_ITERATION : (size_t)b[3],
            b[4], b[5],
        };
    }
}

static void stage_op(krt_model *model, const krt_r_op *from, krt_op *to, staged *at)
{
    const int64_t *ints = INTS(model);
    *to = (krt_op){
        .kind = (krt_kind)from->kind, .bufs = at->bufs, .n_bufs = from->bufs.n,
        .vals = ints + from->vals.first, .n_vals = from->vals.n, .chunks = from->chunks,
        .core_slot = from->core_slot, .flags = from->flags, .cost_ns = from->cost_ns,
        .deps = at->deps, .n_deps = from->deps.n, .slices = from->slices,
    };
    if (to->kind == KRT_KERNEL) {
        if (from->code < 0) {
            to->fn = model->routines[-1 - from->code];
        } else {
            void *address = model->code + from->code;
            memcpy(&to->fn, &address, sizeof address);
        }
    }
    for (size_t i = 0; i < from->bufs.n; ++i) {
        int64_t place = ints[from->bufs.first + i];
        *at->bufs++ = place >= 0 ? model->memory + place : place == KRT_PLACE_PORT ? NOWHERE : NULL;
    }
    at->deps = as_sizes(at->deps, ints + from->deps.first, from->deps.n);
    if (from->slices < at->fewest_slices) { /* its pipeline is dissolved; dependencies stay */
        to->slices = 0;
        to->flags &= ~(unsigned)KRT_FOLLOWS;
    }
    if (from->region) {
        to->region = at->regions;
        stage_region(model, ITEMS(model, KRT_S_REGIONS, krt_r_region) + from->region - 1,
                     at->regions++, at);
    }
}

static krt_status make_plan(krt_model *model, size_t plan, krt_message *why)
{
    const krt_r_plan *record = plan_at(model, plan);
    int64_t most_chunks = 0, most_slices = 0;
    size_t n = record->ops.n, bufs = 0, deps = 0, regions = 0, bodies = 0, copies = 0, bindings = 0;
    for (size_t i = 0; i < n; ++i) {
        const krt_r_op *op = op_at(model, plan, i);
        bufs += op->bufs.n;
        deps += op->deps.n;
        if (op->chunks > most_chunks)
            most_chunks = op->chunks;
        if (op->slices > most_slices)
            most_slices = op->slices;
        if (op->region) {
            const krt_r_region *r = ITEMS(model, KRT_S_REGIONS, krt_r_region) + op->region - 1;
            regions += 1;
            bodies += r->bodies.n;
            copies += r->copies.n / 3;
            bindings += r->bindings.n / 6;
        }
    }
    size_t total = 64;
    bool fits = krt_add_bytes(&total, n, sizeof(krt_op)) &&
                krt_add_bytes(&total, bufs, sizeof(void *)) &&
                krt_add_bytes(&total, deps, sizeof(size_t)) &&
                krt_add_bytes(&total, regions, sizeof(krt_region)) &&
                krt_add_bytes(&total, bodies, sizeof(krt_plan *)) &&
                krt_add_bytes(&total, copies, sizeof(krt_initial)) &&
                krt_add_bytes(&total, bindings, sizeof(krt_binding));
    char *block = fits ? krt_alloc(total) : NULL;
    if (!block)
        return no_memory(why);
    staged at;
    /* The first call of krt_pool_limit reads files of the system, which takes a while. */
    at.fewest_slices = most_slices ? FEWEST_SLICES * (int64_t)krt_pool_limit() : 0;
    if (at.fewest_slices > most_chunks)
        at.fewest_slices = most_chunks;
    at.ops = (krt_op *)(void *)block;
    at.regions = (krt_region *)(at.ops + n);
    at.bindings = (krt_binding *)(at.regions + regions);
    at.copies = (krt_initial *)(at.bindings + bindings);
    at.bufs = (void **)(at.copies + copies);
    at.deps = (size_t *)(void *)(at.bufs + bufs);
    at.bodies = (krt_plan **)(void *)(at.deps + deps);
    krt_op *ops = at.ops;
    for (size_t i = 0; i < n; ++i)
        stage_op(model, op_at(model, plan, i), ops + i, &at);
    krt_fault fault = {0};
    krt_host host = {model, no_custom, poll_host};
    krt_status status = krt_plan_create(ops, n, host, &model->plans[plan], &fault);
    krt_free(block);
    if (status == KRT_NO_MEMORY)
        return no_memory(why);
    if (status)
        return fail(why, "the file is damaged: op %zu of plan %zu: %s: %s", fault.op, plan,
                    fault.field, fault.reason);
    if (record->stack_bytes)
        krt_plan_need_stack(model->plans[plan], (size_t)record->stack_bytes);
    return KRT_OK;
}

static krt_status make_plans(krt_model *model, krt_message *why)
{
    size_t n = model->file.n[KRT_S_PLANS], most = 0, values = 0;
    for (size_t i = 0; i < n; ++i) {
        values += plan_at(model, i)->variables.n;
        if (plan_at(model, i)->sizes.n > most)
            most = plan_at(model, i)->sizes.n;
    }
    size_t functions = model->file.n[KRT_S_FUNCS];
    model->plans = krt_alloc((n + 1) * sizeof *model->plans);
    model->values = krt_alloc((n + 1) * sizeof *model->values + (values + 1) * sizeof(int64_t));
    model->edits = krt_alloc((most + 1) * sizeof *model->edits);
    model->prepared = krt_alloc((functions + 1) * sizeof *model->prepared);
    if (!model->plans || !model->values || !model->edits || !model->prepared)
        return no_memory(why);
    int64_t *value = (int64_t *)(void *)(model->values + n + 1);
    for (size_t i = 0; i < n; ++i) {
        krt_r_range range = plan_at(model, i)->variables;
        model->values[i] = value;
        for (size_t v = 0; v < range.n; ++v)
            *value++ = ITEMS(model, KRT_S_VARS, krt_r_variable)[range.first + v].initial;
        krt_status status = make_plan(model, i, why);
        if (status)
            return status;
    }
    model->writes = 1; /* above `prepared`: the file does not hold what preparations compute */
    return KRT_OK;
}

void krt_model_close(krt_model *model)
{
    if (!model)
        return;
    for (size_t i = model->plans ? model->file.n[KRT_S_PLANS] : 0; i--;)
        krt_plan_destroy(model->plans[i]);
    if (model->memory && !model->lent)
        munmap(model->memory, model->memory_bytes + KRT_CACHE_LINE);
    if (model->code)
        krt_code_unmap(model->code, model->code_bytes);
    krt_free(model->routines);
    krt_free(model->plans);
    krt_free(model->values);
    krt_free(model->edits);
    krt_free(model->prepared);
    krt_free(model->table);
    krt_free(model);
}

/* ---- Sizes --------------------------------------------------------------------------------- */

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b && (a < 0) != (b < 0));
}

/* `number` wrapped to the type of a code of krt_dtype. */
static int64_t cast_to(int64_t number, int64_t dtype)
{
    switch (dtype) {
    case KRT_BOOL: return number != 0;
    case KRT_UINT8: return (uint8_t)number;
    case KRT_INT8: return (int8_t)number;
    case KRT_UINT16: return (uint16_t)number;
    case KRT_INT16: return (int16_t)number;
    case KRT_UINT32: return (uint32_t)number;
    case KRT_INT32: return (int32_t)number;
    default: return number;
    }
}

/* Evaluate a program, which was checked. False: a number needs more than 64 bits. */
static bool evaluate(const krt_model *model, krt_r_range code, const int64_t *values, int64_t *out)
{
    int64_t stack[MOST_DEPTH], *top = stack; /* `top` is above the last number */
    bool wide = false;
    for (size_t i = 0; i < code.n; i += 2) {
        const int64_t what = INTS(model)[code.first + i], arg = INTS(model)[code.first + i + 1];
        switch ((krt_code)what) {
        case KRT_C_CONST: *top++ = arg; break;
        case KRT_C_VAR: *top++ = values[arg]; break;
        case KRT_C_NEG: wide |= __builtin_sub_overflow((int64_t)0, top[-1], &top[-1]); break;
        case KRT_C_ABS:
            if (top[-1] < 0)
                wide |= __builtin_sub_overflow((int64_t)0, top[-1], &top[-1]);
            break;
        case KRT_C_NOT: top[-1] = ~top[-1]; break;
        case KRT_C_TRUTH: top[-1] = !top[-1]; break;
        case KRT_C_CAST: top[-1] = cast_to(top[-1], arg); break;
        case KRT_C_ADD: --top; wide |= __builtin_add_overflow(top[-1], top[0], &top[-1]); break;
        case KRT_C_SUB: --top; wide |= __builtin_sub_overflow(top[-1], top[0], &top[-1]); break;
        case KRT_C_MUL: --top; wide |= __builtin_mul_overflow(top[-1], top[0], &top[-1]); break;
        case KRT_C_MAX: --top; top[-1] = top[-1] > top[0] ? top[-1] : top[0]; break;
        case KRT_C_MIN: --top; top[-1] = top[-1] < top[0] ? top[-1] : top[0]; break;
        case KRT_C_AND: --top; top[-1] &= top[0]; break;
        case KRT_C_OR: --top; top[-1] |= top[0]; break;
        case KRT_C_XOR: --top; top[-1] ^= top[0]; break;
        case KRT_C_LT: --top; top[-1] = top[-1] < top[0]; break;
        case KRT_C_LE: --top; top[-1] = top[-1] <= top[0]; break;
        case KRT_C_EQ: --top; top[-1] = top[-1] == top[0]; break;
        case KRT_C_NE: --top; top[-1] = top[-1] != top[0]; break;
        case KRT_C_IDIV:
        case KRT_C_MOD: {
            --top;
            const int64_t a = top[-1], b = top[0];
            const bool most = a == INT64_MIN && b == -1;
            wide |= most && what == KRT_C_IDIV;
            if (!b || most)
                top[-1] = 0;
            else
                top[-1] = what == KRT_C_IDIV ? floor_div(a, b) : a - b * floor_div(a, b);
            break;
        }
        case KRT_C_SHL: {
            --top;
            const int64_t a = top[-1], by = top[0];
            const bool fits = by >= 0 && by < 63;
            wide |= fits && __builtin_mul_overflow(a, (int64_t)1 << by, &top[-1]);
            if (!fits)
                top[-1] = 0;
            break;
        }
        case KRT_C_SHR: --top; top[-1] = top[0] >= 0 && top[0] < 64 ? top[-1] >> top[0]
                                         : top[-1] < 0 ? -1 : 0; break;
        case KRT_C_WHERE: top -= 2; top[-1] = top[-1] ? top[0] : top[1]; break;
        case KRT_N_CODES: break;
        }
    }
    *out = top[-1];
    return !wide;
}

size_t krt_model_most_edits(const krt_model *model, size_t plan)
{
    return plan_at(model, plan)->sizes.n;
}

krt_status krt_model_launch(const krt_model *model, size_t plan, const int64_t *values,
                            krt_edit *edits, size_t *n_edits, krt_message *why)
{
    const krt_r_plan *record = plan_at(model, plan);
    for (size_t v = 0; v < record->variables.n; ++v) {
        const krt_r_variable *variable = ITEMS(model, KRT_S_VARS, krt_r_variable) +
                                         record->variables.first + v;
        if (values[v] < variable->least || values[v] > variable->most)
            return fail(why, "%s: %" PRId64 " lies outside its bounds %" PRId64 " to %" PRId64,
                        text(model, variable->name), values[v], variable->least, variable->most);
    }
    for (size_t i = 0; i < record->sizes.n; ++i) {
        const krt_r_size *size = ITEMS(model, KRT_S_SIZES, krt_r_size) + record->sizes.first + i;
        const krt_r_op *op = op_at(model, plan, size->op);
        int64_t number;
        bool ok = evaluate(model, size->code, values, &number);
        if (size->kind == KRT_SIZE_CHUNKS)
            ok = ok && number >= 1;
        if (op->kind == KRT_COPY)
            for (size_t k = 0; ok && k < 2; ++k) {
                int64_t place = INTS(model)[op->bufs.first + k];
                ok = place < 0 ? number >= 0 : is_place(place, number, head(model)->memory);
            }
        if (!ok)
            return fail(why, "%s: these sizes give a launch of no or too many elements",
                        text(model, op->name));
        edits[i] = (krt_edit){size->kind == KRT_SIZE_CHUNKS ? KRT_SET_CHUNKS : KRT_SET_VALUE,
                              size->op, size->slot, number};
    }
    *n_edits = record->sizes.n;
    return KRT_OK;
}

/* ---- Ports --------------------------------------------------------------------------------- */

static const krt_r_port *port_at(const krt_model *model, int function, int side, int number)
{
    if (function < 0 || function >= krt_model_n_functions(model) || number < 0)
        return NULL;
    const krt_r_function *record = function_at(model, function);
    krt_r_range range = side ? record->outputs : record->inputs;
    if ((uint32_t)number >= range.n)
        return NULL;
    return ITEMS(model, KRT_S_PORTS, krt_r_port) + range.first + number;
}

static krt_status shape_of(const krt_model *model, const krt_r_port *port, const int64_t *values,
                           int64_t *shape, int64_t *nbytes, krt_message *why)
{
    int64_t total = item_bytes[port->dtype];
    for (size_t axis = 0; axis < port->ndim; ++axis) {
        const int64_t *pair = INTS(model) + port->dims + 2 * axis;
        krt_r_range code = {(uint32_t)pair[0], (uint32_t)pair[1]};
        if (!evaluate(model, code, values, &shape[axis]) || shape[axis] < 0 ||
            __builtin_mul_overflow(total, shape[axis], &total))
            return fail(why, "%s: axis %zu has no valid size for these sizes",
                        text(model, port->name), axis);
    }
    if (port->kind != KRT_PORT_CONSTANT && total > port->nbytes)
        return fail(why, "%s: these sizes need %" PRId64 " bytes; the model has room for %" PRId64,
                    text(model, port->name), total, port->nbytes);
    *nbytes = total;
    return KRT_OK;
}

static krt_status describe(const krt_model *model, const krt_r_port *port, const int64_t *values,
                           krt_port *out)
{
    int64_t nbytes = 0;
    if (!port)
        return KRT_INVALID;
    *out = (krt_port){.name = text(model, port->name), .dtype = (krt_dtype)port->dtype,
                      .ndim = (int)port->ndim};
    if (port->kind == KRT_PORT_CONSTANT) {
        out->value = text(model, port->value);
        return KRT_OK;
    }
    krt_status status = shape_of(model, port, values, out->shape, &nbytes, NULL);
    out->data = model->memory + port->place;
    out->nbytes = (size_t)nbytes;
    return status;
}

int krt_model_n_functions(const krt_model *model) { return (int)model->file.n[KRT_S_FUNCS]; }

static bool has_function(const krt_model *model, int function)
{
    return function >= 0 && function < krt_model_n_functions(model);
}

const char *krt_model_function_name(const krt_model *model, int function)
{
    return has_function(model, function) ? text(model, function_at(model, function)->name) : "";
}

int krt_model_find(const krt_model *model, const char *name)
{
    for (int i = 0; i < krt_model_n_functions(model); ++i)
        if (!strcmp(krt_model_function_name(model, i), name))
            return i;
    return -1;
}

int krt_model_n_inputs(const krt_model *model, int function)
{
    return has_function(model, function) ? (int)function_at(model, function)->inputs.n : 0;
}

int krt_model_n_outputs(const krt_model *model, int function)
{
    return has_function(model, function) ? (int)function_at(model, function)->outputs.n : 0;
}

int krt_model_n_states(const krt_model *model) { return (int)head(model)->states.n; }

krt_status krt_model_input(krt_model *model, int function, int number, krt_port *out)
{
    const krt_r_port *port = port_at(model, function, 0, number);
    return describe(model, port, port ? model->values[function_at(model, function)->plan] : NULL,
                    out);
}

krt_status krt_model_output(krt_model *model, int function, int number, krt_port *out)
{
    const krt_r_port *port = port_at(model, function, 1, number);
    return describe(model, port, port ? model->values[function_at(model, function)->plan] : NULL,
                    out);
}

krt_status krt_model_state(krt_model *model, int number, krt_port *out)
{
    const krt_r_port *port = NULL;
    if (number >= 0 && number < krt_model_n_states(model))
        port = ITEMS(model, KRT_S_PORTS, krt_r_port) + head(model)->states.first + number;
    return describe(model, port, NULL, out);
}

static int find_port(const krt_model *model, krt_r_range range, const char *name)
{
    for (uint32_t i = 0; i < range.n; ++i)
        if (!strcmp(text(model, ITEMS(model, KRT_S_PORTS, krt_r_port)[range.first + i].name), name))
            return (int)i;
    return -1;
}

int krt_model_find_input(const krt_model *model, int function, const char *name)
{
    if (!has_function(model, function))
        return -1;
    return find_port(model, function_at(model, function)->inputs, name);
}

int krt_model_find_output(const krt_model *model, int function, const char *name)
{
    if (!has_function(model, function))
        return -1;
    return find_port(model, function_at(model, function)->outputs, name);
}

int krt_model_find_state(const krt_model *model, const char *name)
{
    return find_port(model, head(model)->states, name);
}

krt_status krt_model_shape(const krt_model *model, int function, int side, int number,
                           const int64_t *values, int64_t *shape, krt_message *why)
{
    int64_t nbytes;
    const krt_r_port *port = port_at(model, function, side, number);
    if (!port)
        return fail(why, "the function has no input or output %d", number);
    return shape_of(model, port, values, shape, &nbytes, why);
}

size_t krt_model_sites(const krt_model *model, int function, int side, int number,
                       const int64_t **out)
{
    const krt_r_port *port = port_at(model, function, side, number);
    *out = port ? INTS(model) + port->sites.first : NULL;
    return port ? port->sites.n / 3 : 0;
}

size_t krt_model_written(const krt_model *model, int function, const int64_t **out)
{
    krt_r_range range = function_at(model, function)->written;
    *out = INTS(model) + range.first;
    return range.n / 2;
}

/* ---- Running ------------------------------------------------------------------------------- */

enum { FOREVER_NS = 1000000000 };

static krt_status enter(krt_model *model, krt_message *why)
{
    krt_status status;
    do
        status = krt_lock_acquire(&model->lock, FOREVER_NS);
    while (status == KRT_TIMEOUT);
    if (status)
        fail(why, "this thread is running a function of the model already");
    return status;
}

/* Check sizes and the shapes that follow, and put them into the plan. The caller holds the lock. */
static krt_status use_sizes(krt_model *model, int function, const int64_t *values, krt_message *why)
{
    const size_t plan = function_at(model, function)->plan;
    size_t n = 0;
    krt_fault fault = {0};
    krt_status status = krt_model_launch(model, plan, values, model->edits, &n, why);
    for (int side = 0; !status && side < 2; ++side)
        for (int i = 0; !status; ++i) {
            const krt_r_port *port = port_at(model, function, side, i);
            int64_t shape[KRT_MOST_AXES], nbytes;
            if (!port)
                break;
            status = shape_of(model, port, values, shape, &nbytes, why);
        }
    if (!status && (status = krt_plan_edit(model->plans[plan], model->edits, n, &fault)))
        fail(why, "%s: %s", fault.field, fault.reason);
    if (!status)
        memcpy(model->values[plan], values, plan_at(model, plan)->variables.n * sizeof *values);
    return status;
}

int krt_model_n_sizes(const krt_model *model, int function)
{
    if (!has_function(model, function))
        return 0;
    return (int)plan_at(model, function_at(model, function)->plan)->variables.n;
}

const char *krt_model_size_name(const krt_model *model, int function, int number)
{
    krt_variable variable = {.name = ""};
    if (number >= 0 && number < krt_model_n_sizes(model, function))
        krt_model_variable(model, function_at(model, function)->plan, (size_t)number, &variable);
    return variable.name;
}

krt_status krt_model_set_sizes(krt_model *model, int function, const int64_t *values,
                               krt_message *why)
{
    if (!has_function(model, function))
        return fail(why, "the model has no function %d", function);
    krt_status status = enter(model, why);
    if (status)
        return status;
    status = use_sizes(model, function, values, why);
    krt_lock_release(&model->lock);
    return status;
}

krt_status krt_model_set_size(krt_model *model, int function, const char *name, int64_t value,
                              krt_message *why)
{
    int64_t values[KRT_MOST_SIZES];
    const int n = krt_model_n_sizes(model, function);
    int at = 0;
    while (at < n && strcmp(krt_model_size_name(model, function, at), name))
        ++at;
    if (at == n)
        return fail(why, "%s has no size %s", krt_model_function_name(model, function), name);
    krt_status status = enter(model, why);
    if (status)
        return status;
    memcpy(values, model->values[function_at(model, function)->plan], (size_t)n * sizeof *values);
    values[at] = value;
    status = use_sizes(model, function, values, why);
    krt_lock_release(&model->lock);
    return status;
}

static krt_status run(krt_model *model, size_t plan, krt_message *why)
{
    size_t op = 0;
    krt_status status = krt_plan_execute(model->plans[plan], &op);
    if (status == KRT_OUT_OF_BOUNDS) {
        krt_problem problem;
        krt_failure at;
        while (krt_region_failure(model->plans[plan], op, &at)) {
            const int64_t *bodies = NULL;
            if (at.body >= krt_model_bodies(model, plan, op, &bodies))
                break;
            plan = (size_t)bodies[at.body];
            op = at.op;
        }
        krt_model_explain(model, plan, op, krt_plan_status(model->plans[plan], op),
                          model->values[plan], &problem);
        if (why)
            *why = problem.message;
    } else if (status == KRT_INTERRUPTED) {
        fail(why, "the run was interrupted");
    } else if (status) {
        fail(why, status == KRT_NO_STACK ? "the thread has too little stack for the kernels"
                  : status == KRT_FORKED ? "the process was forked during the run"
                                         : "the run failed with status %d", (int)status);
    }
    return status;
}

krt_status krt_model_run(krt_model *model, int function, krt_message *why)
{
    if (!has_function(model, function))
        return fail(why, "the model has no function %d", function);
    const krt_r_function *record = function_at(model, function);
    krt_status status = enter(model, why);
    if (status)
        return status;
    if (record->preparation && model->prepared[function] != model->writes) {
        status = run(model, record->preparation - 1, why);
        if (!status)
            model->prepared[function] = model->writes;
    }
    if (!status) {
        status = run(model, record->plan, why);
        if (plan_at(model, record->plan)->writes_state) {
            /* What a function writes is no source of its own preparation. */
            if (model->prepared[function] == model->writes)
                ++model->prepared[function];
            ++model->writes;
        }
    }
    krt_lock_release(&model->lock);
    return status;
}

void krt_model_wrote_state(krt_model *model)
{
    if (enter(model, NULL) == KRT_OK) {
        ++model->writes;
        krt_lock_release(&model->lock);
    }
}

void krt_model_set_threads(krt_model *model, int threads)
{
    if (enter(model, NULL) == KRT_OK) {
        for (size_t i = 0; i < model->file.n[KRT_S_PLANS]; ++i)
            krt_plan_set_threads(model->plans[i], threads);
        krt_lock_release(&model->lock);
    }
}

/* ---- Saving -------------------------------------------------------------------------------- */

static bool put(int fd, uint64_t *offset, const void *data, size_t nbytes)
{
    for (const char *at = data; nbytes;) {
        ssize_t n = pwrite(fd, at, nbytes, (off_t)*offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        *offset += (uint64_t)n;
        nbytes -= (size_t)n;
    }
    return true;
}

static bool write_all(const krt_model *model, int fd, const crc_tables *tables)
{
    krt_r_section table[KRT_N_SECTIONS];
    krt_r_header header = {.version = KRT_MODEL_VERSION, .n_sections = KRT_N_SECTIONS};
    uint64_t offset = sizeof header + sizeof table;
    memcpy(header.magic, KRT_MODEL_MAGIC, sizeof header.magic);
    memset(table, 0, sizeof table);
    for (int s = 0; s < KRT_N_SECTIONS; ++s) {
        const void *data = s == KRT_S_CODE ? model->code
                         : s == KRT_S_DATA ? model->memory : (const void *)model->file.at[s];
        size_t nbytes = model->file.n[s] * sections[s].item;
        memcpy(table[s].name, sections[s].name, strlen(sections[s].name));
        if (!nbytes)
            continue;
        offset = (offset + 63) & ~(uint64_t)63;
        table[s].offset = offset;
        table[s].nbytes = nbytes;
        table[s].crc = crc_of(tables, data, nbytes);
        if (!put(fd, &offset, data, nbytes))
            return false;
    }
    header.nbytes = offset;
    header.crc = crc_of(tables, (const unsigned char *)table, sizeof table);
    offset = 0;
    return put(fd, &offset, &header, sizeof header) && put(fd, &offset, table, sizeof table) &&
           !fsync(fd);
}

/* Open a new file beside `path` with its permissions, or those of any new file; write its name to
 * `name`, which has room for `nbytes`. Return -1 on failure. */
static int open_beside(const char *path, char *name, size_t nbytes)
{
    static _Atomic unsigned counter;
    struct stat old;
    int fd = -1;
    for (int attempt = 0; attempt < 100 && fd < 0 && (!attempt || errno == EEXIST); ++attempt) {
        snprintf(name, nbytes, "%s.%ld-%u-%llx.part", path, (long)getpid(), counter++,
                 (unsigned long long)krt_clock_ns());
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    }
    if (fd >= 0 && !lstat(path, &old) && S_ISREG(old.st_mode))
        (void)!fchmod(fd, old.st_mode & 0777); /* a failure has no effect */
    return fd;
}

krt_status krt_model_save(krt_model *model, const char *path, krt_message *why)
{
    size_t room = strlen(path) + 80;
    char *name = krt_alloc(room);
    crc_tables *tables = krt_alloc(sizeof *tables);
    krt_status status = name && tables ? enter(model, why) : no_memory(why);
    if (!status) {
        fill_tables(tables);
        int fd = open_beside(path, name, room);
        bool made = fd >= 0, ok = made && write_all(model, fd, tables);
        int error = errno;
        if (made && close(fd) && ok) {
            ok = false;
            error = errno;
        }
        if (ok && rename(name, path)) {
            ok = false;
            error = errno;
        }
        if (!ok) {
            status = fail(why, "%s cannot be written: %s", path, strerror(error));
            if (made)
                unlink(name);
        }
        krt_lock_release(&model->lock);
    }
    krt_free(name);
    krt_free(tables);
    return status;
}

/* ---- For hosts ----------------------------------------------------------------------------- */

size_t krt_model_n_plans(const krt_model *model) { return model->file.n[KRT_S_PLANS]; }

krt_plan *krt_model_plan(const krt_model *model, size_t plan) { return model->plans[plan]; }

void *krt_model_memory(const krt_model *model, size_t *nbytes)
{
    *nbytes = model->memory_bytes;
    return model->memory;
}

size_t krt_model_bodies(const krt_model *model, size_t plan, size_t op, const int64_t **out)
{
    uint32_t region = op_at(model, plan, op)->region;
    if (!region)
        return 0;
    krt_r_range bodies = ITEMS(model, KRT_S_REGIONS, krt_r_region)[region - 1].bodies;
    *out = INTS(model) + bodies.first;
    return bodies.n;
}

int krt_model_function_plan(const krt_model *model, int function, int *preparation)
{
    *preparation = (int)function_at(model, function)->preparation - 1;
    return (int)function_at(model, function)->plan;
}

bool krt_model_writes_state(const krt_model *model, size_t plan)
{
    return plan_at(model, plan)->writes_state;
}

size_t krt_model_n_variables(const krt_model *model, size_t plan)
{
    return plan_at(model, plan)->variables.n;
}

krt_status krt_model_variable(const krt_model *model, size_t plan, size_t number, krt_variable *out)
{
    krt_r_range range = plan_at(model, plan)->variables;
    if (number >= range.n)
        return KRT_INVALID;
    const krt_r_variable *v = ITEMS(model, KRT_S_VARS, krt_r_variable) + range.first + number;
    *out = (krt_variable){text(model, v->name), v->least, v->most, v->initial};
    return KRT_OK;
}

const char *krt_model_op_name(const krt_model *model, size_t plan, size_t op)
{
    return text(model, op_at(model, plan, op)->name);
}

const char *krt_model_region_name(const krt_model *model, size_t plan, size_t op)
{
    uint32_t region = op_at(model, plan, op)->region;
    if (!region)
        return "";
    return text(model, ITEMS(model, KRT_S_REGIONS, krt_r_region)[region - 1].title);
}

const char *krt_model_python(const krt_model *model) { return text(model, head(model)->python); }

/* The value that a failed check of a domain encodes, as in ir/domain.py: the bits of a float32, or
 * the highest bits of a float64. */
static double decoded(int64_t code, int *digits)
{
    enum { CUT = 10 };
    const uint64_t bits = (uint64_t)(-1 - code), wide = (uint64_t)1 << 32;
    if (bits < wide) {
        float value;
        uint32_t narrow = (uint32_t)bits;
        memcpy(&value, &narrow, sizeof value);
        *digits = 7;
        return (double)value;
    }
    double value;
    uint64_t whole = (bits - wide) << CUT;
    memcpy(&value, &whole, sizeof value);
    *digits = 12;
    return value;
}

/* Indices are clamped to these; see ir/status.py. */
#define KRT_INDEX_MOST (((int64_t)1 << 55) - 1)
#define KRT_INDEX_LEAST (-((int64_t)1 << 55))

static void fill_in(const char *pattern, const krt_problem *found, const char *beyond, int digits,
                    krt_message *out)
{
    size_t n = 0;
    const size_t room = sizeof out->text - 1;
    while (*pattern && n < room) {
        char number[64];
        size_t skip = 1;
        number[0] = *pattern;
        number[1] = '\0';
        if (!strncmp(pattern, "{index}", 7)) {
            snprintf(number, sizeof number, "%" PRId64 "%s", found->index, beyond);
            skip = 7;
        } else if (!strncmp(pattern, "{size}", 6)) {
            snprintf(number, sizeof number, "%" PRId64, found->size);
            skip = 6;
        } else if (!strncmp(pattern, "{takes}", 7) || !strncmp(pattern, "{wraps}", 7)) {
            if (found->size)
                snprintf(number, sizeof number, "%" PRId64 " to %" PRId64,
                         pattern[1] == 'w' ? -found->size : (int64_t)0, found->size - 1);
            else
                snprintf(number, sizeof number, "no index");
            skip = 7;
        } else if (!strncmp(pattern, "{value}", 7)) {
            if (found->value != found->value)
                snprintf(number, sizeof number, "nan"); /* without the sign that "%g" may print */
            else
                snprintf(number, sizeof number, "%.*g", digits, found->value);
            skip = 7;
        }
        for (const char *at = number; *at && n < room; ++at)
            out->text[n++] = *at;
        pattern += skip;
    }
    out->text[n] = '\0';
}

void krt_model_explain(const krt_model *model, size_t plan, size_t op, int64_t word,
                       const int64_t *values, krt_problem *out)
{
    /* As in ir/status.py: 1 plus the number of the check in the low eight bits, then the index. */
    const int64_t number = (word & 255) - 1;
    const krt_r_range range = op_at(model, plan, op)->checks;
    const krt_r_check *check = NULL;
    const char *beyond = "";
    int digits = 12;
    for (size_t i = 0; i < range.n; ++i) {
        const krt_r_check *one = ITEMS(model, KRT_S_CHECKS, krt_r_check) + range.first + i;
        if (one->number == number || one->number < 0) {
            check = one;
            break;
        }
    }
    *out = (krt_problem){.index = word >> 8};
    if (!check) {
        fail(&out->message, "%s failed", krt_model_op_name(model, plan, op));
        return;
    }
    out->kind = (krt_check_kind)check->kind;
    if (check->kind == KRT_CHECK_INDEX) {
        if (!evaluate(model, check->size, values, &out->size) || out->size < 0)
            out->size = 0;
        if (out->index == KRT_INDEX_MOST || out->index == KRT_INDEX_LEAST)
            beyond = out->index < 0 ? " or less" : " or more";
        else if (check->wraps && out->index < 0) /* it was counted from the end */
            out->index = (int64_t)((uint64_t)out->index - (uint64_t)out->size);
    } else if (check->kind == KRT_CHECK_DOMAIN) {
        out->value = decoded(out->index, &digits);
    }
    fill_in(text(model, check->text), out, beyond, digits, &out->message);
}

/* ---- Opening -------------------------------------------------------------------------------- */

/* Check that all arrays have room for their present shapes. */
static krt_status check_shapes(const krt_model *model, krt_message *why)
{
    int64_t shape[KRT_MOST_AXES], nbytes;
    krt_status status = KRT_OK;
    for (int f = 0; !status && f < krt_model_n_functions(model); ++f)
        for (int side = 0; !status && side < 2; ++side) {
            const krt_r_port *port;
            for (int i = 0; !status && (port = port_at(model, f, side, i)); ++i)
                status = shape_of(model, port, model->values[function_at(model, f)->plan], shape,
                                  &nbytes, NULL);
        }
    const krt_r_range states = head(model)->states;
    for (uint32_t i = 0; !status && i < states.n; ++i)
        status = shape_of(model, ITEMS(model, KRT_S_PORTS, krt_r_port) + states.first + i, NULL,
                          shape, &nbytes, NULL);
    return status ? fail(why, "the file is damaged: an array has no room for its shape") : KRT_OK;
}

static krt_status open_source(const source *from, const krt_model_options *options,
                              krt_model **out, krt_message *why)
{
    *out = NULL;
    krt_model *model = krt_alloc(sizeof *model);
    crc_tables *tables = krt_alloc(sizeof *tables);
    krt_r_section found[KRT_N_SECTIONS];
    krt_status status = model && tables ? KRT_OK : no_memory(why);
    if (!status) {
        if (options)
            model->options = *options;
        fill_tables(tables);
        status = read_sections(model, from, tables, found, why);
    }
    if (!status)
        status = check(model, why);
    if (!status)
        status = check_processor(model, why);
    if (!status)
        status = find_routines(model, why);
    if (!status)
        status = map_code(model, from, &found[KRT_S_CODE], tables, why);
    if (!status)
        status = fill_memory(model, from, &found[KRT_S_DATA], tables, why);
    if (!status) {
        const int64_t *costs = head(model)->thread_costs;
        krt_default_thread_costs((krt_thread_costs){costs[0], costs[1], costs[2], costs[3]});
        status = make_plans(model, why);
    }
    if (!status)
        status = check_shapes(model, why);
    krt_free(tables);
    if (status) {
        krt_model_close(model);
        return status;
    }
    *out = model;
    return KRT_OK;
}

/* Put the path of the file, or its last characters, before the message. */
static void name_file(krt_message *why, const char *path)
{
    enum { MOST_SHOWN = 200 };
    const krt_message told = *why;
    const size_t n = strlen(path), skipped = n > MOST_SHOWN ? n - MOST_SHOWN : 0;
    fail(why, "%s%s: %s", skipped ? "..." : "", path + skipped, told.text);
}

krt_status krt_model_open(const char *path, const krt_model_options *options, krt_model **out,
                          krt_message *why)
{
    struct stat info;
    *out = NULL;
    source from = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (from.fd < 0)
        return fail(why, "%s: the file cannot be opened: %s", path, strerror(errno));
    krt_status status = KRT_OK;
    if (fstat(from.fd, &info) || !S_ISREG(info.st_mode))
        status = fail(why, "it is not a regular file");
    else
        from.nbytes = (uint64_t)info.st_size;
    if (!status)
        status = open_source(&from, options, out, why);
    if (status && why)
        name_file(why, path);
    close(from.fd);
    return status;
}

krt_status krt_model_read(const void *bytes, size_t nbytes, const krt_model_options *options,
                          krt_model **out, krt_message *why)
{
    source from = {.bytes = bytes, .fd = -1, .nbytes = nbytes};
    return open_source(&from, options, out, why);
}
