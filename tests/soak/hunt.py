"""Draws cases until the time is up, and shrinks failures."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from .processes import CPU_LIMIT, ROOT, DiedError, Worker
from .record import Record
from .worker import draw, load

SHRINK_SECONDS = 60.0
HANGS = 10.0
"""CPU seconds after which a smaller case of a hang counts as a hang, too."""
GRACE = 60.0
"""Seconds after the end of a hunt in which findings may still be shrunk."""
MOST_OF_A_KIND = 3
"""Findings of a generator with the same words that are shrunk; further ones are only counted."""
KNOWN_KINDS = 12
ALIKE = 60
"""Length of the start of a message that identifies an error."""
SOURCE_SECONDS = 120


@dataclass
class Finding:
    """A failure, as small as shrinking could make it."""

    generator: str
    message: str
    case: Any
    source: str
    note: str = ""

    def command(self) -> str:
        text = json.dumps(self.case)
        return f"python -m tests.soak --case {shlex.quote(f'{self.generator}:{text}')}"

    def key(self) -> tuple[str, str]:
        """Equal for findings that are most likely the same."""
        of = getattr(load(self.generator), "key", None)
        return self.generator, of(self.case) if of else re.sub(r"\d+", "#", self.source)

    def __str__(self) -> str:
        text = f"== {self.generator}: {self.message}\n"
        if self.note:
            text += f"({self.note})\n"
        return f"{text}{self.source}\n\n{self.command()}\n"


@dataclass
class Count:
    """The work of a generator so far."""

    cases: int = 0
    done: Record = field(default_factory=Record)
    failures: int = 0
    seconds: float = 0.0
    slices: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


def kind_of(message: str) -> str:
    """Return the kind of a failure: end of the process, exception, or the generator's word."""
    return message.partition(":")[0]


def likeness(message: str) -> str:
    """Return what a smaller case must fail with, too: the kind, and the start of an error."""
    kind = kind_of(message)
    return words_of(message)[:ALIKE] if kind.endswith("Error") else kind


def words_of(message: str) -> str:
    """Return the message without numbers and names, which identify cases, not causes."""
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{12}|\d+|'[^']*'|%\S+", "#", message)[:120]


def started(generator: str, most: float = CPU_LIMIT, *, cache: bool = True) -> Worker:
    """Start a worker with the generator's own time limit, at most `most`."""
    seconds = min(most, getattr(load(generator), "SECONDS", CPU_LIMIT))
    return Worker(generator, seconds=seconds, cache=cache)


def share(generator: str) -> float:
    """Return a generator's share of the time; 1 is usual."""
    return float(getattr(load(generator), "SHARE", 1.0))


def minimize(generator: str, case: Any, message: str, seconds: float) -> tuple[Any, str, str]:
    """Return a smaller case that fails in the same way, its message, and a remark."""
    module = load(generator)
    tries = getattr(module, "TRIES", 1)
    end = time.monotonic() + seconds
    kind, alike = kind_of(message), likeness(message)
    patience = HANGS if kind == "hang" else CPU_LIMIT
    worker: Worker | None = None

    def fails(candidate: Any) -> str | None:
        nonlocal worker
        for _ in range(tries):
            if worker is None:
                worker = started(generator, patience, cache=False)
            found = worker.ask(candidate)
            if found is not None:
                if kind_of(found) in ("crash", "hang", "exit") or kind in ("crash", "hang", "exit"):
                    worker.close()
                    worker = None
                if likeness(found) == alike:
                    return found
        return None

    try:
        again = fails(case)
        if again is None:
            return case, message, "did not fail again in a fresh process"
        message = again
        smaller = True
        while smaller and time.monotonic() < end:
            smaller = False
            for candidate in module.shrink(case):
                if time.monotonic() > end:
                    break
                found = fails(json.loads(json.dumps(candidate)))
                if found is not None:
                    case, message, smaller = candidate, found, True
                    break
    except DiedError as death:
        return case, message, f"a worker could not start: {death}"
    finally:
        if worker is not None:
            worker.close()
    return case, message, "" if not smaller else "not yet minimal: time was up"


