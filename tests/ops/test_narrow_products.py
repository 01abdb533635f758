"""Products of tensors of narrow types, as a user writes them: values, kernels and threads."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.device.spec import TARGETS
from kernelrt.ir import Op, toposort
from kernelrt.schedule import schedule

KINDS = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"),
         ("int16", "int16"), ("int16", "uint8"), ("uint16", "int8")]  # fmt: skip


def drawn(rng, kind, shape):
    """Numbers of which a third are the least, and a third the greatest."""
    info = np.iinfo(kind)
    some = rng.integers(info.min, info.max + 1, shape)
    return np.choose(rng.integers(0, 3, shape), [some, info.min, info.max]).astype(kind)


def widened(a, b, dtype="int32"):
    return a.cast(dtype) @ b.cast(dtype)


@pytest.mark.parametrize("kinds", KINDS, ids=str)
@pytest.mark.parametrize("shapes", [((40, 31), (31, 50)), ((3, 20, 64), (64, 33)), ((64,), (64, 9)),
                                    ((2, 1, 17, 5), (3, 5, 16)), ((1, 129), (129, 70)),
                                    ((0, 8), (8, 4)), ((8, 0), (0, 4))], ids=str)  # fmt: skip
def test_products_in_int32(kinds, shapes):
    rng = np.random.default_rng(5)
    a, b = (drawn(rng, kind, shape) for kind, shape in zip(kinds, shapes, strict=True))
    truth = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.int32)
    found = krt.jit(widened)(krt.tensor(a), krt.tensor(b))
    np.testing.assert_array_equal(found.numpy(), truth)
    np.testing.assert_array_equal(widened(krt.tensor(a), krt.tensor(b)).numpy(), truth)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("kinds", [("int8", "int8"), ("int16", "int16")], ids=str)
def test_one_kernel_reads_the_narrow_numbers(kinds, transposed):
    """No wider copy is stored, and threads do not change a bit."""
    rng = np.random.default_rng(6)
    a, b = (drawn(rng, kind, (384, 384)) for kind in kinds)
    f = krt.jit(lambda x, y: widened(*(
        t.T if flip else t for t, flip in zip((x, y), transposed, strict=True)
    )))  # fmt: skip
    left, right = (t.T if flip else t for t, flip in zip((a, b), transposed, strict=True))
    truth = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64).astype(np.int32)
    [kernel] = f.plan(a, b).kernels
    read = {u.dtype.itemsize for u in toposort([kernel.ast]) if u.op is Op.PARAM}
    assert read == {np.dtype(kinds[0]).itemsize, 4}
    for threads in (1, 2):
        with krt.num_threads(threads):
            np.testing.assert_array_equal(f(a, b).numpy(), truth)


def test_quantized_activations_are_stored_as_they_are_multiplied():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((96, 256)).astype(np.float32)
    w = drawn(rng, "int8", (128, 256))

    @krt.jit
    def layer(x, w):
        scale = x.abs().max() / 127
        return widened((x / scale).round().cast("int8"), w.T).cast("float32") * scale

    scale = np.abs(x).max() / np.float32(127)
    q = np.round(x / scale).astype(np.int64)
    truth = (q @ w.T.astype(np.int64)).astype(np.float32) * scale
    np.testing.assert_allclose(layer(x, w).numpy(), truth, rtol=1e-6)
    stored = [u.dtype.name for k in layer.plan(x, w).kernels for u in k.ast.src]
    assert "int8" in stored


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_narrow_floats_are_widened_in_the_product(kind, transposed):
    rng = np.random.default_rng(8)
    a, b = (krt.tensor(rng.standard_normal((160, 192)).astype(np.float32)).cast(kind).realize()
            for _ in range(2))  # fmt: skip
    if not transposed:
        b = b.T.clone().realize()
    f = krt.jit(lambda x, y: widened(x, y.T if transposed else y, "float32"))
    left, right = (t.cast("float32").numpy().astype(np.float64) for t in (a, b))
    truth = left @ (right.T if transposed else right)
    np.testing.assert_allclose(f(a, b).numpy(), truth, rtol=1e-5, atol=1e-4)
    assert len(f.plan(a, b).kernels) == 1
    # The product of the narrow ones is the same, rounded once.
    narrow = krt.jit(lambda x, y: x @ (y.T if transposed else y))(a, b)
    once = krt.tensor(truth.astype(np.float32)).cast(kind).cast("float32").numpy()
    step = {"bfloat16": 2.0**-7, "float16": 2.0**-10}[kind]
    np.testing.assert_allclose(narrow.cast("float32").numpy(), once, rtol=step, atol=1e-4)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("sizes", [(2, 16, 14, 24, 3), (1, 3, 17, 16, 3), (2, 20, 9, 33, 1)],
                         ids=str)  # fmt: skip
def test_convolutions(sizes, padding):
    torch = pytest.importorskip("torch")
    batch, channels, side, filters, taps = sizes
    rng = np.random.default_rng(9)
    x = drawn(rng, "int8", (batch, channels, side, side))
    w = drawn(rng, "int8", (filters, channels, taps, taps))
    f = krt.jit(lambda x, w: x.cast("int32").conv2d(w.cast("int32"), padding=padding))
    exact = (torch.from_numpy(a).double() for a in (x, w))
    truth = torch.nn.functional.conv2d(*exact, padding=padding).numpy()
    np.testing.assert_array_equal(f(x, w).numpy(), truth)
    asts = [k.ast for k in f.plan(x, w).kernels]
    [at] = [n for n, ast in enumerate(asts) if any(u.op is Op.REDUCE for u in toposort([ast]))]
    assert all(s.dtype is krt.int8 for ast in asts[:at] for s in ast.src)
    read = [u for u in toposort([asts[at]]) if u.op is Op.LOAD]
    assert all(u.dtype is krt.int8 for u in read)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_that_multiply_nothing_narrow_count_what_casts_cost(target):
    spec = TARGETS[target]()
    x, w = (krt.tensor(np.ones((64, 64), kind)).realize() for kind in ("int8", "uint8"))
    plan = schedule([widened(x, w).uop], device=spec)
    grounds = [d.reason for d in plan.decisions if d.node.op is Op.CAST]
    multiplied = any("converts" in why for why in grounds)
    assert multiplied is (spec.dot(krt.int8) is not None) is (target != "armv8-a")
