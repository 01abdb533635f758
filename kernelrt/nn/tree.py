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

#: Name of a module attribute that lists the non-persistent buffers (not part of state dicts).
TRANSIENT = "_transient"
#: Name of a class attribute. If it is true, ``state_dict`` of the class returns the tensors that
#: the traversal finds, and other state.
KEEPS_MORE = "_keeps_more"
#: Name of a module attribute: options for parameters that a lazy module has not created yet.
UNMADE = "_unmade"

_LEAVES = (
    Tensor, types.NoneType, str, int, float, bytes, bytearray, complex, range,
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
)  # fmt: skip


class Branch(Protocol):
    """An object with ``tree_items``, which the traversal calls instead of reading attributes."""

    def tree_items(self) -> Iterable[tuple[str, object]]:
        """Return (name, value) pairs; values may be tensors, modules, lists, dicts."""


def named_objects(
    root: object, prefix: str = "", *, outside: type | None = None
) -> Iterator[tuple[str, object]]:
    """Yield every object reachable from `root` with its dotted name, in order of declaration.

    The traversal follows attributes, items of lists and tuples, and values of dicts. It does not
    enter classes, functions, Python modules and objects without ``__dict__``. An object that
    contains itself is entered once on each path. Instances of the class `outside` are skipped,
    except `root`.
    """
    above: set[int] = set()
    stack: list[tuple[str | None, object]] = [(prefix, root)]
    while stack:
        name, value = stack.pop()
        if name is None:  # everything inside this object was visited
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
    """Yield (name, child) for each object directly in `value`."""
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
    """Sort attributes: parameters first, then other tensors, then everything else, as PyTorch."""
    return sorted(attributes, key=lambda item: _rank(item[1]))


def _rank(value: object) -> int:
    if not isinstance(value, Tensor):
        return 2
    return 0 if is_parameter(value) else 1


