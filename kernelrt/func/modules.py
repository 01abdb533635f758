"""Calls modules as functions of their tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import setitem
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt.errors import DTypeError, ShapeError, StateError, a_type
from kernelrt.ir.shape import format_shape
from kernelrt.nn import modes
from kernelrt.nn.populations import stacked_tensors
from kernelrt.nn.tree import children, named_tensors
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelrt.nn.module import Module

_T = TypeVar("_T")

__all__ = ["call_with", "functional_call", "stack_module_state"]


def functional_call(
    module: Callable[..., Any],
    parameters: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call a module with other tensors in place of its own.

    Parameters
    ----------
    module : Module
        Module to call. It has its own tensors again when the call returns.
    parameters : mapping of str to Tensor, or several mappings
        Replacements, by the names that ``named_parameters`` gives. A tensor without a replacement
        stays. A tensor with several names is replaced under all of them.
    args : tuple, or one argument
        Positional arguments of the call.
    kwargs : mapping, optional
        Keyword arguments of the call.

    Returns
    -------
    object
        Result of the module.

    Raises
    ------
    DTypeError
        `parameters` holds anything but Tensors.
    StateError
        The module has no tensor of a given name, or two names of one tensor are given different
        tensors.
    ShapeError
        The shape of a tensor differs from the one it replaces.

    Examples
    --------
    >>> layer = krt.nn.Linear(2, 1, bias=False)
    >>> weights = {"weight": krt.tensor([[3.0, 4.0]])}
    >>> krt.func.functional_call(layer, weights, krt.ones(2)).tolist()
    [7.0]
    """
    given: dict[str, Tensor] = {}
    for part in [parameters] if isinstance(parameters, Mapping) else parameters:
        if not isinstance(part, Mapping):
            raise DTypeError(
                f"parameters: expected names and Tensors, as in dict(module.named_parameters()), "
                f"not {type(part).__name__}"
            )
        given.update(part)
    inputs = args if isinstance(args, tuple) else (args,)
    named = kwargs or {}
    return call_with(module, _by_tensor(module, given), lambda: module(*inputs, **named))


def stack_module_state(
    models: Sequence[Module],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stack the tensors of modules of the same structure along a new first axis.

    :func:`functional_call` under :func:`kernelrt.vmap` then calls all modules at once. See
    :func:`kernelrt.nn.stack_modules` to make one module of them.

    Parameters
    ----------
    models : sequence of Module
        Modules with tensors of the same names, shapes and types.

    Returns
    -------
    tuple
        Two dicts by name: parameters, and other tensors. They are copies and leaves.

    Raises
    ------
    ShapeError
        `models` is empty.
    StateError
        Names, shapes or types of the tensors differ.

    Examples
    --------
    >>> models = [krt.nn.Linear(2, 1) for _ in range(3)]
    >>> parameters, others = krt.func.stack_module_state(models)
    >>> parameters["weight"].shape, others
    ((3, 1, 2), {})
    >>> call = lambda p, x: krt.func.functional_call(models[0], p, x)
    >>> krt.vmap(call, in_axes=(0, None))(parameters, krt.ones(5, 2)).shape
    (3, 5, 1)
    """
    found = stacked_tensors(models)
    parameters = {name: t for name, t in found.items() if is_parameter(t)}
    return parameters, {name: t for name, t in found.items() if name not in parameters}


def call_with(module: object, new: Mapping[int, Tensor], work: Callable[[], _T]) -> _T:
    """Call `work` while `new`, keyed by the ids of tensors of `module`, replaces these tensors."""
    found = ((holder, name, t) for holder, name, t in _slots(module) if id(t) in new)
    slots = [(*_container_of(holder, name), t) for holder, name, t in found]
    holders, keys = [holder for holder, _, _ in slots], [key for _, key, _ in slots]
    exchange = map(setitem, holders, keys, [new[id(t)] for _, _, t in slots])
    restore = map(setitem, holders, keys, [t for _, _, t in slots])
    try:
        deque(exchange, 0)
        return work()
    finally:
        deque(restore, 0)  # one C call, so that no interrupt divides it


def _by_tensor(module: object, given: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """Return the given tensors, keyed by the ids of the tensors that they replace."""
    own = dict(named_tensors(module))
    found: dict[int, Tensor] = {}
    first: dict[int, str] = {}
    for name, tensor in given.items():
        if name not in own:
            near = ", ".join(list(own)[:8])
            raise StateError(f"parameters: the module has no tensor {name!r}; it has {near}")
        tensor_of(tensor, name)
        if not build.same_shape(tensor.dims, own[name].dims):
            raise ShapeError(
                f"{name}: expected the shape {format_shape(own[name].dims)}, not "
                f"{format_shape(tensor.dims)}"
            )
        other = first.setdefault(id(own[name]), name)
        if found.setdefault(id(own[name]), tensor) is not tensor:
            raise StateError(
                f"{name}: the module has one tensor under the names {name} and {other}, but "
                "different tensors are given for them; give only one of the two"
            )
    return found


def _slots(root: object) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield (holder, name in the holder, tensor) for each tensor."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        holder = stack.pop()
        if isinstance(holder, Tensor) or id(holder) in seen:
            continue
        seen.add(id(holder))
        for name, child in children(holder):
            stack.append(child)
            if isinstance(child, Tensor):
                if name in getattr(holder, "__dict__", {}):
                    # A trace that reads the replacement depends on the module's own tensor.
                    modes.note(holder, name, child)
                yield holder, name, child


def _container_of(holder: Any, name: str) -> tuple[Any, Any]:
    """Return the dict or list that stores attribute or item `name` of `holder`, and its key."""
    if isinstance(holder, dict):
        return holder, next(k for k in holder if str(k) == name)
    if isinstance(holder, list):
        return holder, int(name)
    if hasattr(holder, "__dict__") and name in vars(holder):
        return vars(holder), name  # bypasses __setattr__, so that no plan is made anew
    raise StateError(
        f"{name}: a tensor in {a_type(holder)} cannot be replaced; keep it in an "
        "attribute, a list or a dict"
    )
