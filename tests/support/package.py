"""The folder of the package that is tested. (A checkout's folder may be called kernelrt, too.)"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__ = ["PACKAGE", "is_in_package"]


def _folder() -> str:
    # A process that only starts others finds the package without importing it.
    spec = importlib.util.find_spec("kernelrt")
    assert spec is not None
    assert spec.origin is not None
    return f"{Path(spec.origin).parent}{os.sep}"


PACKAGE = _folder()


def is_in_package(file: str) -> bool:
    """Return whether a file, as tracebacks name it, belongs to the package."""
    return file.startswith(PACKAGE)
