"""Flatten arguments and results of traced functions to lists of leaves.

A *leaf* is a value that is not a list, tuple, dict or dataclass. A *template* is the structure of
nested containers without their leaves (a pytree definition in JAX): it can be compared, hashed,
and filled with leaves again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.dlpack import REFUSALS, kind_name
from kernelrt.dtype import DType
from kernelrt.errors import DTypeError, JitError, KernelrtError, a_type
from kernelrt.ir.shape import format_shape
from kernelrt.native.signature import plain_scalar, value_key
from kernelrt.tensor import Tensor, views
from kernelrt.tensor.free_functions.creation import refuse_masked
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.ir import Dim, records
    from kernelrt.native.signature import Structure
else:
    records = Module("kernelrt.ir.records")

__all__ = ["Array", "Float", "Node", "Spec", "Static", "Template", "differences", "flatten",
           "flatten_arguments", "normalize", "short", "spec_of"]  # fmt: skip

MOST_LEVELS: Final = 50
"""Maximum nesting depth of arguments that C code flattens."""

MOST_NESTED: Final = 5000
"""Maximum nesting depth of arguments and results: names of leaves grow with the depth."""


# ---- containers


@dataclass(frozen=True, slots=True)
class Node:
    """A container of `size` children.

    Attributes
    ----------
    kind : type
        Type of the container.
    size : int
        Number of children.
    keys : tuple
        Keys of a dict, or names of the dataclass fields that hold children.
    fixed : tuple of (str, object)
        Static fields of a dataclass, by name.
    key : tuple
        Comparison key of `keys` and `fixed`.
    """

    kind: type
    size: int
    keys: tuple[object, ...] = field(default=(), compare=False)
    fixed: tuple[tuple[str, object], ...] = field(default=(), compare=False)
    key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", value_key((self.keys, self.fixed)))

    @property
    def is_record(self) -> bool:
        """Whether it is a dataclass."""
        return not issubclass(self.kind, dict | list | tuple)


@dataclass(frozen=True, slots=True)
class Template:
    """Nested containers without their leaves, in prefix order."""

    nodes: tuple[Node | None, ...]

    @property
    def flat(self) -> bool:
        """Whether this is a plain tuple of leaves."""
        return (
            self.nodes[0] is not None
            and self.nodes[0].kind is tuple
            and len(self.nodes) == self.nodes[0].size + 1
        )

    @property
    def single(self) -> bool:
        """Whether this is a single leaf."""
        return self.nodes == (None,)

    @property
    def structure(self) -> Structure | None:
        """The template as nested tuples for matching in C; None if it is too deep."""
        built: list[tuple[int, Structure | None]] = []
        for node in reversed(self.nodes):
            if node is None:
                built.append((0, None))
                continue
            children = [built.pop() for _ in range(node.size)]
            depth = 1 + max((level for level, _ in children), default=0)
            if depth > MOST_LEVELS:
                return None
            keys: tuple[object, ...] | None = node.keys if node.kind is dict else None
            if node.is_record:
                keys = node.keys, node.fixed
            built.append((depth, (node.kind, keys, tuple(child for _, child in children))))
        return built[0][1]

    def fill(self, leaves: Sequence[object]) -> Any:
        """Return the nested containers with `leaves` in them."""
        remaining = iter(reversed(leaves))
        built: list[object] = []
        for node in reversed(self.nodes):
            if node is None:
                built.append(next(remaining))
                continue
            children = [built.pop() for _ in range(node.size)]
            built.append(_container(node, children))
        return built[0]


def _container(node: Node, children: list[object]) -> object:
    if node.kind is dict:
        return dict(zip(node.keys, children, strict=True))
    if node.is_record:
        names = cast("tuple[str, ...]", node.keys)
        own = zip(names, children, strict=True)
        return records.record(node.kind, [*own, *node.fixed])
    if hasattr(node.kind, "_fields"):
        return node.kind(*children)
    return node.kind(children)


def flatten(value: object, name: str) -> tuple[Template, list[tuple[str, object]]]:
    """Flatten nested lists, tuples (also named tuples), dicts and dataclasses.

    Returns
    -------
    template : Template
        The structure without the leaves.
    leaves : list of (str, object)
        The leaves, each with a name such as ``batch[0]["x"]``.
    """
    nodes, leaves = _walk([(name, value)])
    return Template(tuple(nodes)), leaves


def flatten_arguments(
    named: Sequence[tuple[str, object]],
) -> tuple[Template, list[tuple[str, object]]]:
    """Flatten a tuple of named items, as :func:`flatten` does."""
    nodes, leaves = _walk(list(reversed(named)))
    return Template((Node(tuple, len(named)), *nodes)), leaves


class _End:
    """Stack marker below the items of a container: when popped, all items were visited."""

    __slots__ = ("container",)

    def __init__(self, container: int) -> None:
        self.container = container


def _walk(
    stack: list[tuple[str, object]],
) -> tuple[list[Node | None], list[tuple[str, object]]]:
    nodes: list[Node | None] = []
    leaves: list[tuple[str, object]] = []
    above: set[int] = set()
    depth = 0
    while stack:
        path, item = stack.pop()
        kind = type(item)
        if kind is _End:
            assert isinstance(item, _End)
            above.discard(item.container)
            depth -= 1
            continue
        # Most types are not dataclasses: skip the call (and import) of `records` for them.
        holds = hasattr(kind, "__dataclass_fields__") and records.is_record(item)
        if kind in (list, dict) or holds:
            # Every cycle passes through a container of one of these types.
            if id(item) in above:
                raise JitError(
                    f"{path}: the {kind.__name__} contains itself; expected nested lists, tuples "
                    "and dicts without cycles"
                )
            above.add(id(item))
        if kind in (list, dict) or isinstance(item, tuple) or holds:
            depth += 1
            if depth > MOST_NESTED:
                raise JitError(
                    f"{path[:40]}...: lists, tuples and dicts are nested more than {MOST_NESTED} "
                    "deep; flatten them"
                )
            stack.append((path, _End(id(item))))
        if kind is dict:
            assert isinstance(item, dict)
            keys = tuple(item)
            nodes.append(Node(dict, len(keys), keys))
            stack.extend((f"{path}[{key!r}]", item[key]) for key in reversed(keys))
        elif kind in (tuple, list) or (isinstance(item, tuple) and hasattr(kind, "_fields")):
            assert isinstance(item, tuple | list)
            # Reads the stored items even if the class overrides __iter__, as a replay does.
            parts = tuple(tuple.__iter__(item)) if isinstance(item, tuple) else tuple(item)
            nodes.append(Node(kind, len(parts)))
            fields: Sequence[str] = getattr(kind, "_fields", ())
            paths = [f"{path}.{f}" for f in fields] or [f"{path}[{i}]" for i in range(len(parts))]
            stack.extend(reversed(list(zip(paths, parts, strict=True))))
        elif holds:
            names = records.fields_of(kind)
            nodes.append(Node(kind, len(names), names, _fixed(path, item)))
            stack.extend((f"{path}.{n}", getattr(item, n)) for n in reversed(names))
        else:
            nodes.append(None)
            leaves.append((path, item))
    return nodes, leaves


def _fixed(path: str, item: object) -> tuple[tuple[str, object], ...]:
    """Return the static fields of a dataclass; raise JitError if one is not hashable."""
    found: tuple[tuple[str, object], ...] = records.fixed_of(item)
    for name, value in found:
        try:
            hash(value_key(value))
        except TypeError:
            raise JitError(
                f"{path}.{name}: a static field holds {a_type(value)}, which is not "
                "hashable; use a tuple, a string or a number, or make the field non-static"
            ) from None
    return found


# ---- leaves


@dataclass(frozen=True, slots=True)
class Array:
    """An array; its dtype and shape are part of the signature."""

    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name} {format_shape(self.shape)}"


@dataclass(frozen=True, slots=True)
class Float:
    """A Python float: an input of shape () whose value may differ in each call."""

    def __str__(self) -> str:
        return "float"


class Static:
    """A value that is a constant of the traced program; another value needs another plan."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return NotImplemented
        a, b = self.value, other.value
        return a is b or (self.by_value and value_key(a) == value_key(b))

    def __hash__(self) -> int:
        return hash(value_key(self.value)) if self.by_value else id(self.value)

    def __str__(self) -> str:
        return repr(self.value) if self.by_value else type(self.value).__name__

    @property
    def by_value(self) -> bool:
        """Whether the value is compared by equality. Otherwise it is compared by identity."""
        return type(self.value) is float or isinstance(self.value, _BY_VALUE)

    __repr__ = __str__


