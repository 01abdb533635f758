"""Making tensors and reading them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DeviceError, DomainError, DTypeError, ShapeError


def test_types_of_python_data():
    assert krt.tensor(1.0).dtype is krt.float32
    assert krt.tensor([1, 2]).dtype is krt.int64
    assert krt.tensor([True]).dtype is krt.bool_
    assert krt.tensor([[1, 2.5]]).dtype is krt.float32
    assert krt.tensor(np.float64(1.5)).dtype is krt.float64


@pytest.mark.parametrize(
    "data",
    [
        [np.float64(1.5), 2.0], [2.0, np.float64(1.5)], [1, np.float64(1.5)],
        [[np.float64(1)], [2]],
        (np.array([1.0, 2]), np.array([3.0, 4])), [krt.tensor(1.5, dtype=krt.float64), 2.0],
        [np.float32(1), np.float64(2)],
        [np.array([1.0, 2]), [3.0, 4.0]], [[3.0, 4.0], np.array([1.0, 2])],
        [[1, 2], np.array([1.0, 2], ">f8")],
    ],
)  # fmt: skip
def test_lists_that_hold_float64_become_float64(data) -> None:
    made = krt.tensor(data)
    assert made.dtype is krt.float64
    np.testing.assert_array_equal(made, np.array(data, np.float64))
    assert krt.tensor(data, dtype="float32").dtype is krt.float32


@pytest.mark.parametrize(
    "data", [[1.5, 2.0], [np.float32(1.5), 2.0], [[1.5], [np.int64(2)]], [], [[], []],
             [krt.tensor(1.5), 2.0]],
)  # fmt: skip
def test_other_lists_of_floats_become_float32(data) -> None:
    assert krt.tensor(data).dtype is krt.float32
    assert krt.tensor(np.zeros(2)).dtype is krt.float64
    assert krt.tensor([1, 2], dtype="int8").dtype is krt.int8
    assert krt.Tensor([1.0], dtype=krt.float16).dtype is krt.float16


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
@pytest.mark.parametrize(
    "ends", [(0.5, 5, 1.5), (0.1, -7.9, -4.0), (0.0, 5.0, 2.5), (1.9, 4.1, 1.0), (7.9, 0.1, -2.2)]
)
def test_integers_of_a_fractional_range(ends, dtype):
    torch = pytest.importorskip("torch")
    if dtype == "uint8" and min(ends[:2]) < 0:
        return
    expected = torch.arange(*ends, dtype=getattr(torch, dtype)).tolist()
    assert krt.arange(*ends, dtype=dtype).tolist() == expected


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
@pytest.mark.parametrize(
    "ends", [(6.5, 1.7, 4), (0, 10, 5), (-8.9, -0.3, 4), (1.9, 4.1, 3), (0.5, 7.5, 1), (2, 3, 0)]
)
def test_integers_between_fractional_ends(ends, dtype):
    torch = pytest.importorskip("torch")
    expected = torch.linspace(*ends, dtype=getattr(torch, dtype)).tolist()
    assert krt.linspace(*ends, dtype=dtype).tolist() == expected


def test_a_step_without_a_whole_part():
    assert krt.arange(0, 2, 0.5, dtype="int32").tolist() == [0, 0, 0, 0]  # as in PyTorch
    with pytest.raises(DomainError, match="step: expected at least 1 or at most -1 for int64"):
        krt.arange(0, 2, 0.5, dtype="int64")


def test_a_tensor_of_a_tensor_is_a_copy():
    x = krt.tensor([1.0, 2.0])
    y = krt.tensor(x)
    x.assign(x * 10)
    assert (x.tolist(), y.tolist()) == ([10, 20], [1, 2])


def test_objects_with_a_buffer_or_dlpack():
    import array

    assert krt.tensor(array.array("d", [1, 2])).tolist() == [1, 2]
    torch = pytest.importorskip("torch")
    t = torch.arange(6.0).reshape(2, 3)
    assert krt.tensor(t).tolist() == t.tolist()
    shared = krt.from_numpy(t)
    t[0, 0] = 9
    assert shared.tolist()[0][0] == 9
    assert torch.from_dlpack(krt.tensor([[1.5, 2.5]])).tolist() == [[1.5, 2.5]]


def test_bfloat16_of_another_library_is_copied():
    torch = pytest.importorskip("torch")
    whole = torch.arange(6.0).reshape(2, 3)
    for t in (whole, whole.T, whole[:, 1:], whole[0, 1], whole[:0]):
        narrow = t.bfloat16()
        for dtype in (None, "float32", "int64"):
            made = krt.tensor(narrow, dtype=dtype)
            assert made.dtype.name == (dtype or "bfloat16")
            assert made.float().tolist() == narrow.tolist()
    copied = krt.tensor(narrow := torch.ones(2).bfloat16())
    narrow[0] = 5
    assert copied.float().tolist() == [1, 1]
    trained = krt.tensor(narrow.requires_grad_())
    assert (trained.dtype, trained.tolist()) == (krt.bfloat16, [5, 1])
    assert not trained.requires_grad
    with pytest.raises(krt.DTypeError, match="detach"):
        krt.zeros(2).assign(narrow)


def test_constants():
    assert krt.zeros(2, 3).tolist() == [[0] * 3] * 2
    assert krt.ones((2,), dtype="int32").tolist() == [1, 1]
    assert krt.full((2, 1), 2.5).tolist() == [[2.5], [2.5]]
    assert krt.full((), 7).item() == 7
    assert krt.full((2,), True).dtype is krt.bool_
    assert krt.zeros_like(krt.tensor([1, 2])).dtype is krt.int64
    assert krt.ones_like(krt.tensor([1, 2]), dtype="float32").tolist() == [1, 1]
    assert krt.full_like(krt.tensor([1.0]), 3).tolist() == [3]
    assert krt.empty(3, 2).shape == (3, 2)
    assert krt.empty_like(krt.tensor([[1]])).dtype is krt.int64
    assert krt.full((2,), -np.inf).tolist() == [-np.inf] * 2


@pytest.mark.parametrize(
    "args", [(5,), (2, 7), (0, 10, 3), (5, 0, -2), (0.0, 1.0, 0.1), (1, 2, 0.25), (3, 3)], ids=str
)
def test_arange(args):
    expected = np.arange(*args)
    got = krt.arange(*args)
    assert got.dtype is (krt.int64 if expected.dtype.kind == "i" else krt.float32)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-7)


def test_arange_keeps_its_precision():
    got = krt.arange(0, 1, 1e-4).numpy()
    np.testing.assert_array_equal(got, (np.arange(10000) * 1e-4).astype(np.float32))


def test_linspace_eye_meshgrid_triangles():
    np.testing.assert_allclose(krt.linspace(0, 1, 5).numpy(), np.linspace(0, 1, 5))
    np.testing.assert_array_equal(krt.eye(3, 2).numpy(), np.eye(3, 2))
    grids = krt.meshgrid(krt.arange(2), krt.arange(3))
    for got, expected in zip(grids, np.meshgrid(range(2), range(3), indexing="ij"), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)
    for diagonal in (-1, 0, 2, 9, -9, 2**63 - 1, -(2**63)):
        near = max(-9, min(diagonal, 9))
        for name in ("tril", "triu"):
            found = getattr(krt.ones(3, 4), name)(diagonal).numpy()
            np.testing.assert_array_equal(found, getattr(np, name)(np.ones((3, 4)), near))


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("dtype", [None, "float64", "int64"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 6])
def test_lines_between_tensors(name, dtype, steps):
    make = getattr(krt, name)
    for start, end in ((1.5, 4.0), (-3.75, 9.5), (2, 7), (5.0, -5.0), (True, 2.5)):
        wanted = make(start, end, steps, dtype=dtype)
        a, b = krt.tensor(start), krt.tensor(end, dtype="float64")
        line = lambda a, b: make(a, b, steps, dtype=dtype)  # noqa: E731
        jitted = krt.jit(line)
        for found in (line(a, b), line(a, end), line(start, b), jitted(a, b), jitted(a, b),
                      jitted(float(start), float(end))):  # fmt: skip
            assert found.dtype is wanted.dtype
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12 if dtype else 1e-6)
            if steps > 1 and name == "linspace" and dtype != "int64":
                assert found[[0, -1]].tolist() == [start, end]


def test_lines_between_tensors_have_no_gradient():
    a = krt.tensor(1.5, requires_grad=True)
    for make in (krt.linspace, krt.logspace):
        assert not make(a, a * 2, 3).requires_grad
        leaf = make(a, 3, 3, requires_grad=True)
        assert leaf.is_leaf
        leaf.sum().backward()
        assert leaf.grad.tolist() == [1, 1, 1]
    assert a.grad is None
    rows = krt.vmap(lambda a, b: krt.linspace(a, b, 3))(krt.tensor([0.0, 1]), krt.tensor([4.0, 2]))
    assert rows.tolist() == [[0, 2, 4], [1, 1.5, 2]]
    for make in (krt.linspace, krt.logspace):
        with pytest.raises(krt.ShapeError, match=r"end: .* without axes, not one of shape \(1,\)"):
            make(0, krt.ones(1), 3)
        with pytest.raises(krt.DTypeError, match="start: expected a number, not str"):
            make("0", krt.ones(()), 3)


def test_conversion_to_python():
    x = krt.tensor([[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]
    assert len(x) == 2
    assert 3 in x
    assert 7 not in x
    assert float(krt.tensor([2.5])) == 2.5
    assert int(krt.tensor(3.7)) == 3
    assert bool(krt.tensor([[1]]))
    assert [10, 20, 30][krt.tensor(1)] == 20
    assert np.asarray(x).tolist() == x.tolist()
    assert f"{krt.tensor(1.23456):.2f}" == "1.23"
    assert f"{x}" == repr(x)
    assert krt.tensor([1.5], dtype="bfloat16").item() == 1.5


def test_numpy_leaves_operations_to_the_tensor():
    x = krt.tensor([1.0, 2.0])
    for out in (np.ones(2) + x, np.float32(2) * x, x - np.ones(2)):
        assert isinstance(out, krt.Tensor)
    assert (np.float64(2) * x).dtype is krt.float32


def test_repr_shows_elements():
    assert repr(krt.tensor([1.0, 2.5])) == "tensor([1. , 2.5])"
    assert repr(krt.tensor([1], dtype="int8")) == "tensor([1], dtype=int8)"
    assert "requires_grad=True" in repr(krt.tensor(1.0, requires_grad=True))


@pytest.mark.parametrize("shape", [(1001,), (100, 100), (10, 10, 11)])
def test_repr_shows_the_ends_of_many_elements(shape):
    data = np.arange(np.prod(shape)).reshape(shape)
    x = krt.tensor(data)
    for given, values in ((x, data), (x * 2, data * 2), (x.T, data.T), (x[1:], data[1:])):
        text = np.array2string(values, separator=", ", prefix="tensor(")
        assert "..." in text or values.size <= 1000
        tail = f", shape={values.shape}" if values.size > 1000 else ""
        assert repr(given) == f"tensor({text}{tail})"
    with np.printoptions(threshold=5, edgeitems=1):
        assert repr(krt.arange(6).half()) == "tensor([0., ..., 5.], shape=(6,), dtype=float16)"


def test_copies_and_pickles():
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    for y in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):  # noqa: S301
        assert y.tolist() == [1, 2]
        assert y.dtype is krt.float32
        assert y.requires_grad
    z = copy.deepcopy(x)
    z.assign(5.0)
    assert x.tolist() == [1, 2]


# ---- what cannot be made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1, 2], [3]], r"data\[1\] is a list of 1 elements, but data\[0\] is a list of 2"),
        ([[1, 2], 3], r"data\[1\] is a number, but data\[0\] is a list of 2"),
        ([[[1], [2]], [[3], [4, 5]]], r"data\[1\]\[1\] is a list of 2 elements"),
    ],
)
def test_ragged_lists(data, message):
    with pytest.raises(ShapeError, match=message):
        krt.tensor(data)


@pytest.mark.parametrize(
    "data", ["text", ["a", "b"], None, object(), [1, None], np.array([1j]), np.array(["a"]),
             np.array([object()]), np.zeros(2, ">f4"), {"a": 1}, np.array(["2020"], "M8")],
    ids=range(11),
)  # fmt: skip
def test_unsupported_data(data):
    with pytest.raises(DTypeError):
        krt.tensor(data)


def test_from_numpy_refuses_what_it_cannot_share():
    a = np.zeros((4, 6), np.float32)
    for bad in (a[:, ::2], a[::-1], a[:, 1:3]):
        with pytest.raises(ShapeError, match="ascontiguousarray"):
            krt.from_numpy(bad)
    with pytest.raises(DTypeError):
        krt.from_numpy([1.0, 2.0])
    with pytest.raises(DTypeError):
        krt.from_numpy(np.zeros(2, complex))


def test_devices():
    assert krt.tensor([1.0], device="cpu").device == "CPU"
    for make in (
        lambda: krt.tensor([1.0], device="cuda"), lambda: krt.zeros(2, device="tpu"),
        lambda: krt.tensor([1.0]).to("cuda:0"), lambda: krt.rand(2, device=3),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match="device"):
            make()


def test_bad_types_and_shapes():
    for bad in ("float7", complex, object()):
        with pytest.raises(DTypeError, match="dtype"):
            krt.zeros(2, dtype=bad)
    with pytest.raises(ShapeError):
        krt.zeros(-1)
    with pytest.raises(DTypeError, match="shape"):
        krt.zeros(2.5)
    with pytest.raises(DomainError, match="step"):
        krt.arange(0, 5, 0)
    with pytest.raises(ShapeError, match="steps"):
        krt.linspace(0, 1, -1)


def test_lists_that_contain_themselves_are_refused():
    alone: list = []
    alone.append(alone)
    deeper: list = [[]]
    deeper[0].append(deeper)
    for endless, path in (
        (alone, r"data\[0\]"),
        ([alone, alone], r"data\[1\]\[0\]"),
        (deeper, r"data\[0\]\[0\]"),
    ):
        with pytest.raises(krt.errors.ShapeError, match=f"{path} is a list that contains itself"):
            krt.tensor(endless)
    row = [1.0, 2.0]
    assert krt.tensor([[row, row], [row, row]]).shape == (2, 2, 2)


def test_masked_arrays_are_not_shared():
    with pytest.raises(krt.errors.DTypeError, match="array: a masked array"):
        krt.from_numpy(np.ma.masked_array([1.0, 99.0], mask=[False, True]))
    assert krt.from_numpy(np.ma.masked_array([1.0, 99.0])).tolist() == [1, 99]


def test_a_tensor_without_axes_fills_others():
    value = krt.tensor(2.5, requires_grad=True)
    assert krt.full((2, 1), value).tolist() == [[2.5], [2.5]]
    assert krt.full((2,), krt.tensor(3)).dtype is krt.int64
    out = krt.full_like(krt.ones(2, dtype="int64"), value)
    assert (out.dtype, out.tolist(), out.requires_grad) == (krt.int64, [2, 2], False)
    out[0] = 7
    assert (out.tolist(), value.item()) == ([7, 2], 2.5)
    summed = krt.jit(lambda x: krt.full((3,), x.sum()))
    assert summed(np.ones(2, np.float32)).tolist() == [2, 2, 2]
    with pytest.raises(krt.DTypeError, match="fill_value: expected a number"):
        krt.full((2,), krt.ones(2))
