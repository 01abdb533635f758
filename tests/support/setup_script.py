"""setup.py as a module: the sources, options and commands of the build."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["load_setup"]

ROOT = Path(__file__).parents[2]


def load_setup() -> Any:
    """Import the setup.py of this checkout; needs setuptools."""
    spec = importlib.util.spec_from_file_location("setup_of_kernelrt", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
