"""Programs give right values under every target of KERNELRT_TARGET that this machine can run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernelrt.device.spec import machine, runnable

PRODUCTS = """
import numpy as np
import kernelrt as krt

rng = np.random.default_rng(0)
sizes = [(1, 1, 1), (7, 5, 9), (13, 64, 24), (33, 70, 65), (100, 100, 30), (6, 300, 16),
         (128, 128, 128), (32, 2048, 1024), (512, 512, 256), (0, 3, 2), (3, 0, 2)]
for m, k, n in sizes:
    for kind, tol in ((np.float32, 1e-5), (np.float64, 1e-13)):
        a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)
        want = a.astype(np.float64) @ b.astype(np.float64)
        ta, tb = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
        for run, x, y in ((lambda x, y: x @ y, a, b), (lambda x, y: x @ y.T, a, tb),
                          (lambda x, y: x.T @ y, ta, b), (lambda x, y: x.T @ y.T, ta, tb)):
            got = krt.jit(run)(x, y).numpy()
            assert abs(got - want).max(initial=0) <= tol * max(1, k), (m, k, n, kind)
"""

OTHERS = """
import numpy as np
import kernelrt as krt
from kernelrt.nn import functional as F

rng = np.random.default_rng(1)
for shape in ((1, 1), (5, 3), (9, 33), (64, 100), (3, 1000)):
    for kind, tol in (("float32", 1e-5), ("float64", 1e-12)):
        x = rng.standard_normal(shape).astype(kind)
        w = x.astype(np.float64)
        e = np.exp(w - w.max(1, keepdims=True))
        for run, want in (
            (lambda t: t.sum(0), w.sum(0)), (lambda t: t.sum(1), w.sum(1)),
            (lambda t: t.amax(0), w.max(0)), (lambda t: t.argmax(1), w.argmax(1)),
            (lambda t: t.argmin(0), w.argmin(0)), (lambda t: t.cumsum(1), w.cumsum(1)),
            (lambda t: t.softmax(1), e / e.sum(1, keepdims=True)),
            (lambda t: t.sort(1)[0], np.sort(w, 1)), (lambda t: t.T.contiguous(), w.T),
            (lambda t: t.max(1)[1], w.argmax(1)), (lambda t: t[:, ::2] * 2, w[:, ::2] * 2),
            (lambda t: (t > 0).sum(), (w > 0).sum()),
        ):
            np.testing.assert_allclose(krt.jit(run)(x).numpy(), want, rtol=tol, atol=tol * 30)
x = rng.standard_normal((2, 5, 9, 11)).astype(np.float32)
k = rng.standard_normal((7, 5, 3, 3)).astype(np.float32)
want = np.zeros((2, 7, 7, 9))
for i in range(3):
    for j in range(3):
        window = x[:, :, i : i + 7, j : j + 9].astype(float)
        want += np.einsum("bchw,oc->bohw", window, k[:, :, i, j])
np.testing.assert_allclose(krt.jit(F.conv2d)(x, k).numpy(), want, rtol=1e-4, atol=1e-4)
q = rng.integers(-(2**40), 2**40, (33, 17))
run = krt.jit(
    lambda t: (t.amax(1), t.amin(0), t.argmax(1), t.cumsum(0), t // 7, t % 7, t.sort(1)[0])
)
wanted = q.max(1), q.min(0), q.argmax(1), q.cumsum(0), q // 7, q % 7, np.sort(q, 1)
for got, want in zip(run(q), wanted, strict=True):
    np.testing.assert_array_equal(got.numpy(), want)
half = rng.standard_normal(1000).astype(np.float16)
got = krt.jit(lambda t: t * 3 + t)(half).numpy()
np.testing.assert_array_equal(got, (half * np.float16(3)).astype(np.float16) + half)
"""


@pytest.mark.cases(2)
@pytest.mark.parametrize("program", [PRODUCTS, OTHERS], ids=["products", "others"])
@pytest.mark.parametrize("target", runnable(machine()))
def test_values_are_those_of_numpy(target, program):
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "KERNELRT_TARGET": target},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
