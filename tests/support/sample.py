"""Chooses the cases of each test function that a run takes.

A parametrized function may have a thousand cases. They are split into parts of about three cases,
or of ``n`` cases if the function has the marker ``cases(n)``. A run takes one part, drawn by the
hash of the commit. So for a function with 30 cases, each case runs once in ten commits on average.
A function with up to five cases always runs all of them. A slow test with the marker
``cases(1 / 4)`` runs every fourth time.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["chosen", "commit", "number", "ranks", "touched", "touched_by"]

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
EVERYTHING = (
    "codegen conformance csrc distributions func jit nn ops plan reliability saved surface tune "
    "unit viewer"
)
#: Folders of tests/ that a change below a path most likely breaks; the longest matching path
#: applies. A file of tests/ without an entry belongs to its own folder.
TOUCHES = {
    "csrc/": "csrc plan reliability saved jit tune",
    "kernelrt/_": "csrc plan reliability jit ops unit",
    "kernelrt/backend/": "codegen csrc plan reliability saved unit",
    "kernelrt/backend/llvm/": "codegen ops surface unit tune",
    "kernelrt/cli/": "cli",
    "kernelrt/data/": "data examples",
    "kernelrt/device/": "codegen plan tune unit",
    "kernelrt/distributions/": "distributions",
    "kernelrt/func/": "func jit",
    "kernelrt/ir/": "codegen ops surface unit",
    "kernelrt/jit/": "func jit reliability saved",
    "kernelrt/linalg": "ops surface unit",
    "kernelrt/loops/": "codegen ops surface unit tune",
    "kernelrt/nn/": "nn jit surface",
    "kernelrt/runtime/": "csrc jit plan reliability saved tune viewer",
    "kernelrt/schedule/": "codegen ops surface unit",
    "kernelrt/tensor/": "func jit nn ops reliability surface",
    "kernelrt/tune/": "tune",
    "kernelrt/viewer/": "viewer",
    "kernelrt/": "data distributions func jit nn ops plan surface unit",
    "examples/": "examples",
    "setup.py": "csrc",
    "pyproject.toml": "csrc",
    "tests/conftest.py": EVERYTHING,
    "tests/support/": EVERYTHING,
    "tests/soak/": "reliability",
    "tests/surface/rows.py": "nn ops surface",
    "tests/surface/tables/": "ops surface",
}
#: Cheap folders that test everything: documentation, wheels, examples, planted faults.
ALWAYS = ("cli", "data", "examples", "faults", "package")
#: Minimum number of cases that a run takes of a function without a `cases` marker.
USUAL = 3
#: A run of four parts takes one in this many of a folder's tests marked `exhaustive`.
ROTATION = 8


def commit() -> str:
    """Return the hash of the checked out commit; without git, as in an sdist, the version."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        found = ""
    if found:
        return found
    file = ROOT / "pyproject.toml"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return str(tomllib.loads(text).get("project", {}).get("version", ""))


def number(text: str) -> int:
    """Return a hash of `text` that is the same on every machine and in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def ranks(cases: Sequence[T], parts: int, draw: int, name: str) -> list[int]:
    """Return, for each case, how many draws later it is in the drawn part: 0 if it is now.

    Neighboring cases tend to be similar. So the cases are shuffled, with `name` as the seed, before
    they are divided into parts.
    """
    order = list(range(len(cases)))
    if parts > 1:
        random.Random(name).shuffle(order)  # noqa: S311
    out = [0] * len(cases)
    for place, i in enumerate(order):
        out[i] = (place - draw) % parts
    return out


def chosen(
    items: Iterable[pytest.Item],
    draw: int,
    one_in: int = 1,
    *,
    whole: Callable[[pytest.Item], bool],
) -> dict[pytest.Item, int]:
    """Return the rank of each item. A run takes the items of rank 0.

    A run that shall take N times as many items takes those of rank below N.

    Parameters
    ----------
    items : iterable of pytest.Item
        All collected items.
    draw : int
        Number that chooses the part with rank 0 of each function.
    one_in : int
        Take cases of only one in this many functions, chosen by `draw`.
    whole : callable
        Whether every case of an item's function has rank 0, including those marked `exhaustive`.

    Notes
    -----
    Of a folder's tests that are marked `exhaustive`, every eighth has rank 1.
    """
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    long: dict[Path, list[pytest.Item]] = defaultdict(list)
    out = {}
    for item in items:
        if whole(item):
            out[item] = 0
        elif item.get_closest_marker("exhaustive") is None:
            functions[item.nodeid.partition("[")[0]].append(item)
        else:
            long[item.path.parent].append(item)
    for name, cases in functions.items():
        marker = cases[0].get_closest_marker("cases")
        size = USUAL if marker is None else marker.args[0]
        # The name's number is added, so that a draw takes different parts of the functions.
        if (draw + number(f"{name} function")) % one_in:
            continue
        parts = max(1, int(len(cases) / size)) if size else 1
        out.update(zip(cases, ranks(cases, parts, draw + number(name), name), strict=True))
    for folder, cases in long.items():
        drawn = ranks(cases, ROTATION, draw + number(folder.name), "")
        out.update((case, 1 + rank * ROTATION) for case, rank in zip(cases, drawn, strict=True))
    return out


def touched(since: str) -> set[str]:
    """Return the folders of tests/ that the changes since a commit most likely break.

    Raises
    ------
    pytest.UsageError
        git does not know the commit, or there is no git.
    """
    start = _git(since, "rev-parse", "--verify", "--end-of-options", f"{since}^{{commit}}").strip()
    listed = _git(since, "diff", "-z", "--no-renames", "--relative", "--name-only", start, "--")
    listed += _git(since, "ls-files", "-z", "--others", "--exclude-standard")
    return touched_by(path for path in listed.split("\0") if path)


def touched_by(paths: Iterable[str]) -> set[str]:
    """Return the folders of tests/ that changes of some files most likely break."""
    out = set(ALWAYS)
    for path in paths:
        prefix = max((p for p in TOUCHES if path.startswith(p)), key=len, default=None)
        if prefix is not None:
            out |= set(TOUCHES[prefix].split())
        elif path.startswith("tests/") and path.count("/") > 1:
            out.add(path.split("/")[1])
    return out


def _git(since: str, *arguments: str) -> str:
    """Return what a git command prints in this checkout."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        said = done.stderr.strip()
    except OSError as error:
        said = str(error)
    else:
        if not done.returncode:
            return done.stdout
    raise pytest.UsageError(
        f"--since {since}: git could not list what changed since that commit ({said}); name a "
        "commit that `git log` shows"
    )
