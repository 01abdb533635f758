"""Integer tensors without axes where a number is expected, and bools as masks of no axes."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import AxisError, DTypeError, JitError, ShapeError

ARRAY = np.arange(12.0).reshape(3, 4)

CALLS = {
    "slice": lambda x, n: x[:, :n], "from": lambda x, n: x[n - 2 :, n:],
    "step": lambda x, n: x[::n],
    "zeros": lambda _, n: krt.zeros(n, 2), "full": lambda _, n: krt.full((n,), 3.0),
    "arange": lambda _, n: krt.arange(n), "linspace": lambda _, n: krt.linspace(0, 1, n),
    "eye": lambda _, n: krt.eye(n), "narrow": lambda x, n: x.narrow(1, n - 2, n),
    "split": lambda x, n: x.split(n, 1)[0], "chunk": lambda x, n: x.chunk(n, 1)[1],
    "tensor_split": lambda x, n: x.tensor_split(n, 1)[1], "hsplit": lambda x, n: x.hsplit(n)[0],
    "reshape": lambda x, n: x.reshape(n, -1), "expand": lambda x, n: x[:1].expand(n, 4),
    "repeat": lambda x, n: x.repeat(n, 1), "roll": lambda x, n: x.roll(n, 1),
    "dim": lambda x, n: x.sum(n - 1), "axes": lambda x, n: x.sum((n - 2, n - 1)),
    "transpose": lambda x, n: x.transpose(n - 2, n - 1), "topk": lambda x, n: x.topk(n)[0],
    "unfold": lambda x, n: x.unfold(1, n, n), "unflatten": lambda x, n: x.unflatten(1, (n, n)),
    "pad": lambda x, n: x.pad((n, 0)), "reflected": lambda x, n: x[None].pad((n, n), "reflect"),
    "pool": lambda x, n: krt.nn.functional.max_pool1d(x[None], n),
    "triu": lambda x, n: x.triu(n), "one_hot": lambda _, n: krt.arange(n).one_hot(n),
    "interleave": lambda x, n: x.repeat_interleave(n), "matrix_power": lambda x, n: (
        x[:, :3].matrix_power(n)), "range": lambda _, n: krt.tensor(list(range(n))),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_it_is_its_number(name):
    call, x = CALLS[name], krt.tensor(ARRAY)
    wanted = call(x, 2).numpy()
    for n in (krt.tensor(2), krt.tensor([1, 2]).max(), krt.tensor(2, dtype="uint8"), np.int64(2)):
        np.testing.assert_array_equal(call(x, n).numpy(), wanted)


def test_layers_take_sizes():
    layer = krt.nn.Linear(krt.tensor(3), krt.tensor([2, 4]).max())
    assert layer.weight.shape == (4, 3)
    assert krt.randint(krt.tensor(5), (3,)).max().item() < 5


@pytest.mark.parametrize("n", [krt.tensor(2.0), krt.tensor([2]), krt.tensor(True)], ids=str)
def test_others_are_refused(n):
    for call in (lambda: krt.zeros(n), lambda: krt.ones(4)[:n], lambda: krt.ones(4).roll(n)):
        with pytest.raises((DTypeError, ShapeError)):
            call()


def test_in_a_traced_function_it_is_unknown():
    with pytest.raises(JitError, match="traced"):
        krt.jit(lambda x, n: x[:n])(np.ones(3), np.array(2))
    with pytest.raises(JitError, match="traced"):
        krt.jit(lambda n: krt.zeros(n + 1))(np.array(2))


@pytest.mark.parametrize("index", [
    True, False, np.True_, (0, True), (True, 0), (slice(None), True), (None, False), (True, True),
    (True, [0, 2]), (..., True),
], ids=str)  # fmt: skip
def test_bools_are_masks_of_no_axes(index):
    x = krt.tensor(ARRAY, requires_grad=True)
    np.testing.assert_array_equal(x[index].numpy(), ARRAY[index])
    np.testing.assert_array_equal(krt.jit(lambda x: x[index])(ARRAY).numpy(), ARRAY[index])
    wanted = ARRAY.copy()
    wanted[index] = 7
    y = krt.tensor(ARRAY)
    y[index] = 7
    np.testing.assert_array_equal(y.numpy(), wanted)
    (x[index] * 2).sum().backward()
    marks = np.zeros_like(ARRAY)
    marks[index] = 2
    np.testing.assert_array_equal(x.grad.numpy(), marks)


def test_a_mask_of_another_shape_is_an_index_error():
    for call in (lambda: krt.ones(2)[krt.ones(3) > 0], lambda: krt.ones(2, 3)[[True, False, True]]):
        with pytest.raises(IndexError, match="a mask of shape") as error:
            call()
        assert isinstance(error.value, AxisError)


def test_positions_below_zero_are_counted_from_the_end():
    x, places = krt.tensor(ARRAY), krt.tensor([[-1, 0], [1, -4], [-2, 3]])
    wanted = np.take_along_axis(ARRAY, places.numpy(), 1)
    xp = krt.array_api
    for taken in (krt.take_along_dim(x, places, 1), xp.take_along_axis(x, places, axis=1)):
        np.testing.assert_array_equal(taken.numpy(), wanted)
    np.testing.assert_array_equal(krt.take_along_dim(x, krt.tensor([-1, 2])).numpy(), [11, 2])
    taken = xp.take(x, krt.tensor([-1, 0]), axis=1)
    np.testing.assert_array_equal(taken.numpy(), ARRAY[:, [-1, 0]])
    with pytest.raises(krt.IndexBoundsError):
        krt.take_along_dim(x, krt.tensor([[-5], [0], [0]]), 1).numpy()
    with pytest.raises(krt.IndexBoundsError):  # as in PyTorch
        x.gather(1, places).numpy()


def test_text_of_numbers():
    assert f"{krt.tensor(1.5)} {krt.tensor(3)} {krt.tensor(True)}" == "1.5 3 True"
    assert f"{krt.tensor(2 / 3):.3f} {krt.tensor(7):>3d}" == "0.667   7"
    assert f"{krt.tensor([1.5])}" == "tensor([1.5])"


def test_no_tensor_is_none():
    x = krt.ones(2)
    assert ((x == None), (x != None)) == (False, True)  # noqa: E711
