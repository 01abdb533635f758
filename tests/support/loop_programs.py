"""Random programs with loops and branches, run by kernelrt and unrolled in torch.

A program is plain data: statements over named values. Loops and branches contain blocks of
statements, which read values around them, assign to state, draw random numbers and train. kernelrt
runs a program as loops of a plan, eagerly and jitted, on one thread and on two, and unrolled in
Python. The truth is torch in float64, unrolled, too.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from support.loop_libraries import KRT, LARGEST, Invalid, Torch, array

import kernelrt as krt
from kernelrt.runtime import op_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.loop_libraries import Library

__all__ = ["Case", "World", "check", "run"]

Case = dict[str, Any]
Block = list[dict[str, Any]]
Env = dict[str, Any]
Seen = list[list[np.ndarray]]
APART = {"float32": 2e-4, "float64": 1e-9}
"""Minimum distance of a comparison from a tie, for numbers around 1."""
LOOSE = {"float32": 2e-5, "float64": 1e-11}
PARALLEL_NS = 1e7
REFUSED = "has been assigned since"
"""kernelrt's refusal of a gradient through state that was assigned since; the truth has copies."""


# ---- running


@dataclass
class World:
    """The meaning of statements in a library, with its own loops or unrolled.

    Attributes
    ----------
    lib : Library
        Library of the tensors.
    loops : bool
        Whether to run the library's own loops instead of Python's.
    states : dict
        Tensors that statements assign to.
    opts : dict
        Optimizers of the states that have one.
    """

    lib: Library
    loops: bool
    states: Env = field(default_factory=dict)
    opts: Env = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builtin = self.lib.names()

    def state(self, name: str, shape: Any, dtype: str, data: Any, opt: str | None) -> None:
        """Make a state; with an optimizer, a trainable one."""
        made = self.lib.tensor(data.reshape(shape), dtype)
        if opt is not None:
            made.requires_grad_(True)
            kinds = self.lib.T.optim
            self.opts[name] = (
                kinds.Adam([made], lr=0.05, eps=0.1) if opt == "adam"
                else kinds.SGD([made], lr=0.05, momentum=0.5 * (opt == "momentum"))
            )  # fmt: skip
        self.states[name] = made

    def value(self, text: str, env: Env) -> Any:
        states = {name: self.lib.read(s) for name, s in self.states.items() if name in text}
        found = eval(text, {"__builtins__": {}, **self.builtin, **env, **states})  # noqa: S307
        if isinstance(self.lib, Torch):
            self.lib.look(found)
        # A state, or a view of one, would change later; the truth has values only.
        is_state = any(found is s for s in self.states.values())
        return found.clone() if is_state or getattr(found, "_link", None) is not None else found

    def block(self, lines: Block, env: Env) -> Env:
        """Run statements; return the known values after them. `env` is not changed."""
        env = dict(env)
        for line in lines:
            getattr(self, "do_" + line["do"])(line, env)
        return env

    def count(self) -> None:
        if isinstance(self.lib, Torch):
            self.lib.turn()

    def do_let(self, line: Env, env: Env) -> None:
        env[line["to"]] = self.value(line["text"], env)

    def do_rand(self, line: Env, env: Env) -> None:
        env[line["to"]] = self.lib.rand(line["shape"])

    def do_assign(self, line: Env, env: Env) -> None:
        name = line["state"]
        value = self.value(line["text"], env)
        if line["how"] == "put":
            place = self.value(line["place"], env)
            if isinstance(self.lib, Torch):
                place = int(place)
            with self.lib.T.no_grad():
                self.lib.put(self.states[name], place, value)
        else:
            getattr(self.lib, line["how"])(self.states[name], value)

    def do_learn(self, line: Env, env: Env) -> None:
        """Take a gradient step on a loss, by an optimizer or by hand."""
        name = line["state"]
        w = self.states[name]
        loss = self.value(line["text"], env)
        if line["hand"]:
            slope = self.lib.grad(loss, [w])[0]
            self.lib.assign(w, self.value(name, env).detach() - slope.detach() * 0.1)
        else:
            self.lib.step(self.opts[name], loss)

    # Nested data: a tuple, a dict, or a bare tensor if there is only one.

    @staticmethod
    def packed(kind: str, values: list[Any]) -> Any:
        if kind == "bare" and len(values) == 1:
            return values[0]
        if kind == "dict":
            return {f"k{i}": v for i, v in enumerate(values)}
        return tuple(values)

    @staticmethod
    def opened(made: Any) -> list[Any]:
        if isinstance(made, dict):
            return list(made.values())
        return list(made) if isinstance(made, tuple) else [made]

    def turn_of(self, line: Env, env: Env, more: Env, carry: Any) -> Env:
        self.count()
        own = dict(zip((n for n, _ in line["carry"]), self.opened(carry), strict=True))
        return self.block(line["body"], {**env, **more, **own})

    def next_of(self, line: Env, inner: Env) -> Any:
        found = [self.value(n, inner) for n in line["next"]]
        return self.packed(line["nest"], found)

    def bind(self, line: Env, env: Env, finals: Any) -> None:
        env.update(zip(line["to"], self.opened(finals), strict=True))

    def start(self, line: Env, env: Env) -> Any:
        return self.packed(line["nest"], [env[n] for _, n in line["carry"]])

    def do_scan(self, line: Env, env: Env) -> None:
        xs = [env[n] for _, n in line["xs"]]

        def turn(carry: Any, x: Any) -> Any:
            slices = [] if x is None else self.opened(x)
            own = dict(zip((n for n, _ in line["xs"]), slices, strict=True))
            inner = self.turn_of(line, env, own, carry)
            ys = [inner[n] for n in line["ys"]]
            return self.next_of(line, inner), self.packed(line["nest"], ys) if ys else None

        carry = self.start(line, env)
        if self.loops:
            carry, rows = self.lib.T.scan(
                turn, carry, self.packed(line["nest"], xs) if xs else None, line["length"],
                reverse=line["reverse"], checkpoint=line["checkpoint"], unroll=line["unroll"],
            )  # fmt: skip
            stacks = [] if rows is None else self.opened(rows)
        else:
            turns = line["length"] if line["length"] is not None else xs[0].shape[0]
            found = {}
            for t in reversed(range(turns)) if line["reverse"] else range(turns):
                carry, y = turn(carry, tuple(x[t] for x in xs) if xs else None)
                found[t] = [] if y is None else self.opened(y)
            stacks = [
                self.lib.stacked([found[t][k] for t in range(turns)]) if turns
                else self.lib.zeros((0, *shape), dtype)
                for k, (shape, dtype) in enumerate(line["shapes"])
            ]  # fmt: skip
        self.bind(line, env, carry)
        env.update(zip(line["rows"], stacks, strict=True))

    def do_fori(self, line: Env, env: Env) -> None:
        def turn(i: Any, carry: Any) -> Any:
            return self.next_of(line, self.turn_of(line, env, {line["i"]: i}, carry))

        bounds = [env[b] if isinstance(b, str) else b for b in (line["lower"], line["upper"])]
        carry = self.start(line, env)
        if self.loops:
            carry = self.lib.T.fori_loop(*bounds, turn, carry)
        else:
            for k in range(*(int(b) for b in bounds)):
                carry = turn(self.lib.tensor(k, "int64"), carry)
        self.bind(line, env, carry)

    def do_while(self, line: Env, env: Env) -> None:
        def turn(carry: Any) -> Any:
            return self.next_of(line, self.turn_of(line, env, {}, carry))

        def test(carry: Any) -> Any:
            own = dict(zip((n for n, _ in line["carry"]), self.opened(carry), strict=True))
            return self.value(line["test"], {**env, **own})

        carry, most = self.start(line, env), line["most"]
        if self.loops:
            carry = self.lib.T.while_loop(test, turn, carry, most)
        else:
            steps = 0
            while (most is None or steps < most) and bool(test(carry)):
                carry, steps = turn(carry), steps + 1
        self.bind(line, env, carry)

    def do_choose(self, line: Env, env: Env) -> None:
        """Run one of several blocks, chosen by a bool (cond) or by a number (switch)."""

        def branch(part: Env) -> Callable[..., Any]:
            def function(*args: Any) -> Any:
                self.count()
                own = dict(zip((n for n, _ in line["args"]), args, strict=True))
                inner = self.block(part["body"], {**env, **own})
                return self.packed(line["nest"], [inner[n] for n in part["gives"]])

            return function

        args = [env[n] for _, n in line["args"]]
        which = self.value(line["which"], env)
        branches = [branch(part) for part in line["branches"]]
        if self.loops:
            found = (
                self.lib.T.cond(which, *branches, *args) if line["by"] == "bool"
                else self.lib.T.switch(which, branches, *args)
            )  # fmt: skip
        else:
            number = int(which) if line["by"] == "int" else int(not bool(which))
            found = branches[min(max(number, 0), len(branches) - 1)](*args)
        self.bind(line, env, found)


