"""Guards of a plan on state other than its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kernelrt.ir import Op, toposort
from kernelrt.native import locks
from kernelrt.nn import Module, modes
from kernelrt.tensor import state
from kernelrt.tensor.autograd.gradient_state import GIVEN, are_shared_alike, before_run, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.native.name_guards import Names
    from kernelrt.nn.modes import AttributeRead
    from kernelrt.tensor.autograd.gradient_state import Effect, Handover
    from kernelrt.tensor.autograd.tags import Hooks
    from kernelrt.tensor.base import TensorBase

__all__ = ["Watch"]


class Watch:
    """Guards on the Python state that a traced function read, and the gradient effects of its plan.

    A replay does not check the guards before each run. It checks them only if
    `kernelrt.native.array_handle.touch`, which reports a change of state, was called since the last
    run in which there was nothing to do.

    Parameters
    ----------
    noted : sequence of AttributeRead
        Attributes of modules and optimizers that were read, with their values.
    names : Names
        Variables that were read. The replay itself checks them in each call.
    rebound : str
        Name of a variable that the function rebound itself; empty if there is none.
    roots : iterable of UOp
        Nodes that were differentiated, and nodes to which gradients of the results would flow.
    effects : sequence of Effect
        Changes of gradients.
    read, written : collection of Buffer
        Memory that the plan reads and writes.
    required : sequence of (Tensor, bool)
        Tensors whose `requires_grad` was read or set, with its value before the function ran.
    settings : sequence of (Tensor, bool)
        Tensors whose `requires_grad` the function changes, with the value after a run.
    parameters : sequence of (Tensor, bool)
        Tensors that were queried for being parameters, with the answers.
    """

    def __init__(
        self,
        noted: Sequence[AttributeRead],
        names: Names,
        rebound: str,
        roots: Iterable[UOp],
        effects: Sequence[Effect],
        read: Collection[Buffer],
        written: Collection[Buffer],
        required: Sequence[tuple[TensorBase, bool]] = (),
        settings: Sequence[tuple[TensorBase, bool]] = (),
        parameters: Sequence[tuple[TensorBase, bool]] = (),
    ) -> None:
        self._read, self._written = read, written
        self.names = names
        self._noted = tuple(noted)
        self._version = modes.version()
        for item in self._noted:
            if isinstance(item.owner, Module):
                modes.watch(item)
        # If the function changed state that it had read, the plan fits only this call.
        self._once = next((item.change() for item in self._noted if not item.holds()), "")
        if rebound:
            self._once = f"{rebound} was rebound"
        self._first = bool(self._once)
        self._effects = tuple(effects)
        self._found = tuple(effect for effect in self._effects if effect.reads == GIVEN)
        self._required = tuple(required)
        self._settings = tuple(settings)
        self._parameters = tuple(parameters)
        #: Lock that a call with gradient effects holds from reading the gradients until it hands
        #: them over. Without it, another call might put gradients in the memory that this call
        #: writes.
        self.entry = locks.Lock(locks.CALL) if self._effects else None
        self._sources = frozenset(
            node.arg for node in toposort(list(roots)) if node.op is Op.BUFFER
        )
        self._flips = state.flips[0]
        self._leaves = self._live_leaves()

    def __bool__(self) -> bool:
        return bool(
            self._once or self._noted or self._effects or self._sources or self._required
            or self._parameters
        )

    @property
    def once(self) -> bool:
        """Whether the plan fits only the call that it was traced for."""
        return bool(self._once)

    def repeats(self) -> bool:
        """Return whether a run leaves each gradient in the state that the next run expects."""
        return all(effect.reads in (None, effect.after) for effect in self._effects)

    def _live_leaves(self) -> frozenset[tuple[Buffer, Hooks]]:
        """Return the sources whose tensors accumulate gradients, with their hooks."""
        if not self._sources:
            return frozenset()
        with state.lock:
            live = _leaves()
        return frozenset(both for both in live if both[0] in self._sources)

    def differs(self) -> str:
        """Describe the first change since the function was traced; empty if the plan fits."""
        if self._once:
            return f"{self._once} by the function itself"
        change = self.names.changed()
        if change is not None:
            return change
        version = modes.version()
        if version != self._version:
            for item in self._noted:
                if not item.holds():
                    return item.change()
            self._version = version
        for effect in self._effects:
            if not effect.fits():
                shape = effect.tensor.shape
                now = kind_of(effect.tensor._grad)
                return f"the grad of a tensor of shape {shape} was {effect.reads} and is {now} now"
        if self._found and not are_shared_alike(self._found, self._read, self._written):
            return (
                "gradients share memory with each other, or with other tensors, in another way "
                "than during the trace"
            )
        for tensor, answer in self._required:
            if (tensor._lineage is True) is not answer:
                return "a tensor began or ceased to require a gradient"
        for tensor, answer in self._parameters:
            if tensor._is_parameter is not answer:
                return "a tensor began or ceased to be a parameter"
        flips = state.flips[0]
        if flips != self._flips:
            if self._live_leaves() != self._leaves:
                return "a tensor began or ceased to require a gradient, or its hooks changed"
            self._flips = flips
        return ""

    def fits(self) -> bool:
        """Return whether the plan does what the function would do now."""
        if self._first:
            self._first = False
            return True
        return not self.differs()

    def before(self) -> tuple[bool, Handover, tuple[tuple[TensorBase, bool], ...]]:
        """Prepare the gradients for a run.

        Return three values: whether there was work or will be in the next run, the gradients to
        hand over after the run, and the tensors whose `requires_grad` the run changes, each with
        its new value.
        """
        if not self._effects:
            return bool(self._once), _NOTHING, self._settings
        with state.lock:
            return *before_run(self._effects), self._settings


def _leaves() -> list[tuple[Any, Hooks]]:
    """Return the memory of all tensors that accumulate gradients, with their hooks."""
    # The list of references is copied in one step: code that interrupts may create leaves.
    return [
        (t._memory, leaf.hooks) for ref in state.leaves.valuerefs()
        if (t := ref()) is not None and (leaf := t._leaf) is not None
    ]  # fmt: skip


_NOTHING: Final[Handover] = ([], [])
