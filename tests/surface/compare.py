"""Running a row in both libraries, and comparing what comes out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from surface.rows import leaves

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from surface.rows import Row

Array = np.ndarray[Any, Any]

__all__ = [
    "Found",
    "Raised",
    "agree",
    "differentiate",
    "given",
    "mismatch",
    "on_torch",
    "torch_gradients",
    "torch_values",
    "values",
]

#: What a call may refuse its arguments with, besides the errors of kernelrt.
TYPED = (krt.KernelrtError, ValueError, TypeError, IndexError, NotImplementedError)


@dataclass
class Found:
    """What a library computed: the type of each output, its value, and gradients."""

    types: list[str]
    values: list[Any]
    gradients: list[Array]


@dataclass
class Raised:
    """That a library refused."""

    error: Exception


def weights(shape: Sequence[int], i: int) -> Array:
    """The gradient of the output `i`."""
    drawn = np.random.default_rng([7, i]).uniform(0.5, 2, tuple(shape))
    sign = np.where(np.arange(drawn.size).reshape(drawn.shape) % 2, -1, 1)
    return np.asarray(drawn * sign, np.float32).astype(np.float64)


# ---- kernelrt


def given(
    row: Row, arrays: Sequence[Array], dtype: Any = None, grad: bool = False, moved: bool = False
) -> tuple[list[krt.Tensor], list[krt.Tensor]]:
    """The leaves, and the operands made of them: the same, or views of them if `moved`."""
    sources, operands = [], []
    for array, spec in zip(arrays, row.specs, strict=True):
        to = dtype if array.dtype.kind == "f" else None
        source = krt.tensor(_moved(array) if moved else array, dtype=to)
        source.requires_grad_(grad and spec.grad)
        sources.append(source)
        operands.append(_back(source, array.ndim) if moved else source)
    return sources, operands


def _moved(array: Array) -> Array:
    """An array of which `array` is a view: the transpose, the reverse, or part of a longer one."""
    if array.ndim == 0:
        return np.stack([array, array])
    return np.ascontiguousarray(array.T if array.ndim > 1 else array[::-1])


def _back(source: krt.Tensor, ndim: int) -> krt.Tensor:
    if ndim == 0:
        return source[1]
    return source.permute(*range(ndim)[::-1]) if ndim > 1 else source.flip(0)


def moved_gradient(array: Array, ndim: int) -> Array:
    """The gradient of an operand from that of the leaf it is a view of."""
    if ndim == 0:
        return array.sum(0)
    return array.T if ndim > 1 else array[::-1]


def cotangents(out: Any) -> list[krt.Tensor]:
    """Random weights for each float output."""
    floats = [o for o in leaves(out) if isinstance(o, krt.Tensor) and o.dtype.is_float]
    drawn = (weights(o.shape, i).astype(np.float32) for i, o in enumerate(floats))
    return [krt.tensor(w).cast(o.dtype) for w, o in zip(drawn, floats, strict=True)]


def differentiate(
    out: Any,
    sources: Sequence[krt.Tensor],
    create_graph: bool = False,
    given: Sequence[krt.Tensor] | None = None,
) -> list[krt.Tensor]:
    """Gradients of the float outputs times their weights, for the leaves that have some."""
    wanted = [s for s in sources if s.requires_grad]
    floats = [o for o in leaves(out) if isinstance(o, krt.Tensor) and o.dtype.is_float]
    # Every leaf takes part: a gradient that does not exist is zero.
    total = sum(((s.reshape(-1)[:0]).sum() for s in wanted), krt.tensor(0.0, dtype=krt.float64))
    for output, w in zip(floats, cotangents(out) if given is None else given, strict=True):
        total = total + (output * w).sum().double()
    found = krt.grad(total, wanted, create_graph=create_graph, materialize_grads=True)
    return list(found)


def values(out: Any, gradients: Sequence[krt.Tensor] = ()) -> Found:
    """Results, computed in one plan."""
    outputs = list(leaves(out))
    types = [o.dtype.name if isinstance(o, krt.Tensor) else type(o).__name__ for o in outputs]
    read = [_readable(o) if isinstance(o, krt.Tensor) else o for o in outputs]
    pending = [o for o in [*read, *gradients] if isinstance(o, krt.Tensor)]
    if pending:
        krt.realize(*pending)
    arrays = [o.numpy() if isinstance(o, krt.Tensor) else o for o in read]
    return Found(types, arrays, [g.numpy() for g in gradients])


def _readable(t: krt.Tensor) -> krt.Tensor:
    return t.float() if t.dtype is krt.bfloat16 else t


# ---- torch


def on_torch(
    row: Row, arrays: Sequence[Array], dtype: str = "float64", grad: bool = False
) -> Found | Raised:
    """What torch computes."""
    import torch

    tensors = []
    for array, spec in zip(arrays, row.specs, strict=True):
        t = torch.tensor(array)
        if array.dtype.kind == "f":
            t = t.to(getattr(torch, dtype)).requires_grad_(grad and spec.grad)
        tensors.append(t)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = row.peer(torch, *tensors)
            outputs = list(leaves(out))
            gradients = torch_gradients(torch, outputs, tensors) if grad else []
        except Exception as error:  # noqa: BLE001 - torch raises what it likes
            return Raised(error)
    return torch_values(torch, outputs, gradients)


def torch_values(torch: Any, outputs: Sequence[Any], gradients: Sequence[Array] = ()) -> Found:
    """Results of torch as plain data."""
    tensor = torch.Tensor
    types = [_name(o.dtype) if isinstance(o, tensor) else type(o).__name__ for o in outputs]
    arrays = [_array(torch, o) if isinstance(o, tensor) else o for o in outputs]
    return Found(types, arrays, list(gradients))


def torch_gradients(torch: Any, outputs: Sequence[Any], tensors: Sequence[Any]) -> list[Array]:
    """Gradients of the float outputs times their weights, for the tensors that require some."""
    wanted = [t for t in tensors if t.requires_grad]
    floats = [o for o in outputs if isinstance(o, torch.Tensor) and o.is_floating_point()]
    assert any(o.requires_grad for o in floats), "no output has a gradient: say grad=False"
    total = sum((t.reshape(-1)[:0].sum() for t in wanted), torch.tensor(0.0, dtype=torch.float64))
    for i, output in enumerate(floats):
        w = torch.tensor(weights(output.shape, i)).to(output.dtype)
        total = total + (output * w).sum().double()
    return [g.numpy() for g in torch.autograd.grad(total, wanted)]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _array(torch: Any, t: Any) -> Array:
    t = t.detach()
    return (t.float() if t.dtype is torch.bfloat16 else t).resolve_conj().numpy()


# ---- agreement


def agree(
    what: str,
    ours: Found,
    theirs: Found,
    eps: float,
    truth: Found | None = None,
    floor: float = 0.0,
) -> int:
    """Compare outputs and gradients; how many arrays were compared.

    Floats may differ by `eps` of their size, and of that of the others of their array, or of
    `floor` if that is more. Where `truth` is given, being as near to it will do, too.
    """
    assert ours.types == theirs.types, f"{what}: types {ours.types}, expected {theirs.types}"
    sides = [(f"output {i}", *pair) for i, pair in
             enumerate(zip(ours.values, theirs.values, strict=True))]  # fmt: skip
    if theirs.gradients:
        sides += [(f"gradient {i}", *pair) for i, pair in
                  enumerate(zip(ours.gradients, theirs.gradients, strict=True))]  # fmt: skip
    better = [*truth.values, *truth.gradients] if truth is not None else [None] * len(sides)
    for (name, got, want), true in zip(sides, better, strict=True):
        problem = mismatch(got, want, eps, floor)
        if problem and true is not None:
            problem = mismatch(got, true, eps, floor) and problem
        assert not problem, f"{what}, {name}: {problem}"
    return len(sides)


def mismatch(got: Any, want: Any, eps: float, floor: float = 0.0) -> str:
    """How two results differ, empty if they do not."""
    if not isinstance(want, np.ndarray):
        same = got == want or (want != want and got != got)
        close = isinstance(want, float) and abs(got - want) <= eps * abs(want)
        return "" if same or close else f"{got!r}, expected {want!r}"
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind not in "fc":
        bad = got != want
    else:
        with np.errstate(all="ignore"):
            wide = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
            finite = wide[np.isfinite(wide)]
            scale = float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
            near = np.abs(got - wide) <= eps * (np.abs(wide) + max(scale, floor))
            bad = ~((got == wide) | near & np.isfinite(wide) | np.isnan(got) & np.isnan(wide))
    if not bad.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(bad)))
    g, w = (np.atleast_1d(a)[at] for a in (got, want))
    return f"{g!r} at {at}, expected {w!r}; {int(bad.sum())} of {bad.size} differ (eps {eps:g})"


def attempt(run: Callable[[], Found]) -> Found | Raised:
    """What comes of a call that may refuse its arguments."""
    try:
        return run()
    except TYPED as error:
        return Raised(error)