# ---- comparing


def _data(case: Case, call: int) -> Iterator[tuple[str, list[int], str, Any]]:
    for k, (name, shape, dtype) in enumerate(case["inputs"]):
        rng = np.random.default_rng([case["seed"], call, k])
        if dtype == "bool":
            yield name, shape, dtype, rng.integers(0, 2, shape) > 0
        elif dtype == "int64":
            yield name, shape, dtype, rng.integers(0, 7, shape)
        else:
            yield name, shape, dtype, rng.uniform(-1.5, 1.5, shape).astype(dtype)


def _make_states(case: Case, world: World) -> None:
    for k, (name, shape, dtype, opt) in enumerate(case["states"]):
        rng = np.random.default_rng([case["seed"], 99, k])
        data = rng.integers(0, 7, shape) if dtype == "int64" else rng.uniform(-1, 1, shape)
        world.state(name, shape, dtype, np.asarray(data), opt)


def _loss(lib: Library, results: list[Any]) -> Any:
    total = lib.tensor(0.0, "float64")
    for r in results:
        if np.dtype(str(r.dtype).removeprefix("torch.").removeprefix("kernelrt.")).kind == "f":
            wide = lib.cast(r, "float64")
            total = total + (wide * 0.7).sum() + (wide * wide).sum() * 0.1
    return total


