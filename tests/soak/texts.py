"""Programs as text: the same lines run on kernelrt and, in float64, on torch.

A case is a dict with

inputs : dict of name -> text
    NumPy expressions; ``f`` casts to the case's type, ``R`` is ``numpy.random.default_rng``, ``n``
    the size that changes.
lines : list of str
    Assignments. ``T`` is kernelrt or torch, ``F`` has the methods of a tensor as functions.
results : list of str
    Names whose values are compared.
dtype : str
    Of the inputs: float32 or float64.
grad : bool
    Whether the gradients of the inputs are compared, too.
ways : list of str
    How kernelrt runs it; see `WAYS`.
sizes : list of int
    Values of ``n``, one after the other.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Case = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]

WAYS = ("steps", "whole", "jit", "threads", "dynamic")
"""Realized after each line; at the end; jitted; jitted for two threads; for changing sizes."""
MOVED = 2.0**-40
"""By what share of itself a number is moved to see how far rounding goes."""
SMOOTH = 2.0**-18
"""What that moves by less grows with it; what it moves by more has jumped."""
LARGEST = 1e6
"""Programs with greater values anywhere are left out: little is left of their digits."""
BOUNDS = (1, 64)
"""Of ``n``, where it is an open size."""
VARIABLE = f"krt.Variable('n', {BOUNDS[0]}, {BOUNDS[1]})"
THREADS = (
    "import kernelrt.runtime.cost as cost; cost._CALL_NS = 1e7  # let small plans run parallel"
)


class Functions:
    """Methods of a tensor as functions of it, as in torch.nn.functional."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x, *args, **options: getattr(x, name)(*args, **options)


class Torch:
    """torch, without what it does for old programs' sake."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)

    def cat(self, parts: Any, dim: int) -> Any:
        import torch

        if len({part.ndim for part in parts}) > 1:
            raise Invalid("torch passes over parts of shape (0,), whatever the others are")
        return torch.cat(parts, dim)


class TorchFunctions:
    """torch.nn.functional, where a tensor is also what kernelrt calls by a method."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import torch

        function = getattr(torch.nn.functional, name)
        if not name.startswith(("conv", "linear")):
            return function

        def weighted(x: Any, weight: Any, **options: Any) -> Any:
            if x.numel() == 0 or weight.numel() == 0:
                raise Invalid("torch gives convolutions over nothing the wrong shape")
            if weight.ndim < 2:
                raise Invalid("a vector of weights is not a layer")
            return function(x, weight, **options)

        return weighted


class Invalid(Exception):  # noqa: N818 - not an error: the case means nothing
    """torch does not know what the case means, or its values say nothing."""


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """What torch warns of (deprecated, of no freedom, broadcast by accident) is not asked."""
    import torch

    torch.set_warn_always(True)  # it would warn once in a process, and then not
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def double() -> Iterator[None]:
    """What has no type of its own is float64 to torch."""
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


# ---- evaluation


def arrays(case: Case, n: int) -> Arrays:
    """The inputs for a size; what is not float is int64 or bool."""
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
    """A smooth number that every element of every result takes part in."""
    total: Any = 0
    for result in results:
        total = total + (result * result * 0.5 + result).sum()
    return total


@dataclass(frozen=True)
class Told:
    """What torch makes of a case.

    Attributes
    ----------
    values : list of arrays
        Results and gradients.
    top : float
        The greatest size of a number that was met.
    unit : float
        The relative spacing of the narrowest type that was met.
    """

    values: list[Any]
    top: float
    unit: float


def torch_values(
    case: Case, data: Arrays, kind: str, noise: np.random.Generator | None = None
) -> Told:
    """Results and gradients by torch, over inputs of type `kind`.

    With `noise` every element of every input and of every line is off by `MOVED` of itself, up or
    down, as if each step rounded to so many digits.
    """
    import torch

    def moved(value: Any) -> Any:
        if noise is None or not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        signs = torch.from_numpy(noise.choice([-1.0, 1.0], tuple(value.shape)))
        return value * (1 + MOVED * signs.to(value.dtype))

    scope: dict[str, Any] = {"T": Torch(), "F": TorchFunctions()}
    floats = []
    for name, array in data.items():
        value = torch.from_numpy(array.copy())
        if value.is_floating_point():
            value = value.to(getattr(torch, kind)).requires_grad_(case["grad"])
            floats.append(value)
        scope[name] = moved(value)
    top = unit = 0.0

    def look(value: Any) -> None:
        nonlocal top, unit
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            unit = max(unit, torch.finfo(value.dtype).eps)
            if value.numel():
                top = max(top, float(value.detach().abs().max()))

    try:
        with strict():
            for line in case["lines"]:
                execute({"lines": [line]}, scope, look)
                scope[target(line)] = moved(scope[target(line)])
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
    if not np.isfinite(top) or top > LARGEST:
        raise Invalid(f"values up to {top}")
    return Told([r.detach().numpy() for r in results], top, unit)


