"""Eager programs whose sizes and rows change, beside torch (tests/support/size_programs)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]


def generate(rng: np.random.Generator) -> Case:
    from support import size_programs

    return size_programs.generate(rng)


def run(case: Case) -> str | None:
    from support import size_programs

    try:
        size_programs.check(case)
    except size_programs.Refused:
        return None
    except AssertionError as error:
        return f"values: {error}"
    record.note("programs of many sizes")
    return None


def shrink(case: Case) -> Iterator[Case]:
    from support import size_programs

    return size_programs.shrink(case)


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", repr(case))


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import size_programs\n"
        f"size_programs.check({case!r})"
    )
