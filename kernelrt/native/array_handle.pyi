"""Types of what Tensor extends."""

from typing import Any, Final, TypeVar

import numpy as np

from kernelrt.native.memory import BlockCache

_Handle = TypeVar("_Handle", bound=ArrayHandle)

MAX_DIMS: Final = 64
"""The most dimensions that an argument or a result may have."""

def touch() -> None:
    """Let each replay that depends on Python objects look at them again before its next run."""

def copy_over(pairs: list[tuple[Any, Any]], births: list[int], expected: int) -> bool:
    """Copy the data of each second handle to that of the first, all of them at once.

    False, and nothing is copied, if one has no data, if the two differ in type or size, if
    something that is read lies where something is written, or if `births` are not as expected.
    """

class Roster:
    """A register of live handles, which it does not keep alive; a handle belongs to one at most.

    No Python code runs while it changes or is listed, of finalizers and other threads neither.
    """

    def add(self, handle: ArrayHandle) -> None: ...
    def discard(self, handle: ArrayHandle) -> None: ...
    def members(self) -> list[Any]:
        """The handles, oldest first."""
    def latest(self, most: int) -> list[Any]:
        """The `most` handles that were added last, the last one first."""
    def __len__(self) -> int: ...

def put_all(
    values: list[tuple[Any, Any]],
    gradients: list[tuple[Any, Any]],
    found: list[tuple[Any, Any, Any]],
    pending: dict[int, Any],
    births: list[int],
    steady: list[Any],
    units: dict[int, tuple[int, ...]],
    unit: dict[int, tuple[int, ...]],
    writes: int,
) -> bool:
    """Give handles new nodes and gradients; no signal handler sees a part of it.

    A handle with data becomes pending; `unit` is noted with those that are. Nothing happens, and
    the answer is False, where one of the handles in `found` has not the node and the gradient any
    more that stand there, or this thread has written memory more often than `writes` times.
    """

def exchange(
    handle: ArrayHandle, expected: object, node: object, writes: int | None = None
) -> bool:
    """Give a handle another node if it still has the expected one; whether that was so.

    With `writes`, only if this thread has not written memory more often.
    """

def array_copy(kind: type[_Handle], array: object, cache: BlockCache) -> _Handle | None:
    """Make a handle with a copy of an array; None where Python code has to look at it.

    That is what is no plain array in C order of a type that tensors have, or has no elements.
    """

def finish(handover: tuple[list[tuple[Any, int, int]], list[tuple[Any, Any]]]) -> None:
    """Copy (handle, address, bytes) over its data, and set (handle, gradient), in one step."""

def draw(
    key: ArrayHandle, counter: ArrayHandle, n: int, taken: list[tuple[int, int, int]]
) -> None:
    """Put the words of a key and a count into `taken`, and let the count grow by `n`.

    No signal handler comes in between, nor before the caller can see what was taken.
    """

def undraw(
    key: ArrayHandle, counter: ArrayHandle, n: int, first_word: int, second_word: int, first: int
) -> None:
    """Give back what `draw` took, if nothing was drawn since."""

def become(
    handle: ArrayHandle, expected: object, leaf: object, node: object, flips: list[int]
) -> bool:
    """Let a handle that still has the expected node be a leaf, or none, with one that says so."""

def _name_mark(op: object, /) -> None:
    """Tell the op of nodes that mark a value, whose marks handles show the collector."""

class Link:
    """How a handle shows elements of another one, its root.

    Attributes
    ----------
    root : Tensor
        The tensor that has the elements. It shows no other one itself.
    path : tuple
        (path of the source or None, kind, arguments): the operations from the root to the handle.
    plain : bool
        True if the view was made under no_grad, so that its node has no history.
    below : UOp
        The value of the root that `node` is made of.
    node : UOp
        The elements shown.
    seen : int
        How often memory had been written when the handle was given data of its own.
    lent : object
        The memory of the root where the data of the handle lie in it, else None.
    fixed : tuple of (Tensor, UOp), or None
        The indices on the path that are tensors, as they were when the view was made, and the nodes
        of them that `node` reads.
    layout : tuple, or None
        Sizes, and how far elements are apart in the root; None where they were not asked for.
    """

    root: Any
    path: tuple[Any, Any, tuple[Any, ...]]
    plain: bool
    below: Any
    node: Any
    seen: int
    lent: Any
    fixed: tuple[tuple[Any, Any], ...] | None
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None

    def __init__(
        self, root: object, path: tuple[Any, Any, tuple[Any, ...]], plain: bool, below: object,
        node: object,
    ) -> None: ...

class ArrayHandle:
    """Base class of Tensor: an optional block of realized, C-contiguous data.

    The fields are C fields, so that a replay reads them without a Python call. The handle is
    *realized* where `_address` is not None; a lazy tensor has only its `_uop`. A subclass that
    defines `__slots__ = ()` keeps results small. Results of a replay are made without calling
    `__init__`: a subclass must not rely on it for them.
    """

    _uop: Any
    """The graph node, or None; never touched by this module."""

    _leaf: Any
    """What marks a tensor that gradients are collected for, or None."""

    _link: Link | None
    """How the handle shows elements of another one; None where it has elements of its own."""

    _born: Any
    """The trace that made the tensor; None outside of any, as for results of a replay."""

    _plain: bool
    """Whether no gradient can flow into the tensor; without a meaning while `_uop` is None."""

    _used: bool
    """Whether the node was given out, for something to be made of it."""

    _severed: Any
    """What says that the history of the value stayed in a jitted function, or None. Where there is
    a `_uop`, that says it."""

    @property
    def _memory(self) -> Any:
        """Whatever owns the data, None where there are none."""
    @property
    def _hold(self) -> memoryview | None:
        """The export that was bound; None for a result of a replay, whose memory is its own."""
    @property
    def _address(self) -> int | None: ...
    @property
    def _dtype_code(self) -> int:
        """`DType.code`; -1 where there are no data."""
    @property
    def _shape(self) -> tuple[int, ...] | None: ...
    @property
    def _nbytes(self) -> int: ...
    def _bind(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object = None,
    ) -> None:
        """Make the handle realized. `memory` is what `_memory` gives from now on.

        With `node` that becomes the graph node in the same step.

        The data are the bytes of `export`, which the handle holds: as long as it is bound, who
        owns them can neither free nor move them.

        Raises
        ------
        ShapeError
            More than `MAX_DIMS` dimensions, a negative one, more bytes than an address counts, or
            not the bytes of `export`.
        DTypeError
            `dtype_code` is no code of kernelrt.dtype.
        """
    def _begin(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object, plain: bool,
    ) -> None:
        """As `_bind`, for a handle without a node; nothing happens if it has one by now."""
    def _copy_out(self) -> np.ndarray[Any, Any] | None:
        """The data as a new array; None where there are none, or they are bfloat16."""
    def _only(self) -> bool | int | float | None:
        """The one element; None where there is not one, or it is bfloat16."""
    def _unbind(self) -> None:
        """Drop the data and the hold on their owner."""
