"""One level of differentiation: its inputs, and the gradients that reach them.

Each input gets a tag. Gradients of this level end at the tags; gradients of an outer
differentiation flow through them. The tags are removed from the results. So results that are
computed from tensors without an autograd history have no history, either.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.func.trees import leaves_of, mapped, rebuilt
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.autograd.gradient import Targets, pull
from kernelrt.tensor.autograd.tags import Leaf, mark, rewritten
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.ir import UOp

__all__ = ["Level", "called", "check_like", "floats_of"]


def _call_with_gradients(
    function: Callable[..., Any], args: Sequence[object], kwargs: dict[str, Any]
) -> Any:
    thread, depths = threading.get_ident(), state.differentiating
    depths[thread] = depths.get(thread, 0) + 1
    try:
        with state.enable_grad():
            return function(*args, **kwargs)
    finally:
        depths[thread] -= 1
        if not depths[thread]:
            del depths[thread]


def called(
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: dict[str, Any],
    name: str,
    has_aux: bool,
) -> tuple[Any, Any]:
    """Call a function with gradients enabled; return its output and its auxiliary output."""
    out = _call_with_gradients(function, args, kwargs)
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise DTypeError(
            f"{name}: with has_aux=True the function has to return a pair (output, aux), not "
            f"{type(out).__name__}"
        )
    return out


def floats_of(tree: object, what: str) -> list[Tensor]:
    """Return the leaves of nested data after checking that they are floating-point tensors.

    Raises
    ------
    DTypeError
        A leaf is not a tensor.
    GradientError
        A leaf has integers or bools.
    """
    found: list[Tensor] = []
    for leaf in leaves_of(tree):
        if not isinstance(leaf, Tensor):
            raise DTypeError(
                f"{what}: expected a Tensor, or dicts, lists, tuples and dataclasses of Tensors, "
                f"not {type(leaf).__name__}; convert it with kernelrt.tensor()"
            )
        if not leaf.dtype.is_float:
            raise GradientError(
                f"{what}: derivatives exist for floating types only, not {leaf.dtype.name}; cast "
                "it, as in x.float()"
            )
        found.append(leaf)
    return found


class Level:
    """One differentiation.

    Parameters
    ----------
    name : str
        Name of the function that the user called.
    """

    __slots__ = ("_bare", "_name", "_tags")

    def __init__(self, name: str) -> None:
        self._name = name
        self._bare: dict[UOp, UOp] = {}
        self._tags: list[Leaf] = []

    @classmethod
    def of(cls, name: str, nodes: Sequence[UOp]) -> Level:
        """Return a level whose inputs are nodes that are tagged already."""
        level = cls(name)
        level._tags += [node.arg for node in nodes]
        level._bare.update((node, node.src[0]) for node in nodes)
        return level

    def tagged(self, tree: Any, what: str) -> Any:
        """Return nested data with each tensor tagged."""
        return rebuilt(tree, [self._under(t) for t in floats_of(tree, what)])

    def _under(self, tensor: Tensor) -> Tensor:
        with state.enable_grad():
            bare, leaf = tensor.uop, Leaf()
            node = mark(bare, leaf)
            self._bare[node] = bare
            self._tags.append(leaf)
            return Tensor._of(node)

    def untagged(self, tree: Any) -> Any:
        """Return nested data without the tags."""
        leaves = leaves_of(tree)
        tensors = [t for t in leaves if isinstance(t, Tensor)]
        if not tensors:
            return tree
        with state.enable_grad():
            nodes = [t.uop for t in tensors]
        new = iter(zip(tensors, nodes, self.bare(nodes), strict=True))

        def bare(leaf: object) -> object:
            if not isinstance(leaf, Tensor):
                return leaf
            tensor, node, without = next(new)
            return tensor if node is without else Tensor._of(without)

        return mapped(bare, tree)

    def bare(self, nodes: Sequence[UOp]) -> list[UOp]:
        """Return nodes without the tags."""
        return rewritten(nodes, self._bare)

    def tensors(self, nodes: Sequence[UOp]) -> list[Tensor]:
        """Return tensors of nodes, without the tags."""
        return [Tensor._of(node) for node in self.bare(nodes)]

    def gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[UOp], *, hooks: bool = True
    ) -> list[UOp | None]:
        """Return the gradient of each input, or None if it is zero; the graphs contain the tags."""
        if not outputs or not self._tags:
            return [None] * len(self._tags)
        wanted = Targets(marks=frozenset(self._tags))
        with state.enable_grad():
            found = pull(list(zip(outputs, seeds, strict=True)), self._name, wanted, hooks=hooks)
        return [found.get(leaf) for leaf in self._tags]

    def with_zeros(self, nodes: Sequence[UOp | None], tensors: Sequence[Tensor]) -> list[UOp]:
        """Return `nodes` with zeros in place of None."""
        return [
            build.full(0, t.dtype, t.dims) if node is None else node
            for node, t in zip(nodes, tensors, strict=True)
        ]


def check_like(given: object, like: Tensor, what: str) -> UOp:
    """Return the node of `given` in the type of `like`.

    Raises
    ------
    ShapeError
        `given` has another shape than `like`.
    GradientError
        `given` is not of floats.
    """
    given = tensor_of(given, what)
    if not build.same_shape(given.dims, like.dims):
        raise ShapeError(
            f"{what}: expected the shape {format_shape(like.dims)}, not {format_shape(given.dims)}"
        )
    if not given.dtype.is_float:
        raise GradientError(
            f"{what}: expected a floating type, not {given.dtype.name}; cast it, as in x.float()"
        )
    with state.enable_grad():
        return given.uop.cast(like.dtype)
