"""Sizes and axes that are given by name, and what `to` takes, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DeviceError, DTypeError, KernelrtError

torch = Package("torch")


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn"])
def test_a_size_by_name(name: str) -> None:
    for k in (torch, krt):
        made = getattr(k, name)(size=(2, 3), dtype=k.float64)
        assert tuple(made.shape) == (2, 3)
        assert made.dtype is k.float64
    with pytest.raises(DTypeError, match=f"{name}: size is given twice"):
        getattr(krt, name)(2, size=(2, 3))


@pytest.mark.parametrize("name", [
    "uniform", "normal", "kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal",
])  # fmt: skip
def test_a_size_by_name_of_what_pytorch_has_not(name: str) -> None:
    for size in ((2, 3), [2, 3]):
        krt.manual_seed(1)
        made = getattr(krt, name)(size=size, dtype=krt.float64)
        krt.manual_seed(1)
        assert made.equal(getattr(krt, name)(2, 3, dtype=krt.float64))
    with pytest.raises(DTypeError, match=f"{name}: size is given twice"):
        getattr(krt, name)(2, 3, 4, size=(2, 3))


def test_a_size_by_name_after_a_mean_and_a_deviation() -> None:
    for k in (torch, krt):
        for made in (
            k.normal(4.0, 0.0, size=(2, 3)), k.normal(mean=4.0, std=0.0, size=(2, 3)),
            k.normal(4.0, std=0.0, size=[2, 3]), k.normal(4.0, 0.0, (2, 3)),
        ):  # fmt: skip
            assert made.tolist() == [[4.0] * 3] * 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        krt.normal(sizes=(2, 3))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["new_zeros", "new_ones", "new_empty"])
def test_a_size_by_name_of_another_tensor(name: str) -> None:
    x = krt.ones(1, dtype="int32")
    assert getattr(x, name)(size=(2, 3)).shape == (2, 3)
    assert getattr(x, name)(size=(4,)).dtype is krt.int32
    with pytest.raises(DTypeError, match=f"{name}: size is given twice"):
        getattr(x, name)(2, size=(2, 3))


#: What draws, given a package and what all of them take; and whether it is of integers.
KINDS: dict[str, tuple[Any, bool]] = {
    "rand": (lambda k, **o: k.rand((2, 3), **o), False),
    "randn": (lambda k, **o: k.randn(2, 3, **o), False),
    "normal": (lambda k, **o: k.normal(1.0, 2.0, (2, 3), **o), False),
    "rand_like": (lambda k, **o: k.rand_like(k.ones(2, 3), **o), False),
    "randn_like": (lambda k, **o: k.randn_like(k.ones(2, 3), **o), False),
    "randint_like": (lambda k, **o: k.randint_like(k.ones(2, 3), high=9, **o), True),
    "randint": (lambda k, **o: k.randint(high=9, size=(2, 3), **o), True),
    "randint from": (lambda k, **o: k.randint(-2, 9, (2, 3), **o), True),
    "randint to": (lambda k, **o: k.randint(9, (2, 3), **o), True),
    "randperm": (lambda k, **o: k.randperm(9, **o), True),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_draws_takes_the_same_names(name: str) -> None:
    make, whole = KINDS[name]
    for k in (torch, krt):
        states = []
        for _ in range(2):
            g = k.Generator().manual_seed(5)
            made = make(k, dtype=k.float64, device="cpu", requires_grad=True, generator=g)
            assert made.dtype is k.float64
            assert made.requires_grad
            assert made.is_leaf
            states.append((made.tolist(), g.get_state().tolist()))
        assert states[0] == states[1]
        assert states[0][1] != k.Generator().manual_seed(5).get_state().tolist()
        with pytest.raises((RuntimeError, KernelrtError)):
            make(k, device="nowhere")
        if whole:
            with pytest.raises((RuntimeError, KernelrtError), match="gradients"):
                make(k, requires_grad=True, dtype=k.int64)
    krt.manual_seed(2)
    before = krt.get_rng_state()
    for wrong in ({"device": "nowhere"}, {"requires_grad": True, "dtype": "int64"}):
        with pytest.raises(KernelrtError):
            make(krt, **wrong)
    assert krt.get_rng_state().equal(before)


def test_numpys_name_of_several_axes() -> None:
    x = krt.arange(6).reshape(2, 3)
    assert x.flip(axis=1).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert x.flip(axis=(0, 1)).tolist() == [[5, 4, 3], [2, 1, 0]]


def test_what_is_given_twice_is_refused() -> None:
    x = krt.ones(2, 3)
    with pytest.raises(DTypeError, match="flip: dims is given twice"):
        x.flip(0, dims=[1])
    with pytest.raises(DTypeError, match="expand: shape is given twice"):
        x.expand(shape=(2, 3), size=(2, 3))
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        x.flip(dims=0, sizes=1)  # type: ignore[call-arg]


def test_a_shape_is_a_tuple() -> None:
    with pytest.raises(DTypeError, match=r"Size: .*\(2, 3\) for torch.Size"):
        krt.Size([2, 3])  # type: ignore[arg-type]


def test_to_takes_what_pytorchs_takes() -> None:
    for k in (torch, krt):
        x = k.ones(2)
        like = k.ones(1, dtype=k.float64)
        assert x.to("cpu", non_blocking=True) is x
        assert x.to(device="cpu", dtype=k.float64).dtype is k.float64
        assert x.to(k.float64, non_blocking=True).dtype is k.float64
        assert x.to("cpu", k.float64, True).dtype is k.float64
        assert x.to(like).dtype is k.float64
        assert x.to(x) is x
        for other in (x.to(k.float32, copy=True), x.to("cpu", k.float32, False, True)):
            other.mul_(2)
            assert other.tolist() == [2, 2]
            assert x.tolist() == [1, 1]
        layer = (nn if k is krt else torch.nn).Linear(1, 1)
        assert layer.to("cpu", non_blocking=True) is layer
        assert x.dtype.is_floating_point
        assert not k.int64.is_floating_point
    with pytest.raises(DeviceError, match="cuda"):
        krt.ones(2).to(device="cuda")


RESULTS = [
    "x.svd()", "T.linalg.svd(x)", "T.linalg.eigh(x)", "T.linalg.qr(x)", "T.linalg.slogdet(x)",
    "x.slogdet()", "T.linalg.lu(x)", "T.linalg.lu_factor(x)",
    "T.lu_unpack(*T.linalg.lu_factor(x))", "x.sort()", "x.topk(1)", "x.max(0)", "x.min(0)",
    "x.mode()", "x.median(0)", "x.nanmedian(0)", "x.kthvalue(1)", "x.cummax(0)", "x.cummin(0)",
    "x.aminmax()", "x.frexp()", "x.histogram(3)", "T.linalg.lstsq(x,x)", "T.linalg.inv_ex(x)",
    "T.linalg.cholesky_ex(x)", "T.linalg.solve_ex(x,x)",
]  # fmt: skip


@pytest.mark.cases(9)
@pytest.mark.parametrize("line", RESULTS)
def test_fields_of_results_have_the_names_of_torch(line: str) -> None:
    ours, theirs = (
        eval(line, {"T": k, "x": k.tensor([[4.0, 1.0], [1.0, 3.0]])})  # noqa: S307
        for k in (krt, torch)
    )
    assert ours._fields == type(theirs).__match_args__
    for name, value in zip(ours._fields, theirs, strict=True):
        if name not in ("U", "V", "Vh", "eigenvectors", "Q", "R"):  # these are unique up to signs
            found, wanted = getattr(ours, name).numpy(), value.numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if "svd" in line:
        u, s, v = (t.double().numpy() for t in ours)
        again = u * s @ (v if "Vh" in ours._fields else v.T)
        np.testing.assert_allclose(again, [[4, 1], [1, 3]], rtol=1e-5)
