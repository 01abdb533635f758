"""Modules as functions of their tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import setitem
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt.errors import DTypeError, ShapeError, StateError
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
    """Call a module with other tensors in the place of its own.

    Parameters
    ----------
    module : Module
        What is called. It is the same as before when the call returns.
    parameters : mapping of str to Tensor, or several
        By the names that ``named_parameters`` gives; the others stay the module's own. A tensor
        that has several names is replaced under all of them.
    args : tuple, or one argument
        What it is called with.
    kwargs : mapping, optional
        Keyword arguments.

    Returns
    -------
    object
        What the module returns.

    Raises
    ------
    StateError
        A name is no tensor's of the module, or two names of one tensor are given different ones.
    ShapeError
        A tensor has another shape than the one it stands for.

    Examples
    --------
    >>> import kernelrt as krt
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
    """The tensors of modules that are alike, with the modules along a new first axis.

    With :func:`functional_call` under :func:`kernelrt.vmap` they are all called at once; see
    :func:`kernelrt.nn.stack_modules`, which makes one module of them.

    Parameters
    ----------
    models : sequence of Module
        Modules with tensors of the same names, shapes and types.

    Returns
    -------
    tuple
        Parameters and other tensors by their names, copies that are leaves.

    Raises
    ------
    ShapeError
        There are none.
    StateError
        They are not alike.
    """
    found = stacked_tensors(models)
    parameters = {name: t for name, t in found.items() if is_parameter(t)}
    return parameters, {name: t for name, t in found.items() if name not in parameters}


def call_with(module: object, new: Mapping[int, Tensor], work: Callable[[], _T]) -> _T:
    """Call `work` with other tensors in the place of those of `module`, by identities of these."""
    slots = [(*_place(holder, name), t) for holder, name, t in _slots(module) if id(t) in new]
    holders, keys = [holder for holder, _, _ in slots], [key for _, key, _ in slots]
    exchange = map(setitem, holders, keys, [new[id(t)] for _, _, t in slots])
    restore = map(setitem, holders, keys, [t for _, _, t in slots])
    try:
        deque(exchange, 0)
        return work()
    finally:
        deque(restore, 0)  # one step, which no interrupt divides


def _by_tensor(module: object, given: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The tensors by the identities of those that they stand for."""
    own = dict(named_tensors(module))
    found: dict[int, Tensor] = {}
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
        if found.setdefault(id(own[name]), tensor) is not tensor:
            raise StateError(
                f"{name}: another name of the same tensor is given another one; give one of them"
            )
    return found


def _slots(root: object) -> Iterator[tuple[Any, str, Tensor]]:
    """The holders of tensors, their names in the holders, and the tensors."""
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
                    # A trace that reads it meanwhile depends on the module's own.
                    modes.note(holder, name, child)
                yield holder, name, child


def _place(holder: Any, name: str) -> tuple[Any, Any]:
    """The dict or list that what `holder` has under `name` is an item of, and which one."""
    if isinstance(holder, dict):
        return holder, next(k for k in holder if str(k) == name)
    if isinstance(holder, list):
        return holder, int(name)
    if hasattr(holder, "__dict__") and name in vars(holder):
        return vars(holder), name  # not an assignment by the user: no plan is made anew
    raise StateError(
        f"{name}: a tensor in a {type(holder).__name__} cannot be exchanged; keep it in an "
        "attribute, a list or a dict"
    )