def _calls(case: Case, world: World, jitted: bool) -> Seen:
    """Return all that is visible of each call: results, gradients, state, position of the RNG."""
    lib = world.lib
    krt.manual_seed(case["seed"])
    _make_states(case, world)
    floats = [n for n, _, dtype in case["inputs"] if dtype.startswith("float")]
    held = {name: lib.tensor(a, dtype) for name, _, dtype, a in _data(case, 0)}
    leaf = case["grad"] and not (case["given"] and lib is KRT)
    for name in floats if leaf else ():
        held[name].requires_grad_(True)

    def results(env: Env) -> list[Any]:
        inner = world.block(case["body"], env)
        return [inner[n] for n in case["results"]]

    def whole(*args: Any) -> Any:
        env = dict(zip(held, args, strict=True)) if args else held
        if not case["grad"]:
            return results(env), []
        if not leaf:

            def loss(*leaves: Any) -> Any:
                out = results({**env, **dict(zip(floats, leaves, strict=True))})
                return _loss(lib, out), out

            def slope(*leaves: Any) -> Any:
                slopes, out = krt.func.grad(loss, tuple(range(len(floats))), has_aux=True)(*leaves)
                return _loss(lib, slopes), (slopes, out)

            leaves = [env[n] for n in floats]
            if case["grad"] == 2:
                second, (slopes, out) = krt.func.grad(
                    slope, tuple(range(len(floats))), has_aux=True
                )(*leaves)
                return out, [*slopes, *second]
            slopes, out = slope(*leaves)[1]
            return out, list(slopes)
        out = results(env)
        leaves = [env[n] for n in floats]
        slopes = lib.grad(_loss(lib, out), leaves, again=case["grad"] == 2)
        more = lib.grad(_loss(lib, slopes), leaves) if case["grad"] == 2 else []
        return out, [*slopes, *more]

    f = krt.jit(whole) if jitted else whole
    seen = []
    for call in range(case["calls"]):
        args = []
        for name, _, dtype, data in _data(case, call):
            fresh = lib.tensor(data, dtype)
            if case["given"] and lib is KRT:
                args.append(fresh)
            elif call:
                lib.assign(held[name], fresh)
        out, slopes = f(*args)
        seen.append([array(t) for t in (*out, *slopes, *world.states.values())])
        seen[-1].append(np.array(krt.rand(2).numpy()))
    return seen


