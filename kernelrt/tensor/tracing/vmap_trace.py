"""The trace of vmap: one call with placeholders stands for the calls of all batch elements.

The function gets placeholders without a value, each for one batch element. The graph that it builds
is then batched (:mod:`kernelrt.tensor.tracing.batching_rules`), with the values of all batch
elements in place of the placeholders. The trace may be nested in the trace of a jitted function or
of another vmap.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, NoReturn, TypeVar

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import GradientError, JitError
from kernelrt.ir import Op
from kernelrt.ir.shape import dim_max
from kernelrt.tensor import state
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.base import storage_node
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.batching_rules import BatchedValue, along
from kernelrt.tensor.tracing.trace import Trace, TracePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelrt.ir import Dim, UOp
    from kernelrt.tensor.autograd.gradient_state import ConsumedGradient
    from kernelrt.tensor.base import TensorBase

__all__ = ["DIFFERENT", "ERROR", "SAME", "VmapTrace"]

_T = TypeVar("_T")

DIFFERENT, SAME, ERROR = "different", "same", "error"


class VmapTrace(Trace):
    """The trace of a function for one of `count` batch elements.

    Parameters
    ----------
    count : Dim
        Number of batch elements.
    randomness : str
        Whether batch elements draw DIFFERENT random numbers or the SAME, or a draw is an ERROR.
    kind : type
        Class of the tensors.
    """

    def __init__(self, count: Dim, randomness: str, kind: type[TensorBase]) -> None:
        super().__init__()
        self.around = state.local.trace
        self.count = count
        #: Placeholders, with the values of all batch elements along a first axis.
        self.stacks: dict[UOp, UOp] = {}
        self._randomness = randomness
        self._kind = kind
        #: The tensors that stand for one batch element.
        self._members: dict[int, TensorBase] = {}
        #: Nesting depth of bodies of loops and branches.
        self._bodies = 0
        # Made now: nodes made while a branch is called belong to the branch alone.
        self._number = self._placeholder(build.iota(count).cast(dt.uint64))
        if self.around is not None:
            self.numbers = self.around.numbers

    def _begin(self) -> None:
        if self.around is None:
            super()._begin()

    # ---- batch elements

    def member(self, stack: UOp) -> TensorBase:
        """Return a tensor that stands for one slice of `stack` along its first axis."""
        made = self._kind._of(self._placeholder(stack))
        # Gradients flow into it if they flow into `stack`.
        made._plain = False
        self._members[id(made)] = made
        return made

    def _placeholder(self, stack: UOp) -> UOp:
        shape = stack.shape[1:]
        home = Buffer(math.prod(dim_max(d) for d in shape), stack.dtype)
        inputs = (stack,) if stack.dtype.is_float else ()
        node = custom(storage_node(home, shape), _beyond, *inputs)
        self.stacks[node] = stack
        return node

    def spread(self, nodes: Sequence[UOp]) -> list[BatchedValue]:
        """Return the values of nodes for all batch elements, with a first axis if they differ."""
        return along(nodes, self.stacks, self.count)

    def stacked(self, nodes: Sequence[UOp]) -> list[UOp]:
        """Return the values of nodes for all batch elements along a first axis."""
        return [found.lifted(self.count) for found in self.spread(nodes)]

    def close(self) -> None:
        """Pass the queries and differentiated nodes on to the enclosing trace, at the end."""
        outer = self.around
        if outer is None:
            return
        outer.asked = outer.asked or self.asked
        outer.asked_values += self.stacked(self.asked_values)
        outer.differentiated_within(self.stacked(self._roots))

    def _outside(self, work: Callable[[], _T]) -> _T:
        """Call `work` in the enclosing trace."""
        state.local.trace = self.around
        try:
            return work()
        finally:
            state.local.trace = self

    @contextlib.contextmanager
    def within(self, begin: Sequence[tuple[TensorBase, UOp]] = ()) -> Iterator[TracePart]:
        """Enter a body of a loop or branch."""
        self._bodies += 1
        try:
            with super().within(begin) as inner:
                yield inner
        finally:
            self._bodies -= 1

    def drawn(self, size: tuple[Dim, ...], draw: Callable[..., TensorBase]) -> TensorBase:
        """Return random numbers of shape `size`, drawn for all batch elements at once.

        In the body of a loop each iteration draws. There each batch element takes its share of the
        stream from the position that the iteration has reached.
        """
        if self._bodies:
            return draw(size, share=self._share())
        self._check_draws()
        if self._randomness == SAME:
            return self._outside(lambda: draw(size))
        return self.member(self._outside(lambda: draw((self.count, *size)).uop))

    def _share(self) -> tuple[UOp, UOp]:
        """Return the index of a batch element among those of all nested vmaps, and their number."""
        self._check_draws()
        outer = self.around
        if isinstance(outer, VmapTrace):
            index, count = outer._share()
        else:
            index, count = build.scalar(0, dt.uint64), build.scalar(1, dt.uint64)
        if self._randomness == SAME:
            return index, count
        own = build.scalar(self.count, dt.uint64)
        return build.add(index.alu(Op.MUL, own), self._number), count.alu(Op.MUL, own)

    def _check_draws(self) -> None:
        if self._randomness == ERROR:
            raise JitError(
                "randomness: the function draws random numbers, which randomness='error' forbids; "
                "pass randomness='different' to draw separate numbers for each batch element, or "
                "randomness='same' to draw numbers that all batch elements share"
            )

    def refuse_reading(self, what: str, instead: str) -> NoReturn:
        """Raise JitError because `what` needs one value, but each batch element has its own."""
        raise JitError(
            f"{what} reads a value in a function that vmap calls once for all batch elements, "
            f"which have different values; {instead}; to debug with the values of each batch "
            "element, call the function within kernelrt.disable_jit()"
        )

    # ---- tensors from outside

    def holds(self, trace: Trace | None) -> bool:
        """Return whether `trace` encloses this trace."""
        outer = self.around
        return outer is not None and (outer is trace or outer.holds(trace))

    def admit(self, tensor: TensorBase) -> None:
        """Admit a lazy tensor from outside to the enclosing trace; this trace reads its graph."""
        outer = self.around
        if outer is not None and tensor._born is not outer:
            self._outside(lambda: outer.admit(tensor))

    def assigned_to(self, tensor: TensorBase) -> UOp | None:
        """Return the last value assigned to `tensor`, here or in an enclosing trace, or None."""
        found = super().assigned_to(tensor)
        return self.around.assigned_to(tensor) if found is None and self.around else found

    def record(self, tensor: TensorBase, node: UOp) -> None:
        """Record an assignment of `node` to `tensor`, which was created before."""
        if tensor._buffer is None:
            self._states[id(tensor)] = tensor, node
        else:
            super().record(tensor, node)

    def keeps(self, tensor: TensorBase) -> bool:
        """Return whether assignments to a tensor without storage are recorded, as for state.

        This includes arguments, so that bodies of loops carry values assigned to arguments.
        """
        return tensor._born is not self or id(tensor) in self._members

    def written(self) -> list[tuple[TensorBase, UOp]]:
        """Return tensors from outside that were assigned to, with the value for a batch element."""
        return [pair for key, pair in self._states.items() if key not in self._members]

    def check_alone(self, tensor: TensorBase, does: str) -> None:
        """Raise JitError if `tensor` shares memory with another tensor that was assigned to."""
        super().check_alone(tensor, does)
        if self.around is not None:
            self.around.check_alone(tensor, does)

    # ---- gradients

    def requires_grad(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` requires a gradient."""
        answer = tensor._lineage is True
        outer = self.around
        if outer is None:
            return answer
        if tensor._born is not self:
            return self._outside(lambda: outer.requires_grad(tensor))
        if not tensor.dtype.is_float or tensor._plain:
            return False
        return self.asks(tensor.uop) or answer

    def met(self, node: UOp) -> bool:
        """Return whether gradients of `node` reach an argument that requires a gradient."""
        return self.around is not None and self.around.met(node)

    def is_parameter(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` is a parameter."""
        if self.around is None or tensor._born is self:
            return tensor._is_parameter
        return self.around.is_parameter(tensor)

    def tell(self, tensor: TensorBase) -> None:
        """Record that `requires_grad` of `tensor` is set."""
        if self.around is not None and tensor._born is not self:
            self.around.tell(tensor)

    def is_leaf_given(self, tensor: TensorBase) -> bool:
        """Return whether `tensor` is an argument that collects gradients."""
        return self.around is not None and self.around.is_leaf_given(tensor)

    def reach(self, root: UOp) -> None:
        """Record that gradients of `root` flow into all arguments that it depends on."""
        if self.around is not None:
            self.around.reach(root)

    def grad_of(self, tensor: TensorBase) -> TensorBase | ConsumedGradient | None:
        """Return the ``grad`` of `tensor` as the function sees it at this point."""
        if tensor._born is self:
            return super().grad_of(tensor)
        return self._outside(lambda: gradient_state.find(tensor))

    def set_grad(self, tensor: TensorBase, value: TensorBase | None) -> None:
        """Set the ``grad`` of a tensor that was created in this trace."""
        if tensor._born is not self:
            raise GradientError(
                "grad: a function under vmap sets the gradient of a tensor from outside, but vmap "
                "calls the function once for all batch elements, which have different gradients; "
                "use kernelrt.func.grad inside, or call backward() on the result of vmap"
            )
        super().set_grad(tensor, value)


def _beyond(_node: UOp, _gradient: UOp, _i: int) -> NoReturn:
    raise GradientError(
        "vmap: the function computes a gradient that flows past its arguments to a tensor outside, "
        "which all batch elements share; differentiate with respect to the arguments with "
        "kernelrt.func.grad inside, or call backward() on the result of vmap"
    )


