"""Sizes known at run time, as Python sees them: arithmetic, decisions, and refusals to decide."""

from __future__ import annotations

import functools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelrt as krt
from kernelrt.errors import (
    DTypeError,
    IndexBoundsError,
    JitError,
    KernelrtError,
    ShapeError,
    VariableError,
)  # fmt: skip
from kernelrt.ir.size import plain
from kernelrt.runtime.sizes import evaluate

LIMIT = 12
N, M = krt.Variable("n", 1, LIMIT), krt.Variable("m", 2, 6)
VALUES = [(n, m) for n in range(1, LIMIT + 1) for m in range(2, 7)]

leaves = st.one_of(st.sampled_from(["n", "n", "m"]), st.integers(-3, 9))


def extend(inner):
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 5)),
    )


trees = st.recursive(leaves, extend, max_leaves=6)
OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod,
}  # fmt: skip


ORDER = (operator.lt, operator.le, operator.gt, operator.ge)


def value(tree, n, m):
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]](value(tree[1], n, m), value(tree[2], n, m))
    return {"n": n, "m": m}.get(tree, tree)


@given(trees, trees)
@settings(max_examples=300, deadline=None)
@pytest.mark.cases(1 / 4)
def test_decisions_hold_for_all_sizes_or_are_refused(a, b):
    mine, theirs = value(a, N, M), value(b, N, M)
    for n, m in VALUES:
        assert evaluate(plain(mine), {"n": n, "m": m}) == value(a, n, m)
    for decide in (*ORDER, operator.eq, operator.ne, max, min, lambda x, _: bool(x)):
        truths = {decide(value(a, n, m), value(b, n, m)) for n, m in VALUES}
        try:
            found = decide(mine, theirs)
        except VariableError:
            # Whether two sizes never meet takes more than bounds.
            assert len(truths) > 1 or decide not in ORDER
            continue
        for n, m in VALUES:
            at = {"n": n, "m": m}
            now = found if isinstance(found, bool) else evaluate(plain(found), at)
            assert now == decide(value(a, n, m), value(b, n, m))


def half(a):
    return len(a) // 2


