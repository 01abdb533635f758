"""What it costs to import kernelrt and its peers, each in a fresh interpreter."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING

from bench.cases import OURS, Case, Side

if TYPE_CHECKING:
    from bench.cases import Call

PEERS = ("torch", "jax", "onnxruntime", "numba")


def fresh(module: str) -> Call:
    """Start an interpreter that imports `module`."""
    command = [sys.executable, "-c", f"import {module}"]

    def call() -> object:
        return subprocess.run(command, check=True).returncode  # noqa: S603 - our own command

    call()
    return call


def cases() -> tuple[Case, ...]:
    """One case: import in a fresh interpreter, start of Python included."""
    sides = [Side(OURS, functools.partial(fresh, "kernelrt"))]
    sides += [Side(f"{m}", functools.partial(fresh, m), needs=(m,)) for m in PEERS]
    return (Case("import", "python -c 'import ...'", tuple(sides)),)
