"""Random programs with loops and choices, run by kernelrt and written out in torch.

A program is plain data: statements over named values. Those that loop or choose have blocks of
statements within, which read what is around them, assign to state, draw random numbers and learn.
kernelrt runs a program as loops of a plan, eagerly and jitted, on one thread and on two, and
written out in Python; the truth is torch's, in float64, written out, too.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import kernelrt as krt
from kernelrt.runtime import cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KRT", "Case", "Invalid", "Library", "Torch", "World", "array", "check", "run"]

Case = dict[str, Any]
Block = list[dict[str, Any]]
Env = dict[str, Any]
TURNS = 400
"""The most turns, of all loops together, that a program may take."""
LARGEST = 1e4
APART = {"float32": 2e-4, "float64": 1e-9}
"""How far a comparison has to be from turning out otherwise, of numbers about 1."""
LOOSE = {"float32": 2e-5, "float64": 1e-11}
PARALLEL_NS = 1e7
REFUSED = "has been assigned since"
"""What kernelrt says of a gradient through memory that has other numbers now; torch has a copy."""


class Invalid(Exception):  # noqa: N818 - it is no error of anybody
    """A program that has no meaning, or whose results hang on the last digit."""


# ---- libraries


class Library:
    """kernelrt as programs see it."""

    T: Any = krt
    stacked = staticmethod(lambda rows: krt.stack(rows))

    def names(self) -> Env:
        """What texts may call beside methods."""
        return {
            "T": self.T, "F32": lambda x: self.cast(x, "float32"),
            "F64": lambda x: self.cast(x, "float64"), "I64": lambda x: self.cast(x, "int64"),
            "LIKE": lambda x, y: x.to(y.dtype), "GT": lambda a, b: a > b, "ABS": lambda x: x.abs(),
            "RELU": lambda x: x.relu(), "MAX2": lambda a, b: a.maximum(b),
            "AMAX": lambda x, d: x.amax(d), "ARGMAX": lambda x: x.argmax(),
            "FLOOR": lambda x: x.floor(),
        }  # fmt: skip

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(self.type(dtype))

    def type(self, dtype: str) -> Any:
        return getattr(krt, dtype) if dtype != "bool" else krt.bool

    def tensor(self, value: Any, dtype: str) -> Any:
        return krt.tensor(np.asarray(value, dtype))

    def zeros(self, shape: Any, dtype: str) -> Any:
        return krt.zeros(tuple(shape), dtype=self.type(dtype))

    def rand(self, shape: list[int]) -> Any:
        return krt.rand(*shape)

    def grad(self, loss: Any, leaves: list[Any], *, again: bool = False) -> list[Any]:
        if not leaves or not loss.requires_grad:
            return [krt.zeros_like(x) for x in leaves]
        return list(krt.grad(loss, leaves, create_graph=again))

    def read(self, state: Any) -> Any:
        return state

    def assign(self, state: Any, value: Any) -> Any:
        state.assign(value.detach())
        return state

    def add(self, state: Any, value: Any) -> Any:
        with krt.no_grad():
            return state.add_(value.detach())

    def put(self, state: Any, place: Any, value: Any) -> Any:
        state[place] = value.detach()
        return state

    def step(self, opt: Any, loss: Any) -> None:
        opt.zero_grad()
        loss.backward()
        opt.step()


KRT = Library()


class Torch(Library):
    """torch, with float32 as it is or widened; it notes what is close to turning out otherwise."""

    T = torch
    stacked = staticmethod(lambda rows: torch.stack(rows))

    def __init__(self, *, wide: bool) -> None:
        self.wide = wide
        self.near = np.inf
        self.top = 1.0
        self.turns = 0

    def names(self) -> Env:
        return {**super().names(), "GT": self._greater, "ABS": lambda x: self._off(x).abs(),
                "RELU": lambda x: self._off(x).relu(), "MAX2": self._maximum, "AMAX": self._amax,
                "ARGMAX": self._argmax, "FLOOR": self._floor}  # fmt: skip

    def type(self, dtype: str) -> Any:
        return getattr(torch, "float64" if self.wide and dtype == "float32" else dtype)

    def tensor(self, value: Any, dtype: str) -> Any:
        return torch.tensor(np.asarray(value)).to(self.type(dtype))

    def zeros(self, shape: Any, dtype: str) -> Any:
        return torch.zeros(tuple(shape), dtype=self.type(dtype))

    def rand(self, shape: list[int]) -> Any:
        return torch.tensor(krt.rand(*shape).numpy()).to(self.type("float32"))

    def grad(self, loss: Any, leaves: list[Any], *, again: bool = False) -> list[Any]:
        if not leaves or not loss.requires_grad:
            return [torch.zeros_like(x) for x in leaves]
        found = torch.autograd.grad(
            loss, leaves, create_graph=again, retain_graph=True, allow_unused=True
        )
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    def read(self, state: Any) -> Any:
        return state.clone()

    def assign(self, state: Any, value: Any) -> Any:
        with torch.no_grad():
            return state.copy_(value.detach())

    def add(self, state: Any, value: Any) -> Any:
        with torch.no_grad():
            return state.add_(value.detach())

    # What turns out one way or another.

    def _off(self, x: Any, y: Any = 0) -> Any:
        apart = np.abs(np.asarray((x - y).detach(), np.float64))
        self.near = min(self.near, apart[apart > 0].min(initial=np.inf))
        return x

    def _greater(self, a: Any, b: Any) -> Any:
        if a.dtype.is_floating_point:
            self._off(a, b)
        return a > b

    def _maximum(self, a: Any, b: Any) -> Any:
        self._off(a, b)
        return a.maximum(b)

    def _amax(self, x: Any, d: int) -> Any:
        found = x.amax(d, keepdim=True)
        self._off(x, found)
        return found.squeeze(d)

    def _argmax(self, x: Any) -> Any:
        found = x.max()
        if int((x == found).sum()) > 1:
            raise Invalid("which one is the greatest is not said")
        self._off(x, found)
        return x.argmax()

    def _floor(self, x: Any) -> Any:
        self._off(x, x.detach().round())
        return x.floor()

    def look(self, value: Any) -> None:
        """Refuse what is not finite, or large."""
        if value.dtype.is_floating_point and value.numel():
            top = float(value.detach().abs().max())
            if not top < LARGEST:
                raise Invalid(f"values up to {top}")
            self.top = max(self.top, top)

    def turn(self) -> None:
        self.turns += 1
        if self.turns > TURNS:
            raise Invalid("too many turns")


def array(value: Any) -> np.ndarray:
    """The numbers of a tensor, owned."""
    return np.array(value.detach().numpy())


# ---- running


@dataclass
class World:
    """What statements mean: to a library, as its loops or written out.

    Attributes
    ----------
    lib : Library
        Whose tensors there are.
    loops : bool
        Whether its own loops run, or Python's.
    states : dict
        Tensors that statements assign to.
    opts : dict
        Optimizers of those that have one.
    """

    lib: Library
    loops: bool
    states: Env = field(default_factory=dict)
    opts: Env = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builtin = self.lib.names()

    def state(self, name: str, shape: Any, dtype: str, data: Any, opt: str | None) -> None:
        """Make a state; with an optimizer, one that learns."""
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
        return found

    def block(self, lines: Block, env: Env) -> Env:
        """What is known after some statements; `env` is left alone."""
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
        """A step down the slope of a loss, by an optimizer or by hand."""
        name = line["state"]
        w = self.states[name]
        loss = self.value(line["text"], env)
        if line["hand"]:
            slope = self.lib.grad(loss, [w])[0]
            self.lib.assign(w, self.value(name, env).detach() - slope.detach() * 0.1)
        else:
            self.lib.step(self.opts[name], loss)

    # Nested data: a tuple, a dict, or a bare tensor where there is one.

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
                reverse=line["reverse"], checkpoint=line["checkpoint"],
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
        """One of several blocks, by a bool (cond) or by a number (switch)."""

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


def _calls(case: Case, world: World, jitted: bool) -> list[list[np.ndarray]]:
    """What can be seen of each call: results, gradients, state, and where random numbers are."""
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


WAYS = ("loops", "jit", "threads", "threads jit", "written out", "written out jit")


@contextlib.contextmanager
def _parallel() -> Iterator[None]:
    """Let small plans run on two threads."""
    before = cost.launch_ns
    cost.launch_ns = lambda *_: PARALLEL_NS  # type: ignore[assignment]
    try:
        with krt.num_threads(2):
            yield
    finally:
        cost.launch_ns = before


def _way(case: Case, way: str) -> list[list[np.ndarray]]:
    world = World(KRT, loops="written" not in way)
    with _parallel() if "threads" in way else krt.num_threads(1):
        return _calls(case, world, "jit" in way)


def check(case: Case) -> tuple[list[list[np.ndarray]], list[list[float]]]:
    """What torch makes of a program, and by how much each value may differ.

    Raises
    ------
    Invalid
        It has no meaning, or hangs on the last digit.
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
        raise Invalid("hangs on the last digit")
    bounds = []
    for a, b in zip(typed, truth, strict=True):
        bounds.append([])
        for x, y in zip(a, b, strict=True):
            top = max(1.0, float(np.abs(y).max(initial=0))) if y.dtype.kind == "f" else 0.0
            if not top < LARGEST:
                raise Invalid("large")
            if y.dtype.kind != "f":
                if x.shape != y.shape or (x != y).any():
                    raise Invalid("hangs on the last digit")
                bounds[-1].append(0.0)
                continue
            if not np.isfinite(y).all():
                raise Invalid("not finite")
            moved = np.abs(x.astype(np.float64) - y).max(initial=0)
            bound = LOOSE[kinds] * max(top, wide.top) + 50 * float(moved)
            if bound > 0.02 * max(top, wide.top):
                raise Invalid("ill-conditioned")
            bounds[-1].append(bound)
    return truth, bounds


