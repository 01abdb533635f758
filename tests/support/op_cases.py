"""Random calls of operations (rows of `tests/surface/tables`), compared with torch.

Values and gradients are compared. The truth is torch in float64, on exactly the numbers that the
narrow tensors hold. The allowed error of a result is the largest of these: a few units in the last
place of its type, a few times torch's own error in that type, and the effect of a change of the
inputs by half a unit in the last place.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from support.op_draw import generate, row_of, smaller
from support.rounded import LOST, Rounded
from support.spreads import around_the_mean
from surface.rows import leaves

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["generate", "run", "smaller"]

#: Allowed error in units in the last place, and as a multiple of torch's own error.
UNITS, TIMES = 6.0, 4.0
#: Up to this tolerance of a row, its op is well-conditioned and each element accurate.
WELL = 8.0
#: Relative change of each number, one at a time, to measure the effect of its rounding. Results
#: that change by more than SMOOTH have jumped.
APART, SMOOTH = 2.0**-40, 2.0**-18
#: Number of runs with random rounding, and allowed error as a multiple of their spread.
SAMPLES, SPREADS = 12, 4.0
#: Results and gradients.
Found = tuple[list[Any], list[Any]]
_DIGITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
_GREATEST = {name: float(torch.finfo(getattr(torch, name)).max) for name in _DIGITS}
_LEAST = {name: float(torch.finfo(getattr(torch, name)).smallest_normal) for name in _DIGITS}


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return gelu without the cancellation in which torch loses the digits of small results."""
    if approximate == "tanh":
        return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))
    return x * torch.special.erfc(-x * 0.5**0.5) * 0.5


class _Instead:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **others: Any) -> None:
        self.__dict__.update(others)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


#: torch as the exact reference.
_WIDE: Final = _Instead(torch, nn=_Instead(torch.nn, functional=_Instead(
    torch.nn.functional, gelu=_gelu)))


def _numbers(given: dict[str, Any]) -> np.ndarray:
    """Return the elements of an input as float64, int64 or bool, rounded to the input's type."""
    dtype = given["dtype"]
    if dtype == "bool":
        return np.array(given["data"], bool).reshape(given["shape"])
    if dtype not in _DIGITS:
        return np.array(given["data"], np.int64).reshape(given["shape"])
    wide = torch.tensor([float(v) for v in given["data"]], dtype=torch.float64)
    return wide.to(getattr(torch, dtype)).double().reshape(given["shape"]).numpy()


def _evaluate(
    case: dict[str, Any], ours: bool, wide: bool, shift: int = 0, apart: bool = False
) -> Found:
    """Return the results, and the gradients of the floating inputs, of one library."""
    row = row_of(case)
    operands, sources = [], []
    for i, (given, spec) in enumerate(zip(case["inputs"], row.specs, strict=True)):
        numbers, dtype = _numbers(given), given["dtype"]
        floating = dtype in _DIGITS
        if ours:
            leaf = _leaf(numbers, dtype)
            leaf.requires_grad_(floating and spec.grad)
        else:
            if shift and floating and not apart:
                numbers = _moved(numbers, _type(case), shift + 16 * i)
            kind = torch.float64 if wide and floating else getattr(torch, dtype)
            leaf = torch.tensor(numbers).to(kind).requires_grad_(floating and spec.grad)
        if leaf.requires_grad:
            sources.append(leaf)
        value = eval(f"leaf{given['way']}", {"leaf": leaf})  # noqa: S307 - of our own
        if apart and floating:  # perturb each element, also of expanded tensors
            rng = np.random.default_rng(shift + 16 * i)
            value = value * torch.tensor(1 + APART * rng.choice([-1, 1], tuple(value.shape)))
        # torch's batch norm misreads a strided weight.
        operands.append(value if ours else value.contiguous())
    with around_the_mean() if wide else contextlib.nullcontext():
        library = krt if ours else _WIDE if wide else torch
        found = (row.call if ours else row.peer)(library, *operands)
    outputs = [x for x in leaves(found) if isinstance(x, krt.Tensor | torch.Tensor)]
    graded = [x for x in outputs if row.grad and _is_float(x) and x.requires_grad]
    gradients: list[Any] = []
    if graded and sources:
        weights = []
        for n, out in enumerate(graded):
            drawn = np.random.default_rng([case["seed"], n]).integers(-8, 9, tuple(out.shape)) / 8
            weights.append(_moved(drawn, _type(case), -shift & 0xFF) if shift and not apart
                           else drawn)  # fmt: skip
        gradients = (_gradients if ours else _torch_gradients)(graded, sources, weights)
    if ours:
        krt.realize(*outputs, *gradients)
    return outputs, gradients


