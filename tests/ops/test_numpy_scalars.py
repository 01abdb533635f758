"""NumPy's scalars stand wherever Python's do, and mean the same."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DTypeError

IMAGE = np.random.default_rng(1).standard_normal((2, 4, 6, 6)).astype(np.float32)
FILTERS = np.random.default_rng(2).standard_normal((2, 4, 3, 3)).astype(np.float32)
LABELS = krt.tensor([1, 2])

CALLS = {
    "max_pool2d": lambda x, n: x.max_pool2d(n(2)),
    "avg_pool2d": lambda x, n: x.avg_pool2d((n(2), n(2)), stride=n(1)),
    "conv2d": lambda x, n: x.conv2d(krt.tensor(FILTERS), None, n(2), n(1), n(1), n(1)),
    "reshape": lambda x, n: x.reshape(n(8), n(-1)),
    "roll": lambda x, n: x.roll(n(1), n(0)),
    "narrow": lambda x, n: x.narrow(n(1), n(1), n(2)),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n(2), n(1)),
    "tril": lambda x, n: x.tril(n(1)),
    "split": lambda x, n: x.split(n(3), n(1))[1],
    "split_sizes": lambda x, n: x.split([n(1), n(3)], n(1))[1],
    "chunk": lambda x, n: x.chunk(n(2), n(1))[1],
    "group_norm": lambda x, n: x.group_norm(n(2)),
    "one_hot": lambda _, n: LABELS.one_hot(n(4)),
    "layer_norm": lambda x, n: x.layer_norm(n(6)),
    "layer_norm_axes": lambda x, n: x.layer_norm((n(6), n(6))),
    "rms_norm": lambda x, n: x.rms_norm(n(6)),
    "unflatten": lambda x, n: x.unflatten(n(1), (n(2), n(2))),
    "pad": lambda x, n: x.pad((n(1), n(1))),
    "sum": lambda x, n: x.sum((n(1), n(2))),
    "max": lambda x, n: x.max(n(1))[0],
    "argmax": lambda x, n: x.argmax(n(1)),
    "diagonal": lambda x, n: x.diagonal(n(1), n(2), n(3)),
    "repeat": lambda x, n: x.repeat(n(1), n(2), n(1), n(1)),
    "index": lambda x, n: x[n(1), n(0) : n(2)],
    "norm": lambda x, n: x.norm(n(2), n(1)),
    "power": lambda x, n: x ** n(2),
    "clamp": lambda _, n: LABELS.clamp(n(0), n(1)),
    "cross_entropy": lambda x, n: x.cross_entropy(krt.zeros(2, 6, 6, dtype="int64"), None, n(1)),
    "arange": lambda _, n: krt.arange(n(1), n(9), n(2)),
    "full": lambda _, n: krt.full((n(2),), n(3)),
    "randint": lambda _, n: krt.randint(n(7), n(8), (n(3),)),
    "Linear": lambda _, n: krt.nn.Linear(n(3), n(4)).weight * 0,
    "Conv2d": lambda _, n: krt.nn.Conv2d(n(4), n(2), (n(3), n(2))).weight * 0,
    "LayerNorm": lambda x, n: krt.nn.LayerNorm(n(6))(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers(name):
    x = krt.tensor(IMAGE)
    plain, scalar = CALLS[name](x, int), CALLS[name](x, np.int64)
    assert scalar.dtype is plain.dtype
    np.testing.assert_array_equal(scalar.numpy(), plain.numpy())


def test_bools_are_no_sizes():
    for call in (lambda x: x.max_pool2d(True), lambda x: x.split(True), lambda x: x.max(True)):
        with pytest.raises((krt.DTypeError, TypeError)):
            call(krt.tensor(IMAGE))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_are_as_weak_as_pythons(kind):
    for dtype in ("float16", "float32", "float64"):
        x = krt.ones(3, dtype=dtype)
        number = kind(0.5)
        for out in (x + number, x * number, number * x, x / number, x.clamp(max=number), x**number):
            assert out.dtype.name == dtype


ARRAY = np.array([3, 2, 1], np.float32)
OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize(
    "left", [ARRAY, ARRAY[0], np.array(2.0, np.float32), np.int64(2)], ids=repr
)
def test_an_array_and_a_tensor_give_a_tensor(sign, left):
    right = np.array([1, 2, 3], np.float32)
    if sign == "@" and left.ndim == 0:
        return
    for ours, numbers in (
        (OPERATORS[sign](left, krt.tensor(right)), OPERATORS[sign](left, right)),
        (OPERATORS[sign](krt.tensor(right), left), OPERATORS[sign](right, left)),
    ):
        assert isinstance(ours, krt.Tensor)
        np.testing.assert_allclose(ours.numpy(), numbers, rtol=1e-6)


def test_other_functions_of_numpy_tell_the_way_out():
    x = krt.tensor(ARRAY)
    out = np.zeros(3, np.float32)
    calls = {
        "numpy.cbrt: .* own methods": lambda: np.cbrt(x),
        "numpy.sqrt: .* use x.sqrt()": lambda: np.sqrt(x, out=out),
        "numpy.subtract.outer: ": lambda: np.subtract.outer(x, x),
        "numpy.add: ": lambda: np.add(ARRAY, x, out=out),
    }
    for words, call in calls.items():
        with pytest.raises(krt.DTypeError, match=words):
            call()
        with pytest.raises(krt.DTypeError, match=words):
            krt.jit(lambda y, call=call: (call(), y))(ARRAY)
    assert (np.abs(-x).tolist(), np.negative(x).tolist()) == ([3, 2, 1], [-3, -2, -1])
    total = ARRAY.copy()
    total += x
    assert isinstance(total, krt.Tensor)
    assert (ARRAY == [3, 2, 1]).all()


def within(mode, value):
    with mode(value):
        return krt.is_grad_enabled()


def refuses(value):
    krt.distributions.Normal(0.0, 1.0, validate_args=value)
    try:
        krt.distributions.Normal(0.0, -1.0, validate_args=value)
    except krt.errors.KernelrtError:
        return True
    return False


#: What takes a bool, and what is to be seen of it.
FLAGS = {
    "mode": lambda v: within(krt.set_grad_enabled, v),
    "unbiased": lambda v: krt.tensor([1.0, 3.0]).var(0, v).item(),
    "shuffle": lambda v: type(krt.data.DataLoader([1, 2], shuffle=v).sampler).__name__,
    "drop_last": lambda v: len(krt.data.DataLoader([1, 2, 3], 2, drop_last=v)),
    "drop_last ": lambda v: len(krt.data.BatchSampler([1, 2, 3], 2, v)),
    "shuffle ": lambda v: krt.data.batches(np.arange(4), shuffle=v).shuffle,
    "drop_last  ": lambda v: len(krt.data.batches(np.arange(3), batch_size=2, drop_last=v)),
    "validate_args": refuses,
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_bool_is_pythons_or_numpys_everywhere(name):
    call, word = FLAGS[name], name.strip()
    assert call(np.True_) == call(True)
    assert call(np.False_) == call(False) != call(True)
    for wrong in (1, "yes", np.int64(0)):
        kind = type(wrong).__name__
        with pytest.raises(DTypeError, match=f"{word}: expected a bool, not {kind}"):
            call(wrong)


@pytest.mark.parametrize(("call", "name"), [
    (krt.poisson, "input"), (lambda x: krt.binomial(krt.ones(3), x), "prob"),
    (lambda x: krt.nn.functional.affine_grid(x, (1, 1, 2, 2)), "theta"),
    (lambda x: krt.ones(3).bernoulli_(x), "p"), (lambda x: krt.normal(x, 1.0), "mean"),
    (lambda x: x.silu(), "silu"), (lambda x: x.histc(), "histc"),
    (lambda x: x.multinomial(1), "multinomial"),
])  # fmt: skip
def test_what_is_of_floats_says_so_in_one_way(call, name):
    text = f"{name}: expected a floating type, not int64; cast the tensor first, as in x.float"
    with pytest.raises(DTypeError, match=text):
        call(krt.arange(3))
