"""Save jitted functions to a model file; :mod:`kernelrt.jit.loading` opens it."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from kernelrt.device.byte_ranges import byte_range_of
from kernelrt.errors import DTypeError, ModelFileError, a_type
from kernelrt.ir import Op, UOp
from kernelrt.jit.effects import side_effects
from kernelrt.jit.forms import RANDOM_STATE, constant_text, form_of, plain
from kernelrt.jit.function import JitFunction
from kernelrt.jit.signature import Array, Float, Static
from kernelrt.runtime.image import ModelFunction, Port, State, image
from kernelrt.tensor import Tensor
from kernelrt.tensor.rng.stream import default_generator
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.atomic_file import destination, writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kernelrt.jit.signature import Spec
    from kernelrt.jit.specializations import Variant

__all__ = ["content", "save", "save_one"]


def save(
    path: str | os.PathLike[str],
    /,
    *others: object,
    **functions: JitFunction[Any] | tuple[Any, ...],
) -> None:
    """Save jitted functions and their state to a file that runs without Python or a compiler.

    The file holds machine code for the processor that ``KERNELRT_TARGET`` names (by default this
    one), and the present values of all state that the functions read or update: parameters, moments
    of optimizers, random state. Functions that share state here share it in the file. For example,
    a prediction function sees what a training step in the same file learns.

    The file keeps Python values as they were during tracing, such as the mode of a module. Pass
    numbers that change as float arguments or arrays.

    Parameters
    ----------
    path : str or path
        File to write. It is replaced only when the new file is complete.
    *others : object
        Must be empty, because functions are passed as keyword arguments.
    **functions : JitFunction, or tuple of JitFunction and arguments
        Functions to save; each keyword is the name of the function in the file. A jitted function
        is saved with all plans that it has made so far; ``(function, *arguments)`` saves the plan
        for these arguments.

    Raises
    ------
    ModelFileError
        A function has no plan, or its next call would trace it again. Or it calls Python or C
        functions of this process, or takes or returns values that are neither tensors nor plain
        values.
    OSError
        The file cannot be written.

    See Also
    --------
    kernelrt.load : Open the file.

    Examples
    --------
    >>> import tempfile
    >>> total = krt.zeros(2)
    >>> @krt.jit
    ... def add(x):
    ...     total.assign(total + x)
    ...     return total
    >>> @krt.jit
    ... def mean(n):
    ...     return total / n
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     krt.save(f"{folder}/sums.krt", add=(add, np.ones(2, np.float32)), mean=(mean, 2.0))
    ...     model = krt.load(f"{folder}/sums.krt")
    >>> _ = model.add(np.array([1, 2], np.float32))
    >>> model.mean(2.0).tolist()
    [0.5, 1.0]
    """
    forbid("save()")
    if others or not isinstance(path, str | os.PathLike):
        raise DTypeError(
            "save: expected a path, and jitted functions by name, as in "
            "kernelrt.save('net.krt', predict=(predict, x)); kernelrt.nn.save writes state dicts "
            "and tensors"
        )
    target = destination(path)
    _write(target, content(functions))


def content(functions: Mapping[str, JitFunction[Any] | tuple[Any, ...]]) -> list[bytes]:
    """Return the parts of the file that :func:`save` writes.

    Parameters
    ----------
    functions : mapping of str to JitFunction or tuple
        As for :func:`save`.
    """
    if not functions:
        raise ModelFileError("functions: expected at least one jitted function to save")
    found = [pair for name, given in functions.items() for pair in _variants(name, given)]
    return _content(found)


def save_one(
    path: str | os.PathLike[str],
    function: JitFunction[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Save one function under its own name, as :meth:`JitFunction.save` does."""
    forbid(f"{function.name}.save()")
    target = destination(path)
    if args or kwargs:
        variants = [(function.name, function, function._specialized(args, kwargs))]
    else:
        variants = _variants(function.name, function)
    _write(target, _content(variants))


def _write(target: Path, parts: Sequence[bytes]) -> None:
    with writing(target) as file:
        for part in parts:
            file.write(part)


def _variants(name: str, given: object) -> list[tuple[str, JitFunction[Any], Variant]]:
    """Return the plans to save for a function: (name, function, plan)."""
    function, *arguments = given if isinstance(given, tuple) else (given,)
    if not isinstance(function, JitFunction):
        raise DTypeError(
            f"{name}: expected a function made by kernelrt.jit, or a tuple of one and its "
            f"arguments, not {a_type(function)}"
        )
    if isinstance(given, tuple):
        return [(name, function, function._specialized(tuple(arguments), {}))]
    variants = function._order
    if not variants and not [*function._parameters.passed_either_way()]:
        variants = [function._specialized((), {})]
    if not variants:
        raise ModelFileError(
            f"{name}: {function.name} has not been called, so there is no plan to save; call it "
            f"once, or pass example arguments, as in {name}=({function.name}, x)"
        )
    return [(name, function, variant) for variant in variants]


