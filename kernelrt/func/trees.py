"""Nested data: dicts, lists and tuples in one another, and what is in them in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["flatten", "leaves_of", "mapped", "rebuilt"]


def leaves_of(tree: object) -> Iterator[Any]:
    """What is in nested dicts, lists and tuples, in order."""
    if isinstance(tree, dict):
        for child in tree.values():
            yield from leaves_of(child)
    elif isinstance(tree, list | tuple):
        for child in tree:
            yield from leaves_of(child)
    else:
        yield tree


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same nesting with what `function` makes of each leaf."""
    if isinstance(tree, dict):
        return {key: mapped(function, child) for key, child in tree.items()}
    if isinstance(tree, list):
        return [mapped(function, child) for child in tree]
    if isinstance(tree, tuple):
        parts = [mapped(function, child) for child in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree)


def rebuilt(tree: object, leaves: Sequence[Any]) -> Any:
    """The nesting of `tree` with other leaves."""
    rest = iter(leaves)
    return mapped(lambda _: next(rest), tree)


def flatten(tree: object, like: object, name: str) -> list[Any]:
    """The leaves of `tree`, which has the nesting of `like`.

    Raises
    ------
    ShapeError
        It has not.
    """
    if _nesting(tree) != _nesting(like):
        raise ShapeError(
            f"{name}: expected nested data like {_nesting(like)}, not {_nesting(tree)}, where * is "
            "a tensor"
        )
    if isinstance(like, dict):
        assert isinstance(tree, dict)
        return [leaf for key in like for leaf in flatten(tree[key], like[key], name)]
    if isinstance(like, list | tuple):
        assert isinstance(tree, list | tuple)
        pairs = zip(tree, like, strict=True)
        return [leaf for pair in pairs for leaf in flatten(*pair, name)]
    return [tree]


def _nesting(tree: object) -> str:
    """How data is nested, in words: keys of dicts in the order of the alphabet."""
    if isinstance(tree, dict):
        keys = sorted(tree, key=repr)
        return "{" + ", ".join(f"{k!r}: {_nesting(tree[k])}" for k in keys) + "}"
    if isinstance(tree, list | tuple):
        return "(" + ", ".join(map(_nesting, tree)) + ")"
    return "*"
