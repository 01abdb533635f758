"""A call of both libraries with the same arguments, and what comes of it."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from surface import compare
from surface.compare import Found
from surface.rows import leaves

import kernelrt as krt
from kernelrt.tensor.methods.masked import MaskedPart

from . import known
from .convert import UnfitError, mapped, our_function, our_plain, our_tensor
from .outcome import Outcome, of_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Call", "outcomes"]

#: Relative errors that a well-conditioned function stays below.
EPS = {"float32": 4e-6, "float64": 1e-10, "float16": 2e-3, "bfloat16": 2e-2}
#: How many times as far from the truth as PyTorch's own a result of the same type may be.
SLACK = 16.0
#: A gradient may be a sum over many rows, which are added up in another order.
SUMMED = 8.0
#: Results that are smaller are compared as if they were of this size.
FLOOR = 0.03


@dataclass
class Call:
    """A sample: what is called, with what, and how its results are told apart."""

    theirs: Callable[..., Any]
    ours: Callable[..., Any]
    arguments: tuple[Any, Any, Any]
    processed: Callable[..., Any]
    differentiable: bool

    def on(self, call: Callable[..., Any], arguments: tuple[Any, Any, Any]) -> Any:
        first, rest, options = arguments
        return call(first, *rest, **options)


# ---- both libraries


def _copied(arguments: Any, dtype: Any = None) -> tuple[Any, list[torch.Tensor]]:
    """Arguments of torch once more, floats in another type if given, and those with gradients."""
    seen: dict[int, torch.Tensor] = {}

    def copied(x: torch.Tensor) -> torch.Tensor:
        if id(x) not in seen:
            to = dtype if dtype is not None and x.dtype is torch.float32 else x.dtype
            made = x.detach().clone(memory_format=torch.preserve_format)
            seen[id(x)] = made.to(to).requires_grad_(x.requires_grad)
        return seen[id(x)]

    nest = mapped(arguments, copied, lambda x: x)
    return nest, [x for x in seen.values() if x.requires_grad]


def _on_torch(call: Call, dtype: Any = None, *, grad: bool, processed: bool) -> Found:
    nest, sources = _copied(call.arguments, dtype)
    out = call.on(call.theirs, nest)
    if processed:
        out = call.processed(out)
    return _found(out, sources if grad else [])


def _found(out: Any, sources: list[torch.Tensor]) -> Found:
    outputs = list(leaves(out))
    gradients = []
    if sources and any(isinstance(o, torch.Tensor) and o.requires_grad for o in outputs):
        gradients = compare.torch_gradients(torch, outputs, sources)
    return compare.torch_values(torch, outputs, gradients)


@dataclass
class Ours:
    """A sample with kernelrt's arguments; tensors are apart, so that a jit can take them."""

    call: Call
    nest: Any
    tensors: list[krt.Tensor]
    processed: bool

    @classmethod
    def of(cls, call: Call, processed: bool) -> Ours:
        places: dict[int, int] = {}
        tensors: list[krt.Tensor] = []

        def placed(x: torch.Tensor) -> _Place:
            if id(x) not in places:
                places[id(x)] = len(tensors)
                tensors.append(our_tensor(x))
            return _Place(places[id(x)])

        return cls(call, mapped(call.arguments, placed, our_plain), tensors, processed)

    def step(self, given: list[krt.Tensor], grad: bool) -> tuple[Any, list[krt.Tensor]]:
        """Results and gradients."""
        # Copies, as some calls write to their arguments.
        sources = [
            g.detach().clone().requires_grad_(t.requires_grad and grad)
            for g, t in zip(given, self.tensors, strict=True)
        ]
        out = self.call.on(self.call.ours, _filled(self.nest, sources))
        if self.processed:
            out = our_function(self.call.processed)(out)
        return out, compare.differentiate(out, sources) if grad else []

    def eager(self, grad: bool) -> Found:
        return compare.values(*self.step(self.tensors, grad))

    def jitted(self, grad: bool) -> Found:
        """Return the tensors that a jitted function returns.

        Elements under a mask are not tensors yet; the function refuses to return them.
        """

        def run(given: list[krt.Tensor]) -> Any:
            out, gradients = self.step(given, grad)
            return [o for o in leaves(out) if isinstance(o, krt.Tensor | MaskedPart)], gradients

        return compare.values(*krt.jit(run)(self.tensors))


@dataclass(frozen=True)
class _Place:
    at: int


