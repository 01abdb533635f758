"""Worker processes from outside: requests, time limits, termination."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.support.package import PACKAGE

ROOT = Path(__file__).parents[2]
CPU_LIMIT = 60.0
"""Seconds of computing, or of doing nothing, after which a case hangs; see `Patience`."""
WAITS = 20.0
"""Factor of that limit for the total time, however busy the machine is."""
START = 120.0
MEMORY = 5 << 30


class DiedError(Exception):
    """A worker ended; the message says how, as ``kind: detail``."""


class Patience:
    """Detects whether a process hangs: it computes for too long, or does nothing for too long.

    A process that is ready to run but not scheduled, on a busy machine, does neither.

    Parameters
    ----------
    pid : int
        The process.
    seconds : float
        Limit of computing, and of doing nothing.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid, self.seconds = pid, seconds
        self.began = self.moved = time.monotonic()
        self.first = self.last = self._look()[0]

    def waited(self) -> float:
        """Seconds since this was made."""
        return time.monotonic() - self.began

    def over(self) -> bool:
        """Return whether the process hangs; call it repeatedly."""
        now = time.monotonic()
        computed, running = self._look()
        if running or computed != self.last:
            self.last, self.moved = computed, now
        return (
            computed - self.first > self.seconds
            or now - self.moved > self.seconds
            or now - self.began > WAITS * self.seconds
        )

    def _look(self) -> tuple[float, bool]:
        """Return CPU seconds so far, and whether a thread runs or is ready to run."""
        process = Path(f"/proc/{self.pid}")
        ticks, running = 0, False
        with contextlib.suppress(OSError):
            ticks = sum(map(int, _fields(process / "stat")[11:13]))
            running = any(_fields(thread)[0] in "RD" for thread in process.glob("task/*/stat"))
        return ticks / os.sysconf("SC_CLK_TCK"), running


def _fields(stat: Path) -> list[str]:
    """Return the fields of a stat file that follow the name."""
    return stat.read_text(encoding="ascii").rpartition(")")[2].split()


class Worker:
    """A process that runs the cases of one generator.

    Without `cache`, no kernel comes from the disk, so compile times are real. `program` is the
    module that the process runs, with the generator and the memory limit as arguments.
    """

    def __init__(
        self,
        generator: str,
        *,
        seconds: float = CPU_LIMIT,
        memory: int = MEMORY,
        cache: bool = True,
        program: str = "tests.soak.worker",
    ) -> None:
        self.seconds = seconds
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if not cache:
            environment["KERNELRT_CACHE"] = "0"
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, generator, str(memory)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        self.buffer = b""
        try:
            self.greeting = self.reply(START)
        except DiedError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise DiedError(self.death()) from None

    def ask(self, case: Any) -> str | None:
        """Return the failure of `case`, which may be the worker's death, or None."""
        try:
            self.send(case=case)
            return self.reply()["fail"]
        except DiedError as end:
            return str(end)

    def reply(self, seconds: float | None = None) -> dict[str, Any]:
        """Return the next reply.

        Raises
        ------
        DiedError
            The process ended, or was ended because it computed or waited for too long.
        """
        assert self.process.stdout is not None
        patience = Patience(self.process.pid, seconds or self.seconds)
        while b"\n" not in self.buffer:
            if select.select([self.process.stdout], [], [], 0.5)[0]:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise DiedError(self.death())
                self.buffer += data
            elif patience.over():
                os.kill(self.process.pid, signal.SIGABRT)  # faulthandler prints its stack
                self.wait(5)
                raise DiedError(
                    f"hang: no answer after {patience.waited():.0f} s{self.last_words()}"
                )
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def wait(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def death(self) -> str:
        code = self.wait(30)
        if code is not None and code < 0:
            return f"crash: {signal.Signals(-code).name}{self.last_words()}"
        return f"exit: status {code}{self.last_words()}"

    def last_words(self) -> str:
        """Return the kernelrt frames in the standard error, and its end."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        # A worker starts in ROOT and may import the package there instead of the installed one.
        packages = (PACKAGE, f"{ROOT / 'kernelrt'}{os.sep}")
        frames = [line.strip() for line in lines if any(p in line for p in packages)][:6]
        said = [line.strip() for line in lines if line.strip() and " File " not in line][-12:]
        said = [line for line in said if not line.startswith("Extension modules")]
        return "".join("; " + line for line in [*frames, *said])[:1500]

    def close(self) -> None:
        """End the process and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                pass
