"""Draws random programs with loops and branches (`loop_programs` runs them).

Lines are drawn one by one. Each line is tried with torch, on the values of a first iteration, and
dropped if torch refuses it or its result is too large.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import torch
from support.loop_libraries import Invalid, Torch
from support.loop_programs import World

if TYPE_CHECKING:
    import numpy as np
    from support.loop_programs import Block, Case, Env

__all__ = ["generate"]

SIZES = [1, 2, 3, 3, 4, 5, 8, 17]
LENGTHS = [0, 1, 2, 3, 3, 5, 7]
DTYPES = ["float32", "float32", "float32", "float64", "int64", "bool"]
MOST = 400
"""Elements of a value."""
NAME = re.compile(r"\b[VWKJBC]\b")

#: V and W are floats, K and J int64, B and C bool.
TEXTS = {
    "f": (
        "V.tanh()", "V.sin()", "V * 0.5", "V + 0.25", "1 - V", "V.sigmoid()", "V * V", "-V",
        "(ABS(V) + 0.5).sqrt()", "(ABS(V) + 0.5).log()", "V.tanh().exp()", "RELU(V)", "ABS(V)",
        "V.detach()", "V.clone()", "F32(V)", "F64(V)", "V.detach() * V", "V.flip(-1)",
        "V.cumsum(-1)", "V.softmax(-1)", "V.sum(-1)", "V.sum()", "V.mean()", "V.sum(0)", "V[0]",
        "V[..., -1]", "V[..., 1:]", "V[:-1]", "V[::2]", "V[None]", "V.reshape(-1)",
        "V.unsqueeze(-1)", "V.transpose(0, -1)", "V.expand(2, *V.shape)", "AMAX(V, -1)",
        "V.roll(1, 0)", "V.tril()", "V.logsumexp(-1)",
        "V + W", "V - W", "V * W", "V / (ABS(W) + 0.5)", "MAX2(V, W)", "T.where(B, V, W)",
        "V @ W", "V @ W", "V @ W.transpose(-1, -2)", "V.transpose(-1, -2) @ W", "V.lerp(W, 0.25)",
        "T.cat([V, W], 0)", "T.stack([V, W])", "V + W.sum()", "V * LIKE(K, V)",
        "V[K % V.shape[0]]", "V[K % V.shape[0]]", "V[K % V.shape[0], ...] + W",
        "V.index_select(0, (K % V.shape[0]).reshape(-1))",
        "T.where(T.arange(V.shape[-1]) == K % V.shape[-1], W, V)",
        "T.where(GT(V, W), V, W * 0.5)", "V * B", "V.masked_fill(B, 0.5)", "F32(K) * 0.1 + V",
        "F64(B).sum() + V", "V.index_add(0, (K % V.shape[0]).reshape(1), W.sum().reshape(1))",
        "T.zeros_like(V) + 0.5", "V.reshape(-1).scatter(0, (K % 2).reshape(-1), 0.5)",
        "V.reshape(-1).gather(0, (K % 2).reshape(-1))",
        "(V * V).sum(0)", "T.outer(V, W)", "V.prod()", "F32(V.sum().detach()) * W",
    ),
    "i": (
        "K + 1", "K * 3 % 7", "K % 5", "K - J", "K * J % 11", "ARGMAX(V)", "I64(B)",
        "I64(FLOOR(V * 3))", "B.sum()", "K.sum()", "K[0]", "K[J % K.shape[0]]", "K.reshape(-1)",
        "T.where(B, K, J)", "K.maximum(J)", "K // 2", "T.arange(3) + K", "K.flip(-1)",
        "I64(GT(V, 0.0))", "K ^ J", "-K",
    ),
    "b": (
        "GT(V, W)", "GT(V, 0.1)", "GT(V.sum(), 0.0)", "K > 2", "K % 2 == 0", "B & C", "B | C",
        "~B", "B.any()", "B.all()", "K == J", "B ^ C", "B.reshape(-1)", "GT(0.3, V.sum())",
    ),
}  # fmt: skip
KINDS = {torch.int64: "i", torch.bool: "b"}


def kind_of(value: Any) -> str:
    return KINDS.get(value.dtype, "f")


def name_of(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


class Draw:
    """A program under construction.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the random choices.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.made = 0
        self.grad = int(rng.choice([0, 0, 1, 1, 1, 2]))
        self.world = World(Torch(wide=False), loops=False)
        self.within = 0

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def known(self, env: Env, kind: str) -> list[str]:
        """Return the names of values of a kind, including state, in the order of their making."""
        both = {**self.world.states, **env}
        return [n for n, v in both.items() if kind_of(v) == kind]

    def later(self, names: list[str]) -> str:
        """Return one of the names; later ones are chosen more often."""
        back = int(self.rng.geometric(0.3)) - 1
        return names[-1 - back] if back < len(names) else self.pick(names)

    # ---- lines

    def try_(self, line: Env, env: Env) -> Env | None:
        """Return the known values after a line, or None if the line does not work."""
        kept = {n: s.detach().clone() for n, s in self.world.states.items()}
        self.world.lib.turns = 0
        try:
            after = self.world.block([line], env)
        except Invalid:
            after = None
        except Exception:  # noqa: BLE001 - torch refuses lines that do not fit
            after = None
        if self.within:
            with torch.no_grad():
                for n, s in self.world.states.items():
                    s.copy_(kept[n])
        if after is None or any(v.numel() > MOST for v in after.values()):
            return None
        return {n: v.detach() for n, v in after.items()}

    def text(self, env: Env, kind: str) -> str | None:
        template = self.pick(TEXTS[kind])
        chosen: Env = {}
        for letter in dict.fromkeys(NAME.findall(template)):
            names = self.known(env, {"V": "f", "W": "f", "K": "i", "J": "i"}.get(letter, "b"))
            if not names:
                return None
            chosen[letter] = self.later(names)
        return NAME.sub(lambda m: chosen[m[0]], template)

    def let(self, env: Env) -> Env | None:
        text = self.text(env, self.pick("fffffffiib"))
        if text is None:
            return None
        return {"do": "let", "to": self.name("v"), "text": text}

    def block(self, env: Env, most: int, depth: int) -> tuple[Block, Env]:
        """Draw some lines; return them and the known values after them."""
        lines: Block = []
        wanted = int(self.rng.integers(1, most + 1))
        for _ in range(wanted * 6):
            if len(lines) == wanted:
                break
            chance = self.rng.random()
            line: Env | None
            if chance < 0.62 or (depth <= 0 and chance < 0.84):
                line = self.let(env)
            elif chance < 0.84:
                line = self.region(env, depth)
            elif chance < 0.93:
                line = self.change(env)
            elif chance < 0.96:
                shape = [self.pick(SIZES) for _ in range(int(self.rng.integers(0, 3)))]
                line = {"do": "rand", "to": self.name("r"), "shape": shape}
            else:
                line = self.learn(env)
            after = None if line is None else self.try_(line, env)
            if after is not None:
                lines.append(line)
                env = after
        return lines, env

    def change(self, env: Env) -> Env | None:
        """Draw an assignment to state."""
        if not self.world.states:
            return None
        name = self.pick(list(self.world.states))
        state = self.world.states[name]
        how = self.pick(["assign", "add", "put"])
        if how == "put":
            names = [n for n in self.known(env, "i") if n in env and not env[n].dim()]
            if not names or not state.dim():
                return None
            value = self.fit(env, state[0], f"{name}[0]")
            place = f"{self.later(names)} % {state.shape[0]}"
            return {"do": "assign", "state": name, "how": how, "text": value, "place": place}
        return {"do": "assign", "state": name, "how": how, "text": self.fit(env, state, name)}

    def learn(self, env: Env) -> Env | None:
        names = list(self.world.opts)
        floats = self.known(env, "f")
        if not names or not floats:
            return None
        w = self.pick(names)
        text = f"(({w} * F32({self.later(floats)}).detach().sum()).tanh() - 0.3).square().mean()"
        return {"do": "learn", "state": w, "text": text, "hand": self.chance(0.5)}

    def fit(self, env: Env, like: Any, own: str) -> str:
        """Return an expression with the shape and type of `like`, whose name is `own`."""
        kind = kind_of(like)
        same = [n for n, v in env.items() if v.shape == like.shape and v.dtype == like.dtype]
        near = [n for n, v in env.items() if v.shape == like.shape and kind_of(v) == kind]
        if same and self.chance(0.35):
            return self.later(same)
        if kind == "f":
            if near and self.chance(0.7):
                other = self.later(near)
                form = self.pick(["{o} * 0.5 + {n}.tanh()", "({o} + {n}).sin()", "{n}.tanh()"])
                return f"LIKE({form.format(o=own, n=other)}, {own})"
            names = self.known(env, "f")
            other = self.later(names) if names else own
            return f"LIKE(({own} * 0.75 + {other}.sum() * 0.125).tanh(), {own})"
        names = self.known(env, kind)
        other = self.later(names) if names else own
        if kind == "i":
            return f"({own} + {other}.sum()) % 7"
        return f"{own} ^ {other}.any()"

    # ---- loops and choices

    def carry(self, env: Env, letter: str = "c") -> list[list[str]]:
        names = [n for n in env if env[n].numel() <= 60]
        if not names:
            return []
        count = int(self.rng.choice([1, 1, 2, 3]))
        return [[self.name(letter), self.later(names)] for _ in range(count)]

    def nest(self) -> str:
        return self.pick(["tuple", "dict", "bare"])

    def region(self, env: Env, depth: int) -> Env | None:
        self.within += 1
        try:
            kind = self.pick(["scan", "scan", "scan", "fori", "while", "choose", "choose"])
            return getattr(self, kind)(env, depth - 1)
        finally:
            self.within -= 1

    def ends(self, line: Env, env: Env, inner: Env) -> Env:
        """Draw the values that an iteration of `line` passes on to the next."""
        line["next"] = [self.fit(inner, env[n], c) for c, n in line["carry"]]
        line["to"] = [self.name("v") for _ in line["carry"]]
        line["nest"] = self.nest()
        return line

    def scan(self, env: Env, depth: int) -> Env | None:
        carry = self.carry(env)
        if not carry:
            return None
        ranked = [n for n, v in env.items() if v.dim() and v.shape[0] <= 8]
        xs, length = [], None
        if ranked and self.chance(0.75):
            first = self.later(ranked)
            turns = env[first].shape[0]
            others = [n for n in ranked if env[n].shape[0] == turns]
            xs = [[self.name("x"), first]]
            if self.chance(0.3):
                xs.append([self.name("x"), self.pick(others)])
        if not xs or self.chance(0.15):
            turns = env[xs[0][1]].shape[0] if xs else self.pick(LENGTHS)
            length = turns
        given = dict(env)
        for c, n in carry:
            given[c] = env[n]
        for x, n in xs:
            given[x] = env[n][0] if turns else torch.zeros(env[n].shape[1:], dtype=env[n].dtype)
        body, inner = self.block(given, 4, depth)
        names = [n for n in inner if n not in env and inner[n].numel() <= 60]
        ys = [self.later(names) for _ in range(int(self.rng.integers(0, 3)))]
        line = {
            "do": "scan", "carry": carry, "xs": xs, "length": length, "body": body, "ys": ys,
            "reverse": self.chance(0.3), "checkpoint": self.chance(0.25),
            "unroll": self.pick([1, 1, 1, 2, 3, True]),
            "shapes": [[list(inner[n].shape), name_of(inner[n])] for n in ys],
            "rows": [self.name("v") for _ in ys],
        }  # fmt: skip
        return self.ends(line, env, inner)

    def fori(self, env: Env, depth: int) -> Env | None:
        carry = self.carry(env)
        if not carry:
            return None
        i = self.name("i")
        lower = int(self.rng.integers(-2, 4))
        upper: int | str = lower + int(self.pick([*LENGTHS, -1]))
        names = [n for n, v in env.items() if not v.dim() and v.dtype == torch.int64]
        if names and not self.grad and self.chance(0.4):
            upper = self.later(names)
        given = {**env, **{c: env[n] for c, n in carry}, i: torch.tensor(lower)}
        body, inner = self.block(given, 4, depth)
        line = {"do": "fori", "i": i, "lower": lower, "upper": upper, "carry": carry, "body": body}
        return self.ends(line, env, inner)

    def while_(self, env: Env, depth: int) -> Env | None:
        names = [n for n, v in env.items() if not v.dim() and v.dtype == torch.int64]
        carry = self.carry(env)
        if not carry:
            return None
        most = self.pick([0, 1, 2, 3, 5, 8])
        counter: list[str] | None = None
        if names and self.chance(0.7):
            counter = [self.name("c"), self.later(names)]
            carry.insert(int(self.rng.integers(len(carry) + 1)), counter)
            if not self.grad and self.chance(0.5):
                most = None
        given = {**env, **{c: env[n] for c, n in carry}}
        body, inner = self.block(given, 4, depth)
        line = {"do": "while", "carry": carry, "body": body, "most": most}
        floats = [c for c, n in carry if kind_of(env[n]) == "f"]
        tests = []
        if counter:
            tests.append(f"({counter[0]} < {int(self.rng.integers(1, 7))})")
        if floats and (not tests or self.chance(0.5)):
            tests.append(f"GT({self.pick([0.5, 2.0, 6.0])}, ABS({self.pick(floats)}).sum())")
        if not tests:
            kinds = {"b": "{}.any()", "i": "({} % 5 != 1).any()"}
            c, n = self.pick(carry)
            tests.append(kinds[kind_of(env[n])].format(c))
        line["test"] = " & ".join(tests)
        self.ends(line, env, inner)
        if counter:
            at = carry.index(counter)
            line["next"][at] = f"{counter[0]} + {self.pick([1, 1, 2])}"
        return line

    def choose(self, env: Env, depth: int) -> Env | None:
        by = self.pick(["bool", "int"])
        which = None
        for _ in range(8):
            text = self.text(env, by[0])
            if text is None:
                continue
            after = self.try_({"do": "let", "to": "w", "text": text}, env)
            if after is not None and not after["w"].dim():
                which = text
                break
        if which is None:
            return None
        args = self.carry(env, "a") if self.chance(0.8) else []
        given = {**env, **{a: env[n] for a, n in args}}
        outer = [n for n in env if env[n].numel() <= 60]
        if not outer:
            return None
        outputs = [self.later(outer) for _ in range(int(self.rng.integers(1, 3)))]
        branches = []
        for _ in range(2 if by == "bool" else int(self.rng.integers(1, 4))):
            body, inner = self.block(given, 3, depth)
            gives = []
            for out in outputs:
                to = self.name("v")
                body.append({"do": "let", "to": to, "text": self.fit(inner, env[out], out)})
                gives.append(to)
            branches.append({"body": body, "gives": gives})
        return {
            "do": "choose", "by": by, "which": which, "args": args, "branches": branches,
            "to": [self.name("v") for _ in outputs], "nest": self.nest(),
        }  # fmt: skip

    # ---- all of it

    def inputs(self) -> list[list[Any]]:
        sizes = [self.pick(SIZES) for _ in range(3)]
        out: list[list[Any]] = []
        for k in range(int(self.rng.integers(2, 6))):
            shape = [self.pick(sizes) for _ in range(int(self.rng.integers(0, 4 if k else 3)))]
            if self.chance(0.05) and shape:
                shape[int(self.rng.integers(len(shape)))] = 0
            if int(torch.tensor(shape).prod()) > 200:
                shape = shape[:1]
            dtype = "float32" if k == 0 else self.pick(DTYPES)
            out.append([self.name("p"), shape, dtype])
        out.append([self.name("p"), [], "int64"])
        return out

    def program(self) -> Case | None:
        inputs = self.inputs()
        states = []
        for _ in range(int(self.rng.choice([0, 0, 1, 2]))):
            opt = self.pick([None, None, "sgd", "momentum", "adam"])
            shape = [self.pick(SIZES) for _ in range(int(self.rng.integers(0, 3)))]
            kind = "float32" if opt else self.pick(["float32", "float32", "int64"])
            states.append([self.name("s"), shape, kind, opt])
        env = {}
        for name, shape, dtype in inputs:
            if dtype.startswith("float"):
                env[name] = torch.rand(shape, dtype=getattr(torch, dtype)) * 3 - 1.5
            else:
                env[name] = torch.randint(0, 2 if dtype == "bool" else 7, shape).to(
                    getattr(torch, dtype)
                )
        for name, shape, dtype, opt in states:
            data = torch.rand(shape) * 2 - 1 if dtype == "float32" else torch.ones(shape)
            self.world.state(name, shape, dtype, data.numpy(), opt)
        body: Block = []
        for most, deep in ((2, 0), (1, 0), (5, 2)):
            lines, env = self.block(env, most, deep)
            body += lines
        for _ in range(12):
            if any("body" in line or "branches" in line for line in body):
                break
            line = self.region(env, 2)
            after = line and self.try_(line, env)
            if after:
                body.append(line)
                env = after
        else:
            return None
        made = [n for n in env if n not in {name for name, *_ in inputs}]
        results = list(dict.fromkeys(self.later(made) for _ in range(int(self.rng.integers(1, 5)))))
        ways = ["loops", "jit"] if self.chance(0.85) else [self.pick(["loops", "jit"])]
        if self.chance(0.5):
            ways.append("threads jit" if "jit" in ways else "threads")
        if self.chance(0.2):
            ways.append("written out")
        if self.grad and self.chance(0.25):
            ways.append("jvp")
        calls = int(self.rng.choice([1, 2, 2, 3]))
        # vmap refuses loops with trip counts that differ in a batch, and state has no batch axis.
        pure = not re.search(r'"(rand|assign|learn)"|"upper": "', json.dumps(body))
        if pure and not states and self.chance(0.6):
            ways.append("vmap")
        return {
            "seed": int(self.rng.integers(1 << 30)), "inputs": inputs, "states": states,
            "body": body, "results": results, "grad": self.grad, "given": self.chance(0.5),
            "calls": calls, "ways": ways,
        }  # fmt: skip


setattr(Draw, "while", Draw.while_)


def generate(rng: np.random.Generator) -> Case:
    """Draw a program."""
    torch.manual_seed(int(rng.integers(1 << 30)))
    while True:
        made = Draw(rng).program()
        if made is not None:
            return made
