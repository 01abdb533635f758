"""Statistics of long rows that depend on another one of the row are had in one walk."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.work import lines_run

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import Buffer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.constants import full
from kernelrt.schedule import schedule, scheduler
from kernelrt.schedule.rewrite import one_pass_reductions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

SPEC = DeviceSpec.avx512()
#: Caches that hold no row of the arrays below.
TINY = {"l1_bytes": 1024, "l2_bytes": 4096, "l3_bytes": 8192}


def buffer(*shape: int, dtype: dt.DType = dt.float32) -> UOp:
    flat = UOp(Op.BUFFER, dtype, (), Buffer(math.prod(shape), dtype))
    return UOp(Op.RESHAPE, dtype, (flat,), shape)


def reduced(x: UOp, op: Op, axis: int) -> UOp:
    return UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, (axis,)))


def spread(x: UOp, shape: tuple[int, ...], axis: int) -> UOp:
    kept = tuple(1 if a == axis else d for a, d in enumerate(shape))
    return UOp(Op.EXPAND, x.dtype, (UOp(Op.RESHAPE, x.dtype, (x,), kept),), shape)


def powers(x: UOp, axis: int = 1) -> UOp:
    """The sum of exp(x - max(x))."""
    shift = spread(reduced(x, Op.MAX, axis), x.shape, axis)
    return reduced(x.alu(Op.SUB, shift).alu(Op.EXP), Op.ADD, axis)


def walks(root: UOp, device: DeviceSpec = SPEC) -> int:
    """How many kernels read what no cache holds."""
    plan = schedule([root], device=device)
    return sum(any(b.arg.size >= 1 << 20 for b in k.buffers) for k in plan.kernels)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Caches that hold next to nothing, for this rewrite alone; sums that it has rewritten."""
    sums: list[int] = []
    fold, combined = one_pass_reductions.reduce_in_one_pass, one_pass_reductions.combined

    def counted(*args: Any) -> UOp:
        sums.append(1)
        return combined(*args)

    monkeypatch.setattr(one_pass_reductions, "combined", counted)
    monkeypatch.setattr(
        scheduler, "reduce_in_one_pass", lambda roots, spec: fold(roots, replace(spec, **TINY))
    )
    yield sums
    assert sums


# ---- what is rewritten


def test_a_long_row_is_walked_once() -> None:
    assert walks(powers(buffer(8, 1 << 21))) == 1
    x = buffer(8, 1 << 21)
    size = full(const(1 << 21, dt.float32), (8, 1))
    total = UOp(Op.RESHAPE, dt.float32, (reduced(x, Op.ADD, 1),), (8, 1))
    mean = UOp(Op.EXPAND, dt.float32, (total.alu(Op.DIV, size),), x.shape)
    gap = x.alu(Op.SUB, mean)
    assert walks(reduced(gap.alu(Op.MUL, gap), Op.ADD, 1)) == 1


@pytest.mark.parametrize("shape", [(1 << 12, 1 << 10), (64, 1 << 16), (1, 1 << 18)])
def test_what_a_cache_holds_stays_as_it_is(shape: tuple[int, int]) -> None:
    root = powers(buffer(*shape))
    assert one_pass_reductions.reduce_in_one_pass([root], SPEC) == [root]


def test_rows_that_are_gone_along_again_stay_where_they_are() -> None:
    """A kernel that has them one by one finds them in the last cache."""
    for rows, changed in ((8, True), (64, False)):
        x = buffer(rows, 1 << 20)
        root = x.alu(Op.DIV, spread(powers(x), x.shape, 1))
        assert (one_pass_reductions.reduce_in_one_pass([root], SPEC) != [root]) is changed


def test_another_shift_than_a_statistic_of_the_row_is_none() -> None:
    x, y = buffer(4, 1 << 21), buffer(4, 1 << 21)
    shift = spread(reduced(y, Op.MAX, 1), x.shape, 1)
    root = reduced(x.alu(Op.SUB, shift).alu(Op.EXP), Op.ADD, 1)
    assert one_pass_reductions.reduce_in_one_pass([root], SPEC) == [root]
    minus = const(-math.inf, dt.float32)
    kept = UOp(Op.RESHAPE, dt.float32, (reduced(x, Op.MAX, 1),), (4, 1))
    chosen = kept.eq(full(const(0, dt.float32), (4, 1))).where(full(minus, (4, 1)), kept)
    shift = UOp(Op.EXPAND, dt.float32, (chosen,), x.shape)
    root = reduced(x.alu(Op.SUB, shift).alu(Op.EXP), Op.ADD, 1)
    assert one_pass_reductions.reduce_in_one_pass([root], SPEC) == [root]


