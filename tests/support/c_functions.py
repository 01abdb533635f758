"""C functions compiled by the system's compiler, for tests of what calls them."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
#include <stdint.h>

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
"""


@functools.cache
def library() -> Any:
    """The functions of SOURCE; the test is skipped where nothing compiles them."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "functions.c"), Path(folder, "functions.so")
        source.write_text(SOURCE, encoding="ascii")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(target))  # stays loaded when its file is gone
