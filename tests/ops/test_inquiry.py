"""What a tensor and a type are, by PyTorch's names; the oracle is PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DeviceError, DTypeError, GradientError, ShapeError, SharingError

torch = pytest.importorskip("torch")

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
         "float64")  # fmt: skip
TYPES = [getattr(torch, n) for n in NAMES]


def name_of(dtype: object) -> str:
    return str(dtype).rpartition(".")[2]


@pytest.mark.parametrize("dtype", TYPES)
def test_questions_of_a_type(dtype) -> None:
    ours, theirs = krt.ones(2, 3, dtype=dtype), torch.ones(2, 3, dtype=dtype)
    for ask in ("is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_conj",
                "is_neg", "is_inference", "ndimension", "nelement", "element_size", "get_device",
                "stride", "storage_offset"):  # fmt: skip
        assert getattr(ours, ask)() == getattr(theirs, ask)(), ask
    for read in ("itemsize", "nbytes", "is_cpu", "is_cuda", "is_sparse", "is_quantized", "is_meta"):
        assert getattr(ours, read) == getattr(theirs, read), read
    for cast in ("byte", "char", "short", "type_as"):
        args = (krt.zeros(1, dtype="int8"),) if cast == "type_as" else ()
        result = getattr(ours, cast)(*args)
        against = getattr(theirs, cast)(*([torch.zeros(1, dtype=torch.int8)] if args else []))
        assert result.dtype.name == name_of(against.dtype)
        assert result.tolist() == against.tolist()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (2, 0, 3), (0,), (3, 1)])
def test_strides_are_those_of_row_major_order(shape) -> None:
    ours, theirs = krt.zeros(shape), torch.zeros(shape)
    assert ours.stride() == theirs.stride()
    for dim in range(-len(shape), len(shape)):
        assert ours.stride(dim) == theirs.stride(dim)
    with pytest.raises(ShapeError, match="dim"):
        ours.stride(len(shape) + 1)


def test_questions_of_values_and_shapes() -> None:
    assert krt.tensor([[2.0]]).is_nonzero()
    assert not krt.tensor(0).is_nonzero()
    with pytest.raises(ShapeError, match="is_nonzero"):
        krt.ones(2).is_nonzero()
    assert krt.ones(2, 3).is_same_size(krt.zeros(2, 3))
    assert not krt.ones(2, 3).is_same_size(krt.zeros(3, 2))
    assert krt.is_floating_point(krt.ones(1))
    assert krt.is_tensor(krt.ones(1))
    assert not krt.is_tensor(np.ones(1))


def test_data_is_the_value_without_history() -> None:
    x = krt.ones(2, requires_grad=True)
    assert not x.data.requires_grad
    x.data = krt.tensor([3.0, 4.0])
    assert x.requires_grad
    assert x.tolist() == [3, 4]
    with pytest.raises(GradientError, match="detach_"):
        (x * 2).detach_()
    assert not x.detach_().requires_grad


def test_others_of_its_type() -> None:
    x = krt.ones(2, dtype="float64")
    made = (x.new_zeros(2, 3), x.new_ones((2, 3)), x.new_full((2, 3), 7.0), x.new_empty(2, 3))
    assert [m.dtype for m in made] == [krt.float64] * 4
    assert [m.shape for m in made] == [(2, 3)] * 4
    assert [m.sum().item() for m in made[:3]] == [0, 6, 42]
    assert x.new_tensor([1, 2]).dtype is krt.float64
    assert x.new_zeros(2, dtype="int8", requires_grad=False).dtype is krt.int8
    assert x.new_ones(2, requires_grad=True).requires_grad


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.is_floating_point])
def test_finfo(dtype) -> None:
    ours, theirs = krt.finfo(dtype), torch.finfo(dtype)
    for read in ("bits", "eps", "min", "max", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, read) == getattr(theirs, read), read
    with pytest.raises(DTypeError, match="iinfo"):
        krt.finfo("int8")


@pytest.mark.parametrize("dtype", [t for t in TYPES if "int" in str(t)])
def test_iinfo(dtype) -> None:
    ours, theirs = krt.iinfo(dtype), torch.iinfo(dtype)
    assert [ours.bits, ours.min, ours.max] == [theirs.bits, theirs.min, theirs.max]
    with pytest.raises(DTypeError, match="finfo"):
        krt.iinfo(krt.float32)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(TYPES, TYPES)))
def test_two_types(first, second) -> None:
    assert krt.can_cast(first, second) == torch.can_cast(first, second)
    assert krt.promote_types(first, second).name == name_of(torch.promote_types(first, second))
    for shape, other in itertools.product([(), (2,)], repeat=2):
        ours = krt.result_type(krt.full(shape, 1, first), krt.full(other, 1, second))
        theirs = torch.result_type(
            torch.ones(shape, dtype=first), torch.ones(other, dtype=second)
        )
        assert ours.name == name_of(theirs), (shape, other)


@pytest.mark.parametrize("number", [True, 1, 1.5])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_type_and_a_number(dtype, number) -> None:
    for shape in ((), (2,)):
        ours, theirs = krt.full(shape, 1, dtype), torch.ones(shape, dtype=dtype)
        assert krt.result_type(ours, number).name == name_of(torch.result_type(theirs, number))
        assert krt.result_type(number, ours).name == name_of(torch.result_type(number, theirs))


def test_broadcast_shapes() -> None:
    for shapes in (((2, 1), (3,)), ((0,), (1,)), ((4,), 1), ()):
        assert krt.broadcast_shapes(*shapes) == tuple(torch.broadcast_shapes(*shapes))
    with pytest.raises(ShapeError):
        krt.broadcast_shapes((2,), (3,))


@pytest.mark.parametrize("args", [(0, 3, 4), (-2, 2, 5), (1, 1, 1), (0, 1, 0), (0, 4, 3, 2.0)])
def test_logspace(args) -> None:
    np.testing.assert_allclose(krt.logspace(*args).numpy(), torch.logspace(*args).numpy(), 2e-6)
    wide = krt.logspace(*args, dtype="float64").numpy()
    np.testing.assert_allclose(wide, torch.logspace(*args, dtype=torch.float64).numpy(), 1e-12)


@pytest.mark.parametrize("args", [(1.5, 4.3, 4, 5), (4.3, 50, 4, 1.2), (0, 4.9, 5, 2),
                                  (4.3, 4.3, 1, 7.0), (4.3, -2.0, 5, 7.0), (1, 30, 4, 2.5)])
def test_logspace_of_integers(args) -> None:
    wanted = torch.logspace(*args, dtype=torch.int64).tolist()
    assert krt.logspace(*args, dtype="int64").tolist() == wanted
    ends = [krt.tensor(v, dtype="float64") for v in args[:2]]
    assert krt.logspace(*ends, *args[2:], dtype="int64").tolist() == wanted


def test_data_of_others() -> None:
    x = krt.ones(2, requires_grad=True)
    assert krt.as_tensor(x) is x
    assert krt.as_tensor(x, dtype=torch.float64).dtype is krt.float64
    assert krt.asarray(x, copy=True) is not x
    for data, options in (([1.0], {}), (np.float32(1), {}), (1.0, {}), (x, {"dtype": "int8"}),
                          (np.ones(2), {"dtype": "float32"})):  # fmt: skip
        with pytest.raises(SharingError, match="copy: False"):
            krt.asarray(data, copy=False, **options)
    memory = np.zeros(2)
    alias, copy = krt.asarray(memory, copy=False), krt.asarray(memory, copy=True)
    memory[0] = 1
    assert (alias.tolist(), copy.tolist()) == ([1, 0], [0, 0])
    assert krt.asarray(x, copy=False) is x
    source = torch.arange(3)
    shared = krt.from_dlpack(source)
    source[0] = 9
    assert shared.tolist() == [9, 1, 2]
    with pytest.raises(DTypeError, match="__dlpack__"):
        krt.from_dlpack([1])
    for dtype in (torch.float32, torch.bfloat16):
        trained = torch.full((2,), 1.5, dtype=dtype, requires_grad=True)
        taken = krt.tensor(trained)
        assert (taken.tolist(), taken.requires_grad) == ([1.5, 1.5], False)
        assert taken.dtype.name == name_of(dtype)


def test_the_only_device() -> None:
    x = krt.ones(2)
    assert x.to_device("cpu") is x.to_device(x.device) is x
    with pytest.raises(DeviceError, match="cuda"):
        x.to_device("cuda")
    with pytest.raises(DeviceError, match="stream: expected None"):
        x.to_device("cpu", stream=3)


def test_keywords_of_what_makes_tensors() -> None:
    here = {"device": torch.device("cpu"), "requires_grad": True, "dtype": torch.float64}
    x = krt.ones(2, 2)
    made = (krt.zeros(2, **here), krt.ones(2, **here), krt.full((2,), 1, **here),
            krt.empty(2, **here), krt.arange(2, **here), krt.linspace(0, 1, 2, **here),
            krt.eye(2, **here), krt.eye(0, **here), krt.zeros_like(x, **here),
            krt.ones_like(x, **here), krt.empty_like(x, **here), krt.full_like(x, 2.0, **here),
            krt.logspace(0, 1, 2, **here), krt.asarray([1.0], **here))  # fmt: skip
    assert all(m.requires_grad and m.is_leaf and m.dtype is krt.float64 for m in made)
    for make in (krt.arange, krt.eye, lambda n, device: krt.zeros_like(x, device=device)):
        with pytest.raises(DeviceError, match="cuda"):
            make(2, device="cuda")
    with pytest.raises(DTypeError, match="complex64"):
        krt.zeros(2, dtype=torch.complex64)
