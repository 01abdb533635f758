"""Graphs that are equal up to their sizes and numbers, and what is known of them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelrt._evaluate import Used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import UOp
    from kernelrt.tensor.size_families import SizedPlan

__all__ = ["SizeFamily"]

#: How many forms a family tries in vain before each graph gets a plan of its own.
MOST_TRIES: Final = 4
#: How many plans a family has, the newest ones.
MOST_PLANS: Final = 4
#: How many sizes without a plan a family remembers.
MOST_SEEN: Final = 8


@dataclass(slots=True, eq=False)
class SizeFamily(Used):
    """Graphs that are equal up to their sizes and numbers.

    Attributes
    ----------
    seen : dict
        For each tuple of sizes that no plan fitted, the numbers of its graphs; the newest ones.
    plans : list of weakref to SizedPlan
        The plans that compute the others, while entries of the plan cache keep them.
    failures : int
        How many forms were made in vain.
    spent : float
        An estimate of what interpreting its graphs has taken, in nanoseconds.
    """

    seen: dict[tuple[int, ...], list[tuple[UOp, ...]]] = field(default_factory=dict)
    plans: list[weakref.ref[SizedPlan]] = field(default_factory=list)
    failures: int = 0
    spent: float = 0.0

    def find(
        self, sizes: tuple[int, ...], numbers: Sequence[UOp]
    ) -> tuple[SizedPlan, dict[str, int]] | None:
        """Find the newest plan for a graph, and the values of its Variables."""
        for ref in reversed(self.plans):
            plan = ref()
            named = None if plan is None else plan.values(sizes, numbers)
            if plan is not None and named is not None:
                return plan, named
        return None

    def note(self, sizes: tuple[int, ...], numbers: tuple[UOp, ...]) -> None:
        """Record a graph for the plans to come."""
        if self.failures >= MOST_TRIES:
            return
        met = self.seen.setdefault(sizes, [])
        if len(met) < MOST_TRIES:
            met.append(numbers)
        for oldest in list(self.seen)[:-MOST_SEEN]:
            self.seen.pop(oldest, None)

    def fail(self) -> None:
        """Note that a form was made in vain."""
        self.failures += 1
        if self.failures >= MOST_TRIES:
            self.seen.clear()

    def keep(self, plan: SizedPlan) -> None:
        """Keep a plan."""
        alive = [ref for ref in self.plans if ref() is not None]
        self.plans = [*alive[-MOST_PLANS + 1 :], weakref.ref(plan)]
