"""Data of other libraries: what they refuse to hand over is told with the argument's name."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.device import Buffer

REASONS = [
    BufferError("call detach()"), RuntimeError("call detach()"), TypeError("call detach()"),
    ValueError("call detach()"), OverflowError("call detach()"),
]  # fmt: skip


class Array:
    def __init__(self, reason: Exception) -> None:
        self.reason = reason

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise self.reason


class Exporter:
    def __init__(self, reason: Exception) -> None:
        self.reason = reason

    def __dlpack__(self, **options: Any) -> Any:
        raise self.reason

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Nowhere(Exporter):
    def __dlpack_device__(self) -> tuple[int, int]:
        raise self.reason


def argument(data: Any) -> None:
    krt.jit(lambda data: data * 2)(data)


def state(data: Any) -> None:
    nn.load_state_dict({"data": krt.zeros(2)}, {"data": data})


TAKERS = {
    argument: "data", krt.tensor: "data", state: "'data'",
    lambda data: krt.zeros(2).assign(data): "value",
    lambda data: krt.zeros(2).mse_loss(data): "target",
}  # fmt: skip


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("kind", [Array, Exporter, Nowhere])
@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: type(reason).__name__)
def test_a_refusal_is_a_typed_error_with_its_reason(taker: Any, kind: Any, reason: Any) -> None:
    with pytest.raises(krt.KernelrtError) as caught:
        taker(kind(reason))
    text = str(caught.value)
    assert f"{TAKERS[taker]}: " in text
    assert kind.__name__ in text
    assert "call detach()" in text


@pytest.mark.parametrize("kind", [Exporter, Nowhere])
def test_shared_memory_that_is_refused(kind: Any) -> None:
    with pytest.raises(krt.DTypeError, match=rf"^array: .*{kind.__name__}.*call detach"):
        krt.from_numpy(kind(REASONS[0]))


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.ones(3, requires_grad=True)
    for taker in TAKERS:
        if taker not in (state, krt.tensor):
            with pytest.raises(krt.DTypeError, match=r"torch\.Tensor.*detach"):
                taker(parameter)
    taken = krt.tensor(parameter)
    assert (taken.tolist(), taken.requires_grad) == ([1, 1, 1], False)
    with pytest.raises(krt.DTypeError, match=r"^array: torch\.Tensor.*detach"):
        krt.from_numpy(parameter)
    with pytest.raises(krt.DTypeError, match=r"^other: .*not torch\.Tensor"):
        krt.ones(3) * torch.ones(3)
    narrow = krt.from_numpy(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert narrow.dtype is krt.bfloat16
    assert narrow.tolist() == [1.5, -2.0]
    np.testing.assert_array_equal((narrow * 2).cast("float32").numpy(), [3.0, -4.0])


def test_tensors_of_torch_that_are_negative_by_a_mark() -> None:
    torch = pytest.importorskip("torch")
    marked = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert marked.is_neg()
    buffer = Buffer(2, "float32")
    takers = [*TAKERS, krt.from_numpy, krt.from_dlpack, krt.asarray, krt.as_tensor,
              Buffer.wrap, buffer.copyin, buffer.copyout,
              krt.jit(lambda x: x.sum()).over]  # fmt: skip
    for taker in takers:
        with pytest.raises(krt.KernelrtError, match=r"torch\.Tensor.*resolve_neg"):
            taker(marked)
        if taker is not state:
            taker(marked.resolve_neg())
    narrow = torch._neg_view(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(krt.DTypeError, match=r"^data: torch\.Tensor.*data\.resolve_neg\(\)"):
        krt.tensor(narrow)
    assert krt.from_dlpack(marked.resolve_neg()).tolist() == [-2, 4]


def test_arrays_of_arrow(monkeypatch):
    class Array:
        def __init__(self, elements, type=None):  # noqa: A002 - Arrow's name
            self.elements, self.type = elements, type

        def __arrow_c_array__(self, requested_schema):
            return self.elements.tolist(), requested_schema

    x = krt.tensor([1.5, 2.5], requires_grad=True)
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(array=Array))
    found = x.__arrow_array__("double")
    assert (type(found.elements), found.elements.tolist(), found.type) == (
        np.ndarray, [1.5, 2.5], "double")  # fmt: skip
    assert x.__arrow_c_array__("schema") == ([1.5, 2.5], "schema")
    with pytest.raises(krt.ShapeError, match=r"vector, not shape \(2, 1\)"):
        x[:, None].__arrow_array__()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(krt.DTypeError, match=r"needs the package pyarrow.*x\.numpy\(\)"):
        x.__arrow_array__()