def run(case: Case) -> str | None:
    """What is wrong with a program, or None."""
    try:
        truth, bounds = check(case)
    except Invalid:
        return None
    n_results = len(case["results"])
    bits: dict[str, list[list[np.ndarray]]] = {}
    for way in case["ways"]:
        try:
            found = _way(case, way)
        except krt.GradientError as error:
            if REFUSED in str(error) and any(opt for *_, opt in case["states"]):
                continue
            error.add_note(f"way: {way}")
            raise
        except Exception as error:
            error.add_note(f"way: {way}")
            raise
        for call, (ours, theirs, loose) in enumerate(zip(found, truth, bounds, strict=True)):
            for k, (a, b, bound) in enumerate(zip(ours, theirs, loose, strict=True)):
                where = f"{way}, call {call}, " + (
                    f"result {case['results'][k]}" if k < n_results else f"value {k} of {len(ours)}"
                )
                if a.shape != b.shape or (a.dtype.kind != b.dtype.kind):
                    return f"shape: {where}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
                if a.dtype.kind != "f" and (a != b).any():
                    return f"values: {where}: {a.tolist()}, expected {b.tolist()}"
                if a.dtype.kind == "f" and a.size:
                    with np.errstate(invalid="ignore"):
                        off = np.abs(a.astype(np.float64) - b)
                    if not (off <= bound).all():
                        return (f"values: {where}: {a.tolist()}, expected {b.tolist()}, off by "
                                f"{np.nanmax(off)}, bound {bound}")  # fmt: skip
        bits[way] = found
        other = bits.get(way.removeprefix("threads").strip() or "loops")
        if "threads" in way and other is not None:
            for mine, yours in zip(found, other, strict=True):
                for k, (a, b) in enumerate(zip(mine, yours, strict=True)):
                    if a.tobytes() != b.tobytes():
                        return f"bits: {way}, value {k}: {a.tolist()} and {b.tolist()} on one thread"
    return None
