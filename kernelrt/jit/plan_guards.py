"""Guards of a plan on state beside its arguments, checked after something has changed."""

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
    from kernelrt.nn.modes import Noted
    from kernelrt.tensor.autograd.gradient_state import Effect, Handover
    from kernelrt.tensor.autograd.tags import Hooks
    from kernelrt.tensor.base import TensorBase

__all__ = ["Watch"]


class Watch:
    """Python state that a traced function read, and what its plan does to gradients.

    A replay asks it before a run whenever `kernelrt.native.array_handle.touch` was called since the
    last run that it had nothing to do for.

    Parameters
    ----------
    noted : sequence of Noted
        Attributes of modules and optimizers that were read, with their values.
    names : Names
        Variables that were read; a replay itself looks at them in each call.
    rebound : str
        One of them that the function rebound itself.
    roots : iterable of UOp
        What gradients were taken of, and what gradients of results would come to.
    effects : sequence of Effect
        What happens to gradients.
    read, written : collection of Buffer
        Memory that the plan reads and writes.
    required : sequence of (Tensor, bool)
        Tensors that were asked or told whether they require a gradient, and whether they did
        before the function ran.
    settings : sequence of (Tensor, bool)
        Whether those whose answer it changes require a gradient when it has run.
    parameters : sequence of (Tensor, bool)
        Tensors that were asked whether they are parameters, and whether they were.
    """

    def __init__(
        self,
        noted: Sequence[Noted],
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
        # The function may have set what it read. Then this call is the only one that the plan fits.
        self._once = next((item.change() for item in self._noted if not item.holds()), "")
        if rebound:
            self._once = f"{rebound} was rebound"
        self._first = bool(self._once)
        self._effects = tuple(effects)
        self._found = tuple(effect for effect in self._effects if effect.reads == GIVEN)
        self._required = tuple(required)
        self._settings = tuple(settings)
        self._parameters = tuple(parameters)
        #: Held by a call from its look at the gradients until they are handed on, where there are
        #: any: another one would bring them to where this one computes.
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
        """Whether the plan fits one call alone, the one that it was traced for."""
        return bool(self._once)

    def _live_leaves(self) -> frozenset[tuple[Buffer, Hooks]]:
        """Those of the sources whose tensors collect gradients, with what sees these."""
        if not self._sources:
            return frozenset()
        with state.lock:
            live = _leaves()
        return frozenset(both for both in live if both[0] in self._sources)

    def differs(self) -> str:
        """What is not as it was when the function was traced; empty if the plan fits."""
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
                return f"the grad of a tensor of shape {shape} is {now}, it was {effect.reads}"
        if self._found and not are_shared_alike(self._found, self._read, self._written):
            return "a tensor began or ceased to be the gradient of another, or of two"
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
        """Whether the plan does what the function would do now."""
        if self._first:
            self._first = False
            return True
        return not self.differs()

    def before(self) -> tuple[bool, Handover, tuple[tuple[TensorBase, bool], ...]]:
        """Make ready for a run; whether there was anything to do, and what there is afterwards.

        The last are tensors, and whether they require a gradient from then on.
        """
        if not self._effects:
            return bool(self._once), _NOTHING, self._settings
        with state.lock:
            return *before_run(self._effects), self._settings


def _leaves() -> list[tuple[Any, Hooks]]:
    """The memory of all tensors that collect gradients, with what sees these."""
    # A list of the references is made in one step; interrupting code may make leaves.
    return [
        (t._memory, leaf.hooks) for ref in state.leaves.valuerefs()
        if (t := ref()) is not None and (leaf := t._leaf) is not None
    ]  # fmt: skip


_NOTHING: Final[Handover] = ([], [])