@contextlib.contextmanager
def _parallel() -> Iterator[None]:
    """Let small plans run on two threads."""
    before = op_cost.launch_ns
    op_cost.launch_ns = lambda *_: PARALLEL_NS  # type: ignore[assignment]
    try:
        with krt.num_threads(2):
            yield
    finally:
        op_cost.launch_ns = before


def _way(case: Case, way: str) -> Seen:
    world = World(KRT, loops="written" not in way)
    with _parallel() if "threads" in way else krt.num_threads(1):
        return _calls(case, world, "jit" in way)


def check(case: Case) -> tuple[Seen, list[list[float]]]:
    """Return torch's results of a program, and the allowed difference of each value.

    Raises
    ------
    Invalid
        The program has no defined result, or one that depends on rounding.
    """
    narrow, wide = Torch(wide=False), Torch(wide=True)
    try:
        typed = _calls(case, World(narrow, loops=False), False)
        truth = _calls(case, World(wide, loops=False), False)
    except Invalid:
        raise
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    kinds = "float32" if "float32" in repr(case) or "F32" in repr(case) else "float64"
    if min(narrow.near, wide.near) < APART[kinds] * wide.top:
        raise Invalid("a comparison depends on rounding")
    bounds = []
    for a, b in zip(typed, truth, strict=True):
        bounds.append([])
        for x, y in zip(a, b, strict=True):
            top = max(1.0, float(np.abs(y).max(initial=0))) if y.dtype.kind == "f" else 0.0
            if not top < LARGEST:
                raise Invalid(f"a result is as large as {top}; expected less than {LARGEST}")
            if y.dtype.kind != "f":
                if x.shape != y.shape or (x != y).any():
                    raise Invalid("an integer or bool depends on rounding")
                bounds[-1].append(0.0)
                continue
            if not np.isfinite(y).all():
                raise Invalid("a result is not finite")
            moved = np.abs(x.astype(np.float64) - y).max(initial=0)
            bound = LOOSE[kinds] * max(top, wide.top) + 50 * float(moved)
            if bound > 0.02 * max(top, wide.top):
                raise Invalid(f"ill-conditioned: a result may be off by {bound}")
            bounds[-1].append(bound)
    return truth, bounds


