"""Finds tensors and modules in an object tree: attributes, lists, tuples and dicts."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

from kernelrt.errors import StateError
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter

__all__ = [
    "KEEPS_MORE", "TRANSIENT", "UNMADE", "Branch", "asking", "children", "completes", "defines",
    "found_state", "is_complete", "made_parameters", "named_objects", "named_parameters",
    "named_tensors", "own_state", "parameters", "ranked", "tensors_by_name", "walks",
]  # fmt: skip

#: The attribute of a module that names those that are not saved with it.
TRANSIENT = "_transient"
#: The attribute of a class whose ``state_dict`` walks, and has more than what is found in it.
KEEPS_MORE = "_keeps_more"
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


def named_objects(
    root: object, prefix: str = "", *, outside: type | None = None
) -> Iterator[tuple[str, object]]:
    """Every object reachable from `root`, with its dotted name, in order of declaration.

    Attributes, items of lists and tuples, and values of dicts are followed; other objects that
    keep no ``__dict__``, classes, functions and modules are not. An object that contains itself
    is entered once on each path. Those of the class `outside` are left out, but for `root`.
    """
    above: set[int] = set()
    stack: list[tuple[str | None, object]] = [(prefix, root)]
    while stack:
        name, value = stack.pop()
        if name is None:  # everything in this object was visited
            above.discard(id(value))
            continue
        if outside is not None and value is not root and isinstance(value, outside):
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


def named_tensors(
    root: object, prefix: str = "", *, outside: type | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor reachable from `root`, with its dotted name.

    A tensor that is reachable under several names comes several times. Objects of the class
    `outside` are not entered, but for `root`.

    Raises
    ------
    StateError
        A module does not have its tensors yet.
    """
    for name, value in named_objects(root, prefix, outside=outside):
        if isinstance(value, Tensor):
            yield name, value
        else:
            _check_made(name, value)


def _check_made(name: str, value: object) -> None:
    if UNMADE in getattr(value, "__dict__", ()):
        raise StateError(
            f"{name or 'module'}: {type(value).__name__} makes its parameters when it is first "
            "called, and has none before; call the module once with an input"
        )


_F = TypeVar("_F", bound=Callable[..., Any])

#: Methods that give and take the tensors of an object as they are found in it.
_WALKING: Final[set[object]] = set()
#: Methods that give and take more, and never have :func:`kernelrt.nn.state_dict` and its kin do it.
_COMPLETE: Final[set[object]] = set()


class _Asked(threading.local):
    """Of this thread: the objects that are being asked for their state, or given one."""

    def __init__(self) -> None:
        self.ids: set[int] = set()


_asked = _Asked()


class asking:  # noqa: N801 - used as a statement
    """While an object's own ``state_dict`` or ``load_state_dict`` runs, it is like any other."""

    def __init__(self, value: object) -> None:
        self._id = id(value)

    def __enter__(self) -> None:
        _asked.ids.add(self._id)

    def __exit__(self, *args: object) -> None:
        _asked.ids.discard(self._id)


def walks(method: _F) -> _F:
    """Mark the ``state_dict`` or ``load_state_dict`` of a base class."""
    _WALKING.add(method)
    return method


def completes(method: _F) -> _F:
    """Mark a ``state_dict`` or ``load_state_dict`` that functions may call for the object itself.

    Those of users may in turn call these functions, which then take what they find in the object.
    """
    _COMPLETE.add(method)
    return method


def is_complete(value: object) -> bool:
    """Whether an object's own methods are marked by :func:`completes`."""
    method = getattr(type(value), "state_dict", None)
    return method in _COMPLETE or (method in _WALKING and not _only_walks(type(value), method))


def defines(value: object, name: str) -> bool:
    """Whether an object's class has a method of this name that is not a base class's."""
    method = getattr(type(value), name, None)
    return method is not None and not _only_walks(type(value), method)


def _only_walks(kind: type, method: object) -> bool:
    return method in _WALKING and not getattr(kind, KEEPS_MORE, False)


