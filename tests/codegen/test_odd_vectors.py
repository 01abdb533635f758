"""Vectors of every length and type: what LLVM cannot lower ends the whole process.

So the kernels are made in a process of their own, past the cache, and what it computes is
compared with NumPy there.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
import kernelrt as krt

dtype, others = getattr(krt, sys.argv[1]), [getattr(krt, name) for name in sys.argv[2].split(",")]


def check(name, size, got, expected):
    got = (got.cast(krt.float32) if got.dtype is krt.bfloat16 else got).numpy()
    tolerance = 0.02 if krt.bfloat16 in (dtype, *others) else 2e-3
    np.testing.assert_allclose(
        got.astype(np.float64), np.asarray(expected, np.float64), tolerance, err_msg=name
    )


for size in map(int, sys.argv[3].split(",")):
    print(size, flush=True)
    whole = np.arange(size) % 5
    x = krt.tensor(whole).cast(dtype).realize()
    values = whole if dtype is not krt.bool_ else whole != 0
    floats = values.astype(np.float64)
    check("copy", size, x.clone().realize(), values)
    check("pad", size, x.pad((1, 2)).realize(), np.pad(values, (1, 2)))
    check("flip", size, x.flip(0).realize(), values[::-1])
    check("step", size, x[::2].realize(), values[::2])
    check("rows", size, x.expand(3, size).permute(1, 0).contiguous().realize(),
          np.broadcast_to(values, (3, size)).T)
    for other in others:
        check(f"cast to {other}", size, x.cast(other).realize(),
              values != 0 if other is krt.bool_ else values)
    check("sum", size, x.cast(krt.float32).sum().realize(), floats.sum())
    check("amax", size, x.amax().realize(), values.max())
    mask = x.cast(krt.bool_) & (x.cast(krt.int32) < 3)
    zeros = krt.zeros(size, dtype=dtype)
    check("where", size, x.where(mask, zeros).realize(),
          np.where((values != 0) & (values < 3), values, 0))
    if dtype is not krt.bool_:
        check("plus", size, (x + x).realize(), values + values)
        check("times", size, (x * x).sum().realize(), (floats * floats).sum())
        check("less", size, (x < x.flip(0)).realize(), values < values[::-1])
    if dtype.is_float:
        check("mean", size, x.mean().realize(), floats.mean())
        check("exp", size, x.exp().realize(), np.exp(floats))
"""

NAMES = [
    "bool_", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
    "bfloat16", "float32", "float64",
]  # fmt: skip
OTHERS = {name: [n for n in NAMES if n != name] for name in NAMES}
FEW = (1, 3, 7, 9, 17, 25)


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_every_length(name):
    soak = bool(os.environ.get("KERNELRT_SOAK"))
    sizes = range(1, 71) if soak else FEW
    place = NAMES.index(name)
    # Each pair of types once in a while.
    others = OTHERS[name] if soak else [OTHERS[name][(place + k) % 12] for k in (0, 5)]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, ",".join(others), ",".join(map(str, sizes))],
        env={**os.environ, "KERNELRT_CACHE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = (run.stdout.split() or ["?"])[-1]
    assert run.returncode == 0, f"{name}, {last} elements: {run.stderr[-2000:]}"