def _filled(nest: Any, tensors: list[krt.Tensor]) -> Any:
    if isinstance(nest, _Place):
        return tensors[nest.at]
    if isinstance(nest, dict):
        return {k: _filled(v, tensors) for k, v in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(_filled(v, tensors) for v in nest)
    return nest


# ---- agreement


def outcomes(name: str, label: str, call: Call) -> list[Outcome]:
    """What comes of a call; nothing where torch itself refuses it."""
    return [Outcome(name, label, *found) for found in _outcomes(name, label, call)]


def _outcomes(name: str, label: str, call: Call) -> Iterator[tuple[str, str, str]]:
    """Mode, kind and reason."""
    processed = name in known.UP_TO_SIGN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            native, truth, grad = _theirs(call, processed)
        except Exception:  # noqa: BLE001 - torch raises what it likes
            return
        try:
            ours = Ours.of(call, processed)
        except UnfitError as unfit:
            yield "eager", "refused", str(unfit)
            return
        for mode in ("eager", "jit"):
            try:
                found = getattr(ours, mode.replace("jit", "jitted"))(grad)
            except Exception as error:  # noqa: BLE001 - any error is an outcome
                kind, reason = of_error(error)
            else:
                random = name in known.RANDOM or bool(call.arguments[2].get("dropout_p"))
                reason = differing(name, label, mode, found, native, truth, random=random)
                kind = "different" if reason else "same"
                if reason and (told := known.why(name, reason)):
                    kind, reason = "known", told
            yield mode, kind, reason
            if mode == "eager" and kind != "same":
                return


def _theirs(call: Call, processed: bool) -> tuple[Found, Found | None, bool]:
    """What torch gives, the same in float64, and whether there are gradients."""
    native = _on_torch(call, grad=False, processed=processed)
    truth = None
    grad = False
    if call.differentiable:
        with contextlib.suppress(Exception):
            native = _on_torch(call, grad=True, processed=processed)
            grad = bool(native.gradients)
    with contextlib.suppress(Exception):
        truth = _on_torch(call, torch.float64, grad=grad, processed=processed)
        if len(truth.values) != len(native.values) or not _same_shapes(truth, native):
            truth = None
    return native, truth, grad


def _same_shapes(a: Found, b: Found) -> bool:
    pairs = zip([*a.values, *a.gradients], [*b.values, *b.gradients], strict=True)
    return all(np.shape(x) == np.shape(y) for x, y in pairs)


def differing(
    name: str, label: str, mode: str, ours: Found, native: Found, truth: Found | None, *,
    random: bool,
) -> str:  # fmt: skip
    """How results differ, empty if they do not."""
    if mode == "jit":
        native, truth = (_tensors(found) for found in (native, truth))
    if len(ours.values) != len(native.values):
        return f"{len(ours.values)} results, expected {len(native.values)}"
    if ours.types != native.types:
        return f"types {ours.types}, expected {native.types}"
    if random:
        shapes = [np.shape(v) for v in ours.values], [np.shape(v) for v in native.values]
        return "" if shapes[0] == shapes[1] else f"shapes {shapes[0]}, expected {shapes[1]}"
    if name in known.TIES and label.startswith(("int", "bool")):
        n = known.TIES[name]
        ours, native, truth = (
            f and Found(f.types[:n], f.values[:n], []) for f in (ours, native, truth)
        )
    better = [*truth.values, *truth.gradients] if truth else None
    theirs = [*native.values, *native.gradients]
    for i, (got, want) in enumerate(zip([*ours.values, *ours.gradients], theirs, strict=True)):
        what = f"output {i}" if i < len(ours.values) else f"gradient {i - len(ours.values)}"
        eps = max(EPS.get(label.split(maxsplit=1)[0], EPS["float64"]), known.LOOSE.get(name, 0.0))
        if i >= len(ours.values):
            eps *= SUMMED
        problem = mismatch(got, want, better[i] if better else want, eps)
        if problem:
            return f"{what}: {problem}"
    return ""


def _tensors(found: Found | None) -> Any:
    """The results that are tensors."""
    if found is None:
        return None
    kept = [i for i, v in enumerate(found.values) if isinstance(v, np.ndarray)]
    types_ = [found.types[i] for i in kept]
    return Found(types_, [found.values[i] for i in kept], found.gradients)


def mismatch(got: Any, want: Any, true: Any, eps: float) -> str:
    """How two results differ; being as near to the truth as torch's result will do."""
    floor = FLOOR
    if isinstance(want, np.ndarray) and isinstance(got, np.ndarray):
        eps = max(eps, EPS.get(str(want.dtype), 0.0))
        if want.dtype.kind == "f" and want.size and want.shape == true.shape:
            with np.errstate(all="ignore"):
                off = np.abs(want.astype(np.float64) - true)
            off = off[np.isfinite(off)]
            floor = max(floor, SLACK * float(off.max(initial=0)) / eps)
    problem = compare.mismatch(got, want, eps, floor)
    return problem and compare.mismatch(got, true, eps, floor) and problem