def run(case: Case) -> str | None:
    """Return a description of the first difference, or None."""
    try:
        truth, bounds = check(case)
    except Invalid:
        return None
    bits: dict[str, Seen] = {}
    for way in case["ways"]:
        try:
            if way in ("jvp", "vmap"):
                why = (_pushed if way == "jvp" else _mapped)(case, truth, bounds)
                if why is not None:
                    return why
                continue
            found = bits[way] = _way(case, way)
        except Exception as error:
            refused = isinstance(error, krt.GradientError) and REFUSED in str(error)
            if refused and case["states"]:
                continue
            error.add_note(f"way: {way}")
            raise
        names = [f"result {name}" for name in case["results"]]
        for call, (ours, theirs, loose) in enumerate(zip(found, truth, bounds, strict=True)):
            for k, (a, b, bound) in enumerate(zip(ours, theirs, loose, strict=True)):
                why = _apart(a, b, bound)
                if why is not None:
                    what = names[k] if k < len(names) else f"value {k} of {len(ours)}"
                    kind, _, rest = why.partition(": ")
                    return f"{kind}: {way}, call {call}, {what}: {rest}"
        other = bits.get(way.removeprefix("threads").strip() or "loops")
        if "threads" in way and other is not None:
            for mine, yours in zip(found, other, strict=True):
                for k, (a, b) in enumerate(zip(mine, yours, strict=True)):
                    if a.tobytes() != b.tobytes():
                        told = f"{a.tolist()} and {b.tolist()} on one thread"
                        return f"bits: {way}, value {k}: {told}"
    return None


def _pushed(case: Case, truth: Seen, bounds: list[list[float]]) -> str | None:
    """Check jvp: the derivative along a direction is the gradients' product with the direction."""
    world = World(KRT, loops=True)
    krt.manual_seed(case["seed"])
    _make_states(case, world)
    held = {name: KRT.tensor(a, dtype) for name, _, dtype, a in _data(case, 0)}
    floats = [n for n, _, dtype in case["inputs"] if dtype.startswith("float")]
    tangents = [krt.tensor(np.cos(np.arange(held[n].numpy().size)).astype(held[n].numpy().dtype)
                           .reshape(held[n].shape)) for n in floats]  # fmt: skip

    def loss(*leaves: Any) -> Any:
        inner = world.block(case["body"], {**held, **dict(zip(floats, leaves, strict=True))})
        return _loss(KRT, [inner[n] for n in case["results"]])

    found = krt.func.jvp(loss, tuple(held[n] for n in floats), tuple(tangents))[1]
    first = len(case["results"])
    slopes = truth[0][first : first + len(floats)]
    want = sum(float((g * array(t)).sum()) for g, t in zip(slopes, tangents, strict=True))
    bound = sum(bounds[0][first + k] * max(1, slope.size) for k, slope in enumerate(slopes))
    why = _apart(array(found), np.array(want), bound)
    return None if why is None else f"values: jvp: {why.partition(': ')[2]}"


def _mapped(case: Case, truth: Seen, bounds: list[list[float]]) -> str | None:
    """Check several calls as one call under vmap, for programs without state or random numbers."""
    world = World(KRT, loops=True)
    calls = [{n: KRT.tensor(a, dtype) for n, _, dtype, a in _data(case, call)}
             for call in range(case["calls"])]  # fmt: skip
    stacked = [krt.stack([held[name] for held in calls]) for name in calls[0]]

    def results(*args: Any) -> tuple[Any, ...]:
        inner = world.block(case["body"], dict(zip(calls[0], args, strict=True)))
        return tuple(inner[n] for n in case["results"])

    found = krt.vmap(results)(*stacked)
    for k, (name, rows) in enumerate(zip(case["results"], found, strict=True)):
        for call in range(case["calls"]):
            why = _apart(array(rows)[call], truth[call][k], bounds[call][k])
            if why is not None:
                kind, _, rest = why.partition(": ")
                return f"{kind}: vmap, call {call}, result {name}: {rest}"
    return None


def _apart(a: np.ndarray, b: np.ndarray, bound: float) -> str | None:
    """Describe how a value differs from the truth."""
    told = f"{a.tolist()}, expected {b.tolist()}"
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return f"shape: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
    if a.dtype.kind != "f":
        return f"values: {told}" if (a != b).any() else None
    if np.isnan(a).any():
        return f"values: {told}"
    off = float(np.abs(a.astype(np.float64) - b).max(initial=0))
    return None if off <= bound else f"values: {told}, off by {off}, bound {bound}"
