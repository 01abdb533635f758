"""Writes ``docs/conformance.md``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .outcome import BAD, KINDS, Outcome, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PAGE", "write", "written"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"
TITLES: Final = {"ops": "Operations", "modules": "Modules"}
#: The longest reason in the table.
LONGEST: Final = 110

HEAD: Final = """# Conformance

This page compares kernelrt with PyTorch, operation by operation. The command
`python -m tests.conformance --write{more}` wrote this page with PyTorch {torch} and
kernelrt {kernelrt}.

PyTorch ships sample arguments for its operations and modules. The command calls PyTorch and
kernelrt with each sample, and kernelrt both eagerly and in a jitted function. The samples have the
types float32, float64, int64 and bool, where PyTorch takes these. The command draws at most
{count} samples of each operation and type.

The command compares types, shapes and values of the results, and first gradients. A value agrees if
it is close to PyTorch's value, or to the value that PyTorch computes in float64. Each call of
kernelrt has one outcome. If the outcome of the eager call is not "same", there is no jitted call.
In the reasons, n stands for a number.

| outcome | meaning |
|---|---|
| same | values, types, shapes and gradients agree |
| known | the results differ on purpose; the table lists the reason |
| refused | kernelrt raises an error that says that it does not take these arguments |
| missing | kernelrt has no function of this name |
| different, crashed | a bug |

`python -m tests.conformance --array-api-tests PATH` runs the test suite of the array API standard.
PATH is a clone of its repository. [array_api.md](array_api.md) lists the parts of the standard that
kernelrt does not have.
"""


def written(found: Mapping[str, Mapping[str, list[Outcome]]], count: int, more: str) -> str:
    """The text of the page.

    Parameters
    ----------
    found : mapping
        By suite and by name.
    count : int
        The greatest number of samples of a type.
    more : str
        The other arguments of the command.
    """
    import torch

    import kernelrt as krt

    versions = {"torch": torch.__version__.partition("+")[0], "kernelrt": krt.__version__}
    lines = [HEAD.format(more=more, count=count or "all", **versions)]
    for suite, by_name in found.items():
        lines += _suite(TITLES[suite], by_name)
    return "\n".join(lines)


def _suite(title: str, by_name: Mapping[str, list[Outcome]]) -> list[str]:
    everything = counted(o for outcomes in by_name.values() for o in outcomes)
    absent = [n for n, found in by_name.items() if found and _only(found, "missing")]
    alike = [n for n, found in by_name.items() if found and _only(found, "same")]
    others = {n: f for n, f in by_name.items() if f and n not in absent and n not in alike}
    shown = ", ".join(f"{everything[kind]} {kind}" for kind in KINDS if everything[kind])
    counts = f"{len(alike)} agree in every sample, {len(others)} do not. Missing: {len(absent)}"
    lines = [
        f"## {title}", "",
        f"{title}: {counts}.", "",
        f"Outcomes: {shown}.", "",
        "| name | same | not the same | most frequent reasons (and how often) |",
        "|---|---|---|---|",
    ]  # fmt: skip
    for name, outcomes in others.items():
        same = counted(outcomes)["same"]
        lines.append(f"| `{name}` | {same} | {len(outcomes) - same} | {_reasons(outcomes)} |")
    lines += ["", f"{title} that are missing: {_listed(absent)}.", ""]
    lines += [f"{title} that agree in every sample: {_listed(alike)}.", ""]
    return lines


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _only(outcomes: Iterable[Outcome], kind: str) -> bool:
    return all(outcome.kind == kind for outcome in outcomes)


def _reasons(outcomes: Iterable[Outcome]) -> str:
    """The reasons that occur most."""
    reasons: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.kind != "same":
            reasons[_short(outcome)] += 1
    shown = [f"{text} ({n})" for text, n in reasons.most_common(3)]
    return "; ".join(shown) + ("; ..." if len(reasons) > 3 else "")


def _short(outcome: Outcome) -> str:
    text = re.sub(r"^\w+: ", "", outcome.reason) if outcome.kind == "refused" else outcome.reason
    text = re.sub(r"(?<![\w.])-?\d[\d.e+-]*", "n", text).replace("|", "\\|").replace("\n", " ")
    text = text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " ..."
    where = "in jit: " if outcome.mode == "jit" else ""
    kind = f"**{outcome.kind}**: " if outcome.kind in BAD else ""
    return kind + where + text


def write(found: Mapping[str, Mapping[str, list[Outcome]]], count: int, more: str) -> None:
    """Write the page."""
    PAGE.write_text(written(found, count, more), encoding="utf-8")