def test_what_is_checked_is_computed_where_it_was() -> None:
    index = UOp(Op.BOUND, dt.int64, (buffer(4, 1 << 21, dtype=dt.int64), const(8, dt.int64)), False)
    x = UOp(Op.GATHER, dt.float32, (UOp(Op.BUFFER, dt.float32, (), Buffer(8, dt.float32)), index))
    root = powers(x)
    assert one_pass_reductions.reduce_in_one_pass([root], SPEC) == [root]
    # What has a buffer has been checked when it is read.
    root = powers(UOp(Op.CONTIGUOUS, dt.float32, (x,)))
    assert one_pass_reductions.reduce_in_one_pass([root], SPEC) != [root]


@pytest.mark.parametrize(
    ("shape", "axis"), [((8, 200_000), 0), ((3, 600_000), 0), ((2, 4, 200_000), (0, 1))]
)
def test_columns_too_many_for_a_block_of_rows(
    shape: tuple[int, ...], axis: int | tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(krt.tensor(x).var(axis).numpy(), wide.var(axis, ddof=1), rtol=1e-4)
    expected = np.log(np.exp(wide).sum(axis))
    np.testing.assert_allclose(
        krt.tensor(x).logsumexp(axis).numpy(), expected, rtol=1e-5, atol=1e-5
    )


def test_cores_change_nothing() -> None:
    root = powers(buffer(4, 1 << 21))
    one, many = (
        one_pass_reductions.reduce_in_one_pass([root], replace(SPEC, cores=n)) for n in (1, 64)
    )
    assert one == many != [root]


def test_work_grows_with_the_graph() -> None:
    def work(count: int) -> int:
        total = buffer(4)
        for _ in range(count):
            total = total.alu(Op.ADD, powers(buffer(4, 1 << 21)))
        return lines_run(lambda: one_pass_reductions.reduce_in_one_pass([total], SPEC))

    work(10)
    assert work(160) < 9 * work(20)


# ---- what it comes to


def rows(size: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(size).standard_normal((3, size)).astype(dtype)


def log_sum_exp(x: Array, axis: int = -1) -> Array:
    with np.errstate(all="ignore"):
        top = x.max(axis, keepdims=True)
        top = np.where(np.isinf(top), 0, top)
        return (np.log(np.exp(x - top).sum(axis, keepdims=True)) + top).squeeze(axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("size", [4096, 5003, 2310])
def test_lengths_of_all_kinds(folded: list[int], size: int, dtype: type) -> None:
    x = rows(size, dtype)
    wide = x.astype(np.float64)
    rtol = {np.float32: 1e-5, np.float64: 1e-12, np.float16: 2e-3}[dtype]
    for f, expected in (
        (lambda x: x.logsumexp(-1), log_sum_exp(wide)),
        (lambda x: x.var(-1), wide.var(-1, ddof=1)),
        (lambda x: x.std(correction=0), wide.std()),
        (lambda x: x.softmax(-1).amax(-1), np.exp(wide.max(-1) - log_sum_exp(wide))),
    ):
        np.testing.assert_allclose(krt.jit(f)(x).numpy(), expected, rtol=rtol)


@pytest.mark.parametrize(
    ("view", "axis"),
    [
        (lambda x: x.flip(1), 1),
        (lambda x: x.T, 0),
        (lambda x: x[:, 5:-7], -1),
        (lambda x: x.reshape(3, 50, 100), (1, 2)),
        (lambda x: x.reshape(3, 2500, 2), 1),
        (lambda x: x.reshape(5000, 3), 0),
        (lambda x: x * 2 + 1, (0, 1)),
    ],
)
def test_rows_that_lie_in_other_ways(
    folded: list[int], view: Callable[[Any], Any], axis: int | tuple[int, ...]
) -> None:
    x = rows(5000)
    seen = view(krt.tensor(x)).numpy().astype(np.float64)
    got = krt.jit(lambda x: view(x).var(axis))(x).numpy()
    np.testing.assert_allclose(got, seen.var(axis, ddof=1), rtol=1e-5)
    got = krt.jit(lambda x: view(x).logsumexp(axis))(x).numpy()
    np.testing.assert_allclose(got, np.log(np.exp(seen).sum(axis)), rtol=1e-5)


def filled(what: str) -> Array:
    x = rows(5003)
    if what == "a block of -inf":
        x[0, :3000] = -np.inf
    elif what == "all -inf":
        x[1] = -np.inf
    elif what == "inf":
        x[1, 77] = np.inf
    elif what == "both":
        x[2, 5000], x[2, :600] = np.inf, -np.inf
    elif what == "NaN":
        x[0, 5002] = np.nan
    elif what == "far apart":
        x[0, :2500] -= 1e4
    elif what == "sums beyond the largest":
        x[:] = 1e37
    return x


@pytest.mark.parametrize(
    "what",
    ["a block of -inf", "all -inf", "inf", "both", "NaN", "far apart", "sums beyond the largest"],
)
def test_infinities_and_nan(folded: list[int], what: str) -> None:
    x = filled(what)
    got = krt.jit(lambda x: x.logsumexp(1))(x).numpy()
    np.testing.assert_allclose(got, log_sum_exp(x.astype(np.float64)), rtol=1e-5)
    got = krt.jit(lambda x: x.softmax(1))(x).numpy()
    with np.errstate(all="ignore"):
        e = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))
        expected = e / e.sum(1, keepdims=True)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-12)
        spreads = x.astype(np.float64).var(1, ddof=1)
    if what == "sums beyond the largest":
        spreads[:] = np.inf  # as of any sum that overflows
    got = krt.jit(lambda x: x.var(1))(x).numpy()
    np.testing.assert_allclose(got, spreads, rtol=1e-4)


