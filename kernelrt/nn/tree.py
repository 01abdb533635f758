"""Finding tensors and modules in an object tree: attributes, lists, tuples and dicts."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, cast

from kernelrt.errors import StateError
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter

__all__ = [
    "TRANSIENT", "UNMADE", "Branch", "children", "made_parameters", "named_objects",
    "named_parameters", "named_tensors", "parameters", "ranked", "tensors_by_name",
]  # fmt: skip

#: The attribute of a module that names those that are not saved with it.
TRANSIENT = "_transient"
#: The attribute of a module that has no tensors yet: what is to be done with them once it has.
UNMADE = "_unmade"

_LEAVES = (
    Tensor, types.NoneType, str, int, float, bytes, bytearray, complex, range,
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
)  # fmt: skip


class Branch(Protocol):
    """An object that says itself what is in it, in place of its attributes."""

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """(name, value) pairs; values may be tensors, modules, lists, dicts."""


def named_objects(root: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every object reachable from `root`, with its dotted name, in order of declaration.

    Attributes, items of lists and tuples, and values of dicts are followed; other objects that
    keep no ``__dict__``, classes, functions and modules are not. An object that contains itself
    is entered once on each path.
    """
    above: set[int] = set()
    stack: list[tuple[str | None, object]] = [(prefix, root)]
    while stack:
        name, value = stack.pop()
        if name is None:  # everything in this object was visited
            above.discard(id(value))
            continue
        yield name, value
        if type(value) is Tensor or isinstance(value, _LEAVES) or id(value) in above:
            continue
        above.add(id(value))
        stack.append((None, value))
        start = f"{name}." if name else ""
        stack.extend((start + key, child) for key, child in reversed(list(children(value))))


def children(value: object) -> Iterator[tuple[str, object]]:
    """(name, child) for each object directly in `value`."""
    if isinstance(value, _LEAVES):
        return
    if hasattr(type(value), "tree_items"):
        yield from cast("Branch", value).tree_items()
    elif isinstance(value, Mapping):
        yield from ((str(key), child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None) or map(str, range(len(value)))
        yield from zip(names, value, strict=True)
    else:
        yield from ranked(getattr(value, "__dict__", {}).items())


def ranked(attributes: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """An object's own parameters and tensors before those of what it holds, as in PyTorch."""
    return sorted(attributes, key=lambda item: _rank(item[1]))


def _rank(value: object) -> int:
    if not isinstance(value, Tensor):
        return 2
    return 0 if is_parameter(value) else 1


def named_tensors(root: object, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor reachable from `root`, with its dotted name.

    A tensor that is reachable under several names comes several times.

    Raises
    ------
    StateError
        A module does not have its tensors yet.
    """
    for name, value in named_objects(root, prefix):
        if isinstance(value, Tensor):
            yield name, value
        elif UNMADE in getattr(value, "__dict__", ()):
            raise StateError(
                f"{name or 'module'}: {type(value).__name__} makes its parameters when it is first "
                "called, and has none before; call the module once with an input"
            )


def tensors_by_name(root: object, prefix: str = "") -> dict[str, Tensor]:
    """Every tensor reachable from `root` by its dotted name, but for those that are not saved.

    Raises
    ------
    StateError
        Two tensors have one name.
    """
    found: dict[str, Tensor] = {}
    left_out = {
        f"{name}.{key}" if name else key
        for name, value in named_objects(root, prefix)
        for key in getattr(value, "__dict__", {}).get(TRANSIENT, ())
    }
    for name, tensor in named_tensors(root, prefix):
        if name in left_out:
            continue
        if found.setdefault(name, tensor) is not tensor:
            raise StateError(
                f"state: two tensors are called {name!r}; names join keys by dots, as texts: "
                "change one of the keys"
            )
    return found


def named_parameters(root: object, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for each parameter in `root`, each tensor once; see :func:`parameters`.

    Parameters
    ----------
    root : object
        A module, or any object, list, tuple or dict.
    prefix : str
        Put before each name, with a dot.
    """
    seen: set[int] = set()
    for name, tensor in named_tensors(root, prefix):
        if id(tensor) not in seen and is_parameter(tensor):
            seen.add(id(tensor))
            yield name, tensor


def made_parameters(root: object) -> list[Tensor]:
    """The parameters that there are in `root`, also where some modules have theirs yet to make."""
    found = (value for _, value in named_objects(root) if isinstance(value, Tensor))
    return list({id(tensor): tensor for tensor in found if is_parameter(tensor)}.values())


def parameters(root: object) -> list[Tensor]:
    """All parameters in `root`, each once, in order of declaration.

    A tensor that was made to require a gradient, or told to, is a parameter from then on, also
    while it is frozen with ``requires_grad_(False)``. Results of operations are none.

    Examples
    --------
    >>> from kernelrt import nn
    >>> model = {"encoder": nn.Linear(4, 8), "heads": [nn.Linear(8, 2), nn.Linear(8, 3)]}
    >>> len(nn.parameters(model))
    6
    """
    return [tensor for _, tensor in named_parameters(root)]