def _gradients(outputs: list[Any], sources: list[Any], weights: list[np.ndarray]) -> list[Any]:
    if len(outputs) == 1:
        seed = krt.tensor(weights[0]).cast(outputs[0].dtype)
        return list(krt.grad(outputs[0], sources, seed, materialize_grads=True))
    total = sum((x * krt.tensor(w).cast(x.dtype)).sum().double()
                for x, w in zip(outputs, weights, strict=True))  # fmt: skip
    return list(krt.grad(total, sources, materialize_grads=True))


def _torch_gradients(
    outputs: list[Any], sources: list[Any], weights: list[np.ndarray]
) -> list[Any]:
    cotangents = [torch.tensor(w).to(x.dtype) for x, w in zip(outputs, weights, strict=True)]
    return list(torch.autograd.grad(
        outputs, sources, cotangents, allow_unused=True, materialize_grads=True))


def _leaf(numbers: np.ndarray, dtype: str) -> krt.Tensor:
    """Return a kernelrt tensor of `numbers`, which the type represents exactly."""
    if dtype == "bfloat16":
        return krt.tensor(numbers).cast(dtype).realize()
    return krt.tensor(numbers.astype(dtype))


def _type(case: dict[str, Any]) -> str:
    return next(g["dtype"] for g in case["inputs"] if g["dtype"] in _DIGITS)


