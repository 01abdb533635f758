"""Types of the base classes of Tensor."""

from typing import Any, Final, TypeVar

import numpy as np

from kernelrt.native.memory import BlockCache

_Handle = TypeVar("_Handle", bound=ArrayHandle)

MAX_DIMS: Final = 64
"""Maximum number of dimensions of an argument or a result."""

def touch() -> None:
    """Make each replay that depends on Python objects check its guards before its next run."""

def copy_over(pairs: list[tuple[Any, Any]], births: list[int], expected: int) -> bool:
    """Copy the data of the second handle of each pair to the first, all in one step.

    Return False, with nothing copied, if a handle has no data, the two differ in dtype or size,
    memory that is read overlaps memory that is written, or `births` is not as expected.
    """

class Roster:
    """A weak set of handles; a handle belongs to at most one.

    No Python code runs while it changes or is listed, not even of finalizers or other threads.
    """

    def add(self, handle: ArrayHandle) -> None: ...
    def discard(self, handle: ArrayHandle) -> None: ...
    def members(self) -> list[Any]:
        """Return the handles, oldest first."""
    def latest(self, most: int) -> list[Any]:
        """Return the last `most` handles that were added, newest first."""
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
    """Give handles new nodes and gradients, atomically with regard to signal handlers.

    A handle with data becomes pending; `unit` is recorded for it. Return False, with nothing done,
    if a handle in `found` no longer has the node and gradient given there, or if this thread has
    written memory more than `writes` times.
    """

def exchange(
    handle: ArrayHandle, expected: object, node: object, writes: int | None = None
) -> bool:
    """Replace the node of a handle if it still has the expected one; return whether it had.

    With `writes`, also require that this thread has not written memory more than `writes` times.
    """

def array_copy(kind: type[_Handle], array: object, cache: BlockCache) -> _Handle | None:
    """Return a handle with a copy of an array, or None if Python code must handle the array.

    The latter holds for arrays that are not plain, C-contiguous, of a supported dtype, or empty.
    """

def finish(handover: tuple[list[tuple[Any, int, int]], list[tuple[Any, Any]]]) -> None:
    """Copy bytes from addresses to handles, and set gradients of handles, in one step."""

def draw(
    key: ArrayHandle, counter: ArrayHandle, n: int, taken: list[tuple[int, int, int]]
) -> None:
    """Append the words of a key and a counter to `taken`, and increase the counter by `n`.

    No signal handler runs in between, nor before the caller can read `taken`.
    """

def undraw(
    key: ArrayHandle, counter: ArrayHandle, n: int, first_word: int, second_word: int, first: int
) -> None:
    """Undo a `draw` if nothing was drawn since."""

def become(
    handle: ArrayHandle, expected: object, leaf: object, node: object, flips: list[int]
) -> bool:
    """Make a handle a leaf, or not a leaf, if it still has the expected node; set its new node."""

def _name_mark(op: object, /) -> None:
    """Set the op of nodes with autograd tags; handles report the tags to the garbage collector."""

class Link:
    """The link of a view to the tensor whose elements it shows, its root.

    Attributes
    ----------
    root : Tensor
        Tensor with the elements. It is not a view itself.
    path : tuple
        (path of the source or None, kind, arguments): the operations from the root to the handle.
    plain : bool
        True if the view was made under no_grad, so that its node has no history.
    below : UOp
        Value of the root that `node` is computed from.
    node : UOp
        Elements of the view.
    seen : int
        Count of memory writes when the handle got its own data.
    lent : object
        Memory of the root if the data of the handle is aliased to it, else None.
    fixed : tuple of (Tensor, UOp), or None
        Index tensors on the path, with their values when the view was made, and the nodes of them
        that `node` reads.
    layout : tuple, or None
        Sizes and strides in the root; None if not computed yet.
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
    *realized* if `_address` is not None; a lazy tensor has only its `_uop`. A subclass that
    defines `__slots__ = ()` keeps results small. Results of a replay are created without calling
    `__init__`, so a subclass must not rely on it.
    """

    _uop: Any
    """Graph node, or None; this module never reads it."""

    _leaf: Any
    """Tag of a tensor that accumulates gradients, or None."""

    _link: Link | None
    """Link of a view to its root; None if the tensor is not a view."""

    _born: Any
    """Trace that created the tensor, or None (also for results of a replay)."""

    _plain: bool
    """Whether no gradient can flow into the tensor; meaningless while `_uop` is None."""

    _used: bool
    """Whether the node was handed out, so that other nodes may use it."""

    _severed: Any
    """Tag of a value whose history stayed in a jitted function, or None. If there is a `_uop`, the
    node carries the tag instead."""

    @property
    def _memory(self) -> Any:
        """Owner of the data, or None if there is no data."""
    @property
    def _hold(self) -> memoryview | None:
        """The bound export; None for a result of a replay, which owns its memory."""
    @property
    def _address(self) -> int | None: ...
    @property
    def _dtype_code(self) -> int:
        """`DType.code`; -1 if there is no data."""
    @property
    def _shape(self) -> tuple[int, ...] | None: ...
    @property
    def _nbytes(self) -> int: ...
    def _bind(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object = None,
    ) -> None:
        """Make the handle realized, with `memory` as its `_memory`.

        If `node` is given, it becomes the graph node in the same step.

        The data is that of `export`, which the handle holds: while it is bound, the owner can
        neither free nor move it.

        Raises
        ------
        ShapeError
            There are more than `MAX_DIMS` dimensions, a negative size, more bytes than an address
            can count, or another number of bytes than in `export`.
        DTypeError
            `dtype_code` is not a code of kernelrt.dtype.
        """
    def _begin(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object, plain: bool,
    ) -> None:
        """Bind as `_bind` does, unless the handle has a node by now."""
    def _copy_out(self) -> np.ndarray[Any, Any] | None:
        """Return the data as a new array; None if there is no data or it is bfloat16."""
    def _only(self) -> bool | int | float | None:
        """Return the only element; None if there is not exactly one, or it is bfloat16."""
    def _unbind(self) -> None:
        """Drop the data and the hold on their owner."""
