"""C functions compiled with the system's compiler, for tests of code that calls them."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.skip_list import require_command

SOURCE = """
#include <stdint.h>
#include <time.h>

/* out = a * x + y, of one number a and two rows. */
void axpy(void *const *bufs, const int64_t *vals)
{
    float *out = bufs[0];
    const float *a = bufs[1], *x = bufs[2], *y = bufs[3];
    for (int64_t i = 0; i < vals[0]; ++i)
        out[i] = a[0] * x[i] + y[i];
}

/* The elements twice, as doubles, and how many there are. */
void twice(void *const *bufs, const int64_t *vals)
{
    double *out = bufs[0];
    int64_t *count = bufs[1];
    const float *x = bufs[2];
    for (int64_t i = 0; i < vals[2]; ++i)
        out[i] = 2.0 * x[i];
    *count = vals[2];
}

/* Whether somebody sets the operand within minutes, which takes turns of the interpreter. */
void wait_for(void *const *bufs, const int64_t *vals)
{
    volatile const int64_t *flag = bufs[1];
    int64_t *seen = bufs[0];
    const time_t end = time(0) + 300;
    (void)vals;
    while (!*flag && time(0) < end)
        ;
    *seen = *flag;
}

/* Halves; fails where a number is negative, and tells where. */
void halves(void *const *bufs, const int64_t *vals)
{
    double *out = bufs[0];
    const double *x = bufs[1];
    int64_t *status = bufs[2];
    for (int64_t i = 0; i < vals[1]; ++i) {
        if (x[i] < 0)
            *status = vals[2] + i;
        out[i] = x[i] / 2;
    }
}

/* A pendulum: its next state, of angle and speed, and a reward, for a torque. */
void swing(void *const *bufs, const int64_t *vals)
{
    float *next = bufs[0], *reward = bufs[1];
    const float *state = bufs[2], *torque = bufs[3];
    (void)vals;
    next[1] = state[1] + 0.05f * (torque[0] - state[0]);
    next[0] = state[0] + 0.05f * next[1];
    *reward = -state[0] * state[0];
}
"""


@functools.cache
def library() -> Any:
    """Return the functions of SOURCE; skip the test if there is no compiler."""
    compiler = require_command("cc", "gcc", "clang")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "functions.c"), Path(folder, "functions.so")
        source.write_text(SOURCE, encoding="ascii")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(target))  # stays loaded when its file is gone
