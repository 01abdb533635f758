"""Clean-up of the tensor graph: what goes, and what has to stay because of IEEE."""

import math

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    cat,
    div,
    expand,
    flip,
    iota,
    mul,
    pad,
    permute,
    reduce,
    reshape,
    scalar,
    shrink,
    sub,
    windows,
)  # fmt: skip
from support.reference import evaluate

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, const, constants, toposort
from kernelrt.schedule.rewrite.constant_folding import fold
from kernelrt.schedule.rewrite.simplify import TABLE, simplify_graph, uniform

MEM = Memory(4)
X = MEM.random(4, 6)
N = MEM.indices(9, 4, 6)


def simple(u: UOp) -> UOp:
    return simplify_graph([u])[0]


def full(value: float, *shape: int) -> UOp:
    return expand(scalar(value), shape)


def ops(u: UOp) -> set[Op]:
    return {n.op for n in toposort([u])}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (mul(X, 1.0), X),
        (div(X, 1.0), X),
        (add(X, -0.0), X),
        (sub(X, 0.0), X),
        (alu(Op.NEG, alu(Op.NEG, X)), X),
        (alu(Op.MAX, X, X), X),
        (alu(Op.ADD, N, 0), N),
        (alu(Op.MUL, N, 1), N),
        (alu(Op.IDIV, N, 1), N),
        (alu(Op.MUL, N, 0), expand(const(0, dt.int64), (4, 6))),
        (UOp(Op.DETACH, X.dtype, (X,)), X),
        (permute(permute(X, 1, 0), 1, 0), X),
        (flip(flip(X, 0, 1), 1), flip(X, 0)),
        (reshape(reshape(X, (24,)), (4, 6)), X),
        (shrink(shrink(X, (1, 4), (0, 6)), (1, 2), (2, 6)), shrink(X, (2, 3), (2, 6))),
        (shrink(X, (0, 4), (0, 6)), X),
        (pad(pad(X, (1, 0), (0, 0)), (1, 2), (0, 3)), pad(X, (2, 2), (0, 3))),
        (pad(X, (0, 0), (0, 0)), X),
        (cat(0, X, shrink(X, (0, 0), (0, 6))), X),
        (mul(X, -1.0), alu(Op.NEG, X)),
        (div(X, 4.0), mul(X, 0.25)),
        (alu(Op.POW, X, 2.0), mul(X, X)),
        (alu(Op.WHERE, expand(const(True, dt.bool_), (4, 6)), X, mul(X, 2.0)), X),
        (reduce(reshape(X, (4, 1, 6)), Op.ADD, 1), X),
        (reduce(X, Op.ADD), X),
        (reduce(expand(reshape(X, (4, 6, 1)), (4, 6, 5)), Op.MAX, 2), X),
        (reduce(full(1.0, 4, 6), Op.ADD, 0, 1), scalar(24.0)),
        (reduce(shrink(X, (2, 2), (0, 6)), Op.ADD, 0), full(0.0, 6)),
        (add(full(2.0, 4, 6), full(0.5, 4, 6)), full(2.5, 4, 6)),
        (permute(full(2.0, 4, 6), 1, 0), full(2.0, 6, 4)),
        (windows(full(2.0, 4, 6), (1, 2, 2, 1)), full(2.0, 4, 3, 2)),
        (pad(full(0.0, 4, 6), (1, 1), (0, 0)), full(0.0, 6, 6)),
    ],
)
def test_rewrites(graph: UOp, expected: UOp) -> None:
    assert simple(graph) is simple(expected)


