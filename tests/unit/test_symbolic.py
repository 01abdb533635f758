"""Integer expressions: simplifying changes no value, bounds hold, divisions go where they can."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, const, simplify, toposort
from kernelrt.ir.rewrite import rewrite
from kernelrt.ir.symbolic import RULES, less, upper
from kernelrt.ir.terms import label, linear, ranges_of, render
from kernelrt.schedule.fuse.index_maps import Indexer

N = Variable("n", 1, 6)
EVALUATE = {
    Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b, Op.MUL: lambda a, b: a * b,
    Op.IDIV: lambda a, b: a // b if b else 0, Op.MOD: lambda a, b: a % b if b else 0,
    Op.LT: lambda a, b: a < b,
    Op.MAX: max, Op.MIN: min, Op.NEG: lambda a: -a,
}  # fmt: skip


def loop(size: int | UOp, number: int) -> UOp:
    bound = size if isinstance(size, UOp) else const(size, dt.int64)
    return UOp(Op.RANGE, dt.int64, (bound,), number)


LOOPS = (loop(4, 0), loop(7, 1), loop(N, 2))


def value(expression: UOp, known: dict[UOp, int]) -> int:
    done: dict[UOp, int] = {}
    for node in toposort([expression]):
        if node in known:
            done[node] = known[node]
        elif node.op is Op.CONST:
            done[node] = int(node.arg)
        else:
            done[node] = int(EVALUATE[node.op](*(done[s] for s in node.src)))
    return done[expression]


def places():
    """Every value of the Variable and the loops."""
    for n in range(1, 7):
        for i, j, k in itertools.product(range(4), range(7), range(n)):
            yield {N: n, LOOPS[0]: i, LOOPS[1]: j, LOOPS[2]: k}


leaves = st.one_of(
    st.sampled_from([*LOOPS, N]), st.integers(-9, 30).map(lambda c: const(c, dt.int64))
)


def extend(inner):
    divisor = st.one_of(st.integers(-6, 12).map(lambda c: const(c, dt.int64)), st.just(N))
    return st.one_of(
        st.builds(lambda op, a, b: a.alu(op, b),
                  st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN]), inner, inner),
        st.builds(lambda op, a, b: a.alu(op, b), st.sampled_from([Op.IDIV, Op.MOD]),
                  inner, divisor),
        inner.map(lambda a: -a),
    )  # fmt: skip


expressions = st.recursive(leaves, extend, max_leaves=9)


@given(expressions)
@settings(max_examples=200, deadline=None)
def test_simplifying_keeps_every_value_and_bounds_hold(expression):
    simple = simplify(expression)
    for known in itertools.islice(places(), 0, None, 5):
        wanted = value(expression, known)
        assert value(simple, known) == wanted, (render(expression), render(simple))
        for node in (expression, simple):
            assert node.vmin <= wanted <= node.vmax


@given(expressions, expressions)
@settings(max_examples=150, deadline=None)
def test_less_is_never_wrong(a, b):
    comparison = simplify(a < b)
    certain = less(simplify(a), simplify(b))
    for known in itertools.islice(places(), 0, None, 7):
        truth = value(a, known) < value(b, known)
        assert value(comparison, known) == truth
        assert truth or not certain


@given(expressions)
@settings(max_examples=150, deadline=None)
def test_an_upper_bound_has_no_loops_and_is_nowhere_below(expression):
    simple = simplify(expression)
    bound = upper(simple)
    assert not ranges_of(bound)
    for known in itertools.islice(places(), 0, None, 7):
        assert value(bound, known) >= value(simple, known)


A, B, C = loop(4, 0), loop(8, 1), loop(16, 2)
FLAT = (A * 8 + B) * 16 + C


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (FLAT // 128, "r0"),
        (FLAT % 128 // 16, "r1"),
        (FLAT % 16, "r2"),
        (FLAT // 24 * 24 + FLAT % 24, render(simplify(FLAT))),
        ((A * 8 + B) // 4, "(r0 * 2) + (r1 // 4)"),
        ((loop(N, 3) * 64 + loop(64, 4)) // 64, "r3"),
        ((loop(64, 4) * N + loop(N, 3)) // N, "r4"),
        ((loop(64, 4) * N + loop(N, 3)) % N, "r3"),
        (N * 64 // 64, "n"),
        (loop(N, 3) < N, "True"),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_what_reshapes_leave_behind_disappears(expression, text):
    assert render(simplify(expression)) == text


@pytest.mark.parametrize("inner", range(-12, 13))
def test_quotients_and_remainders_by_any_two_numbers(inner):
    x = LOOPS[0] * 5 - LOOPS[1] * 3
    for outer, first, second in itertools.product(range(-4, 7), *[(Op.IDIV, Op.MOD)] * 2):
        y = x.alu(first, const(inner, dt.int64)).alu(second, const(outer, dt.int64))
        simple = simplify(y)
        for i, j in itertools.product(range(4), range(7)):
            known = {LOOPS[0]: i, LOOPS[1]: j}
            wanted = value(y, known)
            assert value(simple, known) == wanted, (render(y), render(simple))
            assert all(node.vmin <= wanted <= node.vmax for node in (y, simple))


# Values read from memory: anything that 64 bits hold, in arithmetic that wraps.
WORDS = tuple(
    UOp(Op.LOAD, dt.int64, (UOp(Op.PARAM, dt.int64, (), (k, 9)), const(0, dt.int64)))
    for k in range(2)
)
EDGES = (-(2**63), -(2**63) + 1, -(2**62) - 5, -7, -1, 0, 1, 6, 2**62 + 5, 2**63 - 2, 2**63 - 1)
constants = st.one_of(st.integers(-20, 50), st.sampled_from([2**32, 2**59, 2**62, -(2**63)]))


def combine(inner):
    number = constants.map(lambda c: const(c, dt.int64))
    divisor = st.one_of(
        st.sampled_from([2, 3, 4, 12, 16, 384, 2**53, 0, -1, -2, -3, -12, -(2**63)]).map(
            lambda c: const(c, dt.int64)), st.just(N))  # fmt: skip
    ring = st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN])
    return st.one_of(
        st.builds(lambda op, a, b: a.alu(op, b), ring, inner, st.one_of(inner, number)),
        st.builds(lambda op, a, b: a.alu(op, b), st.sampled_from([Op.IDIV, Op.MOD]),
                  inner, divisor),
        inner.map(lambda a: -a),
    )  # fmt: skip


words = st.recursive(st.sampled_from([*WORDS, *WORDS, LOOPS[1], N]), combine, max_leaves=9)


def wrapped(expression: UOp, known: dict[UOp, int]) -> int:
    """The value that 64 bits give."""
    done: dict[UOp, int] = dict(known)
    for node in toposort([expression], stop=known.__contains__):
        if node.op is Op.CONST:
            done[node] = int(node.arg)
        elif node not in done:
            number = int(EVALUATE[node.op](*(done[s] for s in node.src)))
            done[node] = (number + 2**63) % 2**64 - 2**63
    return done[expression]


@given(words, words)
@settings(max_examples=300, deadline=None)
@pytest.mark.cases(1 / 4)
def test_arithmetic_that_wraps_keeps_every_value(a, b):
    compared, certain = simplify(a < b), less(simplify(a), simplify(b))
    simple = simplify(a)
    for x, y in itertools.product(EDGES, EDGES):
        known = {WORDS[0]: x, WORDS[1]: y, LOOPS[1]: (x + y) % 7, N: 1 + (x - y) % 6}
        wanted = wrapped(a, known)
        assert wrapped(simple, known) == wanted, (render(a), render(simple))
        for node in (a, simple):
            assert node.vmin <= wanted <= node.vmax
        truth = wanted < wrapped(b, known)
        assert wrapped(compared, known) == truth, (render(a), render(b))
        assert truth or not certain


def shared(step, depth: int = 200) -> UOp:
    """An expression with a node for each level and a path for each subset of levels."""
    x = WORDS[0]
    for level in range(depth):
        x = step(x, level)
    return x


SHARED = {
    "doubled": lambda x, _: x + x,
    "squared": lambda x, _: x * x,
    "squared_and_moved": lambda x, k: x * x + (k + 1),
    "product_of_sums": lambda x, k: (x + k) * (x - k),
    "divided": lambda x, k: (x + x) // (k + 2) + x % 7,
    "divided_by_a_variable": lambda x, _: x // N + x % N,
    "compared": lambda x, k: (x < k).where(x, x + x),
    "loops": lambda x, k: x * LOOPS[k % 3] + x,
}


@pytest.mark.parametrize("name", SHARED)
def test_work_is_linear_in_nodes(name):
    u = shared(SHARED[name])
    simple = simplify(u)
    assert len(list(toposort([simple]))) < 20_000
    for node in (u, simple):
        assert isinstance(render(node), str)
        assert len(label(node)) < 200
        linear(node)
        upper(node)
        assert not less(node, WORDS[1])


LABELLED = """
from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.terms import label
x = UOp(Op.LOAD, dt.int64, (UOp(Op.PARAM, dt.int64, (), (0, 9)), const(0, dt.int64)))
for k in range(200):
    x = x * x + (k + 1)
