"""Checks that the tests import the kernelrt of this checkout."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

__all__ = ["check_import", "header", "stale_modules"]

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "kernelrt"
NATIVE = (".pyx", ".pxd", ".c", ".h")


def check_import() -> None:
    """Import kernelrt before any test does, and check that it is that of this checkout.

    Raises
    ------
    pytest.UsageError
        kernelrt cannot be imported, or the imported package differs from the checkout.
    """
    try:
        package = importlib.import_module("kernelrt")
    except ImportError as error:
        advice = "; run `pip install -e .`" if error.name == "kernelrt" else ""
        raise pytest.UsageError(f"the tests cannot import kernelrt: {error}{advice}") from None
    folder = _folder(package.__file__)
    if differing := _differing(folder):
        more = f" and {len(differing) - 1} more files" if len(differing) > 1 else ""
        raise pytest.UsageError(
            f"the tests would import kernelrt from {folder}, which differs from this checkout in "
            f"{differing[0]}{more}; run `pip install -e .` to test the files of the checkout, or "
            "`pip install .` to install them again"
        )


def _folder(file: str | None) -> Path:
    assert file is not None
    return Path(file).resolve().parent


def _differing(folder: Path) -> list[str]:
    """Return the Python files of the checkout that are missing or different in `folder`."""
    if folder == SOURCES or not SOURCES.exists():
        return []
    names = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*.py"))
    return [
        f"kernelrt/{name}"
        for name in names
        if not (folder / name).exists()
        or (folder / name).read_bytes() != (SOURCES / name).read_bytes()
    ]


def stale_modules() -> str:
    """Return a source newer than the compiled modules of the checkout, or ""."""
    folder = _folder(importlib.import_module("kernelrt").__file__)
    built = [path.stat().st_mtime for path in folder.rglob("*.so")]
    if folder != SOURCES or not built:
        return ""
    sources = [
        path
        for place in (SOURCES, ROOT / "csrc")
        for path in place.rglob("*")
        # Cython writes its C files next to the sources.
        if path.suffix in NATIVE and not (place == SOURCES and path.suffix == ".c")
    ]
    newer = [path for path in sources if path.stat().st_mtime > min(built)]
    return str(newer[0].relative_to(ROOT)) if newer else ""


def header() -> list[str]:
    """Return lines for the head of a run."""
    lines = [f"kernelrt: {_folder(importlib.import_module('kernelrt').__file__)}"]
    if source := stale_modules():
        lines.append(
            f"kernelrt: {source} is newer than the compiled modules; run "
            "`python setup.py build_ext --inplace`"
        )
    return lines