#: Ways to move the elements of a matrix.
MOVES = {
    "rows flipped": lambda x: flip(x, 0),
    "columns flipped": lambda x: flip(x, 1),
    "both flipped": lambda x: flip(x, 0, 1),
    "transposed": lambda x: permute(x, 1, 0),
    "reshaped": lambda x: reshape(x, (x.shape[1], x.shape[0])),
    "one row": lambda x: reshape(x, (1, x.shape[0] * x.shape[1])),
    "padded before": lambda x: pad(x, (1, 0), (2, 0)),
    "padded behind": lambda x: pad(x, (0, 2), (0, 1)),
    "first rows": lambda x: shrink(x, (0, (x.shape[0] + 1) // 2), (0, x.shape[1])),
    "last columns": lambda x: shrink(x, (0, x.shape[0]), (x.shape[1] // 2, x.shape[1])),
    "beside itself": lambda x: cat(1, x, x),
    "widened": lambda x: reshape(
        expand(reshape(x, (*x.shape, 1)), (*x.shape, 2)), (x.shape[0], 2 * x.shape[1])
    ),
}


@pytest.mark.parametrize("first", MOVES)
def test_moved_again_and_again(first: str) -> None:
    for second in MOVES.values():
        for third in MOVES.values():
            graph = third(second(MOVES[first](X)))
            expected, found = evaluate([graph, simple(graph)], memory=MEM.data)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "graph",
    [
        mul(X, 0.0),  # NaN, infinity
        sub(X, X),
        div(X, X),
        add(X, 0.0),  # -0.0 + 0.0 is 0.0
        sub(X, -0.0),
        alu(Op.POW, X, 0.5),  # pow(-inf, 0.5) is inf
        div(X, 3.0),
        reduce(expand(reshape(X, (4, 6, 1)), (4, 6, 5)), Op.ADD, 2),
        pad(full(1.0, 4, 6), (1, 1), (0, 0)),
        pad(full(-0.0, 4, 6), (1, 1), (0, 0)),
        mul(iota(4), 3),
    ],
)
def test_what_has_to_stay(graph: UOp) -> None:
    assert graph.op in ops(simple(graph))
    assert uniform(simple(graph)) is None


def test_casts() -> None:
    half = UOp(Op.CAST, dt.float16, (X,))
    back = UOp(Op.CAST, dt.float32, (half,))
    assert simple(back) is back, "float16 does not hold every float32"
    wide = UOp(Op.CAST, dt.float32, (UOp(Op.CAST, dt.float64, (X,)),))
    assert simple(wide) is X
    small = UOp(Op.CAST, dt.int8, (UOp(Op.CAST, dt.int32, (N,)),))
    assert simple(small) is small, "int32 does not hold every int64"
    up = UOp(Op.CAST, dt.float64, (UOp(Op.CAST, dt.int32, (UOp(Op.CAST, dt.int8, (N,)),)),))
    assert simple(up).src[0].dtype is dt.int8


def test_arithmetic_on_copies_is_done_once() -> None:
    row = expand(reshape(MEM.random(6), (1, 6)), (4, 6))
    found = simple(alu(Op.TANH, mul(row, 2.0)))
    assert found.op is Op.EXPAND
    assert found.src[0].shape == (1, 6)


def test_what_a_rule_finds_again_is_what_became_of_it() -> None:
    """A rule may build a node that was rewritten before: that is not to stay as it was."""
    number = MEM.indices(9, 1, 1)
    few, many = (reduce(expand(number, (k, 64)), Op.ADD, 0) for k in (1, 64))
    times = constants.full(const(64, number.dtype), (64,))
    for roots in ([few, times, many], [many, few], [many]):
        found = simplify_graph(roots)
        assert found[-1] is simple(roots[-1])
        assert simplify_graph(found) == found
        assert all(rule(n) in (None, n) for n in toposort(found) for rule in TABLE.get(n.op, ()))


def test_constant_operands_have_one_place() -> None:
    assert simple(alu(Op.MUL, full(3.0, 4, 6), X)) is simple(mul(X, 3.0))


@pytest.mark.parametrize(
    ("op", "kind", "values", "expected"),
    [
        (Op.ADD, dt.float32, (0.1, 0.2), float(np.float32(0.1) + np.float32(0.2))),
        (Op.DIV, dt.float32, (1.0, 0.0), float("inf")),
        (Op.MAX, dt.float32, (float("nan"), 1.0), float("nan")),
        (Op.SQRT, dt.float64, (2.0,), 2.0**0.5),
        (Op.EXP, dt.float32, (1.0,), float(np.float32(np.exp(1.0)))),
        (Op.IDIV, dt.int64, (-7, 2), -4),
        (Op.IDIV, dt.int64, (7, 0), 0),
        (Op.MOD, dt.int64, (-7, 3), 2),
        (Op.MOD, dt.int64, (7, 0), 0),
        (Op.ADD, dt.int8, (127, 1), -128),
        (Op.NOT, dt.uint8, (1,), 254),
    ],
)  # fmt: skip
def test_folding(op: Op, kind: dt.DType, values: tuple[float, ...], expected: float) -> None:
    found = fold(op, kind, [const(v, kind) for v in values])
    assert found is const(expected, kind)


def test_folding_leaves_alone_what_kernels_decide() -> None:
    assert fold(Op.ADD, dt.float16, [const(1.0, dt.float16)] * 2) is None
    assert fold(Op.ADD, dt.bool_, [const(True, dt.bool_)] * 2) is None
    assert fold(Op.CAST, dt.bfloat16, [const(0.1, dt.float64)]) is None


@pytest.mark.parametrize(
    ("number", "kind", "wanted"),
    [(300.0, dt.int8, 127), (-3.7, dt.int8, -3), (float("nan"), dt.int8, -128),
     (float("nan"), dt.uint8, 255), (-float("inf"), dt.uint8, 0), (-0.5, dt.uint8, 0)],
)  # fmt: skip
def test_folding_cuts_off_and_saturates(number: float, kind: dt.DType, wanted: int) -> None:
    assert fold(Op.CAST, kind, [const(number, dt.float32)]) is const(wanted, kind)


def test_deep_graphs_do_not_recurse() -> None:
    y = X
    for _ in range(20000):
        y = alu(Op.NEG, add(y, 1.0))
    assert simple(y).op is Op.NEG


@pytest.mark.parametrize("reducer", [Op.ADD, Op.MUL, Op.MAX])
def test_a_reduction_of_copies_is_had_once(reducer: Op) -> None:
    x = MEM.random(4, 1, 6)
    found = simple(reduce(expand(x, (4, 5, 6)), reducer, 2))
    assert found is simple(expand(reduce(x, reducer, 2), (4, 5)))
    assert all(n.shape != (4, 5, 6) for n in toposort([found]))


def test_copies_that_are_added_up_stay() -> None:
    x = MEM.random(4, 1, 6)
    found = simple(reduce(expand(x, (4, 5, 6)), Op.ADD, 1))
    assert found.op is Op.REDUCE_AXIS


def test_some_copies_are_added_up_and_others_are_had_once() -> None:
    x = MEM.random(1, 1, 6)
    found = simple(reduce(expand(x, (4, 5, 6)), Op.ADD, 1))
    assert found is simple(expand(reduce(expand(x, (1, 5, 6)), Op.ADD, 1), (4, 6)))


def test_what_is_moved_is_as_narrow_as_it_is():
    x = X.cast(dt.float16)
    count = math.prod(X.shape)
    assert simple(reshape(x.cast(dt.float32), (count,))) is reshape(x, (count,)).cast(dt.float32)
    assert simple(reshape(x, (count,)).cast(dt.float32)).op is Op.CAST
    turned = simple(permute(x.cast(dt.float32), 1, 0))
    assert turned is permute(x, 1, 0).cast(dt.float32)


def test_padding_is_as_narrow_as_what_is_padded():
    widths, narrow = ((1, 0), (0, 2)), X.cast(dt.float16)
    for x in (narrow, N.cast(dt.int8), X.alu(Op.LT, 0.0)):
        wide = dt.float32 if x.dtype.is_float else dt.int32
        assert simple(pad(x.cast(wide), *widths)) is pad(x, *widths).cast(wide)
    # Numbers of another kind are converted once each, not where they are read; narrower ones first.
    for x in (N.cast(dt.int8).cast(dt.float32), X.cast(dt.float16), N.cast(dt.int32)):
        assert simple(pad(x, *widths)).op is Op.PAD
