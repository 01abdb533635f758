"""Modules as functions of their tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.ir.shape import format_shape
from kernelrt.nn import modes
from kernelrt.nn.populations import stacked_tensors
from kernelrt.nn.tree import children, named_tensors
from kernelrt.tensor import Tensor, build
from kernelrt.tensor.arguments import tensor_of
from kernelrt.tensor.base import is_parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelrt.nn.module import Module

__all__ = ["exchanged", "functional_call", "stack_module_state"]


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
    with exchanged(module, _by_tensor(module, given)):
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))


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


@contextlib.contextmanager
def exchanged(module: object, new: Mapping[int, Tensor]) -> Iterator[None]:
    """Have other tensors in the place of those of a module, by the identities of these."""
    slots = [(put, t, new[id(t)]) for put, t in _slots(module) if id(t) in new]
    try:
        for put, _, other in slots:
            put(other)
        yield
    finally:
        for put, own, _ in slots:
            put(own)


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


def _slots(root: object) -> Iterator[tuple[Callable[[Tensor], None], Tensor]]:
    """Where tensors are held: how to put another one there, and the one that is there."""
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
                yield _setter(holder, name), child


def _setter(holder: Any, name: str) -> Callable[[Tensor], None]:
    def put(tensor: Tensor) -> None:
        if isinstance(holder, dict):
            key = next(k for k in holder if str(k) == name)
            holder[key] = tensor
        elif isinstance(holder, list):
            holder[int(name)] = tensor
        elif hasattr(holder, "__dict__") and name in vars(holder):
            vars(holder)[name] = tensor  # not an assignment by the user: no plan is made anew
        else:
            raise StateError(
                f"{name}: a tensor in a {type(holder).__name__} cannot be exchanged; keep it in an "
                "attribute, a list or a dict"
            )

    return put
