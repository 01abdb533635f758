"""LoadedPlan: a plan of a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt._dispatch import PlanCore
from kernelrt.errors import DomainError, IndexBoundsError, LinAlgError
from kernelrt.ir.domain import decoded
from kernelrt.ir.status import DOMAIN, SOLVE
from kernelrt.native.core import ModelPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from kernelrt.native.core import Bindings, Model

__all__ = ["LoadedPlan"]


class LoadedPlan(PlanCore):
    """A plan of a model file, which the C core runs like any other plan.

    Parameters
    ----------
    model : Model
        The file.
    number : int
        Number of the plan in the file.
    bodies : mapping of int to LoadedPlan
        The plans that come before it, by number.
    """

    def __init__(self, model: Model, number: int, bodies: Mapping[int, Self]) -> None:
        self._model, self._number = model, number
        self._variables = model.variables(number)
        self._values = {name: initial for name, _, _, initial in self._variables}
        regions = [(op, tuple(bodies[b] for b in many)) for op, many in model.bodies(number)]
        super().__init__(ModelPlan(model, number, regions))
        if not model.writes_state(number):
            self.keep_to_own_memory()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the sizes that a run may set."""
        return tuple(name for name, *_ in self._variables)

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Smallest and largest value of each size."""
        return {name: (least, most) for name, least, most, _ in self._variables}

    def values_for(self, values: Mapping[str, int]) -> list[int]:
        """Return the values of all variables when some are set."""
        return [values.get(name, self._values[name]) for name, *_ in self._variables]

    def bindings(self, values: Mapping[str, int]) -> Callable[[], Bindings]:
        """Return the callable that gives a Replay the entries of the C table for some sizes."""
        given = self.values_for(values)
        numbers, chunks = self._model.launch(self._number, given)
        now = dict(zip(self.variables, given, strict=True))
        return lambda: ((), numbers, chunks, ((self, "_values", now),))

    def _op_name(self, op: int) -> str:
        return self._model.op_name(self._number, op)

    def _iteration_name(self, op: int, iteration: int) -> str | None:
        region = self._model.region_name(self._number, op)
        return f"iteration {iteration} of the {region}" if region else None

    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError:
        kind, text, index, size = self._model.explain(
            self._number, op, status_word, self.values_for({})
        )
        if kind == SOLVE:
            return LinAlgError(text)
        if kind == DOMAIN:
            wrong = DomainError(text)
            wrong.value = decoded(index)
            return wrong
        error = IndexBoundsError(text)
        error.index, error.size = index, size
        return error