def _moved(numbers: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """Change each number by at most a unit in its last place; equal numbers change equally."""
    levels, place = np.unique(numbers, return_inverse=True)
    signs = np.random.default_rng(seed).choice([-1, 1], levels.size)
    with np.errstate(all="ignore"):
        moved = numbers * (1 + signs[place].reshape(numbers.shape) * 2.0 ** -_DIGITS[dtype])
    return np.where(np.isfinite(numbers), moved, numbers)


def _is_float(out: Any) -> bool:
    return out.dtype.is_floating_point if isinstance(out, torch.Tensor) else out.dtype.is_float


def _all(found: Found) -> list[Any]:
    return [*found[0], *found[1]]


def _array(out: Any) -> np.ndarray:
    if isinstance(out, torch.Tensor):
        out = out.detach().resolve_conj()
        # force, because gradients of unused inputs may be zeros without memory.
        return (out.double() if out.is_floating_point() else out).numpy(force=True)
    if out.dtype.name == "bfloat16":
        out = out.float()
    found = out.numpy()
    return found.astype(np.float64) if found.dtype.kind == "f" else found


def run(case: dict[str, Any], compared: Callable[[], None] = lambda: None) -> str | None:
    """Return a description of a wrong result, or None; call `compared` if values are compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run(case, compared)


def _run(case: dict[str, Any], compared: Callable[[], None]) -> str | None:
    try:
        typed = _evaluate(case, ours=False, wide=False)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError, OverflowError):
        typed = None
    try:
        got = _evaluate(case, ours=True, wide=False)
    except krt.KernelrtError as error:
        if typed is None or _refused(case, error):
            return None
        # Transposed convolutions: torch refuses empty results of one axis, and gives those of more.
        if typed[0][0].numel() == 0 and "gives no output, since padding" in str(error):
            return None
        return f"refused: {type(error).__name__}: {error}"
    except IndexError:  # of a tuple, as of x.unbind()[-1]
        if typed is None:
            return None
        raise
    if typed is None or not typed[0]:
        return None
    compared()
    if len(got[0]) != len(typed[0]):
        return f"results: {len(got[0])}, torch has {len(typed[0])}"
    if typed[1] and not got[1]:
        return "no gradients, torch has some"
    with _float64_by_default():
        truth = _evaluate(case, ours=False, wide=True)
        return _unlike(case, got, typed, truth) or _close(case, got, typed, truth)


def _unlike(case: dict[str, Any], got: Found, typed: Found, truth: Found) -> str | None:
    """Compare the dtypes and shapes of all results, and the values of those that are no floats."""
    for n, (g, p, t) in enumerate(zip(got[0], typed[0], truth[0], strict=True)):
        name = str(p.dtype).removeprefix("torch.")
        if g.dtype.name != name:
            return f"dtype of result {n}: {g.dtype.name}, torch has {name}"
        if tuple(g.shape) != tuple(p.shape):
            return f"shape of result {n}: {tuple(g.shape)}, torch has {tuple(p.shape)}"
        if not _is_float(p) and not _wraps(case):
            value, peer = _array(g), _array(p)
            bad = value != peer
            # torch may round to a narrow type before it compares, for example in isclose.
            if bad.any() and t.shape == p.shape:
                bad &= value != _array(t)
            if bad.any():
                return f"value: {value[bad][:3]} expected {peer[bad][:3]}"
    return None


@contextlib.contextmanager
def _float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _refused(case: dict[str, Any], error: krt.KernelrtError) -> bool:
    """Return whether kernelrt raises an error by design in a case that torch computes."""
    text = str(error)
    return any(words in text for words in (
        ", which holds ", "bools have no", "integers to the power", "cast the tensor",
        "one more than", "expected a floating type", "is empty; expected at least 1 element",
        "cast class numbers", "does not fit in", "more than one value per channel", "cast them",
        "at most half", "do not lie in memory so that",
    ))  # fmt: skip


def _wraps(case: dict[str, Any]) -> bool:
    """Return whether the call has a negative number, which torch wraps for an unsigned type."""
    unsigned = any(given["dtype"] == "uint8" for given in case["inputs"])
    comparison = re.search(
        r"(==|!=|<=?|>=?) -\d|-\d+ (==|!=|<=?|>=?)|(clamp|clip|imum)\(.*-\d", case["call"]
    )
    return unsigned and comparison is not None


def _close(case: dict[str, Any], got: Found, typed: Found, truth: Found) -> str | None:
    row = row_of(case)
    loose = row.tol if row.tol > WELL else 0.0
    sources = [given for given, spec in zip(case["inputs"], row.specs, strict=True)
               if given["dtype"] in _DIGITS and spec.grad]  # fmt: skip
    moved: list[list[Any]] = []
    grown: list[list[Any]] = []
    rough: list[list[Any]] = []
    lowered: list[Any] = []
    less: list[Any] = []
    outputs = len(got[0])
    for number, (g, p, t) in enumerate(zip(_all(got), _all(typed), _all(truth), strict=False)):
        if not _is_float(p):
            continue
        dtype = g.dtype.name
        value, peer, exact = _array(g), _array(p), _array(t)
        bad = _beyond(value, peer, exact, dtype, None, loose)
        if bad.any() and any(v["dtype"] in _DIGITS for v in case["inputs"]):
            moved = moved or [
                _all(_evaluate(case, ours=False, wide=True, shift=s)) for s in range(1, 13)
            ]
            grown = grown or [
                _all(_evaluate(case, ours=False, wide=True, shift=s, apart=True))
                for s in (1, 2, 3, 4)
            ]
            with np.errstate(all="ignore"):
                reach = np.max([np.abs(_array(m[number]) - exact) for m in moved], 0)
                slope = np.max([np.abs(_array(m[number]) - exact) for m in grown], 0)
            # A larger change is a jump, not rounding.
            slope = np.where(slope < SMOOTH * np.maximum(np.abs(exact), 1), slope, 0) / APART
            reach = reach + slope * 2.0 ** -max(_DIGITS[dtype], _DIGITS["float32"])
            bad = _beyond(value, peer, exact, dtype, reach, loose)
        adds = number >= outputs or _ADDING.search(case["call"])
        if bad.any() and adds and _overflows(case, dtype):
            # The order of a sum decides which infinity comes first, or whether both give NaN.
            # Nearly infinite numbers may overflow in an intermediate step.
            near = np.abs(exact) > _GREATEST[dtype] / 64
            bad &= np.isfinite(value) | (np.isfinite(exact) & ~near)
            # float64 has no wider reference, and an intermediate product may be infinite.
            if dtype == "float64":
                lowered = lowered or _all(_evaluate(_lowered(case), ours=False, wide=True))
                bad &= np.isfinite(exact) | ~np.isfinite(_array(lowered[number]))
            # Nearly infinite terms may cancel, and overflow in an intermediate step.
            if (bad & np.isfinite(exact) & ~np.isfinite(value)).any():
                less = less or _all(_evaluate(_lowered(case), ours=True, wide=False))
                bad &= ~np.isfinite(exact) | ~np.isfinite(_array(less[number]))
        if number >= outputs:  # no gradient of NaN is right or wrong
            bad &= ~np.isnan(_numbers(sources[number - outputs])).reshape(bad.shape)
        if bad.any():
            rough = rough or _rounded(case)
            bad &= ~_within([_array(r[number]) for r in rough], value, exact, _narrowest(case))
        if bad.any():
            what = "value" if number < outputs else f"gradient {number - outputs}"
            at = np.argwhere(bad)[0].tolist()
            return (
                f"{what}: {value[bad][:3]} expected {exact[bad][:3]}, torch has {peer[bad][:3]} in "
                f"{dtype}, at {at} and {int(bad.sum()) - 1} more"
            )
    return None


def _rounded(case: dict[str, Any]) -> list[list[Any]]:
    """Return torch's results with each step rounded to the narrowest type, randomly up or down."""
    found = []
    for seed in range(SAMPLES):
        with Rounded(_narrowest(case), seed):
            found.append(_all(_evaluate(case, ours=False, wide=True)))
    return found


def _narrowest(case: dict[str, Any]) -> str:
    kinds = {g["dtype"] for g in case["inputs"]} & set(_DIGITS)
    return min(kinds or {"float32"}, key=_DIGITS.__getitem__)


def _within(
    samples: list[np.ndarray], value: np.ndarray, exact: np.ndarray, dtype: str
) -> np.ndarray:
    """Return where rounding explains the difference of `value` and `exact`.

    It also explains an infinity or NaN, if a sample has one at the same position.
    """
    with np.errstate(all="ignore"):
        finite = np.isfinite(samples)
        low = np.min(np.where(finite, samples, np.inf), 0)
        high = np.max(np.where(finite, samples, -np.inf), 0)
        centre = np.where(np.isfinite(exact), exact, (low + high) / 2)
        reach = np.maximum(np.abs(high - centre), np.abs(low - centre))
        near = np.abs(value - centre) <= SPREADS * 2.0 ** -LOST.get(dtype, 0) * reach
        alike = ~np.isfinite(value) & np.any(
            [(s == value) | (np.isnan(s) & np.isnan(value)) for s in samples], 0
        )
    return near | alike


#: Lines whose results are sums; gradients are sums if a value is used twice.
_ADDING: Final = re.compile(
    r"sum|mean|var|std|norm|@|matmul|dot|linear|conv|pool|loss|entropy|softmax|scatter|lerp|add"
)


def _lowered(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case with its greatest numbers made smaller, so that sums do not overflow."""
    inputs = []
    for given in case["inputs"]:
        data = given["data"]
        if given["dtype"] in _GREATEST:
            most = _GREATEST[given["dtype"]] / 64
            data = [v if abs(float(v)) <= most else float(v) * 2.0**-12 for v in data]
        inputs.append({**given, "data": data})
    return {**case, "inputs": inputs}


def _overflows(case: dict[str, Any], dtype: str) -> bool:
    """Return whether a case has numbers so large that the sum of a few of them overflows."""
    numbers = [_numbers(v).ravel() for v in case["inputs"] if v["dtype"] in _DIGITS]
    with np.errstate(all="ignore"):
        sizes = np.abs(np.concatenate(numbers)) if numbers else np.zeros(0)
    return bool((np.isfinite(sizes) & (sizes > _GREATEST[dtype] / 8)).any())


def _beyond(
    value: np.ndarray, peer: np.ndarray, exact: np.ndarray, dtype: str, reach: np.ndarray | None,
    loose: float,
) -> np.ndarray:  # fmt: skip
    """Return where `value` is too far from `exact`."""
    unit, top, least = 2.0 ** -_DIGITS[dtype], _GREATEST[dtype], _LEAST[dtype]
    with np.errstate(all="ignore"):
        error = np.abs(peer - exact)
        size = np.abs(exact)
        allowed = UNITS * unit * np.maximum(size, least) + TIMES * np.where(
            np.isfinite(error), error, 0
        )
        finite = np.isfinite(error)
        if finite.any():
            # torch's greatest relative error is allowed for all elements.
            share = np.max(np.where(finite & (size > least), error / size, 0), initial=0)
            allowed = allowed + TIMES * share * size
            # An ill-conditioned op is only accurate relative to its greatest numbers.
            scale = np.sqrt(np.mean(np.where(finite & np.isfinite(exact), exact, 0) ** 2))
            allowed = allowed + loose * unit * scale
        if reach is not None:
            allowed = allowed + 8 * np.where(np.isnan(reach), 0, reach)
        if dtype in ("float32", "float64"):  # their exp flushes subnormal results to 0
            allowed = allowed + least
        near = np.abs(value - exact) <= allowed
        same = (value == exact) | (np.isnan(value) & np.isnan(exact))
        over = (size >= top * (1 - 4 * unit)) & (np.abs(value) >= top * (1 - 4 * unit)) & (
            np.sign(value) == np.sign(exact))  # fmt: skip
        if loose:  # a factorization or a series subtracts infinities where its result overflows
            over |= (size >= top) & np.isnan(value) | np.isnan(exact) & np.isinf(value)
        # torch may overflow, or meet infinity minus infinity, where float64 does not.
        alike = (value == peer) | (np.isnan(value) & np.isnan(peer)) | (
            ~np.isfinite(exact) & (np.abs(value - peer) <= UNITS * unit * np.abs(peer))
        )  # fmt: skip
    return ~(near | same | over | alike)
