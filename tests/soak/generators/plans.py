"""Random handwritten plans, against an interpreter over NumPy (tests/support/plan_model)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
SHARE = 0.3


def generate(rng: np.random.Generator) -> Case:
    from support import plan_model

    seed = int(rng.integers(2**40))
    plan = dataclasses.asdict(plan_model.generate(seed))
    return {"seed": seed, "arena": bool(rng.integers(2)), "plan": plan}


def built(case: Case) -> Any:
    """Build the model's own classes from plain data."""
    from support import plan_model as model

    def frozen(value: Any) -> Any:
        return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value

    plan = {name: frozen(value) for name, value in case["plan"].items()}
    plan["places"] = tuple(model.Place(**place) for place in plan["places"])
    plan["ops"] = tuple(
        model.Step(**{name: frozen(value) for name, value in op.items()}) for op in plan["ops"]
    )
    return model.Case(**plan)


def run(case: Case) -> str | None:
    from support import plan_model

    record.note("plans made by hand")
    why = plan_model.failure(built(case), case["seed"], case["arena"])
    return why if why is None else f"values: {why}"


def shrink(case: Case) -> Iterator[Case]:
    from support import plan_model

    for smaller in plan_model._smaller(built(case)):
        yield {**case, "plan": dataclasses.asdict(smaller)}


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from tests.soak.generators import plans\n"
        f"case = {case!r}\n"
        "assert plans.run(case) is None, plans.run(case)"
    )