def fails_alone(source: str) -> bool:
    """Return whether the program ends in an error, or does not end."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", source], cwd=ROOT, capture_output=True, timeout=SOURCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def examine(generator: str, case: Any, message: str, seconds: float = SHRINK_SECONDS) -> Finding:
    """Return a finding from a case that failed."""
    case, message, remark = minimize(generator, case, message, seconds)
    source = load(generator).source(case)
    notes = [remark] if remark else []
    if not remark.startswith("did not") and not fails_alone(source):
        notes.append("the program alone does not fail, the command below does")
    return Finding(generator, message, case, source, "; ".join(notes))


class Hunt:
    """Runs generators alternately on several workers until the time is up."""

    def __init__(self, names: list[str], seed: int, seconds: float, jobs: int) -> None:
        self.seed = seed
        self.jobs = jobs
        self.began = time.monotonic()
        self.end = self.began + seconds
        self.shares = {name: share(name) for name in names}
        self.slice = min(120.0, max(2.0, seconds * jobs / sum(self.shares.values()) / 2))
        self.counts = {name: Count() for name in names}
        self.busy: set[str] = set()
        self.findings: list[Finding] = []
        self.lock = threading.Lock()

    def run(self) -> list[Finding]:
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        said = time.monotonic()
        for thread in threads:
            while thread.is_alive():
                thread.join(1)
                if time.monotonic() - said > 15:
                    said = time.monotonic()
                    print(self.progress(), flush=True)
        print(self.progress(), flush=True)
        return self.findings

    def progress(self) -> str:
        done = " ".join(f"{name} {c.cases}" for name, c in self.counts.items() if c.cases)
        return f"{time.monotonic() - self.began:5.0f} s: {done}; findings {len(self.findings)}"

    def work(self) -> None:
        while time.monotonic() < self.end:
            with self.lock:
                free = [name for name in self.counts if name not in self.busy]
                name = min(
                    free or self.counts, key=lambda n: self.counts[n].seconds / self.shares[n]
                )
                self.busy.add(name)
                count = self.counts[name]
                number, count.slices = count.slices, count.slices + 1
            began = time.monotonic()
            try:
                self.stretch(name, number)
            finally:
                with self.lock:
                    self.busy.discard(name)
                    count.seconds += time.monotonic() - began

    def stretch(self, name: str, number: int) -> None:
        """Run one generator for a while; replace a worker that died."""
        key = [self.seed, *name.encode(), number]
        index = 0
        left = self.slice * self.shares[name]
        while left > 0 and time.monotonic() < self.end:
            began = time.monotonic()
            try:
                with started(name) as worker:
                    began = time.monotonic()  # starting may take long and is not a case
                    worker.send(key=key, first=index, seconds=min(left, self.end - began))
                    while "over" not in (reply := worker.reply()):
                        index = reply["index"] + 1
                        self.count(name, reply["done"])
                        if reply["fail"]:
                            self.failed(name, reply["case"], reply["fail"])
                            if kind_of(reply["fail"]) not in ("values", "refused"):
                                break
            except DiedError as end:
                case = draw(load(name), [*key, index])
                index += 1
                self.failed(name, case, str(end))
            left -= time.monotonic() - began

    def count(self, name: str, done: dict[str, Any]) -> None:
        with self.lock:
            self.counts[name].cases += 1
            self.counts[name].done.add(done)

    def failed(self, name: str, case: Any, message: str) -> None:
        count = self.counts[name]
        words = words_of(message) if kind_of(message) != "values" else "values"
        with self.lock:
            count.failures += 1
            count.kinds[words] = count.kinds.get(words, 0) + 1
            if count.kinds[words] > MOST_OF_A_KIND or len(count.kinds) > KNOWN_KINDS:
                return
        left = self.end + GRACE - time.monotonic()
        finding = examine(name, case, message, max(1.0, min(SHRINK_SECONDS, left)))
        with self.lock:
            if finding.key() not in {f.key() for f in self.findings}:
                self.findings.append(finding)
                print(finding, flush=True)