def _walked(value: object) -> bool:
    """Whether an object's class, or a base of it, has a ``state_dict`` that walks."""
    return any(vars(kind).get("state_dict") in _WALKING for kind in type(value).__mro__)


def own_state(value: object) -> Mapping[str, object] | None:
    """What an object's ``state_dict`` gives where its class defines that; None where not."""
    if not defines(value, "state_dict") or id(value) in _asked.ids:
        return None
    with asking(value):
        found = cast("Any", value).state_dict()
    return found if isinstance(found, Mapping) else None


#: (name, object, state) of objects whose classes define a ``state_dict``.
_Kept = list[tuple[str, object, "dict[str, Tensor]"]]


def _keepers(objects: Iterable[tuple[str, object]], root: object, *, ask_root: bool) -> _Kept:
    """All that define a ``state_dict`` of tensors, the outermost ones.

    Where it gives something else too, as that of a schedule does, the object is like any other.
    """
    found: _Kept = []
    inside: tuple[str, ...] = ()
    for name, value in objects:
        if not _may_keep(type(value)) or (value is root and not ask_root):
            continue
        if name.startswith(inside):
            continue
        state = own_state(value)
        if state is not None and all(isinstance(v, Tensor) for v in state.values()):
            found.append((name, value, cast("dict[str, Tensor]", dict(state))))
            inside = (*inside, f"{name}." if name else "")
    return found


def _may_keep(kind: type) -> bool:
    """Whether objects of a class are asked for a state of their own."""
    method = getattr(kind, "state_dict", None)
    return (
        method is not None and not _only_walks(kind, method) and not issubclass(kind, _LEAVES)
    )


def found_state(
    root: object, prefix: str = "", *, ask_root: bool = False
) -> tuple[dict[str, Tensor], _Kept]:
    """Every tensor by its name, as of :func:`tensors_by_name`, and who says itself what it keeps.

    Parameters
    ----------
    root : object
        Where to look.
    prefix : str
        Put before each name, with a dot.
    ask_root : bool
        Whether `root` itself may be asked for its state.
    """
    objects = [*named_objects(root, prefix)]
    kept = _keepers(objects, root, ask_root=ask_root)
    inside = tuple(f"{name}." if name else "" for name, _, _ in kept)
    left_out: set[str] = set()
    found: dict[str, Tensor] = {}

    def put(name: str, tensor: Tensor) -> None:
        if found.setdefault(name, tensor) is not tensor:
            raise StateError(
                f"state: two tensors are called {name!r}; names join keys by dots, as texts: "
                "change one of the keys"
            )

    for name, value in objects:
        if isinstance(value, Tensor):
            if name not in left_out and not (inside and name.startswith(inside)):
                put(name, value)
        elif not isinstance(value, _LEAVES):
            _check_saveable(name, value)
            held = getattr(value, "__dict__", {}).get(TRANSIENT, ())
            left_out.update(f"{name}.{key}" if name else key for key in held)
    for name, _, state in kept:
        for key, tensor in state.items():
            put(f"{name}.{key}" if name else key, tensor)
    return found, kept


def _check_saveable(name: str, value: object) -> None:
    """Raise StateError for an object whose tensors are not there, or not all of its state."""
    _check_made(name, value)
    if hasattr(type(value), "get_extra_state") and _walked(value):
        raise StateError(
            f"{name or 'module'}: {type(value).__name__} defines get_extra_state, which state "
            "dicts do not call; keep a tensor as an attribute, which is part of the state, or "
            "define state_dict and load_state_dict"
        )


def tensors_by_name(
    root: object, prefix: str = "", *, ask_root: bool = False
) -> dict[str, Tensor]:
    """Every tensor reachable from `root` by its dotted name, but for those that are not saved.

    Parameters
    ----------
    root, prefix, ask_root
        As of :func:`found_state`.

    Raises
    ------
    StateError
        Two tensors have one name, a module has none yet, or a class defines ``get_extra_state``.
    """
    return found_state(root, prefix, ask_root=ask_root)[0]


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
