"""Where axes go when a value is moved about: what NumPy's strides say of the same views."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, UOp
from kernelrt.schedule.rewrite.axis_maps import (
    axes_above,
    axes_below,
    core_of,
    innermost,
    lying,
    varying_axes,
)
from kernelrt.tensor.nodes import build


def split(rng, shape):
    """Another shape of as many elements, whose axes are those of `shape`, joined or split."""
    sizes = [n for n in shape if n != 1 or rng.random() < 0.5]
    for _ in range(rng.integers(3)):
        if len(sizes) > 1 and rng.random() < 0.5:
            k = rng.integers(len(sizes) - 1)
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
        elif sizes:
            k = rng.integers(len(sizes))
            by = [d for d in range(2, sizes[k]) if sizes[k] % d == 0]
            if by:
                d = int(rng.choice(by))
                sizes[k : k + 1] = [d, sizes[k] // d]
    for _ in range(rng.integers(2)):
        sizes.insert(rng.integers(len(sizes) + 1), 1)
    return tuple(map(int, sizes))


def moved(rng):
    """A graph that moves a buffer about, and NumPy's view of the same elements."""
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 4)))
    node = build.reshape(build.memory(Buffer(math.prod(shape), dt.float32)), shape)
    array = np.empty(shape, np.float32)
    for _ in range(rng.integers(1, 6)):
        how = rng.integers(3)
        if how == 0:
            order = tuple(int(a) for a in rng.permutation(array.ndim))
            node = UOp(Op.PERMUTE, node.dtype, (node,), order)
            array = array.transpose(order)
        elif how == 1:
            shape = tuple(n if n != 1 else int(rng.choice([1, 2, 5])) for n in array.shape)
            if math.prod(shape) > 4000 or shape == array.shape:
                continue
            node = UOp(Op.EXPAND, node.dtype, (node,), shape)
            array = np.broadcast_to(array, shape)
        else:
            shape = split(rng, array.shape)
            view = array.view()
            try:
                view.shape = shape
            except AttributeError:
                continue  # which has to copy
            node = UOp(Op.RESHAPE, node.dtype, (node,), shape)
            array = view
    return node, array


def strides(array):
    return [s // array.itemsize if n != 1 else 0 for s, n in zip(array.strides, array.shape,
                                                                   strict=True)]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Setting the shape")
@pytest.mark.parametrize("seed", range(300))
def test_neighbours_in_memory(seed):
    node, array = moved(np.random.default_rng(seed))
    found, varies = lying(node, range(array.ndim), {})
    steps = strides(array)
    assert varies == varying_axes(node)
    assert varies >= {a for a, s in enumerate(steps) if s}
    # Of an axis that is split all parts vary if one does.
    if all(step.op is not Op.RESHAPE for step in core_of(node)[1][1:]):
        assert {a for a in varies if array.shape[a] != 1} == {a for a, s in enumerate(steps) if s}
    if found is not None and array.shape[found] != 1:
        assert steps[found] == 1
    elif 1 in steps:
        assert found == steps.index(1)


@pytest.mark.filterwarnings("ignore:Setting the shape")
@pytest.mark.parametrize("seed", range(300))
def test_axes_followed_up_and_down_are_the_same(seed):
    node, array = moved(np.random.default_rng(seed))
    core, chain = core_of(node)
    assert core.op is Op.BUFFER
    assert varying_axes(node) >= {a for a, s in enumerate(strides(array)) if s}
    for step in chain:
        labels = [f"axis {a}" for a in range(len(step.src[0].shape))]
        above = axes_above(step, labels)
        long = [[n for n in shape if n != 1] for shape in (step.src[0].shape, step.shape)]
        assert (above is None) is (step.op is Op.RESHAPE and long[0] != long[1])
        if above is None:
            continue
        assert len(above) == len(step.shape)
        below = axes_below(step, above)
        for axis, label in enumerate(labels):
            assert below[axis] in (label, None)
            if label in above and step.src[0].shape[axis] != 1:
                assert below[axis] == label
                assert step.shape[above.index(label)] == step.src[0].shape[axis]


def test_copies_that_are_reshaped_do_not_vary():
    row = build.reshape(build.memory(Buffer(6, dt.float32)), (1, 6))
    copies = UOp(Op.EXPAND, row.dtype, (row,), (4, 6))
    for shape, varying in (((2, 2, 6), {2}), ((4, 2, 3), {1, 2}), ((24,), {0}), ((4, 1, 6), {2})):
        assert varying_axes(UOp(Op.RESHAPE, row.dtype, (copies,), shape)) == varying


def test_innermost():
    x = build.reshape(build.memory(Buffer(24, dt.float32)), (4, 6, 1))
    assert innermost(x, None) == 1
    assert innermost(x, (1, 2, 0)) == 0
    assert innermost(build.memory(Buffer(1, dt.float32)), None) is None
