"""Base class of Tensor: a graph node, and its memory once it is computed."""

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
    from kernelrt.tensor.autograd.gradient_state import ConsumedGradient, GradientBuffer
    from kernelrt.tensor.eager import realize
    from kernelrt.tensor.tracing.trace import Trace
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["Operand", "TensorBase", "is_parameter", "storage_node"]

#: Type of the other operand of an elementwise operation with a tensor.
Operand: TypeAlias = "TensorBase | bool | int | float | UOp | np.ndarray[Any, Any]"

#: Depth of a lazy graph, in operations, at which its value is computed.
MOST_DEPTH = 256
#: From this depth on, values that recur in each iteration of a loop are computed.
CUT_DEPTH = 64
#: Operations that only move elements. Computing one early would copy a view.
_MOVES = MOVEMENT | {Op.GATHER, Op.DETACH, Op.CONTIGUOUS}

_BY_CODE = {d.code: d for d in dt.ALL}

_name_state(
    state.pending, state.steady, state.births, state.watched, shared_memory.shared, state.units,
    state.lock,
)  # fmt: skip
_name_ops(_MOVES, Op.CONST, Op.BUFFER, Op.RESHAPE, Op.EXPAND, Op.DETACH, CUT_DEPTH,
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
_name_values(Op.IOTA, Kept, (MOVEMENT - {Op.COL2IM}) | {Op.DETACH})


class TensorBase(LazyHandle):
    """A graph node, its data once computed, and its autograd state."""

    # An instance that a replay made has memory but no node; _adopt fills the rest in.
    __slots__ = (
        "__weakref__", "_former", "_handles", "_home", "_made_of", "_taken", "_whose",
    )  # fmt: skip

    _born: Trace | None
    _former: Leaf  # tag that a frozen parameter had, or has when it requires a gradient
    _grad: Self | GradientBuffer | ConsumedGradient | None
    _handles: weakref.WeakValueDictionary[int, TensorBase]  # live `.data` tensors, by identity
    _home: GradientBuffer  # set once a plan has stored a gradient
    _leaf: Leaf | None
    _made_of: tuple[UOp, Buffer]  # original data, if created in a traced function: node, memory
    _taken: tuple[Buffer, Buffer]  # shared memory, and a copy of its content when it was read
    _whose: Self  # set if this is the `.data` of another tensor, and aliases its memory

    def _cut(self) -> None:
        """Compute part of a graph that grew deep without being read, such as a sum of losses.

        The whole graph would need a plan of its own. If such graphs are cut at equal depths, one
        plan computes all pieces. Graphs that gradients flow through are not cut.
        """
        if is_static(self.dims):
            realize.compute_piece(self)

    @classmethod
    def _over(cls, buffer: Buffer, shape: tuple[int, ...]) -> Self:
        """Return a tensor over the elements of `buffer`, and keep `buffer` alive."""
        tensor = cls.__new__(cls)
        tensor._grad = None
        tensor._leaf = None
        tensor._born = None
        tensor._plain = True
        tensor._uop = storage_node(buffer, shape)
        tensor._bind(buffer, buffer.keep(), buffer.dtype.code, shape)
        return tensor

    def _adopt(self) -> None:
        """Set the node of a tensor that a plan made, in one step at the end."""
        if adopted(self):
            return
        shape = self._shape
        if shape is None:
            raise DTypeError("this tensor has no value; create tensors with kernelrt.tensor")
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
        """Return the value of `uop`."""
        node = self._live_node()
        if not shared_memory.shared[0] or state.local.trace is not None:
            return node
        if not shared_memory.is_shared(self):
            return node
        return shared_memory.taken(self, node)

    def _live_node(self) -> UOp:
        """Return the value of `_live`.

        Pending assignments to data that the node or its history reads are committed first. So the
        node stays valid while the operation takes the nodes of its other operands, even if these
        commit assignments.
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
        """Return the node with its history, even while gradients are disabled."""
        if self._link is not None:
            return views.node_of(self, self._link)
        node = self._live()
        if state.local.grad or hasattr(self, "_whose"):
            return node
        trace = state.local.trace
        assigned = None if trace is None else trace.assigned_to(self)
        return self._entered() if assigned is None else assigned

    def _entered(self) -> UOp:
        """Return the node; recreate it if a thread or finalizer computed the tensor meanwhile."""
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
        """Admit a lazy tensor from outside to the active trace; no tensor may leave its trace."""
        trace = state.local.trace
        node, buffer = getattr(self, "_made_of", (None, None))
        if self._left_trace() and node is self._uop and buffer is not None:
            # A caller that kept the tensor, as functools.cache does, reads its original data.
            self._born, self._plain = None, True
            self._bind(buffer, buffer.keep(), buffer.dtype.code, node.shape, node)
            return
        self._check_trace()
        if trace is not None:
            trace.admit(self)

    def _left_trace(self) -> bool:
        """Return whether the trace that created this tensor is no longer active."""
        trace = state.local.trace
        return self._born is not None and not (trace is not None and trace.holds(self._born))

    def _check_trace(self) -> None:
        """Raise JitError if the trace that created this tensor is no longer active."""
        if self._left_trace():
            raise JitError(
                "this tensor was made while a function was traced and has no value outside of that "
                "call; return it from the function, or assign it to a tensor created outside"
            )

    @property
    def _buffer(self) -> Buffer | None:
        """The storage, or None."""
        while True:
            if self._uop is None:
                self._adopt()
            # Memory: a signal handler or finalizer has computed the tensor since the check above.
            if not isinstance(buffer := self._memory, Memory):
                return cast("Buffer | None", buffer)

    def _settlement(self, node: UOp, data: Memory, *, stale: bool) -> Fresh:
        """Return the state of this tensor once `data`, the value of `node`, is computed.

        The tensor keeps its history together with the data, unless the history is stale.
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
                memory.storage.watch()  # to learn when outside code gets access
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
        """Return the BUFFER node of a tensor that has data."""
        buffer = self._buffer
        assert buffer is not None
        return build.memory(buffer)

    def _move(self, buffer: Buffer) -> None:
        """Use `buffer`, which holds the same elements, as the storage from now on."""
        shape = self._shape
        assert shape is not None
        node = self._node_over(buffer)
        self._bind(buffer, buffer.keep(), buffer.dtype.code, shape, node)

    def _at_rest(self) -> UOp:
        """Return a node that reads this tensor's storage."""
        return self._node_over(self._memory)

    def _node_over(self, buffer: Buffer) -> UOp:
        shape = self._shape
        assert shape is not None
        storage = storage_node(buffer, shape)
        bound = self._severed if self._leaf is None else self._leaf
        return storage if bound is None else mark(storage, bound)

    def _assign(self, value: Self) -> None:
        """Assign `value`, of the same shape and dtype."""
        assign_all([(self, value)])

    def _follow(self, other: TensorBase) -> None:
        """Take over the value of `other` and its history."""
        if self._born is None:
            state.watched.add(self)
        done = False
        while not done:
            state.births[0] += 1
            writes = state.local.writes
            node, before = other.uop, cast("UOp | None", self._uop)
            if self._address is not None:
                raise GradientError(
                    "a finalizer or signal handler computed the tensor during this write, and "
                    "writes to computed tensors record no history; repeat the write"
                )
            done = exchange(self, before, node, writes)
        state.births[0] += 1
        self._used = False  # nothing is computed from the new value yet

    def _sever(self, bound: Severed | Stale) -> None:
        """Make gradients that reach this tensor raise an error, until it is assigned to."""
        marked = False
        while not marked:
            node = self._entered()
            again = node.op is Op.DETACH and isinstance(node.arg, Severed | Stale)
            self._severed, self._plain = bound, False
            marked = exchange(self, node, mark(node.src[0] if again else node, bound))
        state.births[0] += 1

    # ---- shape and dtype

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """Size of each axis: an int, or a Size if it is known only at run time.

        Examples
        --------
        >>> krt.zeros(2, 3).shape
        (2, 3)
        """
        known = self._shape
        return tuple(map(as_size, self.dims)) if known is None else known

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Size of each axis as in graph nodes: an int, or a node over Variables."""
        known = self._shape
        if known is not None:
            return known
        node: UOp | None = self._uop
        # Without a node it was computed since the test above.
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
        """Whether the data is computed, except for pending assignments.

        Examples
        --------
        >>> x = krt.tensor([1.0]) * 2
        >>> x.is_realized, x.realize().is_realized
        (False, True)
        """
        return self._address is not None

    def dim(self) -> int:
        """Return the number of axes.

        Examples
        --------
        >>> krt.ones(2, 3).dim()
        2
        """
        return len(self.dims)

    def size(self, dim: int | None = None) -> int | Size | tuple[int | Size, ...]:
        """Return the shape, or the size of axis `dim`.

        Parameters
        ----------
        dim : int, optional
            Axis; a negative one counts from the end.

        Returns
        -------
        tuple of int, or int
            All sizes, or that of the axis. Sizes known only at run time are of type Size.

        Examples
        --------
        >>> x = krt.zeros(2, 3)
        >>> x.size(), x.size(-1)
        ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[own_axis(dim, self.ndim)]

    def numel(self) -> int | Size:
        """Return the number of elements.

        Examples
        --------
        >>> krt.zeros(2, 3).numel()
        6
        """
        return as_size(prod(self.dims))

    def element_size(self) -> int:
        """Return the size of one element in bytes.

        Examples
        --------
        >>> krt.zeros(2, dtype=krt.float64).element_size()
        8
        """
        return self.dtype.itemsize

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient can flow into this tensor. Setting it calls :meth:`requires_grad_`.

        Examples
        --------
        >>> w = krt.tensor([1.0], requires_grad=True)
        >>> (w * 2).requires_grad, w.detach().requires_grad
        (True, False)
        """
        trace = state.local.trace
        return self._lineage is True if trace is None else trace.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def _lineage(self) -> bool | Severed:
        """Whether a gradient can flow into this tensor, or the single tag that stops gradients."""
        if self._link is not None:
            views.enter(self, self._link)
        if self._uop is None:
            return self._severed or False
        return not self._plain and lineage(self._uop)

    @property
    def _is_parameter(self) -> bool:
        """Whether this tensor collects gradients, or did so until it was frozen."""
        if self._uop is not None and self._leaf is not None:
            return True
        return hasattr(self, "_former") and self._lineage is not True

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether :meth:`backward` collects a gradient in this tensor's ``grad``.

        A tensor that has once required a gradient is a parameter. It remains a parameter while it
        is frozen: see :func:`kernelrt.nn.parameters`.

        Parameters
        ----------
        requires_grad : bool
            Whether to collect a gradient. False freezes a parameter.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        GradientError
            The elements are not floats, or the tensor is the result of operations on tensors
            that require gradients.

        Examples
        --------
        >>> krt.zeros(2).requires_grad_().requires_grad
        True
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
                f"requires_grad: gradients need a floating dtype, not {self.dtype.name}; cast the "
                "tensor first, as in x.float()"
            )
        self._enter()
        known = self._lineage
        if not known:
            views.unlink(self)
        if isinstance(known, Severed):
            raise known.error("requires_grad")
        if not known:
            # Graphs that were made before requires_grad_(False) contain the former tag.
            leaf = getattr(self, "_former", None) or Leaf()
            state.leaves[id(leaf)] = self  # first: the tensor is looked up by its tag
            self._become(leaf)
        return self

    def _become_parameter(self, requires_grad: bool) -> Self:
        """Make this new tensor a parameter. Without a gradient, it may have any dtype."""
        if requires_grad:
            return self.requires_grad_()
        self._former = Leaf()
        return self

    def _become(self, leaf: Leaf | None) -> None:
        """Tag the value, and the value that the active trace has assigned."""
        before = self._leaf
        trace = state.local.trace
        assigned = None if trace is None else trace.assigned_to(self)
        if trace is not None and assigned is not None:
            trace.record(self, marked_anew(assigned, before, leaf))
        done = False
        while not done:  # interrupting code may compute the tensor, or assign to it
            node = self._entered()
            done = become(self, node, leaf, marked_anew(node, before, leaf), state.flips)

    def _never_required(self) -> None:
        """Forget that this frozen tensor was a parameter."""
        if hasattr(self, "_former"):
            del self._former

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is not the result of operations that gradients flow through.

        Examples
        --------
        >>> w = krt.tensor([1.0], requires_grad=True)
        >>> w.is_leaf, (w * 2).is_leaf, krt.zeros(2).is_leaf
        (True, False, True)
        """
        if self._uop is None or self._leaf is not None or not self.requires_grad:
            return True
        trace = state.local.trace
        return trace is not None and trace.is_leaf_given(self)

    @property
    def grad(self) -> Self | None:
        """The gradient that :meth:`backward` collected, or None.

        It can be set to a tensor of the same shape and dtype, or to None.

        Raises
        ------
        GradientError
            A jitted function used the gradient and did not keep it; see :func:`kernelrt.jit`.
        ShapeError
            A tensor of another shape or dtype is set.
        DTypeError
            Something else than a tensor or None is set.

        Examples
        --------
        >>> x = krt.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad.item()
        6.0
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
    """Return whether `tensor` collects gradients, or did so until it was frozen.

    If a function is traced, its plan is only for this answer.
    """
    trace = state.local.trace
    return tensor._is_parameter if trace is None else trace.is_parameter(tensor)


def storage_node(buffer: Buffer, shape: tuple[Dim, ...]) -> UOp:
    """Return a node of `shape` over the elements of `buffer`, packed in row-major order."""
    if is_static(shape):
        found = _storage_node(buffer, cast("tuple[int, ...]", shape))
        if found is not None:
            return found
    node = build.memory(buffer)
    if not is_static(shape):
        node = build.shrink(node, [(0, prod(shape))])
    return build.reshape(node, shape)
