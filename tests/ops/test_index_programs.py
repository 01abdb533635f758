"""Random indices of every form, read and assigned to, against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

INTEGERS = ["int8", "int16", "int32", "int64", "int64", "uint8", "uint16", "uint32", "uint64"]
SHOWN = [lambda x: x, lambda x: x[1:4], lambda x: x.detach(), lambda x: x.mT if x.ndim > 1 else x]
SIZES, CHANCES = [0, 1, 2, 3, 4, 5], [0.06, 0.14, 0.2, 0.2, 0.2, 0.2]


def _item(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[Any, int]:
    """An item of an index, and how many axes it stands for."""
    n, kind = sizes[0], rng.integers(8)
    if kind == 0 and n:
        return int(rng.integers(-n, n)), 1
    if kind == 1:
        ends = [None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in "ab"]
        return slice(*ends, int(rng.integers(1, 4)) if rng.random() < 0.5 else None), 1
    if kind == 2:
        return None, 0
    if kind == 3 and n:
        kind = rng.choice(INTEGERS)
        least = 0 if kind.startswith("u") else -n
        return rng.integers(least, n, tuple(rng.integers(0, 4, rng.integers(0, 3)))).astype(kind), 1
    if kind == 4 and n:
        return [int(i) for i in rng.integers(-n, n, rng.integers(1, 4))], 1
    if kind == 5:
        return rng.random(n) < 0.5, 1
    if kind == 6 and len(sizes) > 1:
        return rng.random(sizes[:2]) < 0.5, 2
    return slice(None), 1


def _program(seed: int) -> tuple[np.random.Generator, np.ndarray[Any, Any], Any]:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice(SIZES, rng.integers(0, 4), p=CHANCES))
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and rng.random() < 0.8:
        item, taken = _item(rng, shape[axis:])
        items.append(item)
        axis += taken
    if rng.random() < 0.2:
        items.append(Ellipsis)
    return rng, rng.standard_normal(shape).astype(np.float32), tuple(items)


def _of(
    library: Any, items: tuple[Any, ...], *, lazy: bool = False, turned: bool = False
) -> Any:
    def made(item: Any) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        if turned and item.dtype.kind in "iu" and item.ndim > 1:
            return library.tensor(item.T).permute(*reversed(range(item.ndim)))
        if library is torch and item.dtype.kind in "iu":
            item = item.astype(np.int64)  # PyTorch takes uint8 for masks
        if lazy and item.dtype.kind in "iu":
            return library.tensor(item) + 0
        return library.tensor(item)

    index = tuple(map(made, items))
    return index[0] if len(index) == 1 else index


def _tried(call: Any) -> Any:
    try:
        return call()
    except (IndexError, RuntimeError, ValueError, krt.KernelrtError):
        return None


@pytest.mark.parametrize("seed", range(150))
def test_reading(seed: int) -> None:
    rng, data, items = _program(seed)
    x, y = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    wanted = _tried(lambda: y[_of(torch, items)])
    found = _tried(lambda: krt.clone(x[_of(krt, items)]))
    assert (found is None) == (wanted is None)
    if found is None or wanted is None:
        return
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_array_equal(found.detach().numpy(), wanted.detach().numpy())
    weight = rng.standard_normal(found.shape).astype(np.float32)
    (found * krt.tensor(weight)).sum().backward()
    (wanted * torch.tensor(weight)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-5)


def _assignment(seed: int) -> Any:
    """A program, a value, which element of it each place gets, -1 for none, and the elements then.

    None where PyTorch refuses the index.
    """
    rng, data, items = _program(seed)
    whole = torch.arange(data.size).reshape(data.shape)
    places = _tried(lambda: np.asarray(whole[_of(torch, items)]))
    if places is None:
        return None
    shape = [1 if rng.random() < 0.2 else n for n in places.shape]
    first = rng.integers(0, len(shape) + 1) if rng.random() < 0.3 else 0
    value = rng.standard_normal(shape[first:]).astype(np.float32)
    source = np.full(data.size, -1)
    wide = np.broadcast_to(np.arange(value.size).reshape(value.shape), places.shape)
    for place, i in zip(places.ravel(), wide.ravel(), strict=True):
        source[place] = i
    new = data.ravel().copy()
    new[source >= 0] = value.ravel()[source[source >= 0]]
    return rng, data, items, value, source, new.reshape(data.shape)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_assigning_to_memory(seed: int, add: bool) -> None:
    """The target is a tensor or a view. An element that is named twice gets the last value."""
    program = _assignment(seed + 1000)
    if program is None:
        return
    rng, data, items, value, source, new = program
    wanted = np.where(source.reshape(data.shape) < 0, data, data + new) if add else new
    form = rng.integers(4)
    root = krt.tensor([data.T, data, np.stack([data, data]), data][form])
    x = [root.T, root, root[1] if form == 2 else root, root.detach()][form]
    lazy, turned = rng.random(2) < 0.3
    index, v = _of(krt, items, lazy=bool(lazy), turned=bool(turned)), krt.tensor(value)
    if rng.random() < 0.3:
        v = krt.tensor(value.T).permute(*reversed(range(value.ndim)))
    v = v * 1 if rng.random() < 0.3 else v
    if add:
        x[index] += v
    else:
        x[index] = v
    np.testing.assert_array_equal(x.numpy(), wanted)
    shown = [root.T, root, root[1] if form == 2 else root, root][form]
    np.testing.assert_array_equal(shown.numpy(), wanted)
    if form == 2:
        np.testing.assert_array_equal(root[0].numpy(), data)


@pytest.mark.parametrize("seed", range(100))
def test_assigning_with_gradients(seed: int) -> None:
    """The last value, where an element is named twice, alone gets the gradient."""
    program = _assignment(seed + 1000)
    if program is None:
        return
    rng, data, items, value, source, wanted = program
    x, v = krt.tensor(data) * 1, krt.tensor(value, requires_grad=True)
    x[_of(krt, items)] = v
    np.testing.assert_array_equal(x.detach().numpy(), wanted)
    weight = rng.standard_normal(data.shape).astype(np.float32)
    (x * krt.tensor(weight)).sum().backward()
    gradient = np.zeros(value.size, np.float32)
    np.add.at(gradient, source[source >= 0], weight.ravel()[source >= 0])
    assert v.grad is not None
    np.testing.assert_allclose(v.grad.numpy().ravel(), gradient, atol=1e-5)


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("shape", [(6,), (4, 4)])
def test_a_tensor_assigned_to_its_own_elements(shown: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for index in (rng.permutation, lambda n: rng.integers(0, n, n)):
        for axis in range(len(shape)):
            data = rng.random(shape)
            x, wanted = krt.tensor(data), data.copy()
            part = shown(torch.from_numpy(wanted)).numpy()
            places = (slice(None),) * axis + (index(part.shape[axis]),)
            part[places] = part.copy()
            shown(x)[tuple(krt.tensor(p) if isinstance(p, np.ndarray) else p for p in places)] = (
                shown(x)
            )
            np.testing.assert_array_equal(x.numpy(), wanted)


def test_the_last_value_counts_row_by_row_whatever_the_strides() -> None:
    for turn in (lambda a: a, lambda a: a.T.copy().T, lambda a: a[:, ::-1].copy()[:, ::-1]):
        index, value = turn(np.array([[1, 0], [0, 2]])), turn(np.array([[4, 5], [6, 7]]))
        for shown in (lambda t: t, lambda t: t.T, lambda t: t.flip(1)):
            i, v = shown(krt.tensor(index)), shown(krt.tensor(value))
            x, wanted = krt.zeros(3, dtype=krt.int64).realize(), [0, 0, 0]
            for place, number in zip(i.numpy().flatten(), v.numpy().flatten(), strict=True):
                wanted[place] = number
            x[i] = v
            assert x.tolist() == wanted


@pytest.mark.parametrize("make", [lambda x: x * 1, lambda x: x.T.contiguous().T])
def test_parts_that_are_assigned_to_other_places(make: Any) -> None:
    data = np.arange(12.0).reshape(4, 3)
    for _ in range(4):
        x, wanted = make(krt.tensor(data)), data.copy()
        rows = list(x)
        x[0] = rows[2]
        wanted[0] = wanted[2]
        np.testing.assert_array_equal(x.numpy(), wanted)
        x, wanted = make(krt.tensor(data)), data.copy()
        x[1] = x.select(1, 2)[:3]
        wanted[1] = wanted[:3, 2].copy()
        np.testing.assert_array_equal(x.numpy(), wanted)
        x, wanted = make(krt.tensor(data)), data.copy()
        x[None] = x.unbind()[2]
        wanted[None] = wanted[2].copy()
        np.testing.assert_array_equal(x.numpy(), wanted)
