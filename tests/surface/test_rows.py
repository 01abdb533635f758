"""Every row of every table: against torch, in each type, at the edges, in a jit."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.ir import Op, toposort
from kernelrt.ir.ops import FUNCTIONS
from kernelrt.tensor.autograd.tags import strip
from kernelrt.tensor.eager import interpret
from kernelrt.tensor.eager.plan_cache import SizeFamily, plans
from kernelrt.tensor.nodes.build import const_value

torch = pytest.importorskip("torch")

from support import sample  # noqa: E402
from surface import compare, rows  # noqa: E402
from surface.compare import Found, Raised  # noqa: E402

if TYPE_CHECKING:
    from surface.rows import Row

EVERY = [pytest.param(row, id=f"{table}-{row.name}") for table, row in rows.tables()]
each = pytest.mark.parametrize("row", EVERY)

#: Relative errors that a well-conditioned function stays below.
DOUBLE, SINGLE = 1e-12, 2e-6
HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krt.EagerLoopWarning)
        yield


def run(row: Row, arrays, dtype=krt.float64, *, grad=True, moved=False) -> Found:
    grad = grad and row.grad
    sources, operands = compare.given(row, arrays, dtype, grad, moved)
    out = row.call(krt, *operands)
    return compare.values(out, compare.differentiate(out, sources) if grad else ())


def on_torch(row: Row, arrays, dtype="float64", *, grad=True) -> Found:
    found = compare.on_torch(row, arrays, dtype, grad and row.grad)
    if isinstance(found, Raised):
        raise found.error
    return found


@pytest.mark.cases(110)
@each
def test_values_and_gradients(row):
    arrays = rows.draw(row, rows.sizes(row))
    truth = on_torch(row, arrays)
    assert compare.agree("float64", run(row, arrays), truth, DOUBLE * row.tol * row.tol64)
    single = on_torch(row, arrays, "float32")
    ours = run(row, arrays, krt.float32)
    assert compare.agree("float32", ours, single, SINGLE * row.tol, truth)


@pytest.mark.cases(30)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].grad and p.values[0].second])
def test_second_gradients(row):
    """Central differences of first gradients along a line, against the gradient of their slope."""
    arrays = rows.draw(row, rows.sizes(row))
    sources, operands = compare.given(row, arrays, krt.float64, grad=True)
    first = compare.differentiate(row.call(krt, *operands), sources, create_graph=True)
    wanted = [s for s in sources if s.requires_grad]
    lines = [compare.weights(s.shape, i + 50) for i, s in enumerate(wanted)]
    slope = sum((s.reshape(-1)[:0]).sum() for s in wanted)
    slope = slope + sum((g * krt.tensor(v)).sum() for g, v in zip(first, lines, strict=True))
    second = [g.numpy() for g in krt.grad(slope, wanted, materialize_grads=True)]
    step = 1e-5
    ends = []
    for sign in (1, -1):
        along = iter(lines)
        there = [
            a + sign * step * next(along) if spec.grad else a
            for a, spec in zip(arrays, row.specs, strict=True)
        ]
        ends.append(run(row, there).gradients)
    for i, (found, up, down) in enumerate(zip(second, *ends, strict=True)):
        expected = (up - down) / (2 * step)
        scale = 1 + np.abs(up).max(initial=0)
        np.testing.assert_allclose(
            found, expected, rtol=1e-5 * row.tol, atol=1e-7 * row.tol * scale,
            err_msg=f"second gradient {i}",
        )  # fmt: skip


@pytest.mark.cases(40)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].half and p.values[0].floats])
def test_half_types(row):
    compared = 0
    arrays = rows.draw(row, rows.sizes(row))
    for dtype, eps in HALF.items():
        rounded = [np_rounded(a, dtype) for a in arrays]
        theirs = compare.on_torch(row, rounded, dtype)
        ours = compare.attempt(
            lambda at=rounded, d=dtype: run(row, at, getattr(krt, d), grad=False)
        )
        truth = on_torch(row, rounded, grad=False)
        compared += settle(dtype, ours, theirs, eps * row.tol, truth)
        if isinstance(theirs, Raised):
            compared += not_in_torch(dtype, ours, truth, eps * row.tol)
    assert compared


def not_in_torch(what, ours, truth, eps) -> int:
    """A result in a type that torch does not compute this in: refused, or right."""
    if isinstance(ours, Raised):
        return 1
    ours.types = truth.types
    return compare.agree(what, ours, truth, eps)


def np_rounded(array, dtype):
    """Numbers that the type has."""
    if array.dtype.kind != "f":
        return array
    return torch.tensor(array).to(getattr(torch, dtype)).double().numpy()


def settle(what, ours, theirs, eps, truth=None, floor=0.0) -> int:
    """Compare, where torch gives a value; where it refuses, refusing and giving one are right.

    Returns how much was compared.
    """
    if isinstance(theirs, Raised):
        return 0
    assert isinstance(ours, Found), f"{what}: torch computes this, but {ours!r}"
    return compare.agree(what, ours, theirs, eps, truth, floor)


@pytest.mark.cases(30)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].ints])
def test_integers(row):
    compared = 0
    drawn = rows.draw(row, rows.sizes(row))
    for dtype in INTEGERS:
        arrays = rows.as_integers(row, drawn, signed=dtype != "uint8")
        arrays = [
            a.astype(dtype) if s.floats else a for s, a in zip(row.specs, arrays, strict=True)
        ]
        theirs = compare.on_torch(row, arrays)
        ours = compare.attempt(lambda at=arrays: run(row, at, grad=False))
        if isinstance(theirs, Found):
            compared += settle(dtype, ours, theirs, SINGLE * row.tol)
    assert compared, "torch takes no integers here"


@pytest.mark.cases(30)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].zero])
def test_sizes_of_zero_and_one(row):
    names = rows.letters(row) if row.zero is True else row.zero.split()
    compared = int(not names)  # a scalar has no sizes
    for letter in names:
        for n in (0, 1):
            arrays = rows.draw(row, rows.sizes(row, **{letter: n}))
            what = f"{letter}={n}"
            theirs = compare.on_torch(row, arrays, grad=row.grad)
            if isinstance(theirs, Raised) and row.grad:
                theirs = compare.on_torch(row, arrays)  # values without gradients, perhaps
            grad = isinstance(theirs, Found) and bool(theirs.gradients)
            ours = compare.attempt(lambda at=arrays, g=grad: run(row, at, grad=g))
            compared += settle(what, ours, theirs, DOUBLE * row.tol * row.tol64, floor=1.0)
    assert compared


@pytest.mark.cases(40)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].transposed])
def test_transposed_operands(row):
    arrays = rows.draw(row, rows.sizes(row))
    ours = run(row, arrays, moved=True)
    floats = [a.ndim for a, spec in zip(arrays, row.specs, strict=True) if spec.grad]
    ours.gradients = [
        compare.moved_gradient(g, n) for g, n in zip(ours.gradients, floats, strict=False)
    ]
    assert compare.agree("transposed", ours, on_torch(row, arrays), DOUBLE * row.tol * row.tol64)


@pytest.mark.cases(40)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].special and p.values[0].floats])
def test_special_values(row):
    drawn = rows.draw(row, rows.sizes(row))
    compared = 0
    mixes = ([NAN, INF, -INF, -0.0, 0.0], [INF, 1.0], [-INF, -1.0, -0.0], [-0.0, 0.0, 1.0, -1.0])
    for seed, mix in enumerate(mixes):
        arrays = rows.sprinkled(row, drawn, mix, seed)
        theirs = compare.on_torch(row, arrays, "float32")
        ours = compare.attempt(lambda at=arrays: run(row, at, krt.float32, grad=False))
        compared += settle(f"mix {seed}", ours, theirs, SINGLE * row.tol)
    assert compared


#: A plan of jit computes what is constant once, so their gradients are fused otherwise, and with
#: vectors of AVX2 their sums are added up in another order.
FUSED_OTHERWISE = {"avg_pool3d"}


@pytest.mark.cases(40)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].jit])
def test_jit_gives_the_same_bits(row):
    arrays = rows.draw(row, rows.sizes(row))

    def step(given, weights=None):
        sources = [
            g.detach().requires_grad_(row.grad and spec.grad)
            for g, spec in zip(given, row.specs, strict=True)
        ]
        out = row.call(krt, *sources)
        tensors = [o for o in compare.leaves(out) if isinstance(o, krt.Tensor)]
        if weights is None:  # what a trace reads from outside would be a constant of the program
            weights = compare.cotangents(out)
        gradients = compare.differentiate(out, sources, given=weights) if row.grad else []
        return tensors, gradients, weights

    given, _ = compare.given(row, arrays, krt.float32)
    out, gradients, weights = step(given)
    expected = compare.values(out, gradients)
    jitted = krt.jit(lambda given, weights: step(given, weights)[:2])
    for _ in range(2):  # a trace and a replay
        found = compare.values(*jitted(given, weights))
        assert found.values
        for got, want in zip(
            [*found.values, *found.gradients],
            [*expected.values, *expected.gradients],
            strict=True,
        ):
            if row.name in FUSED_OTHERWISE:
                np.testing.assert_allclose(got, want, 1e-6, 1e-6, strict=True)
            else:
                np.testing.assert_array_equal(got, want, strict=True)


#: Only compiled code has these.
COMPILED = {Op.CALL, Op.REGION}
#: Reductions by these give either of 0 and -0.
EXTREMES = {Op.MAX, Op.MIN}
HALVES = {krt.float16, krt.bfloat16}


@pytest.mark.cases(30)
@each
def test_interpreting_gives_the_same_bits(row, monkeypatch):
    """Reductions alone may differ, in the order of their terms."""
    drawn = rows.draw(row, rows.sizes(row))
    cases = [(drawn, krt.float32, row.grad), (drawn, krt.float64, False)]
    if row.special and row.floats:
        cases += [(rows.sprinkled(row, drawn, [NAN, INF, -INF, -0.0, 0.0, 1.5], 0), kind, False)
                  for kind in (krt.float32, krt.float64)]  # fmt: skip
    if row.ints:
        integers = rows.as_integers(row, drawn, signed=True)
        cases += [([a.astype(kind) if spec.floats else a
                    for spec, a in zip(row.specs, integers, strict=True)], None, False)
                  for kind in ("int8", "int32", "int64")]  # fmt: skip
    for arrays, kind, grad in cases:
        found = []
        for interprets in (True, False):
            monkeypatch.setattr(plans, "interprets", interprets)
            plans.clear()
            krt.manual_seed(0)
            found.append(compare.attempt(lambda a=arrays, k=kind, g=grad: run(row, a, k, grad=g)))
        interpreted, compiled = found
        if isinstance(compiled, Raised):
            assert isinstance(interpreted, Raised)
            assert str(interpreted.error) == str(compiled.error)
            continue
        eps = {krt.float64: DOUBLE}.get(kind, SINGLE) * row.tol
        compare.agree(f"{kind}", interpreted, compiled, eps * row.tol64)
        order = graph_of(row, arrays, kind, grad)
        if any(n.op is Op.REDUCE_AXIS and n.dtype.is_float and n.arg[0] in (Op.ADD, Op.MUL)
               for n in order):  # fmt: skip
            continue
        of_zero = not any(n.op is Op.REDUCE_AXIS and n.arg[0] in EXTREMES for n in order)
        for got, want in zip(interpreted.values, compiled.values, strict=True):
            np.testing.assert_array_equal(got, want, strict=isinstance(want, np.ndarray))
            if of_zero:
                number = ~np.isnan(want)
                np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


def graph_of(row, arrays, kind, grad):
    """The nodes of a row, which is interpreted if it can be."""
    _, operands = compare.given(row, arrays, kind, grad)
    krt.manual_seed(0)
    out = [o for o in compare.leaves(row.call(krt, *operands)) if isinstance(o, krt.Tensor)]
    nodes = [t._uop for t in out if t._uop is not None]
    order = toposort(strip(nodes))
    if not any(
        n.op in COMPILED or n.dtype in HALVES
        or (n.op in FUNCTIONS and const_value(n.src[0]) is not None)
        for n in order
    ):  # fmt: skip
        found = plans.look_up(nodes, [])
        program = interpret.CachedProgram(nodes, [], found.read, found.numbers, SizeFamily())
        assert program.take_entry() is not None
    return order


@pytest.mark.cases(30)
@pytest.mark.parametrize("row", [p for p in EVERY if p.values[0].grad])
def test_jacobians(row, request):
    """Their products with weights are the gradients; by rows or by columns, as the commit draws."""
    arrays = rows.draw(row, rows.sizes(row))
    operands, _ = compare.given(row, arrays, krt.float64)
    places = tuple(i for i, spec in enumerate(row.specs) if spec.grad)

    def call(*tensors):
        found = compare.leaves(row.call(krt, *tensors))
        return [o for o in found if isinstance(o, krt.Tensor) and o.dtype.is_float]

    by_rows = sample.number(f"{request.config.option.draw} {row.name}") % 2
    jacobian = (krt.func.jacrev if by_rows else krt.func.jacfwd)(call, places)(*operands)
    krt.realize(*compare.leaves(jacobian))
    expected = run(row, arrays).gradients
    for k, gradient in enumerate(expected):
        total = np.zeros_like(gradient)
        for i, line in enumerate(jacobian):
            matrix = line[k].numpy().astype(np.float64)
            w = compare.weights(matrix.shape[: matrix.ndim - gradient.ndim], i)
            total += np.tensordot(w, matrix, w.ndim)
        np.testing.assert_allclose(
            total, gradient, rtol=1e-8 * row.tol, atol=1e-9 * (1 + np.abs(gradient).max(initial=0))
        )
