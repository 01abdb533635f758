"""Pytrees: flattens nested dicts, lists, tuples and dataclasses.

None is not a leaf: it stays where it is. Two trees match if dicts have the same keys in any order;
a list matches a tuple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.errors import ShapeError
from kernelrt.ir.records import fields_of, fixed_of, is_record, record
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.signature import value_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["alike", "flatten", "is_nested", "leaves_of", "mapped", "named_leaves", "nesting",
           "rebuilt"]  # fmt: skip


def named_leaves(tree: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested data, each with its path."""
    if isinstance(tree, ArrayHandle):
        yield path, tree
    elif isinstance(tree, dict):
        for key, child in tree.items():
            yield from named_leaves(child, f"{path}[{key!r}]")
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        for key, child in zip(tree._fields, tree, strict=True):
            yield from named_leaves(child, f"{path}.{key}")
    elif isinstance(tree, list | tuple):
        for i, child in enumerate(tree):
            yield from named_leaves(child, f"{path}[{i}]")
    elif is_record(tree):
        for key in fields_of(type(tree)):
            yield from named_leaves(getattr(tree, key), f"{path}.{key}")
    elif tree is not None:
        yield path, tree


def leaves_of(tree: object) -> list[Any]:
    """Return the leaves of nested data, in order."""
    if isinstance(tree, ArrayHandle):
        return [tree]
    return [leaf for _, leaf in named_leaves(tree)]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return nested data with `function` applied to each leaf."""
    if isinstance(tree, ArrayHandle):
        return function(tree)
    if isinstance(tree, dict):
        return {key: mapped(function, child) for key, child in tree.items()}
    if isinstance(tree, list):
        return [mapped(function, child) for child in tree]
    if isinstance(tree, tuple):
        parts = [mapped(function, child) for child in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_record(tree):
        fields = [(key, mapped(function, getattr(tree, key))) for key in fields_of(type(tree))]
        return record(type(tree), [*fields, *fixed_of(tree)])
    return None if tree is None else function(tree)


def rebuilt(tree: object, leaves: Sequence[Any]) -> Any:
    """Return the nesting of `tree` with other leaves."""
    if isinstance(tree, ArrayHandle):
        return leaves[0]
    rest = iter(leaves)
    return mapped(lambda _: next(rest), tree)


def flatten(tree: object, like: object, name: str) -> list[Any]:
    """Return the leaves of `tree` in the order of `like`.

    Raises
    ------
    ShapeError
        `tree` is not nested like `like`.
    """
    if not alike(tree, like):
        raise ShapeError(
            f"{name}: expected the nesting {nesting(like)}, not {nesting(tree)}, where * is a "
            "tensor"
        )
    return list(_in_order(tree, like))


def _in_order(tree: Any, like: Any) -> Iterator[Any]:
    if isinstance(like, dict):
        for key, child in like.items():
            yield from _in_order(tree[key], child)
    elif isinstance(like, list | tuple):
        for child, other in zip(tree, like, strict=True):
            yield from _in_order(child, other)
    elif is_record(like):
        for key in fields_of(type(like)):
            yield from _in_order(getattr(tree, key), getattr(like, key))
    elif like is not None:
        yield tree


def alike(one: object, other: object) -> bool:
    """Return whether two trees have the same nesting."""
    if isinstance(one, ArrayHandle) and isinstance(other, ArrayHandle):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if is_record(one) and type(one) is type(other):
        same = all(alike(getattr(one, k), getattr(other, k)) for k in fields_of(type(one)))
        return same and value_key(fixed_of(one)) == value_key(fixed_of(other))
    differ = is_nested(one) or is_nested(other)
    return not differ and (one is None) == (other is None)


def is_nested(value: object) -> bool:
    """Return whether a value is a container of leaves."""
    return isinstance(value, dict | list | tuple) or is_record(value)


def nesting(tree: object) -> str:
    """Describe the nesting of a tree; keys of dicts are sorted."""
    if isinstance(tree, dict):
        keys = sorted(tree, key=repr)
        return "{" + ", ".join(f"{k!r}: {nesting(tree[k])}" for k in keys) + "}"
    if isinstance(tree, list | tuple):
        return "(" + ", ".join(map(nesting, tree)) + ")"
    if is_record(tree):
        fields = [f"{k}={nesting(getattr(tree, k))}" for k in fields_of(type(tree))]
        fields += [f"{k}={value!r}" for k, value in fixed_of(tree)]
        return f"{type(tree).__name__}({', '.join(fields)})"
    return "None" if tree is None else "*"
