"""Programs that go over the same rows several times, and what of a row is computed only once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.device.spec import host
from kernelrt.ir import Op, Variable, toposort

torch = Package("torch")

SIZES = [(1, 1), (3, 2), (5, 17), (2, 1000), (33, 64)]


def kernels(jitted, *args):
    return [op.kernel.ast for op in jitted.plan(*args).prepared_ops if hasattr(op, "kernel")]


def evaluations(asts, op):
    """How often kernels compute `op`: for each combination of the loops that it varies with."""
    count = 0
    for ast in asts:
        deps = {}
        for node in toposort([ast]):
            own = set(node.src[1:]) if node.op in (Op.REDUCE, Op.LOCAL) else set()
            deps[node] = frozenset().union(*(deps[s] for s in node.src)) - own
            if node.op is Op.RANGE:
                deps[node] |= {node}
            if node.op is op:
                count += math.prod(r.src[0].vmax for r in deps[node])
    return count


def arrays(asts):
    return sum(node.op is Op.LOCAL for node in toposort(asts))


def gradient(f):
    def both(x):
        x.grad = None
        y = f(x)
        (y * y * 0.5 + y).sum().backward()
        return y, x.grad

    return both


def lib(x):
    return torch if isinstance(x, torch.Tensor) else krt


def norm(x):
    y = x - x.mean(-1, keepdim=True)
    return y / ((y * y).mean(-1, keepdim=True) + 1e-3).sqrt()


NAMED = {
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1), "norm": norm,
    "rms": lambda x: x / ((x * x).mean(-1, keepdim=True) + 1e-3).sqrt(),
    "first axis": lambda x: x.softmax(0),
    "temperature": lambda x: (x.exp() * 0.25).softmax(-1) * x.exp(),
    "twice": lambda x: (x.softmax(-1) * 3.0).softmax(-1),
}  # fmt: skip


def compare(f, x, *, jitted=None, tolerance=2e-4):
    """Values and gradients of `f` at `x` as torch has them in float64."""
    given = krt.tensor(x, requires_grad=True)
    found = (jitted or krt.jit(lambda: gradient(f)(given)))(*([] if jitted is None else [x]))
    meant = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    wanted = f(meant)
    (wanted * wanted * 0.5 + wanted).sum().backward()
    for name, a, b in zip(("value", "gradient"), found, (wanted, meant.grad), strict=False):
        wide = b.detach().numpy()
        scale = max(1.0, float(np.abs(wide).max()))
        np.testing.assert_allclose(a.numpy(), wide, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", NAMED)
def test_rows_and_their_gradients(name, shape):
    x = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    compare(NAMED[name], x)


@pytest.mark.parametrize("name", NAMED)
def test_rows_of_symbolic_size(name):
    f = NAMED[name]
    rows, cols = Variable("rows", 1, 40), Variable("cols", 1, 1000)

    @krt.jit(dynamic={"x": {0: rows, 1: cols}})
    def jitted(x):
        return (f(x),)

    for shape in SIZES:
        x = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
        compare(f, x, jitted=jitted)


def program(rng):
    """A chain of passes over rows: elementwise steps with what earlier passes came to."""
    steps = [int(rng.integers(9)) for _ in range(int(rng.integers(3, 9)))]
    picks = [int(rng.integers(100)) for _ in steps]

    def run(x):
        rows, sums = [x], [x.mean(-1, keepdim=True)]
        for step, pick in zip(steps, picks, strict=True):
            a, s = rows[pick % len(rows)], sums[pick % len(sums)]
            if step == 0:
                sums.append(a.sum(-1, keepdim=True) * 0.125)
            elif step == 1:
                sums.append((a * a).mean(-1, keepdim=True))
            elif step == 2:
                sums.append(a.tanh().exp().mean(-1, keepdim=True))
            elif step == 3:
                rows.append(a - s)
            elif step == 4:
                rows.append((a * 0.5).tanh() * s.tanh())
            elif step == 5:
                rows.append(a / (1.0 + s * s))
            elif step == 6:
                rows.append((a.tanh() + s.tanh()).exp())
            elif step == 7:
                rows.append(a.softmax(-1))
            else:
                rows.append(a * 0.5 + rows[pick % 7 % len(rows)] * 0.25)
        out = rows[-1] * 0.5
        for s in sums:
            out = out + s.tanh() * 0.25
        return out

    return run


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    shape = SIZES[1:][int(rng.integers(len(SIZES) - 1))]
    compare(program(rng), rng.normal(size=shape).astype(np.float32), tolerance=1e-3)


@pytest.mark.parametrize("rows", [1, 33, 64])
@pytest.mark.parametrize("columns", [16, 100, 1024])
def test_what_a_row_is_made_of_is_computed_once(rows, columns):
    x = np.zeros((rows, columns), np.float32)
    asts = kernels(krt.jit(lambda x: x.softmax(-1)), x)
    assert len(asts) == 1
    assert evaluations(asts, Op.EXP) == rows * columns
    tanh = kernels(krt.jit(lambda x: x.tanh() / (x.tanh() + 2).sum(-1, keepdim=True)), x)
    assert evaluations(tanh, Op.TANH) == rows * columns


def test_the_gradient_of_a_row_has_its_exp_once():
    x = krt.tensor(np.zeros((64, 256), np.float32), requires_grad=True)
    asts = kernels(krt.jit(lambda: gradient(lambda x: x.softmax(-1))(x)))
    assert evaluations(asts, Op.EXP) == 64 * 256


def test_what_could_fail_or_does_not_fit_is_not_kept():
    table, index = np.zeros((9, 64), np.float32), np.zeros(5, np.int64)
    assert arrays(kernels(krt.jit(lambda t: t.exp().softmax(-1)), table)) > 0
    assert arrays(kernels(krt.jit(lambda t, i: t[i].softmax(-1)), table, index)) == 0
    wide = np.zeros((40, 100_000), np.float32)
    assert arrays(kernels(krt.jit(lambda x: x.softmax(-1)), wide)) == 0


def test_a_short_row_stays_in_registers():
    short = np.zeros((64, min(4, host().lanes(4) // 2)), np.float32)  # shorter than a vector
    assert arrays(kernels(krt.jit(lambda x: x.softmax(-1)), short)) == 0