def expected(case: Case, n: int) -> tuple[Arrays, list[Any], list[float], list[Any]]:
    """Inputs, what torch makes of them, by how much each value may differ, and their types.

    How far torch itself moves with the type or with the last digit of the inputs says how many
    digits a program leaves; and how far it moves when each of its steps rounds, which says it also
    where the inputs are exact or equal numbers, and what is computed from them is not.
    """
    data = arrays(case, n)
    typed = torch_values(case, data, case["dtype"])
    with double():
        truth = torch_values(case, data, "float64")
        values, top = truth.values, truth.top
        unit = max(typed.unit, float(np.finfo(case["dtype"]).eps))
        loose = [16 * unit * max(top, 1e-3)] * len(values)
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
    return data, values, loose, [value.dtype for value in typed.values]


def growth(
    case: Case, data: Arrays, values: list[Any], most: float, rng: np.random.Generator
) -> list[float]:
    """By how much each value moves, for each unit by which all steps are off.

    What moves by more than `most` has jumped, as a maximum between equal numbers does. That is no
    rounding, and kernelrt must decide as torch does.
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


def kernelrt_function(case: Case, each: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    import kernelrt as krt

    names = list(case["inputs"])

    def program(*inputs: Any) -> tuple[Any, ...]:
        scope: dict[str, Any] = {"T": krt, "F": Functions()}
        leaves = []
        for name, value in zip(names, inputs, strict=True):
            if case["grad"] and value.dtype.is_float:
                value = value.clone().requires_grad_()  # noqa: PLW2901
                leaves.append(value)
            scope[name] = value
        execute(case, scope, each)
        results = [scope[name] for name in case["results"]]
        if case["grad"]:
            results += krt.grad(loss_of(results), leaves)
        return tuple(results)

    return program


def ways(case: Case) -> Iterator[tuple[str, Callable[..., tuple[Any, ...]]]]:
    """Functions of NumPy arrays, one for each way of running the case."""
    import kernelrt as krt
    from kernelrt.runtime import cost

    program = kernelrt_function(case)

    def tensors(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        return lambda *data: run(*(krt.tensor(x) for x in data))

    def whole(*inputs: Any) -> tuple[Any, ...]:
        results = program(*inputs)
        krt.realize(*results)
        return results

    def settle(value: Any) -> None:
        if isinstance(value, krt.Tensor):
            value.realize()

    usual = cost._CALL_NS
    for way in case["ways"]:
        if way == "steps":
            yield way, tensors(kernelrt_function(case, settle))
        elif way == "whole":
            yield way, tensors(whole)
        elif way == "jit":
            yield way, krt.jit(program)
        elif way == "threads":
            cost._CALL_NS = 1e7
            try:
                yield way, krt.jit(program, threads=2)
            finally:
                cost._CALL_NS = usual
        else:
            yield way, dynamic(case, program)


def dynamic(case: Case, program: Callable[..., Any]) -> Callable[..., Any]:
    """`program` jitted with every axis of size n open."""
    import kernelrt as krt

    names = list(case["inputs"])
    parameters = ", ".join(names)
    scope = {"program": program}
    exec(f"def wrapped({parameters}): return program({parameters})", scope)  # noqa: S102
    n = krt.Variable("n", *BOUNDS)
    return krt.jit(scope["wrapped"], dynamic={name: {0: n} for name in open_inputs(case)})


def open_inputs(case: Case) -> list[str]:
    return [name for name, text in case["inputs"].items() if re.search(r"\bn\b", text)]


def run(case: Case, unit: str = "programs") -> str | None:
    """Every way for every size, against torch; `unit` is what the case counts as."""
    from kernelrt.errors import KernelrtError

    least, most = BOUNDS
    if "dynamic" in case["ways"] and not all(least <= n <= most for n in case["sizes"]):
        return None
    try:
        truths = [expected(case, n) for n in case["sizes"]]
    except Invalid:
        return None
    outputs = case["results"] + [f"gradient of {name}" for name in case["inputs"]]
    for way, function in ways(case):
        for n, (data, values, loose, types) in zip(case["sizes"], truths, strict=True):
            try:
                for _ in range(1 if way in ("steps", "whole") else 2):
                    got = [t.numpy() for t in function(*data.values())]
            except KernelrtError as error:
                if way != "dynamic" or not undecided(error):
                    raise
                record.note(f"{unit} of open sizes, refused")
                break
            for name, have, want, bound, kind in zip(
                outputs, got, values, loose, types, strict=False
            ):
                where = f"{name}, {way}, n = {n}"
                if have.shape != want.shape:
                    return f"values: {where}: shape {have.shape}, torch {want.shape}"
                if have.dtype != kind:
                    return f"values: {where}: type {have.dtype}, torch {kind}"
                if want.size == 0:
                    continue
                alike = (have == want) | (np.isnan(have) & np.isnan(want))
                apart = np.abs(have.astype(np.float64) - want.astype(np.float64))
                apart = np.where(alike, 0.0, apart)
                if not (alike | (apart <= bound)).all():
                    at = np.unravel_index(np.argmax(np.nan_to_num(apart, nan=np.inf)), want.shape)
                    return (
                        f"values: {where}: {have[at]!r} at {list(map(int, at))}, torch {want[at]!r}"
                    )
        else:
            if way == "dynamic":
                record.note(f"{unit} of open sizes")
    record.note(unit)
    return None


def undecided(error: Exception) -> bool:
    """Whether an error says that a size cannot be open, or that it decides something."""
    from kernelrt import errors

    if isinstance(error, errors.VariableError | errors.IndexBoundsError):
        return any(words in str(error) for words in (
            "a decision is needed", "may be empty", "known only at run time",
        ))
    return isinstance(error, (errors.ShapeError, errors.JitError, errors.DTypeError))


def key(case: Case) -> str:
    """What two findings of one cause mostly have in common."""
    return re.sub(r"\b([a-c]|x?\d+)\b", "#", " ".join(case["lines"])) + str(case["grad"])


# ---- as a program


def source(case: Case) -> str:
    """A program of a few lines that asserts what the case does, for its first way."""
    inputs, way = list(case["inputs"]), case["ways"][0]
    parameters = ", ".join(inputs)
    lines = ["import numpy as np, torch, kernelrt as krt"]
    if way == "threads":
        lines.append(THREADS)
    functional = any("F." in line for line in case["lines"])
    if functional:
        lines.append(
            "F = type('F', (), {'__getattr__': lambda s, k: "
            "lambda x, *a, **o: getattr(x, k)(*a, **o)})()"
        )
    lines.append(f"R, f = np.random.default_rng, lambda x: np.asarray(x, '{case['dtype']}')")
    arguments = f"T, {'F, ' if functional else ''}{parameters}"
    lines.append(f"def program({arguments}):")
    for line in case["lines"]:
        lines.append(f"    {line}")
        if way == "steps":
            lines[-1] += f"; T is krt and {target(line)}.realize()"
    lines.append(f"    return [{', '.join(case['results'])}]")
    wrap = f"lambda {parameters}: program(krt, {'F, ' if functional else ''}{parameters})"
    if case["grad"]:
        lines += [
            f"def with_grad({arguments}, g):",
            f"    floats = [x for x in [{parameters}] if 'float' in str(x.dtype)]",
            f"    out = program({arguments})",
            "    return out + list(g(sum((r * r * 0.5 + r).sum() for r in out), floats))",
            f"def mine({parameters}):",
            "    leaf = lambda x: x.clone().requires_grad_() if x.dtype.is_float else x",
            f"    {parameters}, = map(leaf, [{parameters}])",
            f"    return with_grad(krt, {'F, ' if functional else ''}{parameters}, krt.grad)",
        ]
        wrap = "mine"
    if way == "dynamic":
        axes = ", ".join(f"'{name}': {{0: n}}" for name in open_inputs(case))
        lines += [f"n = {VARIABLE}", f"run = krt.jit({wrap}, dynamic={{{axes}}})"]
    elif way in ("jit", "threads"):
        lines.append(f"run = krt.jit({wrap}{', threads=2' if way == 'threads' else ''})")
    else:
        lines.append(f"run = lambda *x: ({wrap})(*map(krt.tensor, x))")
    lines.append(f"for n in {case['sizes']}:")
    lines.append(f"    data = [{', '.join(case['inputs'].values())}]")
    double = "x.double().requires_grad_()" if case["grad"] else "x.double()"
    lines += [
        f"    wide = [{double} if x.is_floating_point() else x for x in map(torch.tensor, data)]",
    ]
    nn = "torch.nn.functional, " if functional else ""
    if case["grad"]:
        lines += [
            "    g = lambda y, x: torch.autograd.grad(y, x, materialize_grads=True)",
            f"    want = with_grad(torch, {nn}*wide, g)",
        ]
    else:
        lines.append(f"    want = program(torch, {nn}*wide)")
    tolerance = "1e-3" if case["dtype"] == "float32" else "1e-8"
    lines += [
        "    for have, w in zip(run(*data), want):",
        "        w = w.detach().numpy()",
        f"        np.testing.assert_allclose(have.numpy(), w, {tolerance}, {tolerance})",
    ]
    return "\n".join(lines)
