"""One operation at a time: value, type, shape and gradients of a random call against torch."""

from __future__ import annotations

from typing import Any

from support import op_cases
from support.op_cases import generate
from support.op_cases import smaller as shrink

from tests.soak import record

__all__ = ["generate", "key", "run", "shrink", "source"]

SHARE = 4.0


def run(case: dict[str, Any]) -> str | None:
    return op_cases.run(case, lambda: record.note("single operations"))


def key(case: dict[str, Any]) -> str:
    """Return the row and the type: such calls most likely fail for one cause."""
    return case["call"] + " ".join(v["dtype"] for v in case["inputs"])


def source(case: dict[str, Any]) -> str:
    """Return a program that fails where the case does."""
    return (
        "import sys\n\nsys.path.insert(0, 'tests')\n"
        "from support.op_cases import run\n\n"
        f"case = {case!r}\nmessage = run(case)\nassert message is None, message\n"
    )
