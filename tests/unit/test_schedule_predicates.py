"""A value that several users want under conditions is computed once, under what covers them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule.fuse.index_maps import Indexer
from kernelrt.schedule.fuse.predicates import united

SIZES = (5, 7)
LOOPS = [UOp(Op.RANGE, dt.int64, (UOp(Op.CONST, dt.int64, (), n),), k) for k, n in enumerate(SIZES)]


def holds(node, at):
    """The value of a condition where the loops stand at `at`."""
    values = {}
    for n in toposort([node]):
        a = [values[s] for s in n.src]
        values[n] = {
            Op.CONST: lambda n=n: n.arg, Op.RANGE: lambda n=n: at[n.arg],
            Op.ADD: lambda a=a: a[0] + a[1], Op.SUB: lambda a=a: a[0] - a[1],
            Op.MUL: lambda a=a: a[0] * a[1], Op.NEG: lambda a=a: -a[0],
            Op.LT: lambda a=a: a[0] < a[1], Op.AND: lambda a=a: a[0] and a[1],
            Op.OR: lambda a=a: a[0] or a[1], Op.EQ: lambda a=a: a[0] == a[1],
            Op.MOD: lambda a=a: a[0] % a[1],
        }[n.op]()  # fmt: skip
    return values[node]


def condition(rng, indexer, terms):
    term = terms[rng.integers(len(terms))]
    kind = int(rng.integers(5))
    if kind == 0:
        return indexer.simplify((LOOPS[0] % 2).eq(int(rng.integers(2))))
    low = int(rng.integers(-6, 9))
    if kind < 3:
        return indexer.simplify(term < low)
    return indexer.at_least_zero(indexer.simplify(term - low))


def test_what_covers_conditions_holds_where_one_of_them_does():
    rng = np.random.default_rng(0)
    i, j = LOOPS
    merged = 0
    for _ in range(1500):
        indexer = Indexer()
        # Of few sums, so that conditions often bound one from both sides.
        terms = [[i, j, i + j, i - j, i * 2 + j, -i][k] for k in rng.permutation(6)]
        terms = terms[: int(rng.integers(1, 7))]
        predicates = []
        for _ in range(int(rng.integers(1, 5))):
            predicate = None
            for _ in range(int(rng.integers(1, 4))):
                predicate = indexer.both(predicate, condition(rng, indexer, terms))
            predicates.append(predicate)
        whole = indexer.either(predicates)
        for at in itertools.product(*map(range, SIZES)):
            wanted = any(g is None or holds(g, at) for g in predicates)
            assert (whole is None or holds(whole, at)) == wanted
        given = [g for g in predicates if g is not None and g.op is not Op.CONST]
        merged += len(given) > len(united(given)) if given else 0
    assert merged > 100


def chain(depth, rank, seed, kind):
    """A program of `depth` steps whose users want prefixes of values, and what it computes."""
    rng = np.random.default_rng(seed)
    steps = [(int(rng.integers(rank)), int(rng.integers(1, 6))) for _ in range(depth)]

    def cut(axis, lo, hi):
        return tuple(slice(lo, hi) if a == axis else slice(None) for a in range(rank))

    def with_pads(x, pad):
        for axis, k in steps:
            x = x * 0.75 + pad(x[cut(axis, 0, 9 - k)] * 0.5, axis, k)
        return x

    def with_parts(x, cat):
        for axis, k in steps:
            first, last = x[cut(axis, 0, 9 - k)], x[cut(axis, 9 - k, 9)]
            x = cat([first * 0.5, last * 0.75 + last * last * 0.125], axis)
        return x

    def pad(x, axis, k):
        widths = [(0, k if a == axis else 0) for a in range(rank)]
        if isinstance(x, np.ndarray):
            return np.pad(x, widths)
        return x.pad([w for pair in reversed(widths) for w in pair])

    if kind == "pad":
        return lambda x: with_pads(x, pad)
    return lambda x: with_parts(x, np.concatenate if isinstance(x, np.ndarray) else krt.cat)


@pytest.mark.parametrize("kind", ["pad", "cat"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_text_is_linear_in_the_depth(kind, rank):
    values = np.random.default_rng(rank).integers(-2, 3, (9,) * rank).astype(np.float32)
    counted = []
    for depth in (8, 16, 32):
        f = chain(depth, rank, depth, kind)
        jitted = krt.jit(f)
        np.testing.assert_allclose(jitted(values).numpy(), f(values.astype(float)), rtol=1e-4)
        ops = [op for op in jitted.plan(values).prepared_ops if hasattr(op, "kernel")]
        counted.append(sum(len(toposort([op.kernel.ast])) for op in ops))
    assert counted[-1] < 80 * 32
    assert counted[2] - counted[1] < 4 * (counted[1] - counted[0]) + 200


@pytest.mark.parametrize("seed", range(4))
def test_conditions_that_are_read_from_data(seed):
    """The same rows wanted directly, through an index, and under conditions of both kinds."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 6, (9, 4)).astype(np.float32)
    index = rng.integers(0, 9, 9)

    def f(x, index, pad, cat, same):
        for _ in range(4):
            y = pad(x[:6] * 2.0)
            x = y[index] + x * 0.5 + pad(x[index][:6]) + y[same] + cat([x[same][:3], x[3:]])
            x = x * 0.25
        return x

    iota = np.arange(9)
    wanted = f(x.astype(float), index, lambda v: np.pad(v, ((0, 3), (0, 0))), np.concatenate, iota)
    found = krt.jit(
        lambda x, index: f(x, index, lambda v: v.pad([0, 0, 0, 3]), krt.cat, krt.arange(9))
    )(x, index)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
