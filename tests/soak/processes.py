"""Workers as seen from outside: asked, watched, and ended."""

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
"""Seconds of computing after which a case hangs, or of waiting for nothing; see `Patience`."""
WAITS = 20.0
"""How many times as long it may take in all, however busy the machine."""
START = 120.0
MEMORY = 5 << 30


class DiedError(Exception):
    """A worker came to its end; the message says how, as ``kind: detail``."""


class Patience:
    """Whether a process hangs: it computes for too long, or does nothing for too long.

    A process that wants to run and is not let, on a busy machine, does neither.

    Parameters
    ----------
    pid : int
        The process.
    seconds : float
        How long is too long.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid, self.seconds = pid, seconds
        self.began = self.moved = time.monotonic()
        self.first = self.last = self._look()[0]

    def waited(self) -> float:
        """Seconds since this was made."""
        return time.monotonic() - self.began

    def over(self) -> bool:
        """Whether it hangs; to be asked again and again."""
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
        """Seconds computed so far, and whether a thread runs, or would like to."""
        process = Path(f"/proc/{self.pid}")
        ticks, running = 0, False
        with contextlib.suppress(OSError):
            ticks = sum(map(int, _fields(process / "stat")[11:13]))
            running = any(_fields(thread)[0] in "RD" for thread in process.glob("task/*/stat"))
        return ticks / os.sysconf("SC_CLK_TCK"), running


def _fields(stat: Path) -> list[str]:
    """What the system says of a process or a thread, behind its name."""
    return stat.read_text(encoding="ascii").rpartition(")")[2].split()


class Worker:
    """A process that runs the cases of one generator.

    Without `cache` no kernel comes from the disk, so that compiling takes the time it takes.
    `program` is the module that the process runs, with the generator and the limit of memory.
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
        """What is wrong with `case`, the worker's death included."""
        try:
            self.send(case=case)
            return self.reply()["fail"]
        except DiedError as end:
            return str(end)

    def reply(self, seconds: float | None = None) -> dict[str, Any]:
        """The next reply.

        Raises
        ------
        DiedError
            The process ended, or computed or waited for too long and was ended.
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
                os.kill(self.process.pid, signal.SIGABRT)  # faulthandler says where it was
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
        """Return the frames of kernelrt in the standard error, and its end."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        # A worker starts in ROOT, and may find the package there instead of the installed one.
        packages = (PACKAGE, f"{ROOT / 'kernelrt'}{os.sep}")
        frames = [line.strip() for line in lines if any(p in line for p in packages)][:6]
        said = [line.strip() for line in lines if line.strip() and " File " not in line][-12:]
        said = [line for line in said if not line.startswith("Extension modules")]
        return "".join("; " + line for line in [*frames, *said])[:1500]

    def close(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                pass
