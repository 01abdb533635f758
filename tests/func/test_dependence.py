"""What values of loops and choices depend on: for gradients, and for members of vmap.

Random programs of nested loops and choices over numbers. A plain Python interpreter says of each
value which leaves its gradients flow to and which it is made of; torch, written out, says what the
values and gradients are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import func
from kernelrt.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVES = {"p": 0.3, "q": -0.6, "r": 0.9}
Env = dict[str, Any]
Line = dict[str, Any]


# ---- programs


class Draw:
    """Random programs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def block(self, env: list[str], depth: int, most: int) -> tuple[list[Line], list[str]]:
        lines, env = [], list(env)
        for _ in range(int(self.rng.integers(1, most + 1))):
            line = getattr(self, self.pick(["let", "let", "region"] if depth else ["let"]))(
                env, depth
            )
            lines.append(line)
            env += [*line["to"], *line.get("rows", [])]
        return lines, env

    def let(self, env: list[str], _depth: int) -> Line:
        kind = self.pick(["mix", "mix", "mix", "detach", "no_grad", "sign"])
        args = [self.pick(env[-5:]), self.pick(env)]
        return {"do": "let", "kind": kind, "args": args, "to": [self.name()]}

    def region(self, env: list[str], depth: int) -> Line:
        do = self.pick(["scan", "scan", "fori", "while", "cond"])
        carry = [(self.name(), self.pick(env[-5:])) for _ in range(int(self.rng.integers(1, 4)))]
        inside = [*env, *(c for c, _ in carry)]
        to = [self.name() for _ in carry]
        line: Line = {"do": do, "carry": carry, "to": to, "turns": int(self.rng.integers(0, 5))}
        if do == "cond":
            line["which"] = self.pick(env)
            line["branches"] = []
            for shift in (0.25, -0.25):
                body, known = self.block(inside, depth - 1, 3)
                gives = [self.pick(known[-6:]) for _ in carry]
                line["branches"].append({"body": body, "gives": gives, "shift": shift})
            return line
        line["body"], known = self.block(inside, depth - 1, 3)
        # What was there before, too: constants of the loop, and others' values of a turn ago.
        line["next"] = [self.pick(known[-7:]) for _ in carry]
        if do == "scan":
            line["ys"] = [self.pick(known[-3:])]
            line["rows"] = [self.name()]
        if do == "while":
            line["bound"] = self.pick(env)
        return line


def program(seed: int) -> tuple[list[Line], list[str]]:
    draw = Draw(seed)
    lines, env = draw.block(list(LEAVES), 1, 3)
    line = draw.region(env, 2)
    last = draw.block([*env, *line["to"]], 1, 3)
    return [*lines, line, *last[0]], last[1][len(LEAVES) :]


# ---- what they mean


