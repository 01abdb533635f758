"""Copy the tree, plant a fault in the copy, and build the modules that it changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .table import Fault

ROOT = Path(__file__).parents[2]
#: Suffixes of C and Cython sources.
COMPILED = (".c", ".h", ".pyx", ".pxd")


class PlantingError(Exception):
    """A fault cannot be planted, or the tree with it cannot be built."""


def place_of(fault: Fault, lines: list[str]) -> int:
    """Return the number of the line that `fault` changes.

    Raises
    ------
    PlantingError
        No line is that of the fault, or several are.
    """
    found = [
        i
        for i, line in enumerate(lines)
        if line.strip() == fault.line and (not fault.near or lines[i - 1].strip() == fault.near)
    ]
    if len(found) != 1:
        behind = f" below {fault.near!r}" if fault.near else ""
        raise PlantingError(
            f"{fault.name}: {fault.file} has the line {fault.line!r}{behind} {len(found)} times, "
            "expected once; update the fault in tests/faults/table.py"
        )
    return found[0]


def planted(fault: Fault, text: str) -> str:
    """Return the `text` of the file with the fault in it."""
    lines = text.splitlines(keepends=True)
    at = place_of(fault, lines)
    lines[at] = lines[at].replace(fault.line, fault.becomes)
    return "".join(lines)


def copy_tree(folder: Path) -> None:
    """Copy the files of the tree, as Git knows them, to `folder`; nothing that was built."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, check=False, capture_output=True, text=True)
    if found.returncode:
        raise PlantingError(f"git lists no files of {ROOT} ({found.stderr.strip()}); use a clone")
    for name in found.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def plant(fault: Fault, folder: Path) -> None:
    """Put `fault` into the tree in `folder`."""
    path = folder / fault.file
    text = planted(fault, path.read_text(encoding="utf-8"))
    if path.suffix == ".py":
        compile(text, fault.file, "exec")
    path.write_text(text, encoding="utf-8")


def build(folder: Path) -> int:
    """Build the modules of the tree in `folder` that are out of date; return how many.

    Raises
    ------
    PlantingError
        One does not compile.
    """
    before = _times(folder)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise PlantingError(f"the build failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    return len(_times(folder).items() - before.items())


def _times(folder: Path) -> dict[Path, int]:
    """Return the modification times of the compiled modules."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("build/lib*/kernelrt/**/*.so")}
