"""vmap's trace: one call with placeholders stands for the call of each member.

What the function is given stands for each member: placeholders without a value. The graph that it
builds of them is then batched (:mod:`kernelrt.tensor.tracing.batching_rules`), with the values of
all members in their place. Such a trace may be a part of another one, of a jitted function or of a
function that is itself called for many members.
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
from kernelrt.tensor.tracing.batching_rules import Along, along
from kernelrt.tensor.tracing.trace import Inner, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelrt.ir import Dim, UOp
    from kernelrt.tensor.autograd.gradient_state import Spent
    from kernelrt.tensor.base import TensorBase

__all__ = ["DIFFERENT", "ERROR", "SAME", "MemberTrace"]

_T = TypeVar("_T")

DIFFERENT, SAME, ERROR = "different", "same", "error"


class MemberTrace(Trace):
    """The trace of a function for one of `count` members.

    Parameters
    ----------
    count : Dim
        How many members there are.
    randomness : str
        What a draw of random numbers gives: DIFFERENT ones to each member, the SAME to all, or an
        ERROR.
    kind : type
        The class of tensors.
    """

    def __init__(self, count: Dim, randomness: str, kind: type[TensorBase]) -> None:
        super().__init__()
        self.around = state.local.trace
        self.count = count
        #: Placeholders, and the values of all members along a first axis.
        self.stacks: dict[UOp, UOp] = {}
        self._randomness = randomness
        self._kind = kind
        #: The tensors that stand for one member.
        self._members: dict[int, TensorBase] = {}
        #: How many bodies of loops and choices it is in.
        self._bodies = 0
        # Made now: a branch of a choice keeps to itself what is made while it is called.
        self._number = self._placeholder(build.iota(count).cast(dt.uint64))
        if self.around is not None:
            self.numbers = self.around.numbers

    def _begin(self) -> None:
        if self.around is None:
            super()._begin()

    # ---- members

    def member(self, stack: UOp) -> TensorBase:
        """A tensor that stands for each member's slice of the first axis of `stack`."""
        made = self._kind._of(self._placeholder(stack))
        # Whether gradients flow into it is what they do into the values of all.
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

    def spread(self, nodes: Sequence[UOp]) -> list[Along]:
        """The values of nodes for all members, along a first axis where they differ."""
        return along(nodes, self.stacks, self.count)

    def stacked(self, nodes: Sequence[UOp]) -> list[UOp]:
        """The values of nodes for all members along a first axis."""
        return [found.lifted(self.count) for found in self.spread(nodes)]

    def close(self) -> None:
        """Tell the trace that this one is a part of what it depends on. Its time is over."""
        outer = self.around
        if outer is None:
            return
        outer.asked = outer.asked or self.asked
        outer.asked_values += self.stacked(self.asked_values)
        outer.differentiated_within(self.stacked(self._roots))

    def _outside(self, work: Callable[[], _T]) -> _T:
        """Call `work` as it is done around the function."""
        state.local.trace = self.around
        try:
            return work()
        finally:
            state.local.trace = self

    @contextlib.contextmanager
    def within(self, begin: Sequence[tuple[TensorBase, UOp]] = ()) -> Iterator[Inner]:
        """Enter a body of a loop or of a choice."""
        self._bodies += 1
        try:
            with super().within(begin) as inner:
                yield inner
        finally:
            self._bodies -= 1

    def drawn(self, size: tuple[Dim, ...], draw: Callable[..., TensorBase]) -> TensorBase:
        """Random numbers of shape `size`, drawn for all members at once.

        In a body each turn draws, so there each member takes its share of the stream where the
        turn has come to.
        """
        if self._bodies:
            return draw(size, share=self._share())
        self._check_draws()
        if self._randomness == SAME:
            return self._outside(lambda: draw(size))
        return self.member(self._outside(lambda: draw((self.count, *size)).uop))

    def _share(self) -> tuple[UOp, UOp]:
        """The number of a member, with those of the traces around, and how many there are."""
        self._check_draws()
        outer = self.around
        if isinstance(outer, MemberTrace):
            place, count = outer._share()
        else:
            place, count = build.scalar(0, dt.uint64), build.scalar(1, dt.uint64)
        if self._randomness == SAME:
            return place, count
        own = build.scalar(self.count, dt.uint64)
        return build.add(place.alu(Op.MUL, own), self._number), count.alu(Op.MUL, own)

    def _check_draws(self) -> None:
        if self._randomness == ERROR:
            raise JitError(
                "randomness: the function draws random numbers, which randomness='error' forbids; "
                "pass randomness='different' to draw separate numbers for each batch element, or "
                "randomness='same' to draw numbers that all batch elements share"
            )

    def refuse_reading(self, what: str) -> NoReturn:
        """Raise JitError: `what` needs a value where there are as many as members."""
        raise JitError(
            f"{what} reads a value in a function that vmap calls once for all batch elements, "
            "which have different values; return the tensor and read it outside, or branch inside "
            "with where() or kernelrt.cond() and loop with kernelrt.while_loop(); to debug with "
            "the values of each batch element, call the function within kernelrt.disable_jit()"
        )

    # ---- tensors from outside

    def holds(self, trace: Trace | None) -> bool:
        """Whether `trace` is around this one."""
        outer = self.around
        return outer is not None and (outer is trace or outer.holds(trace))

    def admit(self, tensor: TensorBase) -> None:
        """Let a lazy tensor from outside in. It is no state of a plan, so its graph is read."""
        outer = self.around
        if outer is not None and tensor._born is not outer:
            self._outside(lambda: outer.admit(tensor))

    def assigned_to(self, tensor: TensorBase) -> UOp | None:
        """What was assigned to `tensor` last, here or around; None if nothing was."""
        found = super().assigned_to(tensor)
        return self.around.assigned_to(tensor) if found is None and self.around else found

    def record(self, tensor: TensorBase, node: UOp) -> None:
        """Note that `node` is assigned to `tensor`, which was there before."""
        if tensor._buffer is None:
            self._states[id(tensor)] = tensor, node
        else:
            super().record(tensor, node)

    def keeps(self, tensor: TensorBase) -> bool:
        """Whether what is assigned to a tensor without storage is kept as that of state is.

        So bodies of loops carry what they assign to arguments.
        """
        return tensor._born is not self or id(tensor) in self._members

    def written(self) -> list[tuple[TensorBase, UOp]]:
        """What tensors from outside were assigned, for one member."""
        return [pair for key, pair in self._states.items() if key not in self._members]

    def check_alone(self, tensor: TensorBase, does: str) -> None:
        """Raise JitError if `tensor` shares memory with another that was assigned to."""
        super().check_alone(tensor, does)
        if self.around is not None:
            self.around.check_alone(tensor, does)

    # ---- gradients

    def requires_grad(self, tensor: TensorBase) -> bool:
        """Whether `tensor` requires a gradient."""
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
        """Whether an argument that gradients of `node` come to has a gradient."""
        return self.around is not None and self.around.met(node)

    def is_parameter(self, tensor: TensorBase) -> bool:
        """Whether `tensor` is a parameter."""
        if self.around is None or tensor._born is self:
            return tensor._is_parameter
        return self.around.is_parameter(tensor)

    def tell(self, tensor: TensorBase) -> None:
        """Note that `tensor` is told whether it requires a gradient."""
        if self.around is not None and tensor._born is not self:
            self.around.tell(tensor)

    def is_leaf_given(self, tensor: TensorBase) -> bool:
        """Whether `tensor` is an argument that gradients are collected for."""
        return self.around is not None and self.around.is_leaf_given(tensor)

    def reach(self, root: UOp) -> None:
        """Note that gradients of `root` flow into all that it is made of."""
        if self.around is not None:
            self.around.reach(root)

    def grad_of(self, tensor: TensorBase) -> TensorBase | Spent | None:
        """The ``grad`` of `tensor` as the function finds it here."""
        if tensor._born is self:
            return super().grad_of(tensor)
        return self._outside(lambda: gradient_state.find(tensor))

    def set_grad(self, tensor: TensorBase, value: TensorBase | None) -> None:
        """Set the ``grad`` of a tensor that was made here."""
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


