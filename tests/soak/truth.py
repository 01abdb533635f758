"""Computes a text program's truth with torch in float64, and the allowed error of each result."""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Case = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]

MOVED = 2.0**-40
"""Relative change of a number that measures the effect of rounding."""
SMOOTH = 2.0**-18
"""A result that changes by less is proportional to MOVED; a greater change is a jump."""
NEAR = 2.0**-10
"""Maximum relative change of a number that makes it round differently."""
SAMPLES, SPREADS = 8, 8.0
"""Number of runs with random rounding, and allowed error as a multiple of their spread."""
ADDED = 1024
"""Number of elements whose sum rounds no more than the other allowances."""
LARGEST = 1e6
"""Programs with greater values anywhere are left out: they keep few digits."""


class Torch:
    """torch, without its behavior for old programs."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)

    def cat(self, parts: Any, dim: int) -> Any:
        import torch

        if len({part.ndim for part in parts}) > 1:
            raise Invalid("torch passes over parts of shape (0,), whatever the others are")
        return torch.cat(parts, dim)


DECISIONS = re.compile(
    r"[<>]|[!=]=|//|%|masked_fill|where|count_nonzero|sign|arg|logical|is(nan|inf|finite)"
    r"|floor|ceil|round|trunc|bool|sort|topk"
)
"""Lines that tell numbers apart, however near they are."""


class TorchFunctions:
    """torch.nn.functional, where kernelrt's methods are also functions.

    Parameters
    ----------
    decides : bool
        Whether a computed value decides something, so that the last digit may matter.
    tells : bool
        Whether the decision is which numbers are equal or greater.
    """

    def __init__(self, decides: bool = False, tells: bool = False) -> None:
        self._decides = decides
        self._tells = tells

    @staticmethod
    def pdist(x: Any, *args: Any) -> Any:
        import torch

        if not x.shape[0]:
            raise Invalid("torch 2.13 crashes in the gradient of distances of no rows")
        return torch.nn.functional.pdist(x, *args)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import torch

        function = getattr(torch.nn.functional, name)
        if name == "l1_loss":

            def unmoded(*args: Any, **options: Any) -> Any:
                # Under a TorchFunctionMode, torch 2.13 calls it again without the weight.
                with torch._C.DisableTorchFunction():
                    return function(*args, **options)

            return unmoded
        if name in ("binary_cross_entropy_with_logits", "huber_loss"):

            def promoted(x: Any, target: Any, **options: Any) -> Any:
                # torch returns the type of one operand, even if the other is wider.
                kind = torch.promote_types(x.dtype, target.dtype)
                return function(x.to(kind), target.to(kind), **options)

            return promoted
        if self._decides and name in ("layer_norm", "group_norm", "batch_norm"):

            def normed(x: Any, *args: Any, **options: Any) -> Any:
                parts = _normed_parts(name, x, args)
                if parts.numel():
                    size = parts.abs().amax(-1, keepdim=True)
                    near = (parts - parts.mean(-1, keepdim=True)).abs() <= 1e-6 * size
                    # One value at the mean matters for signs; all of them, for a gradient.
                    lost = near.any(-1) if self._tells else near.all(-1)
                    if (lost & (size[..., 0] > 0)).any():
                        raise Invalid("what a norm leaves of its mean is rounding")
                return function(x, *args, **options)

            return normed
        if not name.startswith(("conv", "linear")):
            return function

        def weighted(x: Any, weight: Any, **options: Any) -> Any:
            if x.numel() == 0 or weight.numel() == 0:
                raise Invalid("torch gives convolutions over nothing the wrong shape")
            if weight.ndim < 2:
                raise Invalid("a vector of weights is not a layer")
            return function(x, weight, **options)

        return weighted


def _normed_parts(name: str, x: Any, args: tuple[Any, ...]) -> Any:
    """Return `x` with the values that are normalized together along the last axis."""
    x = x.detach()
    if name == "layer_norm":
        return x.reshape(*x.shape[: x.ndim - len(args[0])], -1) if x.numel() else x
    if name == "group_norm":
        return x.reshape(x.shape[0], args[0], -1) if x.numel() else x
    return x.transpose(0, 1).flatten(1)


class Invalid(Exception):  # noqa: N818 - not an error: the case has no meaning
    """torch refuses the case, or its values are meaningless."""


_PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "dot", "inner", "vdot",
             "einsum"}  # fmt: skip
_INDEXED = {
    "index_add", "index_copy", "index_fill", "index_reduce", "index_select", "gather", "put",
    "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim",
}
_MARGINS = {"multi_margin_loss", "multilabel_margin_loss"}
#: Losses that torch broadcasts; kernelrt refuses a target of another shape.
_EQUAL_SHAPES = {"kl_div", "soft_margin_loss"}


def _tensors(args: Any) -> list[Any]:
    """List the tensors among arguments and in lists of them."""
    found = [x for a in args for x in (a if isinstance(a, list | tuple) else [a])]
    return [x for x in found if hasattr(x, "dtype")]


def _check_mask(query: Any, key: Any, *others: Any, **named: Any) -> None:
    """Raise Invalid for a mask that does not broadcast to the scores."""
    mask = named.get("attn_mask", others[1] if len(others) > 1 else None)
    if mask is None or query.numel():
        return
    scores = (*query.shape[:-1], key.shape[-2])
    try:
        mask.expand(scores)
    except RuntimeError:
        raise Invalid(f"a mask of {tuple(mask.shape)} for scores of {scores}") from None


def _check_axes(x: Any, *_: Any, scale_factor: Any = None, **named: Any) -> None:
    """Raise Invalid if a factor other than 1 does not change the size of an axis."""
    if named.get("mode", "nearest") == "nearest" and scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, tuple) else [scale_factor] * x.ndim
        if any(f != 1 and int(n * f) == n for n, f in zip(x.shape[2:], factors, strict=False)):
            raise Invalid(f"interpolate of {tuple(x.shape)} by {scale_factor}")


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Raise Invalid for calls whose results in torch are meaningless.

    - torch warns: deprecation, no degrees of freedom, accidental broadcasting.
    - With empty tensors torch accepts calls that it refuses otherwise: products of two types, masks
      and targets of another shape, pools, indices.
    - torch returns uninitialized memory: margin losses of no samples, medians of expanded tensors.
    - torch does not check the indices: take_along_dim.
    - The result depends on the number of all elements: nearest interpolation along an axis that a
      factor leaves at its size.
    """
    import torch
    from torch.overrides import BaseTorchFunctionMode

    class Checked(BaseTorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.__name__ in _PRODUCTS and len(kinds := {x.dtype for x in _tensors(args)}) > 1:
                raise Invalid(f"{func.__name__} of {kinds}")
            pool = re.fullmatch(r"adaptive_avg_pool(\d)d", func.__name__)
            if pool and 0 in args[0].shape[-int(pool[1]) :]:
                raise Invalid(f"{func.__name__} of no elements")
            if func.__name__ in _EQUAL_SHAPES and args[0].shape != args[1].shape:
                raise Invalid(f"{func.__name__} of {args[0].shape} and {args[1].shape}")
            if func.__name__ in ("median", "nanmedian") and 0 in args[0].stride():
                raise Invalid(f"{func.__name__} of an expanded tensor")
            if func.__name__ in _MARGINS and not args[0].numel():
                raise Invalid(f"{func.__name__} of no samples")
            if func.__name__ in _INDEXED and not args[0].numel() and any(
                x.numel() and not x.is_floating_point() for x in _tensors(args[1:])
            ):  # fmt: skip
                raise Invalid(f"{func.__name__} of no elements")
            if func.__name__ == "interpolate":
                _check_axes(*args, **(kwargs or {}))
            if func.__name__ == "take_along_dim" and len(args) == 3:
                data, index, axis = args
                if index.numel() and index.max() >= data.shape[axis]:
                    raise Invalid(f"take_along_dim of {index.max()} of {data.shape[axis]}")
            if func.__name__ == "scaled_dot_product_attention":
                _check_mask(*args, **(kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs)

    torch.set_warn_always(True)  # otherwise it warns only once per process
    with warnings.catch_warnings(), Checked():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def double() -> Iterator[None]:
    """Make float64 torch's default type, which is as exact as possible."""
    import torch
    from support.spreads import around_the_mean

    torch.set_default_dtype(torch.float64)
    try:
        with around_the_mean():
            yield
    finally:
        torch.set_default_dtype(torch.float32)

# ---- evaluation


def arrays(case: Case, n: int) -> Arrays:
    """Return the inputs for a size; those without floats are int64 or bool."""
    kind = np.dtype(case["dtype"])
    names = {"np": np, "R": np.random.default_rng, "n": n, "f": lambda x: np.asarray(x, kind)}
    try:
        return {
            name: np.ascontiguousarray(eval(text, dict(names)))  # noqa: S307
            for name, text in case["inputs"].items()
        }
    except Exception as error:
        raise Invalid(str(error)) from error


def execute(case: Case, scope: dict[str, Any], each: Callable[[Any], Any] | None = None) -> None:
    for line in case["lines"]:
        exec(line, scope)  # noqa: S102
        if each is not None:
            each(scope[target(line)])


def target(line: str) -> str:
    return line.partition("=")[0].strip()


def loss_of(results: list[Any]) -> Any:
    """Return a smooth number that depends on every element of every result."""
    total: Any = 0
    for result in results:
        total = total + (result * result * 0.5 + result).sum()
    return total


@dataclass(frozen=True)
class Told:
    """torch's evaluation of a case.

    Attributes
    ----------
    values : list of arrays
        Results and gradients.
    top : float
        Greatest magnitude of a number in the evaluation.
    unit : float
        Relative spacing of the narrowest type in the evaluation.
    most : int
        Greatest number of elements in the evaluation.
    """

    values: list[Any]
    top: float
    unit: float
    most: int


def torch_values(
    case: Case, data: Arrays, kind: str, noise: np.random.Generator | None = None
) -> Told:
    """Evaluate results and gradients with torch, for inputs of type `kind`.

    With `noise`, every element of every input and of every line is off by `MOVED` of itself, up or
    down, as if each step rounded to that many digits.
    """
    import torch

    def moved(value: Any) -> Any:
        if noise is None or not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        signs = torch.from_numpy(noise.choice([-1.0, 1.0], tuple(value.shape)))
        return value * (1 + MOVED * signs.to(value.dtype))

    tells = any(DECISIONS.search(line) for line in case["lines"])
    if tells and any("logcumsumexp" in line for line in case["lines"]):
        raise Invalid("equal sums of other orders are told apart by their rounding")
    functions = TorchFunctions(case["grad"] or tells, tells)
    scope: dict[str, Any] = {"T": Torch(), "F": functions}
    floats = []
    for name, array in data.items():
        value = torch.from_numpy(array.copy())
        if value.is_floating_point():
            value = value.to(getattr(torch, kind)).requires_grad_(case["grad"])
            floats.append(value)
        scope[name] = moved(value)
    top = unit = 0.0
    most = 0

    def look(value: Any) -> None:
        nonlocal top, unit, most
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            unit = max(unit, torch.finfo(value.dtype).eps)
            most = max(most, value.numel())
            if value.numel():
                top = max(top, float(value.detach().abs().max()))

    try:
        with strict():
            for line in case["lines"]:
                execute({"lines": [line]}, scope, look)
                made = scope[target(line)]
                check_axis(line, made)
                check_product(line, made, case["dtype"])
                scope[target(line)] = moved(made)
        results = [scope[name] for name in case["results"]]
        if case["grad"]:
            # Raises where no result depends on an input.
            found = torch.autograd.grad(loss_of(results), floats, allow_unused=True)
            zeros = [torch.zeros_like(x) for x in floats]
            results += [z if g is None else g for g, z in zip(found, zeros, strict=True)]
    except Exception as error:
        raise Invalid(str(error)) from error
    for result in results:
        look(result)
    values, slopes = results[: len(case["results"])], results[len(case["results"]) :]
    if any(g.isnan().any() for g in slopes) and all(v.isfinite().all() for v in values):
        raise Invalid("an infinite gradient met a derivative of 0")
    if not np.isfinite(top) or top > LARGEST:
        raise Invalid(f"values up to {top}")
    return Told([r.detach().numpy(force=True) for r in results], top, unit, most)


def check_axis(line: str, made: Any) -> None:
    if ".roll(" in line and made.numel() == 0:
        raise Invalid("torch rolls nothing along any axis")


def check_product(line: str, made: Any, kind: str) -> None:
    """Raise Invalid for products near 0: their parts leave the range of narrower types."""
    if "prod(" in line and made.numel() and made.is_floating_point():
        least = float(made.detach().abs().min())
        if least < np.finfo(kind).tiny:
            raise Invalid(f"a product of {least}")


@dataclass
class Truth:
    """Inputs, torch's results, and the allowed errors.

    Attributes
    ----------
    case : dict
        The program.
    data : dict of arrays
        The inputs.
    values : list of arrays
        Results and gradients, in float64.
    bounds : list of float
        Allowed error of each.
    types : list of NumPy types
        Their types in the case's own type.
    unit : float
        Relative spacing of the narrowest type in the evaluation.
    """

    case: Case
    data: Arrays
    values: list[Any]
    bounds: list[float]
    types: list[Any]
    unit: float

    @cached_property
    def cancelled(self) -> list[Any]:
        """Return the additional allowed errors for cancellation within a line.

        Perturbing the inputs or the result of a line does not show the magnitude of terms that one
        torch operation adds internally, such as those of a loss that are as great as the logits and
        leave a thousandth. torch's float32 errors show it; in float64 torch is its own truth. One
        evaluation may round well by chance, so several neighbors are used.
        """
        found = [0.0] * len(self.values)
        for seed in range(8):
            rng = np.random.default_rng(seed)
            near = {
                name: (x * (1 + NEAR * rng.uniform(-1, 1, x.shape))).astype(np.float32)
                if x.dtype.kind == "f" else x
                for name, x in self.data.items()
            }  # fmt: skip
            try:
                narrow = torch_values(self.case, near, "float32")
                with double():
                    wide = torch_values(self.case, near, "float64")
            except Invalid:
                continue
            scale = self.unit / float(np.finfo(np.float32).eps)
            for i, (a, b) in enumerate(zip(narrow.values, wide.values, strict=True)):
                if a.shape == b.shape and b.dtype.kind == "f":
                    apart = np.abs(a.astype(np.float64) - b)
                    # A larger difference is a jump, not rounding.
                    apart = np.where(apart <= NEAR * max(wide.top, 1), apart, 0)
                    found[i] = max(found[i], 30 * scale * float(apart.max(initial=0)))
        return [np.maximum(a, b) for a, b in zip(found, self._rounded(), strict=True)]

    def _rounded(self) -> list[Any]:
        """Return the additional allowed errors for the rounding of steps within a line.

        If equal numbers round equally, a jump of an element comes from a decision that depends on
        the last digit of a number that has one, such as the floor of 8.9999999.
        """
        from support.rounded import LOST, Rounded

        kinds = {2.0**-52: "float64", 2.0**-10: "float16", 2.0**-7: "bfloat16"}
        kind = kinds.get(self.unit, "float32")
        share = 2.0 ** -LOST.get(kind, 0)
        found: list[Any] = [0.0] * len(self.values)
        for seed, alike in itertools.product(range(SAMPLES), (False, True)):
            try:
                with double(), Rounded(kind, seed, alike=alike):
                    told = torch_values(self.case, self.data, "float64")
            except Invalid:
                continue
            for i, (a, b) in enumerate(zip(told.values, self.values, strict=True)):
                if a.shape != b.shape:
                    continue
                apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
                jumps = apart > NEAR * max(told.top, 1)
                if alike:
                    found[i] = np.maximum(found[i], np.where(jumps, apart, 0))
                elif b.dtype.kind == "f":
                    spread = np.where(jumps, 0, apart).max(initial=0)
                    found[i] = np.maximum(found[i], SPREADS * share * float(spread))
        return found


def expected(case: Case, n: int) -> Truth:
    """Return inputs, torch's results, their allowed errors, and their types.

    torch's own change with the type, or with the last digit of the inputs, shows how many digits a
    program keeps. Its change when each step rounds shows that also for exact or equal inputs whose
    intermediate values are not exact.
    """
    data = arrays(case, n)
    typed = torch_values(case, data, case["dtype"])
    with double():
        truth = torch_values(case, data, "float64")
        values, top = truth.values, truth.top
        unit = max(typed.unit, float(np.finfo(case["dtype"]).eps))
        # The rounding error of n additions, in any order, grows with the root of n.
        added = max(1.0, (truth.most / ADDED) ** 0.5)
        loose = [16 * unit * added * max(top, 1e-3)] * len(values)
        others = [typed.values]
        rng = np.random.default_rng(n)
        exact = unit < 1e-10 and all(
            np.array_equal(x, np.round(x * 4) / 4) for x in data.values() if x.dtype.kind == "f"
        )
        for _ in range(0 if exact else 2):
            shifted = {
                name: x * (1 + unit * rng.choice([-1, 1], x.shape)) if x.dtype.kind == "f" else x
                for name, x in data.items()
            }
            others.append(torch_values(case, shifted, "float64").values)
        for other in others:
            for i, (value, near) in enumerate(zip(values, other, strict=True)):
                if value.shape != near.shape:
                    raise Invalid("the shape depends on the last digit")
                if value.size:
                    apart = np.abs(value.astype(np.float64) - near.astype(np.float64))
                    loose[i] = max(loose[i], 30 * float(apart.max()))
        for _ in range(2):
            grown = growth(case, data, values, SMOOTH * max(top, 1), rng)
            loose = [max(bound, 30 * unit * by) for bound, by in zip(loose, grown, strict=True)]
    if any(bound > 0.02 * max(top, 1) for bound in loose):
        raise Invalid("ill-conditioned")
    types = [value.dtype for value in typed.values]
    return Truth(case, data, values, loose, types, unit)


def growth(
    case: Case, data: Arrays, values: list[Any], most: float, rng: np.random.Generator
) -> list[float]:
    """Return the change of each value per unit of a relative error in all steps.

    A change of more than `most` is a jump, as of a maximum between equal numbers. Jumps are not
    rounding, and kernelrt must decide like torch.
    """
    try:
        others = torch_values(case, data, "float64", rng).values
    except Invalid:
        return [0.0] * len(values)
    grown = []
    for value, near in zip(values, others, strict=True):
        apart = np.zeros(1)
        if value.shape == near.shape and value.dtype.kind == "f":
            apart = np.abs(value - near)
        grown.append(float(np.where(apart <= most, apart, 0).max(initial=0)) / MOVED)
    return grown
