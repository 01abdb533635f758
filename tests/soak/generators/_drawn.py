"""Generators whose cases a module of tests/support draws, compares with torch, and shrinks."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import numpy as np

Case = dict[str, Any]


class Drawn:
    """The functions of a generator.

    Parameters
    ----------
    name : str
        Module with ``generate``, ``check``, ``shrink`` and ``Refused``.
    unit : str
        Name of a case, for the final table.
    """

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit

    @property
    def module(self) -> ModuleType:
        """The module, imported when a case is drawn or run."""
        return importlib.import_module(f"support.{self.name}")

    def generate(self, rng: np.random.Generator) -> Case:
        """Draw a case."""
        case: Case = self.module.generate(rng)
        return case

    def run(self, case: Case) -> str | None:
        """Describe how the libraries differ; None if they agree or torch refuses the program."""
        try:
            self.module.check(case)
        except self.module.Refused:
            return None
        except AssertionError as error:
            return f"values: {error}"
        record.note(self.unit)
        return None

    def shrink(self, case: Case) -> Iterator[Case]:
        """Yield smaller cases."""
        found: Iterator[Case] = self.module.shrink(case)
        return found

    def key(self, case: Case) -> str:
        """Return the common features of cases of one kind."""
        return re.sub(r"\d+", "#", repr(case))

    def source(self, case: Case) -> str:
        """Write a case as a program."""
        return (
            "import sys; sys.path.insert(0, 'tests')\n"
            f"from support import {self.name}\n"
            f"{self.name}.check({case!r})"
        )
