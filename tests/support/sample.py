"""Which cases of each test function a run takes.

A parametrized function may have a thousand cases. They are split into parts of about three, or as
many as its marker ``cases(n)`` says, and a run takes one part, drawn by the hash of the commit. So
a function of 30 cases meets each of them every ten commits on average.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["chosen", "commit", "number", "part", "touched"]

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
#: Folders of tests/ that a change below a path can make fail; the longest path counts.
TOUCHES = {
    "csrc/": "csrc plan reliability jit tune",
    "kernelrt/_": "csrc plan reliability jit ops unit",
    "kernelrt/backend/": "codegen csrc plan reliability unit",
    "kernelrt/cli/": "cli",
    "kernelrt/codegen/": "codegen ops surface unit tune",
    "kernelrt/data/": "data examples",
    "kernelrt/device/": "codegen plan tune unit",
    "kernelrt/distributions/": "distributions",
    "kernelrt/func/": "func jit",
    "kernelrt/ir/": "codegen ops surface unit",
    "kernelrt/jit/": "func jit reliability",
    "kernelrt/linalg": "ops surface unit",
    "kernelrt/nn/": "nn jit surface",
    "kernelrt/runtime/": "csrc jit plan reliability tune",
    "kernelrt/schedule/": "codegen ops surface unit",
    "kernelrt/tensor/": "func jit nn ops reliability surface",
    "kernelrt/tune/": "tune",
    "kernelrt/": "data distributions func jit nn ops plan surface unit",
    "examples/": "examples",
}
#: Cheap, and about everything: documentation, wheels, examples, planted faults.
ALWAYS = ("cli", "data", "examples", "faults", "package")
#: Cases that a run takes of a function without a `cases` marker.
USUAL = 3


def commit() -> str:
    """Return the hash of the checked out commit; "" for a copy without git."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""


def number(text: str) -> int:
    """Return the number that `text` draws by: the same on every machine and in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def part(cases: Sequence[T], size: int, draw: int, name: str) -> list[T]:
    """Return the part number `draw` of `cases`, in their order, of about `size` cases.

    Neighbours tend to be alike, so a part has every n-th case of a shuffle that `name` decides.
    """
    parts = max(1, -(-len(cases) // max(1, size)))
    order = list(range(len(cases)))
    if parts > 1:
        random.Random(name).shuffle(order)  # noqa: S311
    return [cases[i] for i in sorted(order[draw % parts :: parts])]


def chosen(
    items: Iterable[pytest.Item],
    draw: int,
    times: int = 1,
    *,
    whole: Callable[[pytest.Item], bool],
) -> set[pytest.Item]:
    """Return the items that a run takes.

    Parameters
    ----------
    items : iterable of pytest.Item
        Everything that was collected.
    draw : int
        Which part of each function is taken.
    times : int
        How many times the usual number of cases a function gives.
    whole : callable
        Whether a run takes every case of an item's function, also one marked `exhaustive`.
    """
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    out = set()
    for item in items:
        if whole(item):
            out.add(item)
        elif item.get_closest_marker("exhaustive") is None:
            functions[item.nodeid.partition("[")[0]].append(item)
    for name, cases in functions.items():
        marker = cases[0].get_closest_marker("cases")
        size = USUAL if marker is None else marker.args[0]
        # Offset by the name: the same commits would take part 0 of all functions otherwise.
        out.update(part(cases, size * times, draw + number(name), name))
    return out


def touched(since: str) -> set[str]:
    """Return the folders of tests/ that the changes since a commit can make fail.

    Raises
    ------
    pytest.UsageError
        git does not know the commit.
    """
    command = ["git", "-C", str(ROOT), "diff", "--name-only", since, "--"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise pytest.UsageError(
            f"--since {since}: git knows no such commit here ({done.stderr.strip()}); name one "
            "that `git log` shows"
        )
    out = set(ALWAYS)
    for path in done.stdout.split():
        prefix = max((p for p in TOUCHES if path.startswith(p)), key=len, default=None)
        out |= {path.split("/")[1]} if path.startswith("tests/") else set()
        out |= set(TOUCHES[prefix].split()) if prefix else set()
    return out
