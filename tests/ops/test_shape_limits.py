"""Shapes that no tensor has are refused where they are asked for; those at the limits work."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import ShapeError, VariableError
from kernelrt.ir.shape import MOST_ELEMENTS

X = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("axes", [0, 1, 31, 32, 33, 40, 63, 64])
def test_as_many_axes_as_numpy_has(axes):
    torch = pytest.importorskip("torch")
    shape = (1,) * (axes - 1) + (6,) if axes else ()
    data = X.reshape(shape) if axes else np.float32(3)
    x = krt.tensor(data)
    for y in (x, x + 1, (x + 1).realize().reshape(shape), krt.jit(lambda a: a * 2)(x)):
        assert y.numpy().shape == shape
        assert torch.from_dlpack(y).shape == shape
        repr(y), y.tolist()
    np.testing.assert_array_equal(krt.jit(lambda a: a + 1)(np.asarray(data)).numpy(), data + 1)


MORE_AXES = {
    "unsqueeze": lambda x: x.unsqueeze(0),
    "reshape": lambda x: x.reshape(1, *x.shape),
    "expand": lambda x: x.expand(2, *x.shape),
    "repeat": lambda x: x.repeat(1, *x.shape),
    "index": lambda x: x[None],
    "unflatten": lambda x: x.unflatten(0, (1, 1)),
    "stack": lambda x: krt.stack([x, x]),
    "broadcast": lambda x: x + krt.ones(*[1] * 65),
    "zeros": lambda x: krt.zeros(*x.shape, 1),
    "empty": lambda x: krt.empty(1, *x.shape),
}


@pytest.mark.parametrize("name", MORE_AXES)
@pytest.mark.parametrize("jitted", [False, True])
def test_one_axis_more_is_refused_by_the_operation(name, jitted):
    call = krt.jit(MORE_AXES[name]) if jitted else MORE_AXES[name]
    with pytest.raises(ShapeError, match="axes"):
        call(krt.ones(*[1] * 64))


def test_axes_in_a_loop_end_in_an_error():
    x = krt.ones(2)
    for _ in range(63):
        x = x.unsqueeze(0)
    with pytest.raises(ShapeError, match="64"):
        x.unsqueeze(0)
    assert x.numpy().ndim == 64


@pytest.mark.parametrize("length", [-6, -1, 0, 1, 3, 4, 7])
@pytest.mark.parametrize("start", [-1, 0, 3, 6, 7])
def test_narrow_takes_what_torch_takes(start, length):
    torch = pytest.importorskip("torch")
    try:
        expected = torch.from_numpy(X).narrow(0, start, length).numpy()
    except (RuntimeError, IndexError):
        with pytest.raises(ShapeError, match="length"):
            krt.tensor(X).narrow(0, start, length)
    else:
        np.testing.assert_array_equal(krt.tensor(X).narrow(0, start, length).numpy(), expected)


def test_narrow_by_a_size_that_may_be_negative():
    n = krt.Variable("n", 1, 6)
    f = krt.jit(lambda x: x.narrow(0, 0, x.shape[0] - 3), dynamic={"x": {0: n}})
    with pytest.raises(ShapeError, match="length"):
        f(X)


TOO_LARGE = {
    "expand": lambda n: krt.arange(6).expand(n, 6),
    "repeat": lambda n: krt.arange(6).repeat(n),
    "repeat_interleave": lambda n: krt.arange(6).repeat_interleave(n, 0),
    "zeros": lambda n: krt.zeros(n, 6),
    "nothing": lambda n: krt.zeros(0, n, 6),
    "empty": lambda n: krt.empty(0, n, 6),
    "full": lambda n: krt.full((n, 6), 1),
    "eye": lambda n: krt.eye(n, 6),
    "pad": lambda n: krt.arange(6).pad((3 * n, 3 * n)),
    "arange": lambda n: krt.arange(n * 6),
    "arange of floats": lambda n: krt.arange(0.0, 1.0, 1 / (n * 6)),
    "arange of far ends": lambda n: krt.arange(-1e300, 1e300, 1 / n),
    "cat": lambda n: krt.cat([krt.ones(1).expand(n)] * 6),
    "broadcast": lambda n: krt.ones(n, 1) + krt.ones(1, 6),
    "outer": lambda n: krt.ones(n, 1) @ krt.ones(1, 6),
    "reshape": lambda n: krt.ones(0).reshape(0, n, 6),
}


@pytest.mark.parametrize("n", [MOST_ELEMENTS // 6 + 1, 2**61, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_beyond_the_limit_are_refused(name, n):
    if name in ("arange", "repeat_interleave") and n > 2**60:
        expected: tuple[type[Exception], ...] = (ShapeError, krt.errors.DTypeError)
    else:
        expected = (ShapeError,)
    with pytest.raises(expected):
        TOO_LARGE[name](n)


def test_the_largest_size_counts_right():
    n = MOST_ELEMENTS // 6
    x = krt.arange(6).expand(n, 6).reshape(-1)
    for i in (0, 7, 6 * n - 1, 3 * n + 1):
        assert x[i].item() == i % 6
    assert krt.arange(MOST_ELEMENTS)[MOST_ELEMENTS - 1].item() == MOST_ELEMENTS - 1


@pytest.mark.parametrize("bounds", [(1, 2**63), (1, 2**70), (-(2**63) - 1, 1)])
def test_variables_have_64_bits(bounds):
    with pytest.raises(VariableError, match="64-bit integers"):
        krt.Variable("n", *bounds)


def test_sizes_of_variables_that_may_wrap_are_refused():
    n = krt.Variable("n", 1, 2**40)
    with pytest.raises(ShapeError, match="elements"):
        krt.zeros(n, n)
    with pytest.raises(ShapeError):
        n + 2**70


@pytest.mark.parametrize(
    "ends",
    [(2**53 + 1,), (0, 2**53 + 1), (2**53, 2**53 + 3), (2**62 - 1, -(2**62), -(2**61)),
     (-7, 8, 3), (7, -8, -3), (5, 5), (5, 4), (4, 5, -1), (True, 4)],
)  # fmt: skip
def test_arange_of_integers_counts_exactly(ends):
    exact = range(*map(int, ends))
    x = krt.arange(*ends)
    assert x.shape == (len(exact),)
    for i in {0, len(exact) // 2, len(exact) - 1} if exact else ():
        assert x[i].item() == exact[i]


@pytest.mark.parametrize(
    "ends", [(float("inf"),), (0, float("nan")), (0, 1, float("inf")), ("a",), (0, 1.0, None),
             (10**400, 0.5), (2**70, 2**70 + 3), ([1],)],
)  # fmt: skip
def test_arange_names_an_end_that_is_none(ends):
    with pytest.raises(krt.errors.DTypeError, match=r"start|end|step"):
        krt.arange(*ends)
    with pytest.raises(krt.errors.DTypeError, match=r"start|end|step"):
        krt.arange(*ends, dtype=krt.float32)
