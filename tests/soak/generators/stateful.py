"""Random programs with state, jitted and eager, compared with torch (tests/support/stateful)."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
SHARE = 2.2


def generate(rng: np.random.Generator) -> Case:
    from support import stateful

    return dataclasses.asdict(stateful.generate(rng))


def built(case: Case) -> Any:
    """Build the generator's own classes from plain data."""
    from support import stateful

    def frozen(value: Any) -> Any:
        return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value

    fields = {name: frozen(value) for name, value in case.items() if name != "interprets"}
    fields["functions"] = tuple(
        stateful.Function(**{name: frozen(value) for name, value in function.items()})
        for function in case["functions"]
    )
    return stateful.Case(**fields)


def run(case: Case) -> str | None:
    from support import stateful

    record.note("stateful programs")
    why = stateful.run(built(case))
    return why if why is None else f"values: {why}"


def shrink(case: Case) -> Iterator[Case]:
    from support import stateful

    for smaller in stateful._smaller(built(case)):
        yield {**case, **dataclasses.asdict(smaller)}


def key(case: Case) -> str:
    return re.sub(r"\d", "#", repr([case["actions"], case["functions"]]))


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from tests.soak.generators import stateful\n"
        f"case = {case!r}\n"
        "assert stateful.run(case) is None, stateful.run(case)"
    )
