"""The base of Tensor: a graph node, and its memory once it is computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.ops import COMPARE, MOVEMENT
from kernelrt.ir.shape import format_shape, is_static, prod
from kernelrt.ir.size import Size, as_size
from kernelrt.native import graph_templates
from kernelrt.native.array_handle import become, exchange
from kernelrt.native.eager_plan import _name_buffer, settlement
from kernelrt.native.evaluate import _name_values
from kernelrt.native.fast_paths import LazyHandle, _name_ops, _name_state, adopted, is_changing
from kernelrt.native.fast_paths import storage_node as _storage_node
from kernelrt.native.memory import Memory, count_writes
from kernelrt.tensor import state, views
from kernelrt.tensor.autograd import gradient_state, tags
from kernelrt.tensor.autograd.tags import (
    Custom,
    Kept,
    Leaf,
    Severed,
    Stale,
    detach,
    lineage,
    mark,
    marked_anew,
)
from kernelrt.tensor.eager import data_alias, shared_memory
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import own_axis
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    import weakref

    import numpy as np

    from kernelrt.dtype import DType
    from kernelrt.native.eager_plan import Fresh
    from kernelrt.tensor.autograd.gradient_state import Home, Spent
    from kernelrt.tensor.eager import realize
    from kernelrt.tensor.tracing.trace import Trace
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["Operand", "TensorBase", "is_parameter", "storage_node"]

#: What may stand beside a tensor in an elementwise operation.
Operand: TypeAlias = "TensorBase | bool | int | float | UOp | np.ndarray[Any, Any]"

#: How many operations are put one upon the other before the value is computed.
MOST_DEPTH = 256
#: From this depth on, values that recur in each turn of a loop are computed.
TURN_DEPTH = 64
#: Operations that only move elements. Computing them early would make a copy of a view.
_MOVES = MOVEMENT | {Op.GATHER, Op.DETACH, Op.CONTIGUOUS}

_BY_CODE = {d.code: d for d in dt.ALL}

_name_state(
    state.pending, state.steady, state.births, state.watched, shared_memory.shared, state.units,
    state.lock,
)  # fmt: skip
_name_ops(_MOVES, Op.CONST, Op.BUFFER, Op.RESHAPE, Op.EXPAND, Op.DETACH, TURN_DEPTH,
          MOST_DEPTH)  # fmt: skip
graph_templates._name_ops(
    Op.BUFFER, Op.CONST, Op.DETACH, frozenset({Op.CONST, Op.IOTA}),
    frozenset({
        Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.PAD, Op.FLIP, Op.CAST, Op.BITCAST,
    }),
    COMPARE | {Op.NOT, Op.AND, Op.OR, Op.XOR},
)  # fmt: skip
graph_templates._name_types(Custom, dt.DType, dt.bool_, (bool, int, float, str, Op, dt.DType, type))
_name_buffer(Op.BUFFER)
_name_values(Op.IOTA, Kept, (MOVEMENT - {Op.UNWINDOW}) | {Op.DETACH})


class TensorBase(LazyHandle):
    """A graph node, its data where it was computed, and what gradients need to know of it."""

    # An instance that a replay made has a memory and no node; _adopt fills the rest in.
    __slots__ = (
        "__weakref__", "_former", "_handles", "_home", "_made_of", "_taken", "_whose",
    )  # fmt: skip

    _born: Trace | None
    _former: Leaf  # set where the tensor was told not to require a gradient any more
    _grad: Self | Home | Spent | None
    _handles: weakref.WeakValueDictionary[int, TensorBase]  # its `data`, by identity
    _home: Home  # set where a plan has left a gradient
    _leaf: Leaf | None
    _made_of: tuple[UOp, Buffer]  # the data that a traced function made it from: node, memory
    _taken: tuple[Buffer, Buffer]  # shared memory, and a copy of what it held when it was read
    _whose: Self  # set where this is the `data` of a tensor, whose memory it has

    def _cut(self) -> None:
        """Compute a tensor that grew deep without being read, as a sum of losses does.

        Its plan would be made for it alone; cut at equal places, one plan serves them all. What
        gradients flow through is left whole.
        """
        if is_static(self.dims):
            realize.compute_piece(self)

    @classmethod
    def _over(cls, buffer: Buffer, shape: tuple[int, ...]) -> Self:
        """A tensor over the elements of `buffer`, which it keeps alive."""
        tensor = cls.__new__(cls)
        tensor._grad = None
        tensor._leaf = None
        tensor._born = None
        tensor._plain = True
        tensor._uop = storage_node(buffer, shape)
        tensor._bind(buffer, buffer.keep(), buffer.dtype.code, shape)
        return tensor

    def _adopt(self) -> None:
        """Give a tensor that a plan made its node, in one step at the end."""
        if adopted(self):
            return
        shape = self._shape
        if shape is None:
            raise DTypeError("this tensor was never given a value; make one with kernelrt.tensor")
        data = self._memory
        if isinstance(data, Memory):
            data = Buffer.over(data, math.prod(shape), self.dtype)
        elif not isinstance(data, Buffer):
            data = Buffer.wrap(data, self.dtype)
        node = storage_node(data, shape)
        severed = self._severed
        if severed is not None:
            node = mark(node, severed)
        self._begin(data, data.keep(), data.dtype.code, shape, node, severed is None)

    def _taken_node(self) -> UOp:
        """Find what `uop` gives."""
        node = self._live_node()
        if not shared_memory.shared[0] or state.local.trace is not None:
            return node
        if not shared_memory.is_shared(self):
            return node
        return shared_memory.taken(self, node)

    def _live_node(self) -> UOp:
        """Find what `_live` gives.

        No node that is given out reads, in its value or in its history, data that a pending
        assignment is about to change: assignments are committed first. So a node stays true while
        the operation takes those of its other operands, whichever of them has to be committed.
        """
        self._used = True
        link = self._link
        if link is not None:
            node = views.node_of(self, link)
            return node if state.local.grad or link.plain else detach(node)
        self._enter()
        if state.pending and is_changing(self, self._entered()):
            realize.flush(self)
            self._enter()
        trace = state.local.trace
        if trace is not None:
            if (owner := getattr(self, "_whose", None)) is not None:
                return data_alias.read(self, owner)
            trace.check_alone(self, "is read")
            assigned = trace.assigned_to(self)
            if assigned is not None:
                return assigned if state.local.grad else detach(assigned)
        node = self._entered()
        return node if state.local.grad or self._plain else detach(node)

    def _recorded(self) -> UOp:
        """The node with its history, also where none is recorded."""
        if self._link is not None:
            return views.node_of(self, self._link)
        node = self._live()
        if state.local.grad or hasattr(self, "_whose"):
            return node
        trace = state.local.trace
        assigned = None if trace is None else trace.assigned_to(self)
        return self._entered() if assigned is None else assigned

    def _entered(self) -> UOp:
        """The node, made anew where a thread or a finalizer took it away by computing it."""
        while (node := cast("UOp | None", self._uop)) is None:
            self._enter()
        return node

    def _enter(self) -> None:
        """Give this tensor a node that the active trace, if any, may read."""
        if self._link is not None:
            views.enter(self, self._link)
            return
        lazy = self._uop is not None and self._address is None
        if lazy and self._born is not state.local.trace:
            self._cross()
        if self._uop is None:
            self._adopt()

    def _cross(self) -> None:
        """Let a lazy tensor from outside into the trace that is active; none may leave one."""
        trace = state.local.trace
        node, buffer = getattr(self, "_made_of", (None, None))
        if self._left_trace() and node is self._uop and buffer is not None:
            # A caller that kept it, as functools.cache does, reads its original data.
            self._born, self._plain = None, True
            self._bind(buffer, buffer.keep(), buffer.dtype.code, node.shape, node)
            return
        self._check_trace()
        if trace is not None:
            trace.admit(self)

    def _left_trace(self) -> bool:
        """Return whether the trace that made this tensor is not active any more."""
        trace = state.local.trace
        return self._born is not None and not (trace is not None and trace.holds(self._born))

    def _check_trace(self) -> None:
        """Raise JitError if the trace that made this tensor is not active any more."""
        if self._left_trace():
            raise JitError(
                "this tensor was made while a function was traced and has no value outside of that "
                "call; return it from the function, or assign it to a tensor created outside"
            )

    @property
    def _buffer(self) -> Buffer | None:
        """The storage, where there is one."""
        while True:
            if self._uop is None:
                self._adopt()
            # Memory: a handler or a finalizer has computed the tensor since the node was seen.
            if not isinstance(buffer := self._memory, Memory):
                return cast("Buffer | None", buffer)

    def _settlement(self, node: UOp, data: Memory, *, stale: bool) -> Fresh:
        """What this tensor is once `data`, the value of `node`, are there.

        A history stays beside them unless it went stale.
        """
        if not stale and (plainly := settlement(self, node, data)) is not None:
            return plainly
        shape = cast("tuple[int, ...]", self.shape)
        dtype = node.dtype
        known = not self._plain and lineage(node)
        plain = self._leaf is None and known is not True
        severed = known if isinstance(known, Severed) else None
        if self._link is not None:
            outside = shared_memory.shared[0] and shared_memory.is_shared(self)
            self._link.seen = 0 if outside else count_writes()
            if (memory := self._link.root._buffer) is not None:
                memory.storage.watch()  # it is told when somebody else may write there
        elif plain and self._grad is None:
            self._severed = severed
            nbytes = math.prod(shape) * dtype.itemsize
            return self, node, data, None, data.address, dtype.code, shape, nbytes, None, False
        buffer = Buffer.over(data, math.prod(shape), dtype)
        new = storage = storage_node(buffer, shape)
        kept = False
        if self._leaf is not None:
            new = mark(storage, self._leaf)
        elif stale and not plain:
            new = tags.stale(storage, node)
        elif severed is not None:
            new = mark(storage, severed)
        elif not plain:
            new, kept = mark(node, Kept(storage)), True
            state.births[0] += 1
        place = buffer.address
        return (
            self, node, buffer, buffer.keep(), place, dtype.code, shape, buffer.nbytes, new, kept,
        )  # fmt: skip

    def _storage(self) -> UOp:
        """The BUFFER node of a tensor that has data."""
        buffer = self._buffer
        assert buffer is not None
        return build.memory(buffer)

    def _move(self, buffer: Buffer) -> None:
        """Go on with `buffer`, which holds the same elements, as the storage."""
        shape = self._shape
        assert shape is not None
        node = self._node_over(buffer)
        self._bind(buffer, buffer.keep(), buffer.dtype.code, shape, node)

    def _at_rest(self) -> UOp:
        """The node of a tensor that reads its storage."""
        return self._node_over(self._memory)

    def _node_over(self, buffer: Buffer) -> UOp:
        shape = self._shape
        assert shape is not None
        storage = storage_node(buffer, shape)
        bound = self._severed if self._leaf is None else self._leaf
        return storage if bound is None else mark(storage, bound)

    def _assign(self, value: Self) -> None:
        """Take `value`, of the same shape and type, as the new value."""
        assign_all([(self, value)])

    def _follow(self, other: TensorBase) -> None:
        """Have the value that `other` has, and its history."""
        if self._born is None:
            state.watched.add(self)
        done = False
        while not done:
            state.births[0] += 1
            writes = state.local.writes
            node, before = other.uop, cast("UOp | None", self._uop)
            if self._address is not None:
                raise GradientError(
                    "the tensor was computed during this operation, by a finalizer or a signal "
                    "handler, and a write to computed memory records no history; try again"
                )
            done = exchange(self, before, node, writes)
        state.births[0] += 1
        self._used = False  # nothing is made of the new value yet

    def _sever(self, bound: Severed | Stale) -> None:
        """Let gradients that come to this tensor end in an error, until it is assigned to."""
        marked = False
        while not marked:
            node = self._entered()
            again = node.op is Op.DETACH and isinstance(node.arg, Severed | Stale)
            self._severed, self._plain = bound, False
            marked = exchange(self, node, mark(node.src[0] if again else node, bound))
        state.births[0] += 1

    # ---- what it is

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """Size of each axis: an int, or a Size where it is known at run time only."""
        known = self._shape
        return tuple(map(as_size, self.dims)) if known is None else known

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Size of each axis as expressions have it: an int, or a node over Variables."""
        known = self._shape
        if known is not None:
            return known
        node: UOp | None = self._uop
        # Without a node it was computed between the lines.
        return cast("tuple[int, ...]", self._shape) if node is None else node.shape

    @property
    def dtype(self) -> DType:
        """Scalar type of the elements."""
        code = self._dtype_code
        if code >= 0:
            return _BY_CODE[code]
        node: UOp | None = self._uop
        return _BY_CODE[self._dtype_code] if node is None else node.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.dims)

    @property
    def device(self) -> str:
        """Name of the device that holds the data."""
        return "CPU"

    @property
    def is_realized(self) -> bool:
        """Whether the data are there, up to assignments that are still to be committed."""
        return self._address is not None

    def dim(self) -> int:
        """Number of axes."""
        return len(self.dims)

    def size(self, dim: int | None = None) -> int | Size | tuple[int | Size, ...]:
        """The shape, or the size of axis `dim`."""
        return self.shape if dim is None else self.shape[own_axis(dim, self.ndim)]

    def numel(self) -> int | Size:
        """Number of elements."""
        return as_size(prod(self.dims))

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient can flow into this tensor."""
        trace = state.local.trace
        return self._lineage is True if trace is None else trace.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def _lineage(self) -> bool | Severed:
        """Whether a gradient can flow into this tensor; what stops it if that alone does."""
        if self._link is not None:
            views.enter(self, self._link)
        if self._uop is None:
            return self._severed or False
        return not self._plain and lineage(self._uop)

    @property
    def _is_parameter(self) -> bool:
        """Whether gradients are collected for this tensor, or were until it was frozen."""
        if self._uop is not None and self._leaf is not None:
            return True
        return hasattr(self, "_former") and self._lineage is not True

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Say whether :meth:`backward` collects a gradient in this tensor's ``grad``.

        A tensor that is told so once is a parameter, and stays one while it is frozen: see
        :func:`kernelrt.nn.parameters`.

        Raises
        ------
        GradientError
            The elements are not floats, or the tensor is the result of operations on tensors
            that require gradients.
        """
        trace = state.local.trace
        if trace is not None:
            trace.tell(self)
        if not requires_grad:
            if self._uop is not None and self._leaf is not None:
                self._former = leaf = self._leaf
                self._become(None)
                state.leaves.pop(id(leaf), None)
            elif self._lineage is True:
                raise GradientError(
                    "requires_grad: expected True, as the tensor is the result of an operation on "
                    "tensors that require gradients; use .detach() for one without a gradient"
                )
            return self
        if not self.dtype.is_float:
            raise GradientError(
                f"requires_grad: expected a floating dtype, not {self.dtype.name}; cast the tensor "
                "first, as in x.float()"
            )
        self._enter()
        known = self._lineage
        if not known:
            views.unlink(self)
        if isinstance(known, Severed):
            raise known.error("requires_grad")
        if not known:
            # The graphs that were made before it ceased to require a gradient bear the former mark.
            leaf = getattr(self, "_former", None) or Leaf()
            state.leaves[id(leaf)] = self  # first: who bears the mark is found by it
            self._become(leaf)
        return self

    def _become(self, leaf: Leaf | None) -> None:
        """Put a mark on the value, and on what was assigned in the trace that is active."""
        before = self._leaf
        trace = state.local.trace
        assigned = None if trace is None else trace.assigned_to(self)
        if trace is not None and assigned is not None:
            trace.record(self, marked_anew(assigned, before, leaf))
        done = False
        while not done:  # else interrupting code has computed it, or assigned to it
            node = self._entered()
            done = become(self, node, leaf, marked_anew(node, before, leaf), state.flips)

    def _never_required(self) -> None:
        """Forget that it was a parameter, which is frozen now."""
        if hasattr(self, "_former"):
            del self._former

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is not the result of operations that gradients flow through."""
        if self._uop is None or self._leaf is not None or not self.requires_grad:
            return True
        trace = state.local.trace
        return trace is not None and trace.is_leaf_given(self)

    @property
    def grad(self) -> Self | None:
        """The gradient that :meth:`backward` collected, or None.

        Raises
        ------
        GradientError
            A jitted function computed the gradient and used it up; see :func:`kernelrt.jit`.
        """
        if self._uop is None or (self._grad is None and state.local.trace is None):
            return None
        return gradient_state.read(self)  # type: ignore[return-value]

    @grad.setter
    def grad(self, value: Self | None) -> None:
        if self._uop is None:
            self._adopt()
        if value is not None:
            if not isinstance(value, TensorBase):
                raise DTypeError(f"grad: expected a Tensor or None, not {type(value).__name__}")
            if not build.same_shape(value.dims, self.dims) or value.dtype is not self.dtype:
                raise ShapeError(
                    f"grad: expected {self.dtype.name} of shape {format_shape(self.dims)}, not "
                    f"{value.dtype.name} of shape {format_shape(value.dims)}"
                )
        gradient_state.write(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def __hash__(self) -> int:
        return id(self)


def is_parameter(tensor: TensorBase) -> bool:
    """Whether gradients are collected for `tensor`, or were until it was frozen.

    A plan that is being traced is made for the answer.
    """
    trace = state.local.trace
    return tensor._is_parameter if trace is None else trace.is_parameter(tensor)


def storage_node(buffer: Buffer, shape: tuple[Dim, ...]) -> UOp:
    """The elements of `buffer` as a node of `shape`, packed in row-major order."""
    if is_static(shape):
        found = _storage_node(buffer, cast("tuple[int, ...]", shape))
        if found is not None:
            return found
    node = build.memory(buffer)
    if not is_static(shape):
        node = build.shrink(node, [(0, prod(shape))])
    return build.reshape(node, shape)
