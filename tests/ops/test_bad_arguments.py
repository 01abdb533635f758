"""Arguments that are no numbers, axes, sizes or tensors are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import KernelrtError

X = np.arange(6, dtype=np.float32)
#: What takes a whole number; its name as the error has it.
WHOLE = {
    "shifts": lambda x, v: x.roll([v], 0),
    "chunks": lambda x, v: x.chunk(v),
    "split_size": lambda x, v: x.split([v, 5]),
    "offset": lambda x, v: x.reshape(2, 3).diagonal(v),
    "diagonal": lambda x, v: x.reshape(2, 3).tril(v),
    "repeats": lambda x, v: x.repeat_interleave(v, 0),
    "sizes": lambda x, v: x.unflatten(0, (v, -1)),
    "num_classes": lambda x, v: x.long().one_hot(v),
    "steps": lambda x, v: krt.linspace(x.min().item(), 1, v),
    "pad": lambda x, v: x.pad((v, 1)),
}
NUMBER = {
    "start": lambda x, v: krt.linspace(v, x.max().item(), 3),
    "end": lambda x, v: krt.linspace(x.min().item(), v, 3),
    "value": lambda x, v: x.pad((1, 1), value=v),
    "correction": lambda x, v: x.var(correction=v),
    "p": lambda x, v: x.norm(v),
}
TENSOR = {
    "output": lambda x, v: krt.grad(v, x),
    r"inputs\[0\]": lambda x, v: krt.grad(x.sum(), v),
    r"inputs\[1\]": lambda x, v: krt.grad(x.sum(), [x, v]),
    r"tensors\[0\]": lambda x, v: krt.meshgrid(v, x),
    r"tensors\[1\]": lambda x, v: krt.cat([x, v]),
    r"tensors\[1\]:": krt.realize,
    "tensors": lambda x, v: krt.stack(v if x.ndim else [x]),
}


@pytest.mark.parametrize("value", [1.5, "a", None, (1,), b"1"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name, value):
    with pytest.raises(KernelrtError, match=name):
        WHOLE[name](krt.tensor(X), value)


@pytest.mark.parametrize("value", ["a", (1,), b"1", 10**400, 1j])
@pytest.mark.parametrize("name", NUMBER)
def test_numbers(name, value):
    with pytest.raises(KernelrtError, match=name):
        NUMBER[name](krt.tensor(X), value)


@pytest.mark.parametrize("value", [1, "a", None, X])
@pytest.mark.parametrize("name", TENSOR)
def test_tensors(name, value):
    with pytest.raises(KernelrtError, match=name):
        TENSOR[name](krt.tensor(X, requires_grad=True), value)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: x.repeat_interleave(-1, 0), "repeats"),
        (lambda x: x.unflatten(0, (-1, -1)), "sizes"),
        (lambda x: x.unflatten(0, (-2, -3)), "sizes"),
        (lambda x: x.unflatten(0, (4, -1)), "sizes"),
        (lambda x: x.pad(1), "pad"),
        (lambda x: x.split(1.5), "split_size"),
        (lambda x: x.split("ab"), "split_size"),
        (lambda x: x[[0, [1]]], "index"),
        (lambda x: x[[0.5]], "index"),
        (lambda x: x.cast(x.long()), "dtype"),
        (lambda x: krt.meshgrid(x.reshape(2, 3)), r"tensors\[0\]"),
        (lambda _: krt.linspace(0, 1, -1), "steps"),
        (lambda _: krt.promote(), "dtypes"),
        (lambda _: krt.promote(krt.int8, "int9"), "dtypes"),
        (lambda _: krt.cat([]), "tensors"),
    ],
)
def test_what_has_the_wrong_size_or_kind(call, match):
    with pytest.raises(KernelrtError, match=match):
        call(krt.tensor(X))


#: What needs an axis of its own, by `dim`.
PARTS = {
    "narrow": lambda x, dim: x.narrow(dim, 0, 1), "split": lambda x, dim: x.split(1, dim),
    "sizes": lambda x, dim: x.split([1], dim), "chunk": lambda x, dim: x.chunk(1, dim),
    "unbind": lambda x, dim: x.unbind(dim), "unflatten": lambda x, dim: x.unflatten(dim, (1, 1)),
    "repeat_interleave": lambda x, dim: x.repeat_interleave(2, dim),
    "size": lambda x, dim: x.size(dim),
}  # fmt: skip
#: What takes the one axis that scalars are said to have.
WHOLES = {
    "cumsum": lambda x, dim: x.cumsum(dim), "end_dim": lambda x, dim: x.flatten(0, dim),
    "start_dim": lambda x, dim: x.flatten(dim), "sum": lambda x, dim: x.sum(dim),
    "max": lambda x, dim: x.max(dim), "softmax": lambda x, dim: x.softmax(dim),
    "index_select": lambda x, dim: x.index_select(dim, krt.tensor([0])),
    "squeeze": lambda x, dim: x.squeeze(dim), "flip": lambda x, dim: x.flip(dim),
}  # fmt: skip


@pytest.mark.parametrize("dim", [0, -1, 1, -2])
@pytest.mark.parametrize("name", PARTS)
def test_scalars_have_no_parts(name, dim):
    with pytest.raises(krt.ShapeError, match=rf"dim: axis {dim} is out .* with 0 axes; expected"):
        PARTS[name](krt.tensor(2.0), dim)


@pytest.mark.parametrize("dim", [1, -2, 5])
@pytest.mark.parametrize("name", WHOLES)
def test_scalars_have_no_second_axis(name, dim):
    WHOLES[name](krt.tensor(2.0), 0)
    WHOLES[name](krt.tensor(2.0), -1)
    with pytest.raises(krt.ShapeError, match=rf"dims?: axis {dim} is out .* with 0 axes"):
        WHOLES[name](krt.tensor(2.0), dim)


@pytest.mark.parametrize("index", [0, [0]])
@pytest.mark.parametrize("dim", [0, -1])
def test_a_scalar_is_selected(index, dim):
    torch = pytest.importorskip("torch")
    x, y = krt.tensor(2.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    ours = x.index_select(dim, krt.tensor(index))
    theirs = y.index_select(dim, torch.tensor(index))
    assert ours.shape == tuple(theirs.shape) == ()
    (ours * 3).backward()
    assert (ours.item(), x.grad.item()) == (2, 3)


def test_a_scalar_is_selected_by_one_position_that_it_has():
    x = krt.tensor(2.0)
    for index in ([], [0, 0]):
        with pytest.raises(krt.ShapeError, match="index: expected one position for a scalar"):
            x.index_select(0, krt.tensor(np.array(index, np.int64)))
    with pytest.raises(krt.IndexBoundsError):
        x.index_select(0, krt.tensor([1])).item()


def test_an_index_of_no_elements_takes_none():
    torch = pytest.importorskip("torch")
    x, y = krt.tensor(X), torch.from_numpy(X)
    for index in ([], [[], []], [[]]):
        assert x[index].shape == X[np.asarray(index, np.int64)].shape
    assert x.reshape(2, 3)[[], 1].shape == tuple(y.reshape(2, 3)[[], 1].shape)
    assert x.reshape(2, 3)[:, []].tolist() == y.reshape(2, 3)[:, []].tolist()


def test_grids_of_scalars():
    torch = pytest.importorskip("torch")
    ours = krt.meshgrid(krt.tensor(7.0), krt.tensor(X), krt.tensor(2.0))
    given = torch.tensor(7.0), torch.from_numpy(X), torch.tensor(2.0)
    theirs = torch.meshgrid(*given, indexing="ij")
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("sizes", [(2, 3), (2, -1), (-1,), (3, -1, 1), (6, 1)])
def test_unflatten(sizes):
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(
        krt.tensor(X).unflatten(0, sizes).numpy(), torch.from_numpy(X).unflatten(0, sizes).numpy()
    )


@pytest.mark.parametrize("of", [int, np.int64, np.uint8])
def test_numbers_of_numpy_are_numbers(of):
    x = krt.tensor(X)
    for name, call in WHOLE.items():
        if name != "num_classes":
            call(x, of(1))
    for call in NUMBER.values():
        call(x, of(1)).tolist()


def test_a_scalar_is_a_batch_of_one():
    x = krt.tensor(-1.0)
    assert x.kl_div(krt.tensor(0.5), reduction="batchmean").item() == pytest.approx(
        0.5 * (np.log(0.5) + 1)
    )