def _content(found: Sequence[tuple[str, JitFunction[Any], Variant]]) -> list[bytes]:
    functions, texts = [], []
    for name, function, variant in found:
        _check_repeats(name, variant)
        variant.pending()
        variant.traced.watch.before()  # puts gradients where the plan reads them
        functions.append(_function(name, variant))
        texts.append(_description(name, function, variant))
    states = _states([function for _, function, _ in found], functions)
    return image(functions, states, json.dumps({"functions": texts}))


def _check_repeats(name: str, variant: Variant) -> None:
    """Raise ModelFileError if the next call would need another plan."""
    watch = variant.traced.watch
    if watch.once:
        raise ModelFileError(
            f"{name}: the plan fits one call only: {watch.differs()}; make this change outside of "
            "the function"
        )
    if not watch.repeats():
        raise ModelFileError(
            f"{name}: the function finds no gradients in its first call and finds some in the "
            "next, so one plan does not fit both; call zero_grad() in the function before "
            "backward(), or call the function once more before you save it"
        )


def _function(name: str, variant: Variant) -> ModelFunction:
    plan, traced = variant.plan, variant.traced
    inputs = []
    for leaf, spec, home, sites in zip(
        variant.call.leaves, variant.specs, traced.homes, variant.replays.input_sites(), strict=True
    ):
        if isinstance(spec, Static):
            inputs.append(Port(leaf, None, constant=constant_text(f"{name}: {leaf}", spec.value)))
        else:
            shape = spec.shape if isinstance(spec, Array) else ()
            assert home is not None
            inputs.append(
                Port(leaf, home.dtype, shape, home, isinstance(spec, Float), sites=sites)
            )
    outputs = [
        Port(label, node.dtype, node.shape, buffer, sites=sites)
        for label, node, buffer, sites in zip(
            traced.result_names, traced.nodes, plan.output_buffers,
            variant.replays.output_sites(), strict=True,
        )
    ]  # fmt: skip
    return ModelFunction(name, plan, inputs, outputs)


def _description(name: str, function: JitFunction[Any], variant: Variant) -> dict[str, Any]:
    """Return the signature of a plan as JSON data, for calls from Python."""
    call, result = variant.call, variant.traced.result
    return {
        "parameters": [*function._parameters.passed_either_way()],
        "names": [*call.names],
        "keywords": [*call.keywords],
        "arguments": form_of(call.template, name),
        "inputs": [_spec(spec) for spec in variant.specs],
        "result": form_of(result.template, name),
        "fixed": [
            None if is_tensor else [plain(f"{name}: result", value)]
            for is_tensor, value in result.fixed
        ],
    }


def _spec(spec: Spec) -> dict[str, Any]:
    """Return an argument's spec as JSON data, without sizes, which are elsewhere in the file."""
    if isinstance(spec, Float):
        return {"kind": "float"}
    if isinstance(spec, Static):
        return {"kind": "constant"}
    axes = [
        [axis, dim.arg[0]] for axis, dim in enumerate(spec.shape)
        if isinstance(dim, UOp) and dim.op is Op.VAR
    ]  # fmt: skip
    return {"kind": "array", "ndim": len(spec.shape), "variables": axes}


def _states(
    functions: Iterable[JitFunction[Any]], saved: Sequence[ModelFunction]
) -> list[State]:
    """Return the state of some plans that has names in Python."""
    homes = {byte_range_of(p.buffer) for f in saved for p in f.inputs if p.buffer is not None}
    given = {
        here for f in saved for here, is_given in f.plan.ranges() if is_given and here not in homes
    }
    found: dict[Any, State] = {}
    taken: set[str] = set()
    for name, part in zip(RANDOM_STATE, default_generator._parts(), strict=True):
        if part._buffer is not None and (here := byte_range_of(part._buffer)) in given:
            found[here] = State(_unused(name, taken), part._buffer, (part._buffer.size,))
    for function in functions:
        around = side_effects.OuterState(("", function.__wrapped_function__))
        for path, tensor in sorted(around.reached((Tensor,)), key=lambda pair: _rank(pair[0])):
            if not isinstance(tensor, Tensor):
                continue
            buffer = tensor._buffer
            if buffer is None or not buffer.nbytes:
                continue
            here = byte_range_of(buffer)
            if here in given and here not in found:
                name = _unused(_name_of(path), taken)
                shape = tuple(int(size) for size in tensor.shape)
                found[here] = State(name, buffer, shape)
    return list(found.values())


def _rank(path: str) -> tuple[bool, str]:
    """Sort public names before private ones."""
    return "._" in path, path


def _name_of(path: str) -> str:
    """Return the name of state at a path in Python, in the style of state dicts.

    For example, ``.net._layers['0'].weight`` becomes ``net.0.weight``, and ``.self.head.weight``
    becomes ``head.weight``, whether the model or its method was jitted.
    """
    keys = re.sub(r"\[['\"]?([^\]'\"]*)['\"]?\]", r".\1", path)
    parts = filter(None, re.sub(r"(^|\.)_layers\b", "", keys).replace("._", ".").split("."))
    return ".".join(parts).removeprefix("self.")


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name
