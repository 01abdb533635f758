"""Programs that change views in place, beside torch (tests/support/view_programs)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]


def generate(rng: np.random.Generator) -> Case:
    from support import view_programs

    return view_programs.generate(rng)


def run(case: Case) -> str | None:
    from support import view_programs

    try:
        view_programs.check(case)
    except view_programs.Refused:
        return None
    except AssertionError as error:
        return f"values: {error}"
    record.note("programs with views")
    return None


def shrink(case: Case) -> Iterator[Case]:
    from support import view_programs

    return view_programs.shrink(case)


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", repr(case))


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import view_programs\n"
        f"view_programs.check({case!r})"
    )
