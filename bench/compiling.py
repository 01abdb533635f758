"""Measures the first call of each operation: graph building, scheduling, compilation.

``python -m bench.compiling [words]`` in a checkout measures all operations (the rows of
tests/surface/tables), or those with one of the words in their names. Each is measured in a process
of its own, without compiled kernels. The program prints seconds of processor time, which other load
hardly changes: those until the values are known, and those for the first gradient after that.
Nothing is stored.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The report lists all rows slower than SLOW seconds, and at least the WORST slowest.
SLOW, WORST = 0.5, 20


@dataclass(frozen=True)
class First:
    """Times of the first calls of a row, in seconds of processor time."""

    name: str
    values: float
    gradient: float
    wall: float

    @property
    def most(self) -> float:
        """The longer of the two calls."""
        return max(self.values, self.gradient)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def first_calls(row: Any) -> tuple[float, float]:
    """Call a row in this process; return the times of its values and of its gradient."""
    from surface import compare, rows

    import kernelrt as krt

    arrays = rows.draw(row, rows.sizes(row))
    sources, operands = compare.given(row, arrays, krt.float32, grad=row.grad)
    krt.realize(*sources)

    def values() -> Any:
        out = row.call(krt, *operands)
        compare.values(out)
        return out

    def gradient(out: Any) -> None:
        krt.realize(*compare.differentiate(out, sources))

    out, forward = _timed(values)
    return forward, _timed(lambda: gradient(out))[1] if row.grad else 0.0


def apart(row: Any) -> tuple[float, float]:
    """Call a row in a forked process, which starts without compiled kernels."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, json.dumps(first_calls(row)).encode())
            status = 0
        finally:
            os._exit(status)  # skips cleanup of the parent's open files
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a row ended with status {status}")
    forward, gradient = json.loads(text)
    return forward, gradient


def measured(words: Sequence[str], folder: Path) -> Iterator[First]:
    """Measure all rows; empty the cache in `folder` before each."""
    from surface import rows

    import kernelrt as krt

    (krt.ones(3) + 1).tolist()  # keep one-time costs out of the rows
    for table, row in rows.tables():
        name = f"{table}-{row.name}"
        if words and not any(word in name for word in words):
            continue
        for kept in folder.iterdir():
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        start = time.perf_counter()
        forward, gradient = apart(row)
        yield First(name, forward, gradient, time.perf_counter() - start)


def report(found: Sequence[First]) -> str:
    """Return a table of the slowest rows, with the total."""
    ordered = sorted(found, key=lambda f: -f.most)
    slow = [f for f in ordered if f.most > SLOW]
    shown = slow if len(slow) > WORST else ordered[:WORST]
    lines = [f"{len(found)} rows, {len(slow)} above {SLOW} s; seconds of processor time:"]
    lines += [f"{'values':>8} {'gradient':>8} {'wall':>8}"]
    lines += [f"{f.values:8.3f} {f.gradient:8.3f} {f.wall:8.3f}  {f.name}" for f in shown]
    total = sum(f.values + f.gradient for f in found)
    return "\n".join([*lines, f"all: {total:.1f} s"])


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ |= {"KERNELRT_CACHE_DIR": folder, "KERNELRT_INTERPRET": "off"}
        print(report(list(measured(sys.argv[1:], Path(folder)))))


if __name__ == "__main__":
    main()