Spec: TypeAlias = Array | Float | Static
_PLAIN: Final = frozenset("?bBhHiIlLqQefd")
"""NumPy's type codes of the arrays that need no conversion."""
_BY_VALUE = (int, str, bytes, type(None), DType, enum.Enum)


def normalize(name: str, leaf: object) -> Any:
    """Return `leaf` as a realized Tensor, a NumPy array, a float, or a static value.

    Raises
    ------
    JitError
        `leaf` is none of these and does not expose memory.
    DTypeError
        kernelrt has no dtype for the elements.
    """
    if type(leaf) is np.ndarray and leaf.dtype.char in _PLAIN and leaf.dtype.isnative:
        return leaf
    if isinstance(leaf, Tensor):
        if leaf._link is not None:
            leaf = views.argument(leaf)
        if not leaf.is_realized:
            leaf.realize()
        return leaf
    if type(leaf) is float or isinstance(leaf, _BY_VALUE):
        return leaf
    if isinstance(leaf, np.generic):
        plain = plain_scalar(leaf)
        return _refuse(name, leaf) if plain is leaf else plain
    if isinstance(leaf, np.ndarray):
        return _plain_array(name, leaf)
    if isinstance(leaf, float):
        return float(leaf)
    if callable(leaf):
        return leaf  # a module or a function: the closure walk finds its state
    return _from_memory(name, leaf)


