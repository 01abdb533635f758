"""Cached specializations of a jitted function, and the differences between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernelrt.jit.signature import differences
from kernelrt.tensor import state
from kernelrt.tensor.tracing.trace import lineage_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.jit.binding import PendingWork
    from kernelrt.jit.dynamic import SizedReplays
    from kernelrt.jit.signature import Spec
    from kernelrt.jit.tracing import Call, Traced
    from kernelrt.runtime import ExecutionPlan

__all__ = ["Plan", "Variant", "reason"]


class Plan(Protocol):
    """A plan for one argument signature, from a trace or from a model file."""

    @property
    def once(self) -> bool:
        """True if the next call needs another plan."""

    def fits(self) -> bool:
        """Return whether the state that the function read is unchanged."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Variant:
    """A trace of a function for one argument signature, and its plan."""

    serial: int
    call: Call
    specs: tuple[Spec, ...]
    traced: Traced
    plan: ExecutionPlan
    replays: SizedReplays
    pending: PendingWork
    taken_in_c: bool
    why: str

    @property
    def once(self) -> bool:
        """True if the next call needs another plan."""
        return self.traced.watch.once

    def fits(self) -> bool:
        """Return whether the state that the function read is unchanged."""
        return self.traced.records in (None, state.local.grad) and self.traced.watch.fits()

    def takes(self, leaves: Sequence[Any]) -> bool:
        """Return whether autograd queries of the arguments get the same answers as in the trace."""
        return all(ask(leaves[i]) == answer for (i, ask), answer in self.traced.asked.items())

    def lines(self, number: int) -> list[str]:
        """Return the lines that `JitFunction.explain` prints for this plan."""
        named = zip(self.call.leaves, self.specs, strict=True)
        text = ", ".join(f"{name}: {spec}" for name, spec in named) or "no arguments"
        found = [f"  {number}. {text}" + (f"; {self.why}" if self.why else "")]
        if self.traced.numbers:
            found.append("     part of the program: " + ", ".join(self.traced.numbers))
        return found


def reason(
    known: Sequence[Variant], call: Call, specs: tuple[Spec, ...], leaves: Sequence[Any]
) -> str:
    """Describe how a call differs from the most similar plan made so far."""
    if not known:
        return ""
    alike = [v for v in known if v.call == call]
    if not alike:
        return "the arguments are nested or passed differently"
    found = [list(differences(call.leaves, v.specs, specs)) for v in alike]
    _, fewest = min((len(clauses), clauses) for clauses in found)
    if fewest:
        return ", ".join(fewest)
    for (i, ask), answer in alike[-1].traced.asked.items():
        if ask(leaves[i]) != answer:
            what = "require a gradient" if ask is lineage_kind else "be a parameter"
            return f"{call.leaves[i]} began or ceased to {what}"
    if alike[-1].traced.records not in (None, state.local.grad):
        return f"gradients are {'' if state.local.grad else 'not '}recorded at the call"
    return alike[-1].traced.watch.differs() or "its state moved in memory"