class Plain:
    """A library of which loops are written out in Python."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib

    def let(self, kind: str, a: Any, b: Any) -> Any:
        if kind == "detach":
            return a.detach() * 0.5 + 0.1
        if kind == "no_grad":
            with self.lib.no_grad():
                return a * b + 0.3
        if kind == "sign":
            return (a > 0).to(a.dtype) * 0.5
        return (a * 0.7 + b).sin()

    def block(self, lines: list[Line], env: Env) -> Env:
        env = dict(env)
        for line in lines:
            if line["do"] == "let":
                found = [self.let(line["kind"], *(env[n] for n in line["args"]))]
            else:
                found = getattr(self, "do_" + line["do"])(line, env)
            env.update(zip([*line["to"], *line.get("rows", [])], found, strict=True))
        return env

    def turn(self, line: Line, env: Env, carry: list[Any]) -> tuple[list[Any], list[Any]]:
        own = dict(zip([c for c, _ in line["carry"]], carry, strict=True))
        inner = self.block(line["body"], {**env, **own})
        return [inner[n] for n in line["next"]], [inner[n] for n in line.get("ys", [])]

    def branch(self, line: Line, part: Line, env: Env, args: list[Any]) -> list[Any]:
        own = dict(zip([c for c, _ in line["carry"]], args, strict=True))
        inner = self.block(part["body"], {**env, **own})
        return [inner[n] + part["shift"] for n in part["gives"]]

    def start(self, line: Line, env: Env) -> list[Any]:
        return [env[n] for _, n in line["carry"]]

    def row(self, ys: list[Any], like: Any) -> Any:
        """What the turns make, as one number."""
        return self.lib.stack(ys).sum() if ys else like.detach() * 0

    def do_scan(self, line: Line, env: Env) -> list[Any]:
        carry, ys = self.start(line, env), []
        like = carry[0]
        for _ in range(line["turns"]):
            carry, (y,) = self.turn(line, env, carry)
            ys.append(y)
        return [*carry, self.row(ys, like)]

    do_fori = do_scan

    def do_while(self, line: Line, env: Env) -> list[Any]:
        carry, k = self.start(line, env), 0
        while k < line["turns"] and bool(env[line["bound"]] > k * 0.25 - 0.5):
            carry, k = self.turn(line, env, carry)[0], k + 1
        return carry

    def do_cond(self, line: Line, env: Env) -> list[Any]:
        part = line["branches"][0 if bool(env[line["which"]] > 0) else 1]
        return self.branch(line, part, env, self.start(line, env))


class Written(Plain):
    """The same, of a `fori` without rows."""

    def do_fori(self, line: Line, env: Env) -> list[Any]:
        return self.do_scan({**line, "ys": [line["next"][0]]}, env)[:-1]


class Loops(Plain):
    """kernelrt, with its own loops and choices."""

    def do_scan(self, line: Line, env: Env) -> list[Any]:
        def body(carry: list[Any], _: Any) -> tuple[list[Any], Any]:
            new, (y,) = self.turn(line, env, carry)
            return new, y

        carry, row = krt.scan(body, self.start(line, env), None, line["turns"])
        return [*carry, row.sum()]

    def do_fori(self, line: Line, env: Env) -> list[Any]:
        def body(_: Any, carry: list[Any]) -> list[Any]:
            return self.turn(line, env, carry)[0]

        return krt.fori_loop(0, line["turns"], body, self.start(line, env))

    def do_while(self, line: Line, env: Env) -> list[Any]:
        def body(carry: Any) -> Any:
            k, own = carry
            return k + 1, self.turn(line, env, own)[0]

        def test(carry: Any) -> Any:
            return env[line["bound"]] > carry[0] * 0.25 - 0.5

        begin = krt.tensor(0), self.start(line, env)
        return krt.while_loop(test, body, begin, line["turns"])[1]

    def do_cond(self, line: Line, env: Env) -> list[Any]:
        branches = [
            lambda *args, part=part: self.branch(line, part, env, list(args))
            for part in line["branches"]
        ]
        return krt.cond(env[line["which"]] > 0, *branches, *self.start(line, env))


class Sets(NamedTuple):
    """The leaves that gradients of a value flow to, and those that it is made of."""

    flow: frozenset[str]
    made: frozenset[str]

    def __or__(self, other: Sets) -> Sets:
        return Sets(self.flow | other.flow, self.made | other.made)

    def __add__(self, _: float) -> Sets:
        return self


NONE = Sets(frozenset(), frozenset())


class Oracle(Plain):
    """Follows the sets of leaves instead of values."""

    def __init__(self) -> None:
        super().__init__(None)

    def let(self, kind: str, a: Sets, b: Sets) -> Sets:
        if kind in ("detach", "sign"):
            return Sets(frozenset(), a.made)
        both = a | b
        return Sets(frozenset(), both.made) if kind == "no_grad" else both

    def loop(self, line: Line, env: Env, *, may_end: bool, test: Sets) -> list[Any]:
        carry, row, ever = self.start(line, env), NONE, self.start(line, env)
        for _ in range(line["turns"]):
            new, ys = self.turn(line, env, carry)
            for y in ys:
                row |= y
            carry = [a | b for a, b in zip(new, carry, strict=True)] if may_end else new
        # What a value is made of in one turn, it is said to be in all.
        while line["turns"]:
            new, ys = self.turn(line, env, ever)
            for y in ys:
                row |= Sets(frozenset(), y.made)
            new = [a | b for a, b in zip(new, ever, strict=True)]
            if new == ever:
                break
            ever = new
        made = test.made if line["turns"] else frozenset()
        return [Sets(c.flow, e.made | made) for c, e in zip(carry, ever, strict=True)] + [row]

    def do_scan(self, line: Line, env: Env) -> list[Any]:
        return self.loop(line, env, may_end=False, test=NONE)

    def do_fori(self, line: Line, env: Env) -> list[Any]:
        return self.loop(line, env, may_end=False, test=NONE)[:-1]

    def do_while(self, line: Line, env: Env) -> list[Any]:
        return self.loop(line, env, may_end=True, test=env[line["bound"]])[:-1]

    def do_cond(self, line: Line, env: Env) -> list[Any]:
        parts = [self.branch(line, p, env, self.start(line, env)) for p in line["branches"]]
        which = Sets(frozenset(), env[line["which"]].made)
        return [a | b | which for a, b in zip(*parts, strict=True)]


def sets_of(lines: list[Line]) -> Env:
    leaves = {n: Sets(frozenset({n}), frozenset({n})) for n in LEAVES}
    return Oracle().block(lines, leaves)


def leaves_of(lib: Any, dtype: Any) -> Env:
    return {n: lib.tensor(v, dtype=dtype, requires_grad=True) for n, v in LEAVES.items()}


def results_of(world: Plain, lines: list[Line], names: list[str], env: Env) -> list[Any]:
    made = world.block(lines, env)
    return [made[n] for n in names]


# ---- comparing

COUNT = 24


@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("how", ["eager", "jit"])
def test_results_require_gradients_as_written_out(seed: int, how: str) -> None:
    torch = pytest.importorskip("torch")
    lines, names = program(seed)
    sets = sets_of(lines)
    theirs = leaves_of(torch, torch.float64)
    want = results_of(Written(torch), lines, names, theirs)
    ours = leaves_of(krt, krt.float64)

    def run() -> tuple[list[Any], list[Any]]:
        found = results_of(Loops(krt), lines, names, ours)
        flags = [r.requires_grad for r in found]
        if any(flags):
            sum(r * (k + 1.0) for k, r in enumerate(found)).backward()
        return [r.detach() for r in found], [krt.tensor(float(f)) for f in flags]

    found, flags = (krt.jit(run) if how == "jit" else run)()
    for name, a, b, flag in zip(names, found, want, flags, strict=True):
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-9, atol=1e-11, err_msg=name)
        assert bool(flag.item()) == bool(sets[name].flow), name
        # One branch, or fewer turns, may have been all that was computed.
        assert flag.item() or not b.requires_grad, name
    loss = sum(r * (k + 1.0) for k, r in enumerate(want))
    if loss.requires_grad:
        loss.backward()
    reached = frozenset().union(*(sets[n].flow for n in names))
    for name in LEAVES:
        assert (ours[name].grad is not None) == (name in reached), name
        if name in reached:
            g = theirs[name].grad
            np.testing.assert_allclose(
                ours[name].grad.item(), 0.0 if g is None else g.item(), rtol=1e-8, atol=1e-10
            )


def scalar(world: Plain, lines: list[Line], names: list[str]) -> Callable[..., Any]:
    def f(*leaves: Any) -> Any:
        found = results_of(world, lines, names, dict(zip(LEAVES, leaves, strict=True)))
        return sum(r * (k + 1.0) for k, r in enumerate(found))

    return f


@pytest.mark.parametrize("seed", range(COUNT))
def test_derivatives_of_functions(seed: int) -> None:
    torch = pytest.importorskip("torch")
    lines, names = program(seed)
    ours, theirs = leaves_of(krt, krt.float64), leaves_of(torch, torch.float64)
    f = scalar(Loops(krt), lines, names)
    loss = scalar(Written(torch), lines, names)(*theirs.values())

    def slopes(of: Any, again: bool) -> list[Any]:
        if not of.requires_grad:
            return [torch.zeros((), dtype=torch.float64)] * len(LEAVES)
        leaves = list(theirs.values())
        found = torch.autograd.grad(of, leaves, allow_unused=True, create_graph=again)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    first = slopes(loss, True)
    second = slopes(sum(g * (k + 1.0) for k, g in enumerate(first)), False)
    args = [t.detach() for t in ours.values()]
    gradient = func.grad(f, (0, 1, 2))
    again = func.grad(lambda *a: sum(g * (k + 1.0) for k, g in enumerate(gradient(*a))), (0, 1, 2))
    for found, want in ((gradient(*args), first), (again(*args), second)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.item(), b.item(), rtol=1e-8, atol=1e-9)
    tangents = [krt.tensor(k + 1.0, dtype=krt.float64) for k in range(3)]
    slope = func.jvp(f, tuple(args), tuple(tangents))[1].item()
    want = sum((k + 1.0) * g.item() for k, g in enumerate(first))
    np.testing.assert_allclose(slope, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("how", ["eager", "jit"])
def test_members_share_what_is_not_made_of_theirs(seed: int, how: str) -> None:
    lines, names = program(seed)
    sets = sets_of(lines)
    shared = [krt.tensor(LEAVES[n], dtype=krt.float64) for n in ("q", "r")]
    members = krt.tensor([0.3, -0.4, 0.8], dtype=krt.float64)

    def f(p: Any) -> tuple[Any, ...]:
        env = dict(zip(LEAVES, (p, *shared), strict=True))
        return tuple(results_of(Loops(krt), lines, names, env))

    axes = tuple(0 if "p" in sets[n].made else None for n in names)
    run = krt.vmap(f, out_axes=axes)
    found = (krt.jit(run) if how == "jit" else run)(members)
    for k in range(3):
        want = f(members[k])
        for name, a, b, axis in zip(names, found, want, axes, strict=True):
            each = a if axis is None else a[k]
            np.testing.assert_allclose(each.item(), b.item(), rtol=1e-9, atol=1e-11, err_msg=name)
    if any(a == 0 for a in axes):
        with pytest.raises(ShapeError, match="differs between batch elements"):
            krt.vmap(f, out_axes=None)(members)
    # Gradients for each member, of which some have none at all.
    loss = scalar(Loops(krt), lines, names)
    slopes = krt.vmap(func.grad(loss, (0, 1)), in_axes=(0, None, None))
    found = slopes(members, *shared)
    for k in range(3):
        for a, b in zip(found, func.grad(loss, (0, 1))(members[k], *shared), strict=True):
            np.testing.assert_allclose(a[k].item(), b.item(), rtol=1e-8, atol=1e-9)


# ---- single ones


def leaf(value: Any = 2.0) -> Any:
    return krt.tensor(value, requires_grad=True)


def test_values_of_one_run_hand_gradients_to_operands_of_their_own() -> None:
    """All of a run goes backwards before any operand of one of its values does."""
    u, v = leaf(), leaf(3.0)

    def body(carry: Any, _: Any) -> Any:
        a, b = carry
        return (a * 2, b * b), None

    (a, b), _ = krt.scan(body, (u * 2, v * 3), None, 2)
    (a + b).backward()
    assert u.grad.item() == 8.0
    assert v.grad.item() == 4 * 9.0**3 * 3
    u.grad = v.grad = None
    branches = (lambda a, b: (a * 2, b * b), lambda a, b: (a, b))
    a, b = krt.cond(krt.tensor(True), *branches, u * 2, v * 3)
    (a + b).backward()
    assert (u.grad.item(), v.grad.item()) == (4.0, 2 * 9.0 * 3)


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 7, 1000])
def test_gradients_flow_as_so_many_turns_let_them(turns: int) -> None:
    u, v = leaf(), krt.tensor(3.0)
    a, b = krt.fori_loop(0, turns, lambda _, c: (c[1], c[0]), (u * 1, v))
    assert (a.requires_grad, b.requires_grad) == (turns % 2 == 0, turns % 2 == 1)
    # A value that moves on by one place a turn.
    first, row = krt.scan(
        lambda c, x: ((c[1], c[2], x), c[0]), (u * 1, v, v), krt.zeros(turns)
    )
    assert [t.requires_grad for t in first] == [False, False, False]
    assert row.requires_grad
    (back, *_), row = krt.scan(
        lambda c, x: ((c[1], c[2], x), c[0]), (v, v, u * 1), krt.zeros(turns)
    )
    assert back.requires_grad == (turns == 2)
    assert row.requires_grad == (turns > 2)

    # So it is where data say how many turns there are, for each number that there may be.
    def one(c: Any) -> Any:
        return c[0] + 1, c[2], c[1]

    begin = krt.tensor(0.0), u * 1, v
    _, a, b = krt.while_loop(lambda c: c[0] < 2.0, one, begin, turns)
    assert (a.requires_grad, b.requires_grad) == (True, True)
    _, a, b = krt.fori_loop(0, krt.tensor(turns), lambda _, c: one(c), begin)
    assert (a.requires_grad, b.requires_grad) == (True, True)


@pytest.mark.parametrize("write", ["assign", "copy_", "add_", "item"])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_detached_carry_is_written_to_state(write: str, jitted: bool) -> None:
    h, w = krt.zeros(2), leaf([0.5, -0.5])

    def run(xs: Any) -> Any:
        def turn(c: Any, x: Any) -> Any:
            new = (c * w + x).tanh()
            return new.detach(), new.sum()

        c, losses = krt.scan(turn, h * 1, xs)
        losses.sum().backward()
        if write == "item":
            h[:] = c
        else:
            getattr(h, write)(c)
        return losses.detach()

    (krt.jit(run) if jitted else run)(krt.ones(3, 2))
    want, slope = np.zeros(2), np.zeros(2)
    for _ in range(3):
        new = np.tanh(want * [0.5, -0.5] + 1)
        slope += (1 - new**2) * want
        want = new
    np.testing.assert_allclose(h.numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), slope, rtol=1e-5)


def test_an_optimizer_leaves_alone_what_a_branch_froze() -> None:
    frozen, w = krt.nn.Linear(1, 1), leaf([2.0])
    before = frozen.weight.item()
    opt = krt.nn.optim.AdamW([*frozen.parameters(), w], lr=0.1, weight_decay=0.5)
    x = krt.tensor([[1.0]])

    def still(x: Any) -> Any:
        with krt.no_grad():
            return frozen(x)

    for branch in (still, lambda x: frozen(x).detach()):
        opt.zero_grad()
        (krt.cond(krt.tensor(True), branch, lambda x: x, x) * w).sum().backward()
        assert frozen.weight.grad is None
        assert w.grad is not None
        opt.step()
    assert frozen.weight.item() == before


@pytest.mark.parametrize("choose", [krt.cond, krt.switch])
def test_a_carry_that_branches_detach_has_no_history(choose: Any) -> None:
    w = leaf([0.1, 0.2])
    y = krt.ones(2)
    for _ in range(3):
        which = y.sum() > 0
        branches = (lambda q: (w * q).detach() + 1, lambda q: q + 1)
        y = krt.cond(which, *branches, y) if choose is krt.cond else krt.switch(
            which.long(), branches, y
        )
        assert not y.requires_grad
        krt.realize(y)
        assert y.grad_fn is None


def test_checkpoint_and_rules_of_ones_own() -> None:
    w, s = leaf(), leaf(3.0)

    def f(c: Any, x: Any) -> Any:
        return (c * s.detach() + x * w).sin(), c.detach()

    c, row = krt.scan(f, krt.tensor(1.0), krt.ones(3), checkpoint=True)
    assert (c.requires_grad, row.requires_grad) == (True, False)
    c.backward()
    assert s.grad is None
    c, row = krt.scan(lambda c, x: (c, (x * w).softmax(0)), krt.tensor(0.0), krt.ones(2, 3))
    assert (c.requires_grad, row.requires_grad) == (False, True)


# Random numbers: each member draws as it would alone.


@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize("program", ["scans", "fori", "cond", "alike"])
def test_members_draw_in_loops_within_loops(program: str, randomness: str) -> None:
    one = krt.ones(2)

    def draw(c: Any) -> Any:
        return c * krt.rand(64)

    def inner(c: Any, _: Any) -> Any:
        return krt.scan(lambda c, _: (draw(c), None), c, one)[0], None

    def f(x: Any) -> Any:
        if program == "scans":
            return krt.scan(inner, x, one)[0]
        if program == "fori":
            return krt.fori_loop(0, 2, lambda _, c: krt.fori_loop(0, 2, lambda _, c: draw(c), c), x)
        if program == "cond":
            return krt.cond(one.sum() > 0, lambda c: draw(draw(c)), lambda c: c, x)
        # Members take different branches, and both draw as many.
        return krt.cond(x.sum() > 0, draw, lambda c: draw(c) * 2, x)

    x = krt.stack([krt.ones(64), krt.ones(64), -krt.ones(64)])
    krt.manual_seed(3)
    found = krt.vmap(f, randomness=randomness)(x).numpy()
    apart = [np.abs(np.abs(found[a]) - np.abs(found[b])).max() > 0 for a, b in ((0, 1), (1, 2))]
    assert apart[0] == (randomness == "different")
    if program == "alike":
        np.testing.assert_array_less(found[2], 0)
    krt.manual_seed(3)
    np.testing.assert_array_equal(krt.jit(krt.vmap(f, randomness=randomness))(x).numpy(), found)
    # What comes next is drawn from where all have come to.
    after = krt.rand(4).numpy()
    krt.manual_seed(3)
    krt.vmap(f, randomness=randomness)(x).numpy()
    np.testing.assert_array_equal(krt.rand(4).numpy(), after)


def test_members_draw_in_one_loop_after_another() -> None:
    def f(x: Any) -> Any:
        for _ in range(2):
            x = krt.scan(lambda c, _: (c + krt.rand(3), None), x, None, 2)[0]
        return x

    found = krt.vmap(f)(krt.zeros(2, 3)).numpy()
    assert len(np.unique(found)) == 6


def test_members_that_draw_another_number_of_times_are_refused() -> None:
    def f(x: Any) -> Any:
        return krt.cond(x > 0, lambda c: c * krt.rand(()), lambda c: c, x)

    with pytest.raises(krt.JitError, match="drawn in a branch or an iteration that only some"):
        krt.vmap(f)(krt.ones(2))


def test_members_count_in_loops_within_loops() -> None:
    calls = krt.zeros(())

    def f(x: Any) -> Any:
        def inner(c: Any, _: Any) -> Any:
            calls.add_(1)
            return c * 2, None

        return krt.scan(lambda c, _: (krt.scan(inner, c, None, 3)[0], None), x, None, 2)[0]

    assert krt.vmap(f)(krt.ones(2)).tolist() == [64.0, 64.0]
    assert calls.item() == 6.0


def test_many_seeds_are_trained_at_once() -> None:
    def train(theta: Any) -> Any:
        def update(th: Any, _: Any) -> Any:
            def env(s: Any, _: Any) -> Any:
                s = s * 0.9 + (th * s + krt.randn()).tanh()
                return s, -(s * s)

            r = krt.scan(env, krt.tensor(1.0), None, 5)[1].mean()
            return th + 0.01 * r, r

        return krt.scan(update, theta, None, 3)

    last, rows = krt.vmap(train)(krt.tensor([0.1, 0.1, 0.1]))
    assert rows.shape == (3, 3)
    assert len(set(last.tolist())) == 3