def named_tensors(
    root: object, prefix: str = "", *, outside: type | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor reachable from `root` with its dotted name.

    A tensor that is reachable under several names is yielded several times. Instances of the class
    `outside` are not entered, except `root`.

    Raises
    ------
    StateError
        A lazy module has not created its parameters yet.
    """
    for name, value in named_objects(root, prefix, outside=outside):
        if isinstance(value, Tensor):
            yield name, value
        else:
            _check_made(name, value)


def _check_made(name: str, value: object) -> None:
    if UNMADE in getattr(value, "__dict__", ()):
        raise StateError(
            f"{name or 'module'}: {type(value).__name__} has no parameters yet, because it creates "
            "them in its first call; call the module once with an input"
        )


_F = TypeVar("_F", bound=Callable[..., Any])

#: Methods that return or load exactly the tensors that the traversal of an object finds.
_WALKING: Final[set[object]] = set()
#: Methods that return or load other state, and do not call :func:`kernelrt.nn.state_dict` or
#: :func:`kernelrt.nn.load_state_dict` for the object itself.
_COMPLETE: Final[set[object]] = set()


class _Asked(threading.local):
    """The objects whose own ``state_dict`` or ``load_state_dict`` this thread is running."""

    def __init__(self) -> None:
        self.ids: set[int] = set()


_asked = _Asked()


class asking:  # noqa: N801 - used as a statement
    """Context in which nn functions traverse an object instead of calling its own methods."""

    def __init__(self, value: object) -> None:
        self._id = id(value)

    def __enter__(self) -> None:
        _asked.ids.add(self._id)

    def __exit__(self, *args: object) -> None:
        _asked.ids.discard(self._id)


def walks(method: _F) -> _F:
    """Mark a ``state_dict`` or ``load_state_dict`` that only traverses the object."""
    _WALKING.add(method)
    return method


def completes(method: _F) -> _F:
    """Mark a ``state_dict`` or ``load_state_dict`` method that does not call the nn function.

    The nn function is :func:`kernelrt.nn.state_dict` or :func:`kernelrt.nn.load_state_dict`.
    Methods of users may call it with the object itself; then it traverses the object.
    """
    _COMPLETE.add(method)
    return method


def is_complete(value: object) -> bool:
    """Return whether nn.state_dict may return what the object's own method returns.

    See :func:`completes`.
    """
    method = getattr(type(value), "state_dict", None)
    return method in _COMPLETE or (method in _WALKING and not _only_walks(type(value), method))


def defines(value: object, name: str) -> bool:
    """Return whether a class has a method of this name that does more than traverse the object."""
    method = getattr(type(value), name, None)
    return method is not None and not _only_walks(type(value), method)


def _only_walks(kind: type, method: object) -> bool:
    return method in _WALKING and not getattr(kind, KEEPS_MORE, False)


def _walked(value: object) -> bool:
    """Return whether the class of an object, or a base class, has a marked ``state_dict``.

    :func:`walks` marks such methods.
    """
    return any(vars(kind).get("state_dict") in _WALKING for kind in type(value).__mro__)


def own_state(value: object) -> Mapping[str, object] | None:
    """Return the result of an object's own ``state_dict``, or None if its class defines none."""
    if not defines(value, "state_dict") or id(value) in _asked.ids:
        return None
    with asking(value):
        found = cast("Any", value).state_dict()
    return found if isinstance(found, Mapping) else None


#: (name, object, state) of objects whose class defines a ``state_dict`` of its own.
_Kept = list[tuple[str, object, "dict[str, Tensor]"]]


def _keepers(objects: Iterable[tuple[str, object]], root: object, *, ask_root: bool) -> _Kept:
    """Return the outermost objects whose own ``state_dict`` returns tensors only.

    An object whose ``state_dict`` returns other values, as that of a schedule does, is traversed.
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
    """Return whether :func:`own_state` may find a state for objects of a class."""
    method = getattr(kind, "state_dict", None)
    return (
        method is not None and not _only_walks(kind, method) and not issubclass(kind, _LEAVES)
    )


def found_state(
    root: object, prefix: str = "", *, ask_root: bool = False
) -> tuple[dict[str, Tensor], _Kept]:
    """Return every tensor by name, and the objects that have a state dict of their own.

    Parameters
    ----------
    root : object
        Object to search.
    prefix : str
        Prefix of each name, joined by a dot.
    ask_root : bool
        Whether the ``state_dict`` of `root` itself may be called.
    """
    objects = [*named_objects(root, prefix)]
    kept = _keepers(objects, root, ask_root=ask_root)
    inside = tuple(f"{name}." if name else "" for name, _, _ in kept)
    left_out: set[str] = set()
    found: dict[str, Tensor] = {}

    def put(name: str, tensor: Tensor) -> None:
        if found.setdefault(name, tensor) is not tensor:
            raise StateError(
                f"state: two tensors have the name {name!r}, because a name joins keys with dots, "
                "as in {'a.b': x, 'a': {'b': y}}; rename one of the keys"
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
    """Raise StateError for a module without parameters yet, or with state that is not saved."""
    _check_made(name, value)
    if hasattr(type(value), "get_extra_state") and _walked(value):
        raise StateError(
            f"{name or 'module'}: {type(value).__name__} defines get_extra_state, which state "
            "dicts ignore; keep a tensor as an attribute, which makes it part of the state, or "
            "define state_dict and load_state_dict"
        )


def tensors_by_name(
    root: object, prefix: str = "", *, ask_root: bool = False
) -> dict[str, Tensor]:
    """Return every tensor reachable from `root` by its dotted name, except non-persistent buffers.

    Parameters
    ----------
    root, prefix, ask_root
        As in :func:`found_state`.

    Raises
    ------
    StateError
        Two tensors have the same name, a lazy module has no parameters yet, or a class defines
        ``get_extra_state``.
    """
    return found_state(root, prefix, ask_root=ask_root)[0]


def named_parameters(root: object, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) for each parameter in `root`, each once; see :func:`parameters`.

    Parameters
    ----------
    root : object
        A module, or any object, list, tuple or dict.
    prefix : str, default ""
        Prefix of each name, joined by a dot.

    Raises
    ------
    StateError
        A lazy layer has not created its parameters yet.

    Examples
    --------
    >>> heads = [krt.nn.Linear(4, 2), krt.nn.Linear(4, 3, bias=False)]
    >>> [name for name, _ in krt.nn.named_parameters(heads, "heads")]
    ['heads.0.weight', 'heads.0.bias', 'heads.1.weight']
    """
    seen: dict[int, Tensor] = {}
    for name, tensor in named_tensors(root, prefix):
        if id(tensor) not in seen and is_parameter(tensor):
            seen[id(tensor)] = tensor
            yield name, tensor


def made_parameters(root: object) -> list[Tensor]:
    """Return the existing parameters in `root`; lazy modules may have none yet."""
    found = (value for _, value in named_objects(root) if isinstance(value, Tensor))
    return list({id(tensor): tensor for tensor in found if is_parameter(tensor)}.values())


def parameters(root: object) -> list[Tensor]:
    """Return all parameters in `root`, each once, in order of declaration.

    A tensor that was created with ``requires_grad=True``, or set to require a gradient, is a
    parameter from then on, also while it is frozen with ``requires_grad_(False)``. Results of
    operations are not parameters.

    Parameters
    ----------
    root : object
        A module, or any object, list, tuple or dict.

    Returns
    -------
    list of Tensor
        The parameters themselves, as an optimizer takes them.

    Raises
    ------
    StateError
        A lazy layer has not created its parameters yet.

    Examples
    --------
    >>> from kernelrt import nn
    >>> model = {"encoder": nn.Linear(4, 8), "heads": [nn.Linear(8, 2), nn.Linear(8, 3)]}
    >>> len(nn.parameters(model))
    6
    """
    return [tensor for _, tensor in named_parameters(root)]