def _plain_array(name: str, array: np.ndarray[Any, Any]) -> Any:
    refuse_masked(array, name)
    if array.dtype.name == "bfloat16":
        return Tensor._over(Buffer.wrap(np.ascontiguousarray(array)), array.shape)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    dt.from_numpy(array.dtype, name)
    return np.asarray(array)


def _from_memory(name: str, leaf: object) -> Any:
    try:
        buffer = Buffer.wrap(leaf)
    except KernelrtError:
        try:
            array = np.asarray(leaf) if hasattr(leaf, "__array__") else np.from_dlpack(leaf)  # type: ignore[arg-type]
        except AttributeError:
            return _refuse(name, leaf)
        except REFUSALS as error:
            if not hasattr(leaf, "__array__") and not hasattr(leaf, "__dlpack__"):
                return _refuse(name, leaf)
            raise DTypeError(
                f"{name}: {kind_name(leaf)} cannot be converted to an array: {error}"
            ) from None
        return _plain_array(name, array)
    shape = getattr(leaf, "shape", None)
    shape = (buffer.size,) if shape is None else tuple(int(size) for size in shape)
    if buffer.dtype is dt.bfloat16:
        return Tensor._over(buffer, shape)
    return buffer.numpy().reshape(shape)


def _refuse(name: str, leaf: object) -> Any:
    raise JitError(
        f"{name}: a jitted function takes no {kind_name(leaf)}; expected "
        "arrays and tensors, floats, ints, bools, strings, None, modules, and lists, tuples, "
        "dicts and dataclasses of these"
    )


def spec_of(leaf: Any, *, by_value: bool = False) -> Spec:
    """Return the spec of a normalized leaf; with `by_value`, floats are static too."""
    if isinstance(leaf, Tensor):
        return Array(leaf.dtype, leaf.dims)
    if isinstance(leaf, np.ndarray):
        return Array(dt.from_numpy(leaf.dtype), leaf.shape)
    if type(leaf) is float and not by_value:
        return Float()
    return Static(leaf)


def differences(
    names: Sequence[str], before: Sequence[Spec], after: Sequence[Spec]
) -> Iterator[str]:
    """Yield one clause for each argument that differs."""
    for name, old, new in zip(names, before, after, strict=True):
        if old == new:
            continue
        if isinstance(old, Array) and isinstance(new, Array):
            if old.dtype is new.dtype:
                yield f"{name} changed its shape from {_shape(old)} to {_shape(new)}"
            elif old.shape == new.shape:
                yield f"{name} changed its dtype from {old.dtype.name} to {new.dtype.name}"
            else:
                yield f"{name} changed from {old} to {new}"
        elif (text := str(old)) == str(new):
            yield f"{name} changed from one {text} to another"
        else:
            yield f"{name} changed from {old} to {new}"


def short(value: object, most: int = 40) -> str:
    """Return the repr of a value, truncated to `most` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _shape(spec: Array) -> str:
    return format_shape(spec.shape)
