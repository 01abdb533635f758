"""Imports modules of docs/, which make and check the site, as a package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

__all__ = ["load"]

ROOT = Path(__file__).parents[2]


def load(name: str) -> Any:
    """Import the module `name` of this checkout's docs/, even if another package is called docs."""
    if "docs" not in sys.modules:
        spec = importlib.util.spec_from_file_location("docs", ROOT / "docs" / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["docs"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"docs.{name}")