def test_a_variance_far_from_zero_keeps_its_digits(folded: list[int]) -> None:
    x = (rows(5000) * 0.1 + 1000).astype(np.float32)
    got = krt.jit(lambda x: x.var(1))(x).numpy()
    np.testing.assert_allclose(got, x.astype(np.float64).var(1, ddof=1), rtol=1e-5)


def test_other_reductions_of_the_row_come_along(folded: list[int]) -> None:
    x = rows(5000)
    f = krt.jit(lambda x: (x.logsumexp(1), x.sum(1), x.amin(1), x.amax(1), x.mean(1)))
    wide = x.astype(np.float64)
    expected = (log_sum_exp(wide), wide.sum(1), wide.min(1), wide.max(1), wide.mean(1))
    for got, right in zip(f(x), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_looks_up_the_scores_of_its_classes(folded: list[int], smoothing: float) -> None:
    x, y = rows(5003), np.array([0, 5002, 77])
    f = krt.jit(lambda x, y: x.cross_entropy(y, label_smoothing=smoothing))
    wide = x.astype(np.float64)
    chosen = wide[np.arange(3), y] * (1 - smoothing) + wide.mean(1) * smoothing
    np.testing.assert_allclose(f(x, y).item(), (log_sum_exp(wide) - chosen).mean(), rtol=1e-5)
    ignoring = krt.jit(lambda x, y: x.cross_entropy(y, reduction="none"))
    got = ignoring(x, np.array([-100, 3, 4])).numpy()
    assert got[0] == 0
    with pytest.raises(krt.IndexBoundsError):
        f(x, np.array([0, 5003, 77]))


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1) * (x * 3).sin(),
    "log_softmax": lambda x: x.log_softmax(1) * (x * 3).sin(),
    "cross_entropy": lambda x: x.cross_entropy(krt.tensor([1, 2, 3])),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "layer_norm": lambda x: x.layer_norm((x.shape[-1],)) * (x * 3).sin(),
    "by hand": lambda x: ((x - x.mean(1, keepdim=True)) ** 2).mean(1).sqrt(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def gradient(dtype: type, *, fold: bool) -> Array:
        with monkeypatch.context() as patch:
            spec = TINY if fold else {"l2_bytes": 1 << 40}
            real = one_pass_reductions.reduce_in_one_pass
            patch.setattr(
                scheduler, "reduce_in_one_pass", lambda roots, d: real(roots, replace(d, **spec))
            )
            x = krt.tensor(rows(3001, dtype), requires_grad=True)

            @krt.jit
            def step(x: Any) -> Any:
                return krt.func.grad(lambda x: GRADIENTS[name](x).sum())(x)

            return step(x.detach()).numpy()

    expected = gradient(np.float64, fold=False)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        gradient(np.float64, fold=True), expected, rtol=1e-9, atol=1e-12 * scale
    )
    np.testing.assert_allclose(
        gradient(np.float32, fold=True), expected, rtol=1e-4, atol=1e-5 * scale
    )


def test_long_rows_as_they_are() -> None:
    x = np.random.default_rng(0).standard_normal((3, 700_001), np.float32) + 3
    wide = x.astype(np.float64)
    np.testing.assert_allclose(krt.tensor(x).logsumexp(1).numpy(), log_sum_exp(wide), rtol=1e-6)
    np.testing.assert_allclose(krt.tensor(x).var(1).numpy(), wide.var(1, ddof=1), rtol=1e-5)
    columns = krt.tensor(x.T.copy())
    np.testing.assert_allclose(columns.std(0).numpy(), wide.std(1, ddof=1), rtol=1e-5)
    f = krt.jit(lambda x: (x.logsumexp(1), x.var(1)))
    before = krt.get_num_threads()
    bits = []
    try:
        for threads in (1, 2):
            krt.set_num_threads(threads)
            bits.append([r.numpy().tobytes() for r in f(x)])
    finally:
        krt.set_num_threads(before)
    assert bits[0] == bits[1]
