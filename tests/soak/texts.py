"""Programs as text: the same lines run on kernelrt and, in float64, on torch.

A case is a dict with

inputs : dict of name -> text
    NumPy expressions; ``f`` casts to the case's type, ``R`` is ``numpy.random.default_rng``, ``n``
    the size that changes.
lines : list of str
    Assignments. ``T`` is kernelrt or torch, ``F`` has the methods of a tensor as functions.
results : list of str
    Names of the values to compare.
dtype : str
    Type of the inputs: float32 or float64.
grad : bool
    Whether to compare the gradients of the inputs, too.
ways : list of str
    Ways in which kernelrt runs the program; see `WAYS`.
sizes : list of int
    Values of ``n``, one after the other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record
from tests.soak.truth import (
    Case,
    Invalid,
    Torch,
    TorchFunctions,
    Truth,
    arrays,
    execute,
    expected,
    loss_of,
    strict,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "BOUNDS", "WAYS", "Case", "Functions", "Invalid", "Torch", "TorchFunctions",
    "arrays", "execute", "kernelrt_function", "key", "open_inputs", "run", "source", "strict",
    "target", "ways",
]  # fmt: skip

WAYS = ("steps", "whole", "jit", "threads", "frozen", "dynamic")
"""Realized after each line; at the end; jitted; jitted for two threads; for changing sizes."""
BOUNDS = (1, 64)
"""Bounds of a dynamic ``n`` if the case has no ``bounds``."""
THREADS = (
    "import kernelrt.runtime.op_cost as cost\n"
    "cost.launch_ns = lambda *_: 1e7  # let small plans run parallel"
)


class Functions:
    """Methods of a tensor as functions, like torch.nn.functional."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x, *args, **options: getattr(x, name)(*args, **options)


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
            results += krt.grad(loss_of(results), leaves, materialize_grads=True)
        return tuple(results)

    return program


def ways(case: Case) -> Iterator[tuple[str, Callable[..., tuple[Any, ...]]]]:
    """Yield functions of NumPy arrays, one for each way of running the case."""
    import kernelrt as krt
    from kernelrt.runtime import op_cost

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

    usual = op_cost.launch_ns
    for way in case["ways"]:
        if way == "steps":
            yield way, tensors(kernelrt_function(case, settle))
        elif way == "whole":
            yield way, tensors(whole)
        elif way == "jit":
            yield way, krt.jit(program)
        elif way == "threads":
            op_cost.launch_ns = lambda *_: 1e7
            try:
                yield way, krt.jit(program, threads=2)
            finally:
                op_cost.launch_ns = usual
        elif way == "frozen":
            yield way, frozen(program)
        else:
            yield way, dynamic(case, program)


def frozen(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return `program` as a function of its first argument; the others are constant state."""
    import kernelrt as krt

    def run(first: Any, *others: Any) -> Any:
        state = [krt.tensor(x) for x in others]
        return krt.jit(lambda x: program(x, *state), freeze=True)(first)

    return run


def dynamic(case: Case, program: Callable[..., Any]) -> Callable[..., Any]:
    """Return `program` jitted with every axis of size n dynamic."""
    import kernelrt as krt

    names = list(case["inputs"])
    parameters = ", ".join(names)
    scope = {"program": program}
    exec(f"def wrapped({parameters}): return program({parameters})", scope)  # noqa: S102
    n = krt.Variable("n", *case.get("bounds", BOUNDS))
    return krt.jit(scope["wrapped"], dynamic={name: {0: n} for name in open_inputs(case)})


def open_inputs(case: Case) -> list[str]:
    return [name for name, text in case["inputs"].items() if re.search(r"\bn\b", text)]


def run(case: Case, unit: str = "programs") -> str | None:
    """Compare every way for every size with torch; `unit` is the unit of the count."""
    from kernelrt.errors import KernelrtError

    least, most = case.get("bounds", BOUNDS)
    if "dynamic" in case["ways"] and not all(least <= n <= most for n in case["sizes"]):
        return None
    try:
        truths = [expected(case, n) for n in case["sizes"]]
    except Invalid:
        return None
    outputs = case["results"] + [f"gradient of {name}" for name in case["inputs"]]
    for way, function in ways(case):
        for n, truth in zip(case["sizes"], truths, strict=True):
            try:
                for _ in range(1 if way in ("steps", "whole") else 2):
                    got = [t.numpy() for t in function(*truth.data.values())]
            except KernelrtError as error:
                if way != "dynamic" or not undecided(error):
                    raise
                record.note(f"{unit} of open sizes, refused")
                break
            for name, have, index in zip(outputs, got, range(len(got)), strict=False):
                wrong = differs(have, truth, index)
                if wrong:
                    return f"values: {name}, {way}, n = {n}: {wrong}"
        else:
            if way == "dynamic":
                record.note(f"{unit} of open sizes")
    record.note(unit)
    return None


def differs(have: np.ndarray[Any, Any], truth: Truth, index: int) -> str | None:
    """Describe how a result differs from torch's, or return None."""
    want, kind = truth.values[index], truth.types[index]
    if have.shape != want.shape:
        return f"shape {have.shape}, torch {want.shape}"
    if want.size == 0:
        return None  # torch multiplies empty matrices of two types
    if have.dtype != kind:
        return f"type {have.dtype}, torch {kind}"
    alike = (have == want) | (np.isnan(have) & np.isnan(want))
    apart = np.where(alike, 0.0, np.abs(have.astype(np.float64) - want.astype(np.float64)))
    if (alike | (apart <= truth.bounds[index])).all():
        return None
    if (alike | (apart <= truth.bounds[index] + truth.cancelled[index])).all():
        return None
    at = np.unravel_index(np.argmax(np.nan_to_num(apart, nan=np.inf)), want.shape)
    return f"{have[at]!r} at {list(map(int, at))}, torch {want[at]!r}"


def undecided(error: Exception) -> bool:
    """Return whether an error says that a size cannot be dynamic, or that code depends on it."""
    from kernelrt import errors

    if isinstance(error, errors.VariableError | errors.IndexBoundsError):
        return any(words in str(error) for words in (
            "Python needs True or False", "may be empty", "known only at run time",
        ))
    # Memory is allocated for the largest sizes, and their cube may not fit.
    large = errors.OutOfMemoryError
    return isinstance(error, (errors.ShapeError, errors.JitError, errors.DTypeError, large))


def key(case: Case) -> str:
    """Return the features that findings of one cause mostly have in common."""
    return re.sub(r"\b([a-c]|x?\d+)\b", "#", " ".join(case["lines"])) + str(case["grad"])


# ---- as a program


def source(case: Case) -> str:
    """Return a short program that asserts the case's result, for its first way."""
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
        least, most = case.get("bounds", BOUNDS)
        lines.append(f"n = krt.Variable('n', {least}, {most})")
        lines.append(f"run = krt.jit({wrap}, dynamic={{{axes}}})")
    elif way == "frozen":
        lines += [
            "def run(x, *rest):",
            "    state = list(map(krt.tensor, rest))",
            f"    return krt.jit(lambda x: ({wrap})(x, *state), freeze=True)(x)",
        ]
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
        "        w = w.detach().numpy(force=True)",
        f"        np.testing.assert_allclose(have.numpy(), w, {tolerance}, {tolerance})",
    ]
    return "\n".join(lines)