print(label(x))
"""


def test_labels_depend_on_content_alone():
    run = [sys.executable, "-c", LABELLED]
    seen = {
        subprocess.run(
            run, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_equal_sums_become_one_node():
    assert simplify(A * 3 + B + A) is simplify(B - A + A * 5)


def test_what_a_rule_finds_below_data_is_left_as_it_is():
    """A sum of one LOAD is that LOAD: the array that it reads is not another one for it."""
    r, i = (UOp(Op.RANGE, dt.int64, (const(17, dt.int64),), n) for n in (3, 0))
    param = UOp(Op.PARAM, dt.int64, (), (0, 17))
    value = UOp(Op.LOAD, dt.int64, (param, r)).alu(Op.EQ, const(4, dt.int64))
    zero, one = const(0, dt.int64), const(1, dt.int64)
    kept = UOp(Op.MOD, dt.int64, (value.alu(Op.WHERE, zero, one), const(17, dt.int64)))
    load = UOp(Op.LOAD, dt.int64, (UOp(Op.LOCAL, dt.int64, (kept, r)), i))
    total = UOp(Op.ADD, dt.int64, (zero, UOp(Op.MUL, dt.int64, (load, one))))
    memo = {load: load}
    assert rewrite([total], RULES, memo) == [load]
    assert Indexer().simplify(total) is load
