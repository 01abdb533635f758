"""Interrupts, forks and failing allocations at random moments of a small program.

After each disturbance everything must still work: results are NumPy's, state that changes together
is consistent, and nothing hangs.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record
from tests.soak.processes import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Case = dict[str, Any]
SECONDS = 30.0
SHARE = 0.6
TRIES = 3
"""Tries of a smaller case, since the moment of a disturbance is random."""
KINDS = ("interrupt", "interrupt", "handler", "fork", "memory")
ACTIONS = ("make", "eager", "assign", "step", "train", "index", "large", "compile", "threads")
CHILD_SECONDS = 15.0
UNITS = {"interrupt": "interrupts", "handler": "signal handlers that compute", "fork": "forks",
         "memory": "shortages of memory"}  # fmt: skip


def generate(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(KINDS))
    # Python's own threading loses locks if an interrupt hits it.
    pool = [action for action in ACTIONS if (kind, action) != ("interrupt", "threads")]
    actions = rng.choice(pool, rng.integers(1, 4), replace=False)
    return {
        "kind": kind,
        "actions": sorted(map(str, actions)),
        "blows": int(rng.choice([5, 20, 60])),
        "within": float(rng.choice([1e-4, 1e-3, 5e-3, 3e-2])),
        "seed": int(rng.integers(1000)),
    }


class World:
    """A program with state; each of its actions knows its expected result."""

    def __init__(self) -> None:
        import kernelrt as krt

        self.krt = krt
        self.one, self.two = krt.zeros(3).realize(), krt.zeros(3).realize()
        self.kept = krt.zeros(4).realize()
        self.fresh = 0

        @krt.jit
        def step(x: Any) -> Any:
            self.one.assign(self.one + x)
            self.two.assign(self.two + x * 2)
            return self.one.sum() * 0 + x.sum()

        @krt.jit
        def large(x: Any) -> Any:
            return x * 2 + 1, x.sum()

        self.step_, self.large_ = step, large
        model = krt.nn.Sequential(krt.nn.Linear(4, 8), krt.nn.Tanh(), krt.nn.Linear(8, 2))
        optimizer = krt.nn.optim.SGD(krt.nn.parameters(model), lr=0.0)
        self.weights = [p.numpy().copy() for p in krt.nn.parameters(model)]
        self.parameters = krt.nn.parameters(model)

        @krt.jit
        def train(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        self.train_ = train
        self.loss = train(np.ones((5, 4), np.float32)).item()
        for action in ACTIONS:
            getattr(self, action)()

    def make(self) -> None:
        for k in range(5):
            got = self.krt.tensor(np.full(k + 1, k, np.float32)).sum().item()
            assert got == k * (k + 1), got

    def eager(self) -> None:
        x = self.krt.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
        got = ((x + 1) * 2).sum(0).numpy()
        assert got.tolist() == [10, 14, 18], got

    def assign(self) -> None:
        self.kept.assign(self.kept + 1)
        got = self.kept.numpy()
        assert (got == got[0]).all(), got

    def step(self) -> None:
        got = self.step_(np.ones(3, np.float32)).item()
        assert got == 3, got

    def train(self) -> None:
        got = self.train_(np.ones((5, 4), np.float32)).item()
        assert got == self.loss, (got, self.loss)

    def index(self) -> None:
        table = self.krt.tensor(np.arange(5, dtype=np.float32))
        try:
            table[self.krt.tensor([1, 7])].numpy()
        except IndexError:
            return
        raise AssertionError("no IndexBoundsError")

    def large(self) -> None:
        double, total = self.large_(np.ones(300_000, np.float32))
        assert total.item() == 300_000, total.item()
        assert (double.numpy() == 3).all()

    def compile(self) -> None:
        self.fresh = fresh = self.fresh + 1  # keep it, as another thread may take it, too
        x = self.krt.tensor(np.ones(fresh % 97 + 1, np.float32))
        got = (x * 3 + fresh).numpy()
        assert (got == 3 + fresh).all(), got

    def threads(self) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self.eager()
                self.step()
            except BaseException as error:  # noqa: BLE001 - passed to the waiting thread
                failures.append(error)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]

    def check(self) -> None:
        """Check the invariants."""
        one, two = self.one.numpy(), self.two.numpy()
        assert (two == 2 * one).all(), f"one {one}, two {two}"
        assert (one == one[0]).all(), one
        for p, before in zip(self.parameters, self.weights, strict=True):
            assert np.array_equal(p.numpy(), before), "a weight has changed"


def act(world: World, actions: list[str]) -> None:
    for action in actions:
        getattr(world, action)()


def run(case: Case) -> str | None:
    world = World()
    rng = np.random.default_rng(case["seed"])
    disturb = {
        "interrupt": interrupts, "handler": handlers, "fork": forks, "memory": shortages,
    }[case["kind"]]  # fmt: skip
    why = disturb(case, world, rng)
    record.note(UNITS[case["kind"]], blows(case))
    return why


def blows(case: Case) -> int:
    """Return the number of disturbances; forks and shortages take long."""
    return min(case["blows"], 20) if case["kind"] in ("fork", "memory") else int(case["blows"])


class Blow(KeyboardInterrupt):
    """The exception that the alarm raises."""


def interrupts(case: Case, world: World, rng: np.random.Generator) -> str | None:
    def raising(*_: object) -> None:
        raise Blow

    return alarmed(case, world, rng, raising)


def handlers(case: Case, world: World, rng: np.random.Generator) -> str | None:
    """Run handlers that compute.

    They get results, except for the plan of the interrupted jitted function and for memory that the
    interrupted code is assigning; those raise PlanBusyError.
    """

    def computing(*_: object) -> None:
        world.eager()
        world.make()
        for action in (world.step, world.assign):
            with contextlib.suppress(world.krt.PlanBusyError):
                action()

    return alarmed(case, world, rng, computing)


def alarmed(
    case: Case, world: World, rng: np.random.Generator, handler: Callable[..., None]
) -> str | None:
    signal.signal(signal.SIGALRM, handler)
    for blow in range(blows(case)):
        try:
            signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(2e-5, case["within"])))
            end = time.monotonic() + 2 * case["within"]
            while time.monotonic() < end:
                act(world, case["actions"])
        except Blow:
            pass
        except AssertionError as error:
            return f"state: during blow {blow}: {error}"
        finally:
            with contextlib.suppress(Blow):
                signal.setitimer(signal.ITIMER_REAL, 0)
        why = after(world)
        if why:
            return f"{why} after blow {blow}"
    return None


def after(world: World) -> str | None:
    try:
        world.check()
        act(world, list(ACTIONS))
        world.check()
    except AssertionError as error:
        return f"state: {error}"
    return None


def forks(case: Case, world: World, rng: np.random.Generator) -> str | None:
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            act(world, [a for a in case["actions"] if a != "threads"])

    threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for blow in range(blows(case)):
            time.sleep(float(rng.uniform(0, case["within"])))
            why = in_child(world)
            if why:
                return f"{why}, fork {blow}"
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
    return after(world)


def in_child(world: World) -> str | None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act(world, ["eager", "make", "step", "compile", "large"])
            status = 0
        finally:
            os._exit(status)
    patience = Patience(child, CHILD_SECONDS)
    while not patience.over():
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if status:
                return f"child: status {os.waitstatus_to_exitcode(status)}"
            return None
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"hang: a forked child did not end in {patience.waited():.0f} s"


def shortages(case: Case, world: World, rng: np.random.Generator) -> str | None:
    """Run compiled code only, while the address space is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    sizes = [300_000, 3_000_000, 20_000_000]
    inputs = [np.ones(n, np.float32) for n in sizes]
    for x in inputs:
        world.large_(x)
    for blow in range(blows(case)):
        used = int(open("/proc/self/statm", encoding="ascii").read().split()[0])  # noqa: SIM115, PTH123
        room = int(rng.choice([0, 1 << 16, 1 << 20, 1 << 24, 1 << 26]))
        resource.setrlimit(resource.RLIMIT_AS, (used * resource.getpagesize() + room, hard))
        try:
            for x in inputs:
                with contextlib.suppress(MemoryError):
                    double, _ = world.large_(x)
                    del double
            with contextlib.suppress(MemoryError):
                world.step()
        except AssertionError as error:
            return f"state: in shortage {blow}: {error}"
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        why = after(world)
        if why:
            return f"{why} after shortage {blow}"
    return None


def shrink(case: Case) -> Iterator[Case]:
    for action in case["actions"]:
        if len(case["actions"]) > 1:
            yield {**case, "actions": [action]}
    for within in (1e-4, 1e-3, 5e-3):
        if within < case["within"]:
            yield {**case, "within": within}
    # Fewer disturbances would lower the probability of a failure, not shrink the case.


def key(case: Case) -> str:
    return re.sub(r"\d", "#", f"{case['kind']} {case['actions']}")


def source(case: Case) -> str:
    return (
        "from tests.soak.generators import disturb\n"
        f"case = {case!r}\n"
        "assert disturb.run(case) is None"
    )
