"""Collecting what a function does to state, instead of doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt._origin import advance
from kernelrt.device.region import RegionMap, region_of
from kernelrt.errors import JitError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import build, state
from kernelrt.tensor.marks import strip

if TYPE_CHECKING:
    from types import TracebackType

    from kernelrt.tensor.base import TensorBase

__all__ = ["Trace", "forbid", "is_tracing"]


class Trace:
    """While it is entered, assignments of this thread are collected and nothing is computed.

    A tensor with storage that is assigned to within the trace becomes part of `assigned`; reads
    that follow see the new expression. On the way out every such tensor reads its storage again:
    the plan made of :meth:`commits` is what writes there. Gradients that were computed within the
    trace are dropped from ``grad``, so a function that reads them must be traced together with
    the one that makes them; a ``grad`` that had data before is accumulated into like any state.
    If an exception leaves the trace, gradients are as they were before it, too.

    Raises
    ------
    JitError
        A trace is active on this thread already.
    """

    def __init__(self) -> None:
        self._states: dict[int, tuple[TensorBase, UOp]] = {}
        self._written: RegionMap[TensorBase] = RegionMap()
        self._grads: dict[int, tuple[TensorBase, TensorBase | None]] = {}

    def __enter__(self) -> Self:
        from kernelrt.tensor.realize import flush

        if state.local.trace is not None:
            raise JitError("a trace is active already; call the traced function without jit inside")
        flush()
        advance()
        state.local.trace = self
        state.tracing.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        state.local.trace = None
        state.tracing.discard(self)
        for tensor, node in self._states.values():
            tensor._uop = node
        for tensor, before in self._grads.values():
            now = tensor._grad
            if kind is not None:
                tensor._grad = before
            elif now is not None and now._born is self:
                tensor._grad = None

    @property
    def assigned(self) -> tuple[TensorBase, ...]:
        """The tensors with storage that were assigned to, in the order of first assignment."""
        return tuple(t for t, _ in self._states.values())

    def commits(self) -> list[tuple[UOp, UOp]]:
        """(storage, value) for each assigned tensor whose value changed; both flat."""
        out = []
        tensors = self.assigned
        for tensor, value in zip(tensors, strip(t._uop for t in tensors), strict=True):
            buffer = tensor._buffer
            assert buffer is not None
            storage = UOp(Op.BUFFER, buffer.dtype, (), buffer)
            flat = build.reshape(value, (buffer.size,))
            if flat is not storage:
                out.append((storage, flat))
        return out

    def record(self, tensor: TensorBase) -> None:
        """Note that `tensor`, which has storage, is about to be assigned to."""
        self.check_alone(tensor, "is assigned to")
        if id(tensor) not in self._states:
            self._states[id(tensor)] = tensor, tensor._uop
            buffer = tensor._buffer
            assert buffer is not None
            self._written.add(region_of(buffer), tensor)

    def check_alone(self, tensor: TensorBase, does: str) -> None:
        """Raise JitError if `tensor` shares memory with another that was assigned to.

        What another tensor holds once this one is assigned to is known only when the plan runs.
        """
        buffer = tensor._memory
        if not self._states or buffer is None or not buffer.allocated:
            return
        if any(other is not tensor for other in self._written.meeting(region_of(buffer))):
            raise JitError(
                f"a tensor of shape {format_shape(tensor.shape)} {does} after another tensor over "
                "the same memory was assigned to in the traced function; use one of the two, or a "
                "copy made with clone() outside"
            )

    def record_grad(self, tensor: TensorBase) -> None:
        """Note that the ``grad`` of `tensor` is about to be set."""
        self._grads.setdefault(id(tensor), (tensor, tensor._grad))

    def admit(self, tensor: TensorBase) -> None:
        """Compute a tensor that was made before the trace.

        What the traced function reaches from outside is state: were its expression traced too, a
        replay would compute the initial value again and again.
        """
        from kernelrt.tensor.realize import materialize

        state.local.trace = None
        try:
            materialize([tensor])
        finally:
            state.local.trace = self


def is_tracing() -> bool:
    """Whether this thread is tracing a function."""
    return state.local.trace is not None


def forbid(what: str) -> None:
    """Raise JitError if a trace is active: `what` would need a value that is not computed yet."""
    if state.local.trace is not None:
        raise JitError(
            f"{what} reads a value while a function is traced, when no values are computed yet; "
            "return the tensor and read it outside, or decide with where() inside"
        )
