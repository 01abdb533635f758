"""Random programs with state: jitted functions, optimizers, gradients and eager code, alternating.

A program is plain data. It runs twice, both in float64: in PyTorch, where functions are plain, and
in kernelrt, where they are jitted. After each action all visible state must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import kernelrt as krt
from kernelrt import nn

__all__ = ["Case", "generate", "run", "shrink"]

N_PARAMS = 3
SHAPES = ((3,), (2, 3), ())
LOSSES = ("all", "first", "second", "square", "gated")
OPTIMIZERS = ("sgd", "momentum", "decay", "adam", "adamw")


@dataclass(frozen=True)
class Function:
    """Statements, each a tuple of a name and its operands, and options of jit."""

    body: tuple[tuple[Any, ...], ...]
    result: str
    jitted: bool = True
    keep_grads: bool = False


@dataclass(frozen=True)
class Case:
    seed: int
    optimizers: tuple[tuple[str, tuple[int, ...]], ...]
    functions: tuple[Function, ...]
    actions: tuple[tuple[Any, ...], ...] = field(default=())


# ---- drawing


def generate(rng: np.random.Generator) -> Case:
    """Draw a program."""
    optimizers = tuple(
        (str(rng.choice(OPTIMIZERS)), _subset(rng)) for _ in range(int(rng.integers(1, 3)))
    )
    functions = tuple(
        _function(rng, len(optimizers), i) for i in range(int(rng.integers(1, 4)))
    )
    actions = [_action(rng, functions, len(optimizers)) for _ in range(int(rng.integers(3, 14)))]
    return Case(int(rng.integers(1 << 30)), optimizers, functions, tuple(actions))


def _subset(rng: np.random.Generator) -> tuple[int, ...]:
    chosen = [i for i in range(N_PARAMS) if rng.random() < 0.7]
    return tuple(chosen or [int(rng.integers(N_PARAMS))])


def _function(rng: np.random.Generator, n_optimizers: int, index: int) -> Function:
    opt = int(rng.integers(n_optimizers))
    kind = rng.integers(6)
    loss = str(rng.choice(LOSSES))
    if kind == 0:
        body = [("zero", opt), ("backward", loss), ("step", opt)]
    elif kind == 1:
        body = [("backward", loss), ("step", opt), ("zero", opt)]
    elif kind == 2:
        body = [("zero", opt), ("backward", loss)]
    elif kind == 3:
        body = [("backward", loss)]
    elif kind == 4:
        body = [("step", opt)]
    else:
        body = [_statement(rng, n_optimizers, index) for _ in range(int(rng.integers(1, 6)))]
    if rng.random() < 0.3:
        body.insert(int(rng.integers(len(body) + 1)), _statement(rng, n_optimizers, index))
    return Function(
        tuple(body),
        str(rng.choice(["loss", "state", "grads", "nothing"])),
        jitted=bool(rng.random() < 0.85),
        keep_grads=bool(rng.random() < 0.5),
    )


def _statement(
    rng: np.random.Generator, n_optimizers: int, above: int = -1
) -> tuple[Any, ...]:
    """Draw a statement, of the function with index `above` or eager."""
    opt, i = int(rng.integers(n_optimizers)), int(rng.integers(N_PARAMS))
    statements: list[tuple[Any, ...]] = [
        ("zero", opt),
        ("step", opt),
        ("backward", str(rng.choice(LOSSES))),
        ("backward", str(rng.choice(LOSSES))),
        ("clear", i),
        ("scale", i, float(rng.choice([0.5, -2.0]))),
        ("descend", i),
        ("carry",),
        ("count",),
        # Of another function, and only of a later one: so none calls itself.
        ("inner", above + 1 + int(rng.integers(2))),
    ]
    return statements[int(rng.integers(len(statements)))]


def _action(
    rng: np.random.Generator, functions: tuple[Function, ...], n_optimizers: int
) -> tuple[Any, ...]:
    opt, i = int(rng.integers(n_optimizers)), int(rng.integers(N_PARAMS))
    draw = rng.random()
    if draw < 0.6:
        return ("call", int(rng.integers(len(functions))))
    if draw < 0.75:
        return ("eager", _statement(rng, n_optimizers))
    others: list[tuple[Any, ...]] = [
        ("hold", i),
        ("train", bool(rng.random() < 0.5)),
        ("lr", opt, float(rng.choice([0.01, 0.1]))),
        ("hyper", opt, float(rng.choice([0.0, 0.5, 0.9]))),
        ("freeze", i),
        ("thaw", i),
        ("give", i),
        ("lazy", i),
        ("add", i),
    ]
    return others[int(rng.integers(len(others)))]


def shrink(case: Case) -> Case:
    """Return a smaller case with the same failure, by leaving out actions and statements."""
    smaller = True
    while smaller:
        smaller = False
        for attempt in _smaller(case):
            if run(attempt) is not None:
                case, smaller = attempt, True
                break
    return case


def _smaller(case: Case) -> Any:
    for i in range(len(case.actions)):
        yield replace(case, actions=case.actions[:i] + case.actions[i + 1 :])
    for i, f in enumerate(case.functions):
        for j in range(len(f.body)):
            g = replace(f, body=f.body[:j] + f.body[j + 1 :])
            if g.body:
                yield replace(case, functions=(*case.functions[:i], g, *case.functions[i + 1 :]))


# ---- the two libraries


class _World:
    """Parameters, state, optimizers and functions in one library."""

    def __init__(self, case: Case) -> None:
        rng = np.random.default_rng(case.seed)
        self.rng = np.random.default_rng(case.seed + 1)
        self.params = [self.leaf(rng.standard_normal(shape)) for shape in SHAPES]
        self.carried = self.tensor(rng.standard_normal(3))
        self.counted = self.tensor(np.zeros(()))
        self.gate = self.make_gate()
        self.opts = [
            self.optimizer(kind, [self.params[i] for i in which])
            for kind, which in case.optimizers
        ]
        self.held: list[Any] = []
        self.calls = [self.make(f) for f in case.functions]

    def tensor(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def leaf(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def make_gate(self) -> Any:
        raise NotImplementedError

    def optimizer(self, kind: str, params: list[Any]) -> Any:
        raise NotImplementedError

    def assign(self, target: Any, value: Any) -> None:
        raise NotImplementedError

    def set_hyper(self, opt: Any, lr: float | None, other: float) -> None:
        raise NotImplementedError

    def jit(self, fn: Any, function: Function) -> Any:
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        raise NotImplementedError

    def make(self, function: Function) -> Any:
        def fn(x: Any) -> Any:
            loss = None
            for statement in function.body:
                found = self.do(statement, x)
                loss = found if found is not None else loss
            if function.result == "loss" and loss is not None:
                return loss * 1
            if function.result == "state":
                return self.carried * 2
            if function.result == "grads":
                return [p.grad * 1 for p in self.params if p.grad is not None]
            return None

        return self.jit(fn, function)

    def loss(self, name: str, x: Any) -> Any:
        a, b, c = self.params
        if name == "all":
            return ((b * x).sum(1).sum() * c + (a * x).tanh().sum()) / 4
        if name == "first":
            return (a * x * self.carried).sum() / 4
        if name == "second":
            return (((b * b * x).sum() + c * c) / 16).tanh() * 4 + (x * x).sum()
        if name == "square":
            return (a * a).sum() * c * c / 8 + (b * x).sum() / 8
        return (self.gate(a) * x).sum() + (b * b).sum() * self.counted.detach() / 8

    def do(self, statement: tuple[Any, ...], x: Any) -> Any:
        name, *operands = statement
        if name == "backward":
            loss = self.loss(operands[0], x)
            if loss.requires_grad:
                loss.backward()
            return loss
        if name == "zero":
            self.opts[operands[0]].zero_grad()
        elif name == "step":
            self.opts[operands[0]].step()
        elif name == "clear":
            self.params[operands[0]].grad = None
        elif name == "scale":
            p = self.params[operands[0]]
            if p.grad is not None:
                p.grad = p.grad * operands[1]
        elif name == "descend":
            p = self.params[operands[0]]
            if p.grad is not None:
                self.assign(p, p - 0.1 * p.grad)
        elif name == "carry":
            self.assign(self.carried, (self.carried * 0.5 + x).tanh())
        elif name == "count":
            self.assign(self.counted, self.counted + 1)
        elif name == "inner" and operands[0] < len(self.calls):
            self.calls[operands[0]](x)
        return None

    def act(self, action: tuple[Any, ...]) -> list[np.ndarray]:
        """Run an action and return its results."""
        name, *operands = action
        x = self.tensor(self.rng.standard_normal(3))
        out: Any = None
        if name == "call":
            out = self.calls[operands[0]](x)
        elif name == "eager":
            self.do(operands[0], x)
        elif name == "hold":
            self.held.append(self.params[operands[0]].grad)
        elif name == "train":
            self.gate.train(operands[0])
        elif name == "lr":
            self.set_hyper(self.opts[operands[0]], operands[1], 0)
        elif name == "hyper":
            self.set_hyper(self.opts[operands[0]], None, operands[1])
        elif name in ("freeze", "thaw"):
            self.params[operands[0]].requires_grad_(name == "thaw")
        elif name == "lazy":
            p = self.params[operands[0]]
            self.held.append((p * 3).detach() if p.grad is None else (p + p.grad * 2).detach())
        elif name == "add":
            p = self.params[operands[0]]
            if p.grad is not None:
                self.assign(p.grad, p.grad + 1)
        elif name == "give":
            self.params[operands[0]].grad = self.tensor(np.ones(SHAPES[operands[0]]))
        found = [] if out is None else list(out) if isinstance(out, list | tuple) else [out]
        return [self.array(t) for t in found]

    def seen(self) -> list[tuple[str, np.ndarray | None]]:
        """Return all visible state."""
        out: list[tuple[str, Any]] = [(f"params[{i}]", p) for i, p in enumerate(self.params)]
        out += [("carried", self.carried), ("counted", self.counted)]
        out += [(f"held[{i}]", g) for i, g in enumerate(self.held)]
        out += [(f"params[{i}].grad", self.grad(p)) for i, p in enumerate(self.params)]
        return [(n, t if t is None or isinstance(t, str) else self.array(t)) for n, t in out]

    def grad(self, p: Any) -> Any:
        return p.grad


class _Torch(_World):
    def tensor(self, array: np.ndarray) -> Any:
        return torch.tensor(array)

    def leaf(self, array: np.ndarray) -> Any:
        return torch.tensor(array, requires_grad=True)

    def make_gate(self) -> Any:
        class Gate(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x * 3 if self.training else x * x

        return Gate()

    def optimizer(self, kind: str, params: list[Any]) -> Any:
        if kind == "adam":
            return torch.optim.Adam(params, lr=0.05)
        if kind == "adamw":
            return torch.optim.AdamW(params, lr=0.05)
        return torch.optim.SGD(
            params, lr=0.05, momentum=0.9 * (kind == "momentum"),
            weight_decay=0.1 * (kind == "decay"),
        )  # fmt: skip

    def assign(self, target: Any, value: Any) -> None:
        with torch.no_grad():
            target.copy_(value)

    def set_hyper(self, opt: Any, lr: float | None, other: float) -> None:
        group = opt.param_groups[0]
        if lr is not None:
            group["lr"] = lr
        elif "momentum" in group:
            group["momentum"] = other
        else:
            group["betas"] = (other, 0.99)

    def jit(self, fn: Any, function: Function) -> Any:
        del function
        return fn

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.detach().numpy().copy()


class _Kernelrt(_World):
    def tensor(self, array: np.ndarray) -> Any:
        return krt.tensor(array)

    def leaf(self, array: np.ndarray) -> Any:
        return krt.tensor(array, requires_grad=True)

    def make_gate(self) -> Any:
        class Gate(nn.Module):
            def forward(self, x: Any) -> Any:
                return x * 3 if self.training else x * x

        return Gate()

    def optimizer(self, kind: str, params: list[Any]) -> Any:
        if kind == "adam":
            return nn.optim.Adam(params, lr=0.05)
        if kind == "adamw":
            return nn.optim.AdamW(params, lr=0.05)
        return nn.optim.SGD(
            params, lr=0.05, momentum=0.9 * (kind == "momentum"),
            weight_decay=0.1 * (kind == "decay"),
        )  # fmt: skip

    def assign(self, target: Any, value: Any) -> None:
        target.assign(value)

    def set_hyper(self, opt: Any, lr: float | None, other: float) -> None:
        if lr is not None:
            opt.lr = lr
        elif isinstance(opt, nn.optim.SGD):
            opt.momentum = other
        else:
            opt.betas = (other, 0.99)

    def jit(self, fn: Any, function: Function) -> Any:
        return krt.jit(fn, keep_grads=function.keep_grads) if function.jitted else fn

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.numpy()

    def grad(self, p: Any) -> Any:
        try:
            return p.grad
        except krt.GradientError as error:
            if "keep_grads" not in str(error):
                raise
            return "spent"


# ---- comparing


def run(case: Case) -> str | None:
    """Return a description of a failure, or None.

    kernelrt may refuse to read a gradient that a jitted function did not keep; its error says how
    to keep it. Such an error ends the program. It is a failure if the gradient was in fact kept.
    """
    ours, theirs = _Kernelrt(case), _Torch(case)
    for i, action in enumerate(case.actions):
        where = f"action {i} {action}"
        expected = theirs.act(action)
        try:
            got = ours.act(action)
        except krt.GradientError as error:
            spent = any(isinstance(ours.grad(p), str) for p in ours.params)
            if "keep_grads" in str(error) and spent:
                return None
            return f"{where}: {error!r}"
        except Exception as error:  # noqa: BLE001 - any error is a finding
            return f"{where}: {type(error).__name__}: {error}"
        if len(got) != len(expected):
            return f"{where}: {len(got)} results, expected {len(expected)}"
        for a, b in zip(got, expected, strict=True):
            if not _close(a, b):
                return f"{where}: returned {a}, expected {b}"
        for (name, a), (_, b) in zip(ours.seen(), theirs.seen(), strict=True):
            if isinstance(a, str):
                continue
            if (a is None) is not (b is None) or (b is not None and not _close(a, b)):
                return f"{where}: {name} is {a}, expected {b}"
    return None


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-9 * scale, equal_nan=True))
