/* model_fuzz.c - opens damaged copies of a model file: FUZZ FILE COUNT SEED
 *
 * Half of the copies have checksums that fit, so that the checks behind them are reached. Copies
 * that open are described, their sizes are set and errors are explained; they are not run. */
#include "model.h"
#include "model_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static uint32_t crc_of(const unsigned char *data, size_t nbytes)
{
    static uint32_t table[256];
    for (uint32_t i = 0; !table[255] && i < 256; ++i) {
        table[i] = i;
        for (int bit = 0; bit < 8; ++bit)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xEDB88320u : table[i] >> 1;
    }
    uint32_t c = 0xFFFFFFFFu;
    while (nbytes--)
        c = c >> 8 ^ table[(c ^ *data++) & 255];
    return ~c;
}

static void seal(unsigned char *file, size_t nbytes)
{
    krt_r_header header;
    krt_r_section table[KRT_N_SECTIONS];
    memcpy(&header, file, sizeof header);
    memcpy(table, file + sizeof header, sizeof table);
    for (int s = 0; s < KRT_N_SECTIONS; ++s)
        if (table[s].offset <= nbytes && table[s].nbytes <= nbytes - table[s].offset)
            table[s].crc = crc_of(file + table[s].offset, (size_t)table[s].nbytes);
    memcpy(file + sizeof header, table, sizeof table);
    header.crc = crc_of((const unsigned char *)table, sizeof table);
    memcpy(file, &header, sizeof header);
}

static void damage(unsigned char *file, size_t nbytes)
{
    static const unsigned char ends[] = {0, 1, 0x7F, 0x80, 0xFF};
    for (uint64_t n = 1 + draw(4); n--;) {
        size_t at = (size_t)draw(nbytes);
        switch (draw(3)) {
        case 0: file[at] ^= (unsigned char)(1u << draw(8)); break;
        case 1: file[at] = ends[draw(sizeof ends)]; break;
        default: memset(file + at / 4 * 4, ends[draw(sizeof ends)], nbytes - at / 4 * 4 < 4 ? 1 : 4);
        }
    }
}

static void look_at(krt_model *model)
{
    krt_port port;
    krt_message why;
    for (int f = 0; f < krt_model_n_functions(model); ++f) {
        const int64_t *numbers;
        int preparation;
        size_t plan = (size_t)krt_model_function_plan(model, f, &preparation);
        for (int i = 0; i < krt_model_n_inputs(model, f); ++i)
            krt_model_input(model, f, i, &port);
        for (int i = 0; i < krt_model_n_outputs(model, f); ++i)
            krt_model_output(model, f, i, &port);
        krt_model_written(model, f, &numbers);
        krt_variable variable;
        for (size_t v = 0; krt_model_variable(model, plan, v, &variable) == KRT_OK; ++v) {
            krt_model_set_size(model, f, variable.name, variable.least, &why);
            krt_model_set_size(model, f, variable.name, variable.most, &why);
        }
    }
    for (int i = 0; i < krt_model_n_states(model); ++i)
        krt_model_state(model, i, &port);
    for (size_t plan = 0; plan < krt_model_n_plans(model); ++plan) {
        int64_t values[64] = {0};
        krt_problem problem;
        if (krt_model_n_variables(model, plan) > 64)
            continue;
        for (size_t op = 0; op < krt_plan_n_ops(krt_model_plan(model, plan)); ++op)
            for (int64_t word = 0; word < 3; ++word)
                krt_model_explain(model, plan, op, word << 8 | word, values, &problem);
    }
}

/* Memory of one model at a time; a damaged file may ask for more than there is. */
static void *lent;
static size_t lent_bytes;

static void *lend(void *self, size_t nbytes)
{
    (void)self;
    lent_bytes = nbytes;
    lent = nbytes < 1 << 24 ? krt_memory_alloc(nbytes, 64, true) : NULL;
    return lent;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 3 ? fopen(argv[1], "rb") : NULL;
    static unsigned char whole[1 << 20], copy[1 << 20];
    if (!file)
        return 2;
    size_t nbytes = fread(whole, 1, sizeof whole, file);
    krt_model_options options = {.allocate = lend};
    int opened = 0;
    state = strtoull(argv[3], NULL, 10) * 2654435761u + 1;
    for (int i = atoi(argv[2]); i--;) {
        krt_message why;
        krt_model *model;
        bool fits = draw(2);
        memcpy(copy, whole, nbytes);
        damage(copy, nbytes);
        if (fits)
            seal(copy, nbytes);
        size_t n = draw(20) ? nbytes : (size_t)draw(nbytes);
        if (krt_model_read(copy, n, &options, &model, &why) == KRT_OK) {
            opened += fits;
            look_at(model);
        }
        krt_model_close(model);
        if (lent)
            krt_memory_free(lent, lent_bytes);
        lent = NULL;
    }
    printf("%d\n", opened);
    fclose(file);
    return 0;
}