# What of the tensor x, and what of the array a with as many elements.
PROGRAMS = {
    "mean": (lambda x: x.sum() / x.shape[0], lambda a: a.sum() / len(a)),
    "reciprocal": (lambda x: x * (1 / x.shape[0]), lambda a: a / len(a)),
    "root": (lambda x: x * x.shape[0] ** 0.5, lambda a: a * math.sqrt(len(a))),
    "square": (lambda x: x * x.shape[0] ** 2, lambda a: a * len(a) ** 2),
    "of numbers": (lambda x: x + (2.5 - x.shape[0]) / 3, lambda a: a + (2.5 - len(a)) / 3),
    "power": (lambda x: x * 2.0 ** -x.shape[0], lambda a: a * 2.0 ** -len(a)),
    "remainder": (lambda x: x + x.shape[0] % 3, lambda a: a + len(a) % 3),
    "first half": (lambda x: x[: x.shape[0] // 2].sum(), lambda a: a[: half(a)].sum()),
    "second half": (lambda x: x[x.shape[0] // 2 :] * 2, lambda a: a[half(a) :] * 2),
    "last": (lambda x: x[x.shape[0] - 1], lambda a: a[-1]),
    "middle": (lambda x: x[(x.shape[0] - 1) // 2], lambda a: a[(len(a) - 1) // 2]),
    "narrow": (lambda x: x.narrow(0, x.shape[0] // 3, 1), lambda a: a[len(a) // 3 :][:1]),
    "two rows": (lambda x: krt.cat([x, x]).reshape(2, -1) * 2, lambda a: np.stack([a, a]) * 2),
    "flat": (lambda x: x.expand(3, x.shape[0]).reshape(-1), lambda a: np.tile(a, 3)),
    "numel": (lambda x: x / x.numel(), lambda a: a / a.size),
    "size": (lambda x: x / x.size(0), lambda a: a / a.size),
    "at least one": (lambda x: x / max(x.shape[0], 1), lambda a: a / len(a)),
    "never none": (lambda x: x if x.shape[0] > 0 else -x, lambda a: a),
    "is itself": (lambda x: x if x.shape == (x * 2).shape else -x, lambda a: a),
    "is even": (lambda x: krt.where(krt.tensor(x.shape[0]) % 2 == 0, x, -x),
                lambda a: a if len(a) % 2 == 0 else -a),
    "at least two": (lambda x: x.sum() / krt.tensor(x.shape[0]).maximum(2),
                     lambda a: a.sum() / max(len(a), 2)),
    "full": (lambda x: krt.full((3,), x.shape[0]) + x[0], lambda a: np.full(3, len(a)) + a[0]),
    "zeros": (lambda x: krt.zeros(x.shape[0], 2).sum(1) + x, lambda a: a),
    "positions": (lambda x: x * krt.arange(x.shape[0]), lambda a: a * np.arange(len(a))),
    "tensor of a number": (lambda x: krt.tensor(1 / x.shape[0], dtype=x.dtype) * x,
                           lambda a: a / len(a)),
    "padded": (lambda x: x.pad((0, x.shape[0])), lambda a: np.pad(a, (0, len(a)))),
    "NumPy's root": (lambda x: x / np.sqrt(x.shape[0]), lambda a: a / np.sqrt(len(a))),
    "rounded": (lambda x: x * round(x.shape[0]) + math.floor(x.shape[0]),
                lambda a: a * len(a) + len(a)),
    "a NumPy scalar": (lambda x: x * (np.float32(2) * x.shape[0]), lambda a: a * 2 * len(a)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_programs_compute_with_sizes(name, dtype):
    op, truth = PROGRAMS[name]
    f = krt.jit(op, dynamic={"x": {0: N}})
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 8, LIMIT):
        a = rng.standard_normal(n).astype(dtype)
        got = f(a)
        assert got.dtype.name == dtype
        np.testing.assert_allclose(got.numpy(), truth(a.astype(np.float64)),
                                   rtol=1e-5 if dtype == "float32" else 1e-13)  # fmt: skip
    assert f.retraces == 0


REFUSED = {
    "bool(n - 3)": lambda x: x if x.shape[0] - 3 else -x,
    "n > 3": lambda x: x if x.shape[0] > 3 else -x,
    "3 > n": lambda x: x if 3 > x.shape[0] else -x,  # noqa: SIM300
    "n == 4": lambda x: x if x.shape[0] == 4 else -x,
    "n != 4": lambda x: x if x.shape[0] != 4 else -x,
    "max(n, 2)": lambda x: x / max(x.shape[0], 2),
    "min(n, 2)": lambda x: x / min(x.shape[0], 2),
    "float(n)": lambda x: x / float(x.shape[0]),
    "sqrt(n)": lambda x: x / math.sqrt(x.shape[0]),
    "int(n)": lambda x: x / int(x.shape[0]),
    "range(n)": lambda x: sum(x[i] for i in range(x.shape[0])),
    "np.zeros(n)": lambda x: x + np.zeros(x.shape[0]),
    "1 / n > 0.5": lambda x: x if 1 / x.shape[0] > 0.5 else -x,
    "shape == (4,)": lambda x: x if x.shape == (4,) else -x,
    "a Variable": lambda x: x if N == 4 else -x,
    "{8: 2}.get(n)": lambda x: x * {8: 2}.get(x.shape[0], 3),
    "n in {1, 2}": lambda x: x if x.shape[0] in {1, 2} else -x,
    "a cache": lambda x: x * functools.cache(lambda n: n)(x.shape[0]),
    "1 / n as a key": lambda x: x * {0.125: 2}.get(1 / x.shape[0], 3),
    "round(n / 3)": lambda x: x * round(x.shape[0] / 3),
    "floor(n / 3)": lambda x: x * math.floor(x.shape[0] / 3),
    "n // (n - 3)": lambda x: x * (x.shape[0] // (x.shape[0] - 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_with_the_size_is_refused(name):
    f = krt.jit(REFUSED[name], dynamic={"x": {0: N}})
    with pytest.raises(VariableError, match=r"Variable 'n' \(1 to 12\)"):
        f(np.ones(8, np.float32))


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(0.5), np.int8(3), np.uint64(4)])
@pytest.mark.parametrize("sign", [*OPERATORS, "/", "**"])
def test_numpy_scalars_on_either_side_are_numbers(sign, number):
    """The tensor of a number is the oracle."""
    do = {**OPERATORS, "/": operator.truediv, "**": operator.pow}[sign]
    whole = isinstance(number, np.integer)
    if sign in ("//", "%") and not whole:
        return
    for turned in (False, True):
        f = krt.jit(
            lambda x, t=turned: x * (do(number, x.shape[0]) if t else do(x.shape[0], number)),
            dynamic={"x": {0: N}},
        )
        got = f(np.ones(7)).numpy()[0]
        one = number.item()
        assert got == pytest.approx(do(one, 7) if turned else do(7, one))


@pytest.mark.parametrize("name", ["log", "maximum", "square", "add.reduce", "multiply"])
def test_numpy_functions_of_a_size_tell_the_way_out(name):
    f = functools.reduce(getattr, name.split("."), np)
    two = {"maximum", "multiply"}
    arguments = (N, np.ones(2)) if name in two else (N,)
    with pytest.raises(VariableError, match=rf"numpy\.{name}: n is known only at run time"):
        f(*arguments)


def test_a_narrower_variable_settles_it():
    some = krt.Variable("some", 4, 9)
    f = krt.jit(lambda x: x / max(x.shape[0], 2) if x.shape[0] > 3 else x, dynamic={"x": {0: some}})
    assert f(np.ones(5, np.float32)).tolist() == pytest.approx([0.2] * 5)


def test_shapes_that_are_not_certain_are_refused():
    for f in (lambda x: x.reshape(2, -1), lambda x: x.reshape(3, x.shape[0] // 3)):
        with pytest.raises(ShapeError, match="for all values of its Variables"):
            krt.jit(f, dynamic={"x": {0: N}})(np.ones(6, np.float32))
    with pytest.raises(IndexBoundsError, match="narrow the bounds"):
        krt.jit(lambda x: x[: x.shape[0] + 1], dynamic={"x": {0: N}})(np.ones(6, np.float32))


def test_a_size_is_returned_as_a_tensor():
    sizes = {"x": {0: N}}
    with pytest.raises(JitError, match=r"result\[1\]: .* returns n \* 2, a size"):
        krt.jit(lambda x: (x, x.shape[0] * 2), dynamic=sizes)(np.ones(6, np.float32))
    f = krt.jit(lambda x: krt.tensor(x.shape[0] * 2), dynamic=sizes)
    assert [f(np.ones(n, np.float32)).item() for n in (1, 6)] == [2, 12]


def test_a_size_meets_tensors_as_a_python_number_does():
    """The program with the number itself is the oracle."""
    operations = {
        "compared": lambda x, n: (x > n, n >= x, x == n),
        "powers": lambda x, n: (x**n, n**x),
        "divided": lambda x, n: (n / x, n // x, n % x, x // n, x % n),
        "limited": lambda x, n: (x.maximum(n), x.clamp(0, n), x.clamp(0, 1 / n)),
        "chosen": lambda x, n: (krt.where(x > 2, n, x), krt.where(x > 2, x, 1 / n)),
        "filled": lambda x, n: (x.masked_fill(x > 2, n), krt.full_like(x, n)),
        "reals": lambda x, n: ((1 / n) * x, (1 / n) - x, (1 / n) / x, x + n * 1.5),
        "integers": lambda x, n: (x.long() * n, x.cast("uint8") * n, x.long() / n),
        "made": lambda x, n: (krt.arange(1, n + 1) * x, krt.ones(n, 2).sum(1) * x),
    }
    x = np.array([1, 2, 3], np.float32)
    for name, operation in operations.items():
        f = krt.jit(lambda x, op=operation: op(x, x.shape[0]), dynamic={"x": {0: N}})
        for got, expected in zip(f(x), operation(krt.tensor(x), 3), strict=True):
            assert got.dtype is expected.dtype, name
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6, err_msg=name)


def test_sizes_are_values():
    assert repr(N) == str(N) == "n"
    assert f"{(N, 5)}" == "(n, 5)"
    assert N * 2 - N == N
    assert hash(krt.Variable("k", 3, 3)) == hash(3)
    assert (N * 2).bounds == (2, 24)
    assert (N // 2).bounds == (0, 6)
    assert (N - N // 2).bounds == (1, 6)
    assert (N * (M - 2)).bounds == (0, 48)
    assert (N - N, type(N - N)) == (0, int)
    assert operator.index(krt.Variable("k", 3, 3)) == 3
    assert N != "n"
    assert N is not None
    for wrong in (lambda: N + "a", lambda: N * None, lambda: N / "a"):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: N // 0, lambda: N % 0):
        with pytest.raises(ZeroDivisionError):
            wrong()
    assert issubclass(VariableError, KernelrtError)


@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_squeeze_does_not_guess_whether_an_open_size_is_one(dim):
    n, many = krt.Variable("n", 1, 8), krt.Variable("many", 2, 8)
    with pytest.raises(krt.VariableError, match="n == 1"):
        krt.jit(lambda x: x.squeeze(dim), dynamic={"x": {0: n}})(np.ones((1, 1), np.float32))
    kept = krt.jit(lambda x: x.squeeze(dim), dynamic={"x": {0: many}})
    assert kept(np.ones((3, 1), np.float32)).shape == ((3, 1) if dim == 0 else (3,))
    assert krt.jit(lambda x: x.squeeze(1), dynamic={"x": {0: n}})(
        np.ones((1, 1), np.float32)
    ).shape == (1,)


class Kept:
    size = None


def test_a_size_that_was_kept_is_none_of_another_function():
    kept = Kept()

    def keep(x):
        kept.size = x.shape[0]
        return x * 2

    krt.jit(keep, dynamic={"x": {0: krt.Variable("n", 1, 9)}})(np.ones(3, np.float32))
    x = np.ones(3, np.float32)
    for dynamic in ({}, {"x": {0: krt.Variable("k", 1, 400)}}):
        other = krt.jit(lambda x: x * kept.size, dynamic=dynamic)
        for _ in range(2):
            with pytest.raises(JitError, match="Variable 'n', but none of its arguments"):
                other(x)
    total = krt.zeros(8).realize()

    @krt.jit
    def own(x):
        total[: krt.Variable("q", 1, 3)] = x[: krt.Variable("q", 1, 3)]
        return x

    with pytest.raises(JitError, match="Variable 'q'"):
        own(np.ones(8, np.float32))
    assert total.tolist() == [0] * 8


def test_a_size_has_no_value_outside_of_plans():
    n = krt.Variable("n", 1, 8)
    x, total = krt.arange(8).float(), krt.zeros(8).realize()
    for compute in (
        lambda: krt.tensor(n).item(),
        (krt.ones(3) * n).numpy,
        lambda: x[:n].sum().numpy(),
        lambda: bool(krt.tensor(n) > 3),
        lambda: repr(krt.tensor(n) + 1),
    ):
        with pytest.raises(VariableError, match="Variable 'n', which has a value only while"):
            compute()
    for run in (total.numpy, lambda: krt.prepare(total.sum())):
        total[:n] = x[:n] + 1
        with pytest.raises(VariableError, match="Variable 'n'"):
            run()
        assert total.tolist() == [0] * 8
    total[:n] = x[:n] + 1
    plan = krt.prepare(total)
    plan.execute_with_vars(n=2)
    assert total.tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_sizes_stay_within_64_bits():
    n = krt.Variable("n", 1, 20_000)
    assert (n**4).bounds == (1, 20_000**4)
    for make in (lambda: n**5, lambda: n**4 * n, lambda: n**4 * 20_000 + 1):
        with pytest.raises(VariableError, match="may overflow 64-bit integers"):
            make()
    most = krt.Variable("m", 2**63 - 4, 2**63 - 1)
    assert most.bounds == (2**63 - 4, 2**63 - 1)
    with pytest.raises(VariableError, match="64-bit integers"):
        _ = most + 1


def test_sizes_beside_bools_fractions_and_digits():
    n = krt.Variable("n", 2, 8)
    assert (n == True) is (n == Fraction(1)) is (n == Fraction(5, 2)) is False  # noqa: E712
    assert n > True
    for ask in (lambda: n == Fraction(3), lambda: krt.Variable("n", 0, 8) == True):  # noqa: E712
        with pytest.raises(VariableError, match="Python needs True or False"):
            ask()
    assert round(n) is round(n, 2) is n
    with pytest.raises(VariableError, match="round"):
        round(n, -2)
    for bounds in ((1.5, 2), (1, 2.0), (True, 2), (None, 2)):
        with pytest.raises(VariableError, match="expected integers as bounds"):
            krt.Variable("n", *bounds)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_to_the_power_of_a_size(dtype):
    base = np.array([2, 3], dtype)
    power = krt.jit(
        lambda x: krt.tensor(base) ** x.shape[0], dynamic={"x": {0: krt.Variable("n", 0, 120)}}
    )
    for size in (0, 1, 5, 120):
        want = (krt.tensor(base) ** size).numpy()
        np.testing.assert_array_equal(power(np.ones(size, np.float32)).numpy(), want)
    below = krt.jit(
        lambda x: krt.tensor(base) ** (x.shape[0] - 2), dynamic={"x": {0: krt.Variable("n", 1, 9)}}
    )
    with pytest.raises(DTypeError, match="integers to the power"):
        below(np.ones(5, np.float32))
    if dtype.endswith("8"):
        wide = krt.jit(
            lambda x: krt.tensor(base) ** x.shape[0], dynamic={"x": {0: krt.Variable("n", 1, 300)}}
        )
        with pytest.raises(DTypeError, match="narrow the bounds"):
            wide(np.ones(5, np.float32))


def test_counts_of_bits_to_shift_by_fit_the_type():
    x = krt.tensor(np.array([2, 3], np.uint8))
    assert (x << 1).tolist() == [4, 6]
    for shift in (lambda: x << 257, lambda: x >> 257):
        with pytest.raises(DTypeError, match="257 is out of range for uint8"):
            shift()


@pytest.mark.parametrize("other", [
    -np.inf, -0.5, 0.5, 1.0, 7.25, 12.5, np.inf, np.nan, Fraction(1, 2), Fraction(10**400, 3),
    pytest.param(-(10**400), id="huge"), np.float32(0.5),
])  # fmt: skip
@pytest.mark.parametrize("compare", [*ORDER, operator.eq, operator.ne])
def test_sizes_beside_numbers_that_are_not_whole(compare, other):
    answers = {bool(compare(n, other)) for n in range(1, LIMIT + 1)}
    turned = {bool(compare(other, n)) for n in range(1, LIMIT + 1)}
    for wanted, ask in ((answers, lambda: compare(N, other)), (turned, lambda: compare(other, N))):
        if len(wanted) == 1:
            assert bool(ask()) is wanted.pop()
        else:
            with pytest.raises(VariableError):
                ask()


@pytest.mark.parametrize("act", [
    lambda n: n // 2.0, lambda n: 2.5 // n, lambda n: n % 2.0, lambda n: 7.5 % n,
    lambda n: (n / 2) // 3, lambda n: 3 % (n / 2), lambda n: n // np.float64(2),
    lambda n: n % (n / 3), lambda n: int(n / 2), lambda n: math.trunc(n / 2),
    lambda n: math.floor(n / 2), lambda n: f"{n:d}", lambda n: f"{n / 2:.2f}",
])  # fmt: skip
def test_what_sizes_cannot_be_is_refused_with_a_way_out(act):
    with pytest.raises(VariableError, match=r"tensor\(n\)"):
        act(N)


@pytest.mark.parametrize(("sign", "other", "text"), [
    ("<", 1, "1"), ("<=", 2.5, "2.5"), (">", N, "n"), (">=", krt.ones(1), "Tensor"), ("==", 3, "3"),
])  # fmt: skip
def test_errors_of_real_comparisons_name_both_sides(sign, other, text):
    ask = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
           "==": operator.eq}[sign]  # fmt: skip
    with pytest.raises(VariableError, match=rf"2\.0\) {sign} {text}: Python needs True or False"):
        ask(N / 2, other)


def test_arithmetic_that_python_knows_of_numbers():
    found = divmod(7, N), divmod(N, 3), (abs(1 - N / 4), +(N / 2))
    for n in range(1, LIMIT + 1):
        assert [evaluate(plain(x), {"n": n}) for x in found[0]] == list(divmod(7, n))
        assert [evaluate(plain(x), {"n": n}) for x in found[1]] == list(divmod(n, 3))

    @functools.partial(krt.jit, dynamic={"x": {0: N}})
    def run(x):
        n = x.shape[0]
        return x * abs(1 - n / 4), x * +(n / 2)

    for n in (1, 4, 12):
        for got, factor in zip(run(np.ones(n)), (abs(1 - n / 4), n / 2), strict=True):
            np.testing.assert_array_equal(got.numpy(), np.full(n, factor))


def test_a_size_that_a_type_may_not_hold_is_refused_where_it_is_filled_in() -> None:
    filled = krt.jit(
        lambda t: t.index_fill(0, krt.tensor([0]), t.shape[0]),
        dynamic={"t": {0: krt.Variable("n", 1, 300)}},
    )
    with pytest.raises(DTypeError, match=r"value: n goes from 1 to 300, but uint8 holds 0 to 255"):
        filled(np.zeros(9, np.uint8))
    assert filled(np.zeros(9, np.int16)).tolist() == [9, *[0] * 8]


def test_repeats_by_a_size() -> None:
    repeated = krt.jit(
        lambda x: x.mean(0).repeat_interleave(x.shape[0]),
        dynamic={"x": {0: krt.Variable("n", 1, 9)}},
    )
    for n in (1, 3, 9):
        x = np.arange(n * 4.0).reshape(n, 4)
        np.testing.assert_allclose(repeated(x).numpy(), x.mean(0).repeat(n))
