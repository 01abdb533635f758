"""Assignments to rows of tensors that are not computed yet, have just been, or have storage."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.tensor.eager.plan_cache import plans

VALUES = np.arange(12.0, dtype=np.float32).reshape(4, 3)
ROOTS = {
    "lazy": lambda: krt.tensor(VALUES) * 2,
    "fresh": lambda: (krt.tensor(VALUES) * 2).realize(),  # noqa: PLW0108
    "read": lambda: (x := krt.tensor(VALUES) * 2, x.numpy())[0],
    "stored": lambda: krt.tensor(VALUES * 2),
}
INDICES = (
    0, -1, 3, slice(1, 3), slice(0, 4), (2, 1), (1, slice(1, None)), (slice(1, 2), slice(None)),
)  # fmt: skip
#: Each takes the root and the index.
GIVEN = {
    "number": lambda x, index: 7.5,
    "integer": lambda x, index: 7,
    "stored": lambda x, index: krt.tensor(VALUES[index] + 1) if np.ndim(VALUES[index]) else 1.0,
    "lazy": lambda x, index: krt.tensor(VALUES)[index] * 3,
    "of the root": lambda x, index: x[index] * 3 + 1,
    "another row of it": lambda x, index: (x * 5)[index],
    "broadcast": lambda x, index: krt.tensor(4.0) * 2,
}


def given_as_array(given, x, index):
    return {
        "number": 7.5, "integer": 7, "stored": VALUES[index] + 1, "lazy": VALUES[index] * 3,
        "of the root": x[index] * 3 + 1, "another row of it": x[index] * 5, "broadcast": 8.0,
    }[given] if given != "stored" or np.ndim(VALUES[index]) else 1.0  # fmt: skip


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_rows_are_written(root, given, index):
    x, want = ROOTS[root](), VALUES * 2
    other = x + 1  # of the values before
    for _ in range(2):
        x[index] = GIVEN[given](x, index)
        want[index] = given_as_array(given, want, index)
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(other.numpy(), VALUES * 2 + 1)


@pytest.mark.parametrize("root", ROOTS)
def test_gradients_flow_into_rows(root):
    x, w = ROOTS[root](), krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[1] = w * w
    (x[1] * x[2]).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.array([1, 2, 3]) * VALUES[2] * 2)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize(
    ("index", "value"), [(4, 1.0), (slice(0, 2), krt.ones(3, 3)), (0, krt.ones(2)), (0, "a")]
)
def test_what_does_not_fit_leaves_the_tensor_as_it_was(root, index, value):
    x = ROOTS[root]()
    with pytest.raises((krt.ShapeError, krt.DTypeError, IndexError)):
        x[index] = value
    np.testing.assert_array_equal(x.numpy(), VALUES * 2)


TARGETS = {
    **ROOTS,
    "constant": lambda: krt.zeros(4, 3),
    "parameter": lambda: krt.nn.Parameter(krt.tensor(VALUES * 2)),
    "view": lambda: krt.tensor(np.tile(VALUES * 2, (2, 1)))[4:],
    "integers": lambda: krt.tensor((VALUES * 2).astype(np.int32)),
    "float64": lambda: krt.tensor((VALUES * 2).astype(np.float64)),
    "float16": lambda: krt.tensor((VALUES * 2).astype(np.float16)),
}
WHOLE = {
    "float": lambda x: 2.0,
    "integer": lambda x: -3,
    "true": lambda x: True,
    "stored": lambda x: krt.tensor(VALUES + 1).cast(x.dtype).realize(),
    "lazy": lambda x: (krt.tensor(VALUES) * 3).cast(x.dtype),
    "constant": lambda x: krt.ones(4, 3, dtype=x.dtype),
    "row": lambda x: krt.tensor([1.0, 2.0, 3.0]).cast(x.dtype),
    "itself": lambda x: x,
    "its rows in reverse": lambda x: x.flip(0),
    "a view of it": lambda x: x[:1],
    "another type": lambda x: krt.tensor(VALUES.astype(np.int8)),
}


def test_writes_by_position_share_a_plan_with_what_they_read():
    table = krt.zeros(16, 8).realize()
    rows, columns = (krt.tensor(np.arange(n)) for n in (16, 8))
    want = np.zeros((16, 8), np.float32)
    before = None
    for i, j in np.ndindex(16, 8):
        s, a = rows[int(i)], columns[int(j)]
        table[s, a] += 0.5 * (1 + table[s].max() - table[s, a])
        want[i, j] += 0.5 * (1 + want[i].max() - want[i, j])
        if (i, j) == (0, 7):
            before = len(plans.entries)
    np.testing.assert_allclose(table.numpy(), want, rtol=1e-6)
    assert len(plans.entries) <= before + 2  # not one for each distance of the two


@pytest.mark.parametrize("how", ["assign", "copy_"])
@pytest.mark.parametrize(
    ("target", "given"),
    [(t, g) for t in TARGETS for g in WHOLE if (t, g) != ("integers", "float")],  # refused, below
)
def test_whole_tensors_are_assigned(target, given, how):
    x = TARGETS[target]()
    before = x + 1
    read = x.detach().double().numpy().copy()
    value = WHOLE[given](x)
    want = value.detach().double().numpy().copy() if isinstance(value, krt.Tensor) else value
    with krt.no_grad():
        assert getattr(x, how)(value) is x
    np.testing.assert_array_equal(before.detach().double().numpy(), read + 1)
    np.testing.assert_array_equal(x.detach().double().numpy(), np.broadcast_to(want, (4, 3)))
    with krt.no_grad():
        x.fill_(7 if given == "integer" else True)
        assert set(x.flatten().tolist()) == {7 if given == "integer" else 1}
        assert not x.zero_().any()


@pytest.mark.parametrize("target", ["stored", "parameter", "lazy", "integers"])
@pytest.mark.parametrize("what", ["too wide", "too many axes", "text", "beyond the type"])
def test_whole_tensors_refuse_what_does_not_fit(target, what):
    x = TARGETS[target]()
    beyond = 1.5 if target == "integers" else 10**400
    values = {"too wide": krt.ones(4, 4), "too many axes": krt.ones(5, 4, 3), "text": "a"}
    with krt.no_grad(), pytest.raises((krt.ShapeError, krt.DTypeError)):
        x.copy_(values.get(what, beyond))
    np.testing.assert_array_equal(x.detach().double().numpy(), VALUES * 2)


def test_fill_takes_a_number_as_a_tensor():
    w = krt.tensor(3.0, requires_grad=True)
    x = (krt.zeros(2, 3) + 1).fill_(w * 2)
    (x * x).sum().backward()
    assert (set(x.flatten().tolist()), w.grad.item()) == ({6}, 6 * 2 * 6 * 2)
    stored = krt.tensor([1.0, 2.0]).fill_(krt.tensor(5.0))
    assert stored.tolist() == [5, 5]
    with pytest.raises(krt.ShapeError, match=r"0-d tensor, not one of shape \(2,\)"):
        stored.fill_(krt.ones(2))


def test_gradients_of_what_was_computed_before_never_read_new_values():
    w = krt.nn.Parameter(krt.tensor([1.0, 2.0, 3.0]))
    for change, now in (
        (lambda: w.copy_(krt.tensor([5.0, 6.0, 7.0])), [5, 6, 7]), (w.zero_, [0, 0, 0]),
    ):  # fmt: skip
        old = np.array(w.tolist())
        loss = (w * w).sum()
        loss.item()
        with krt.no_grad():
            change()
        try:
            loss.backward()
        except krt.GradientError as error:
            assert "assigned since" in str(error)  # noqa: PT017 - either is right
        else:
            np.testing.assert_array_equal(w.grad.numpy(), 2 * old)
        w.grad = None
        (w * w).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), 2 * np.array(now))
        w.grad = None


def test_read_only_memory_is_not_written():
    data = np.ones(3, np.float32)
    data.flags.writeable = False
    x = krt.from_numpy(data)
    for write in (lambda: x.fill_(2.0), lambda: x.copy_(krt.zeros(3)), x.zero_):
        with pytest.raises(krt.ShapeError, match="read-only"):
            write()
    assert data.tolist() == [1, 1, 1]
