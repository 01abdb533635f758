/* model_runner.c - runs a function of a model file: RUNNER FILE RUNS THREADS [SIZE=VALUE ...]
 *
 * Standard input has the inputs of the first function, one after the other; all outputs of all runs
 * go to standard output. After the runs the model is saved as FILE.later. Exit status 3: a message
 * is on standard error. */
#include "krt_model.h"
#ifdef WITH_ROUTINES
#include "routines.h"
#define ROUTINE .routine = krt_find_routine
#else
#define ROUTINE 0
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const krt_message *why)
{
    fprintf(stderr, "%s\n", why->text);
    return 3;
}

int main(int argc, char **argv)
{
    krt_model_options options = {ROUTINE};
    krt_model *model;
    krt_message why;
    krt_port port;
    if (argc < 4 || krt_model_open(argv[1], &options, &model, &why))
        return fail(&why);
    krt_model_set_threads(model, atoi(argv[3]));
    for (int i = 4; i < argc; ++i) {
        char *value = strchr(argv[i], '=');
        *value++ = '\0';
        if (krt_model_set_size(model, 0, argv[i], atoll(value), &why))
            return fail(&why);
    }
    for (int i = 0; i < krt_model_n_inputs(model, 0); ++i) {
        krt_model_input(model, 0, i, &port);
        if (port.data && fread(port.data, 1, port.nbytes, stdin) != port.nbytes)
            return 2;
    }
    for (int run = atoi(argv[2]); run--;) {
        if (krt_model_run(model, 0, &why))
            return fail(&why);
        for (int i = 0; i < krt_model_n_outputs(model, 0); ++i) {
            krt_model_output(model, 0, i, &port);
            fwrite(port.data, 1, port.nbytes, stdout);
        }
    }
    char later[4096];
    snprintf(later, sizeof later, "%s.later", argv[1]);
    if (krt_model_save(model, later, &why))
        return fail(&why);
    krt_model_close(model);
    return 0;
}
