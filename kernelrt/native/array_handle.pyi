"""Types of the base class of Tensor."""

from typing import Any, Final, TypeVar

import numpy as np

from kernelrt.native.memory import BlockCache

_Handle = TypeVar("_Handle", bound=ArrayHandle)

MAX_DIMS: Final = 64
"""Maximum number of dimensions of an argument or a result."""

def touch() -> None:
    """Make replays check the Python objects that they depend on again, before their next run."""

def copy_over(pairs: list[tuple[Any, Any]], births: list[int], expected: int) -> bool:
    """Copy data between handles, for all (target, source) pairs in one step.

    Return False, and copy nothing, in each of these cases: a handle is a view or has no data; the
    handles of a pair differ in dtype or size; a source overlaps the target of another pair; or
    ``births[0]`` is not `expected`.
    """

class HandleRegistry:
    """Set of live handles that does not keep them alive. A handle is in at most one registry.

    While the set changes or is listed, no Python code runs, not even a finalizer or another thread.
    """

    def add(self, handle: ArrayHandle) -> None: ...
    def discard(self, handle: ArrayHandle) -> None: ...
    def members(self) -> list[Any]:
        """Return the handles, oldest first."""
    def latest(self, most: int) -> list[Any]:
        """Return the `most` newest handles, newest first."""
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
    """Give handles new nodes and gradients in one step, which signal handlers cannot interrupt.

    A handle with data gets a pending assignment, and `unit` is added to `units`. Return False, and
    change nothing, if a handle in `found` has another node or gradient than listed there, or if
    this thread's number of writes is not `writes`.
    """

def exchange(
    handle: ArrayHandle, expected: object, node: object, writes: int | None = None
) -> bool:
    """Replace the node of a handle if it is still `expected`; return whether it was.

    If `writes` is given, also return False if this thread's number of writes is no longer `writes`.
    """

def array_copy(kind: type[_Handle], array: object, cache: BlockCache) -> _Handle | None:
    """Return a new handle with a copy of an array; None if Python code has to handle it.

    Python code handles arrays that are not plain NumPy arrays in C order, that have a dtype without
    a kernelrt type, or that have no elements.
    """

def finish(handover: tuple[list[tuple[Any, int, int]], list[tuple[Any, Any]]]) -> None:
    """Copy each (handle, address, bytes) and set each (handle, gradient), in one step."""

def draw(
    key: ArrayHandle, counter: ArrayHandle, n: int, taken: list[tuple[int, int, int]]
) -> None:
    """Append (first word, second word, count) to `taken`, and add `n` to the counter.

    Both happen in one step: a signal handler cannot run before the caller sees the result.
    """

def undraw(
    key: ArrayHandle, counter: ArrayHandle, n: int, first_word: int, second_word: int, first: int
) -> None:
    """Undo a call of :func:`draw`, if nothing was drawn since."""

def become(
    handle: ArrayHandle, expected: object, leaf: object, node: object, flips: list[int]
) -> bool:
    """Set the leaf tag and the tagged node of a handle if its node is still `expected`.

    `leaf` is None for a tensor that no longer collects gradients. Return whether it was done.
    """

def _name_mark(op: object, /) -> None:
    """Set the op of nodes that tag a value. Handles show these tags to the garbage collector."""

class Link:
    """Makes a handle a view: it shows elements of another handle, the root.

    Attributes
    ----------
    root : Tensor
        Tensor that has the elements; never a view itself.
    path : tuple
        (path of the source or None, kind, arguments): the operations from the root to the view.
    plain : bool
        Whether the view was made under no_grad, so that its node has no history.
    below : UOp
        Value of the root from which `node` is computed.
    node : UOp
        Elements of the view.
    seen : int
        Global count of memory writes when the view was given data of its own.
    lent : object
        Memory of the root, if the data of the view lie in it, else None.
    fixed : tuple of (Tensor, UOp), or None
        Index tensors on the path, as they were when the view was made, and the nodes of them that
        `node` reads.
    layout : tuple, or None
        Sizes and strides of the view in the root; None if not computed yet.
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
    """Base class of Tensor: optional realized, C-contiguous data.

    The fields are C fields, so that a replay reads them without a Python call. A handle is
    *realized* if `_address` is not None; a lazy tensor has only its `_uop`. A subclass should
    define `__slots__ = ()` to keep results small. A replay makes results without calling
    `__init__`.
    """

    _uop: Any
    """Graph node, or None; this module never reads it."""

    _leaf: Any
    """Leaf tag of a tensor that collects gradients, or None."""

    _link: Link | None
    """Link to the root if the handle is a view, else None."""

    _born: Any
    """The trace that made the tensor; None outside of traces, as for results of a replay."""

    _plain: bool
    """Whether no gradient can flow into the tensor; undefined while `_uop` is None."""

    _used: bool
    """Whether the node was read, so that other nodes may use it."""

    _severed: Any
    """Severed tag, if the history of the value stayed in a jitted function, else None. If there is
    a `_uop`, the tag is in its graph."""

    @property
    def _memory(self) -> Any:
        """Owner of the data; None if there are no data."""
    @property
    def _hold(self) -> memoryview | None:
        """The bound memoryview; None for a result of a replay, which owns its memory."""
    @property
    def _address(self) -> int | None: ...
    @property
    def _dtype_code(self) -> int:
        """`DType.code`; -1 if there are no data."""
    @property
    def _shape(self) -> tuple[int, ...] | None: ...
    @property
    def _nbytes(self) -> int: ...
    def _bind(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object = None,
    ) -> None:
        """Make the handle realized, with the owner `memory` and the bytes of `export` as data.

        The handle holds `export`, so the owner can neither free nor move the bytes while they are
        bound. With `node`, also set the graph node in the same step.

        Raises
        ------
        ShapeError
            The shape has more than `MAX_DIMS` dimensions, a negative dimension or more bytes than
            an address can count, or `export` does not have its bytes.
        DTypeError
            `dtype_code` is not a code of kernelrt.dtype.
        """
    def _begin(
        self, memory: object, export: memoryview, dtype_code: int, shape: tuple[int, ...],
        node: object, plain: bool,
    ) -> None:
        """Do what `_bind` does, but only if the handle has no node."""
    def _copy_out(self) -> np.ndarray[Any, Any] | None:
        """Return a copy of the data as an array; None if there are no data or they are bfloat16."""
    def _only(self) -> bool | int | float | None:
        """Return the only element; None if there is not exactly one, or it is bfloat16."""
    def _unbind(self) -> None:
        """Drop the data and release their owner."""
