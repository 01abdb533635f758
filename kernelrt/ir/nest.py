"""Structure of nested dicts, lists and tuples (a pytree), comparable and hashable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelrt.errors import ShapeError, a_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LEAF", "NOTHING", "Nest"]


@dataclass(frozen=True, slots=True, repr=False)
class Nest:
    """The structure of a container without its leaves, or of a leaf.

    Attributes
    ----------
    kind : type or None
        Type of the container: dict, list, tuple or a named tuple; None for a leaf.
    keys : tuple
        Keys of a dict, in its order.
    parts : tuple of Nest
        Structures of the container's items.
    """

    kind: type | None = None
    keys: tuple[object, ...] = ()
    parts: tuple[Nest, ...] = ()

    @classmethod
    def of(cls, value: object, is_leaf: Callable[[object], bool]) -> Nest:
        """Return the structure of `value`; a value for which `is_leaf` is true is a leaf."""
        if is_leaf(value) or not isinstance(value, dict | list | tuple):
            return LEAF
        children = value.values() if isinstance(value, dict) else value
        keys = tuple(value) if isinstance(value, dict) else ()
        return cls(type(value), keys, tuple(cls.of(child, is_leaf) for child in children))

    def leaves(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Yield (name, leaf) for the leaves of a value with this structure, in order.

        The keys of a dict may have any order. Lists and tuples are interchangeable.

        Raises
        ------
        ShapeError
            The value has another structure.
        """
        if self.kind is None:
            yield name, value
            return
        if issubclass(self.kind, dict):
            if not isinstance(value, dict) or {*value} != {*self.keys}:
                found = (
                    f"the keys {', '.join(sorted(map(repr, value)))}"
                    if isinstance(value, dict) else _kind(value)
                )
                raise ShapeError(f"{name}: expected a dict with the nesting {self}, not {found}")
            for key, part in zip(self.keys, self.parts, strict=True):
                yield from part.leaves(value[key], f"{name}[{key!r}]")
            return
        if not isinstance(value, list | tuple) or len(value) != len(self.parts):
            found = f"{len(value)} values" if isinstance(value, list | tuple) else _kind(value)
            raise ShapeError(
                f"{name}: expected {len(self.parts)} values with the nesting {self}, not {found}"
            )
        for i, (part, child) in enumerate(zip(self.parts, value, strict=True)):
            yield from part.leaves(child, f"{name}[{i}]")

    def filled(self, leaves: Iterator[Any]) -> Any:
        """Return a value with this structure; take its leaves, in order, from `leaves`."""
        if self.kind is None:
            return next(leaves)
        kind: Any = self.kind
        children = [part.filled(leaves) for part in self.parts]
        if issubclass(kind, dict):
            return dict(zip(self.keys, children, strict=True))
        if kind is list:
            return children
        return kind(*children) if hasattr(kind, "_fields") else tuple(children)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        if issubclass(self.kind, dict):
            pairs = zip(self.keys, self.parts, strict=True)
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in pairs) + "}"
        return "(" + ", ".join(map(str, self.parts)) + ")"

    __repr__ = __str__


def _kind(value: object) -> str:
    return "None" if value is None else a_type(value)


LEAF = Nest()
#: Structure without leaves; a function with this result structure may return anything.
NOTHING = Nest(tuple)
