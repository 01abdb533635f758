"""Functions to save to model files, with arguments; the results must stay the same bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelrt as krt
from kernelrt import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CALL_ROUTINES", "PROGRAMS", "Program", "arrays_in", "normal"]


@dataclass
class Program:
    """A jitted function and its arguments.

    Attributes
    ----------
    function : JitFunction
        The function.
    args, kwargs
        Arguments to save it for.
    more : sequence of tuple
        Other arguments that the saved plan takes, too.
    wrong : sequence of tuple
        Arguments with which a call raises an error.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    more: Sequence[tuple[Any, ...]] = ()
    wrong: Sequence[tuple[Any, ...]] = ()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normal float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def arrays_in(value: object) -> list[Any]:
    """Return the leaves of a result, tensors as bytes with dtype and shape."""
    if isinstance(value, krt.Tensor):
        array = value.view(krt.uint16).numpy() if value.dtype is krt.bfloat16 else value.numpy()
        return [(value.dtype.name, value.shape, array.tobytes())]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(leaf for item in value for leaf in arrays_in(item))]
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in (key, *arrays_in(item))]
    return [(type(value), value)]


def _trainer(net: nn.Module, opt: Any, loss: Callable[..., Any]) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        value = loss(net(x), y)
        value.backward()
        opt.step()
        return value

    return krt.jit(step)


def _mlp(*, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, 4),
    )  # fmt: skip


def _labels(n: int, classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, classes, n)


def adam_with_dropout() -> Program:
    net = _mlp(dropout=0.2)
    step = _trainer(net, nn.optim.Adam(net.parameters(), lr=1e-2), nn.functional.cross_entropy)
    return Program(step, (normal(16, 8), _labels(16, 4)))


def cnn_with_momentum() -> Program:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 5),
    )  # fmt: skip
    opt = nn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return Program(
        _trainer(net, opt, nn.functional.cross_entropy), (normal(4, 3, 8, 8), _labels(4, 5))
    )


def frozen_panels() -> Program:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return Program(krt.jit(net, freeze=True), (normal(16, 64),))


def dynamic_batch() -> Program:
    net = _mlp()
    dynamic = {"x": {0: krt.Variable("n", 1, 64)}}
    function = krt.jit(lambda x: net(x).softmax(-1), dynamic=dynamic)
    return Program(
        function, (normal(5, 8),), more=[(normal(n, 8),) for n in (1, 33, 64)],
        wrong=[(normal(65, 8),), (normal(5, 7),)],
    )  # fmt: skip


def two_dynamic_sizes() -> Program:
    dynamic = {"x": {0: krt.Variable("n", 1, 64)}, "y": {0: krt.Variable("m", 1, 9)}}

    def both(x: Any, y: Any) -> Any:
        return krt.concatenate([x, y * 2]).cumsum(0), [x.sum(), y.mean(0)], x.sort(0)[0]

    more = [(normal(n, 6), normal(m, 6)) for n, m in ((1, 9), (64, 1), (33, 4))]
    return Program(krt.jit(both, dynamic=dynamic), (normal(5, 6), normal(3, 6)), more=more)


def scan_with_state() -> Program:
    w = krt.tensor(normal(4, 4))
    hidden = krt.zeros(4)

    def run(x: Any) -> Any:
        carry, sums = krt.scan(lambda c, v: ((c @ w + v).tanh(), c.sum()), hidden, x)
        hidden.assign(carry)
        return sums

    return Program(krt.jit(run), (normal(30, 4),))


def epoch_by_scan() -> Program:
    net = nn.Linear(6, 1)
    opt = nn.optim.Adam(net.parameters(), 1e-2)

    def epoch(xs: Any, ys: Any) -> Any:
        def one(c: Any, batch: Any) -> Any:
            opt.zero_grad()
            loss = ((net(batch[0]) - batch[1]) ** 2).mean()
            loss.backward()
            opt.step()
            return c, loss

        return krt.scan(one, krt.zeros(()), (xs, ys))[1]

    return Program(krt.jit(epoch), (normal(50, 8, 6), normal(50, 8, 1)))


def while_and_branch() -> Program:
    def run(x: Any) -> Any:
        grown = krt.while_loop(lambda c: c.sum() < 100, lambda c: c * 1.5 + 1, x)
        return krt.cond(x[0] > 0, lambda: grown * 2, lambda: grown - 1)

    return Program(krt.jit(run), (normal(5),), more=[(-normal(5),)])


def loop_with_index() -> Program:
    table = krt.tensor(normal(10, 3))
    function = krt.jit(lambda i: krt.scan(lambda c, k: (c + table[k], k), krt.zeros(3), i)[0])
    wrong = [(np.array([1, 3, far]),) for far in (10, -11, 2**62, -(2**62))]
    return Program(function, (np.array([1, -2, 3]),), wrong=wrong)


def routines() -> Program:
    def run(x: Any, b: Any) -> Any:
        square = x @ x.T + krt.eye(7)
        return x.sort(-1), x.argsort(0), x.cumsum(1), krt.linalg.solve(square, b), square.topk(3)

    return Program(krt.jit(run), (normal(7, 30), normal(7, 2)))


def singular() -> Program:
    return Program(
        krt.jit(krt.linalg.inv), (normal(3, 3),), wrong=[(np.zeros((3, 3), "f4"),)]
    )


def nested_arguments() -> Program:
    def run(d: Any, k: float, s: int, *, flag: bool = True) -> Any:
        total = d["x"] * k if flag else d["x"]
        return {"a": total, "b": [d["y"][0] + s, 3], "c": None, "f": flag}

    given = {"x": normal(3), "y": (normal(2),)}
    return Program(
        krt.jit(run), (given, 2.5, 4), {"flag": False}, more=[(given, -1.0, 4)],
        wrong=[(given, 2.5, 5)],
    )  # fmt: skip


def random_numbers() -> Program:
    return Program(
        krt.jit(lambda x: (x + krt.randn(5), krt.rand(3), krt.randint(0, 10, (4,)))), (normal(5),)
    )


def domain() -> Program:
    return Program(
        krt.jit(krt.bernoulli), (np.full(4, 0.5, "f4"),),
        wrong=[(np.full(4, 1.5, "f4"),), (np.full(4, np.nan, "f4"),)],
    )  # fmt: skip


def accumulated_gradient() -> Program:
    w = krt.tensor(normal(4), requires_grad=True)

    def step(x: Any) -> Any:
        (w * x).sum().backward()
        return w.grad * 1

    function = krt.jit(step)
    function(normal(4))
    function(normal(4))
    return Program(function, (normal(4),))


def narrow_types() -> Program:
    w = krt.tensor(normal(8, 8)).bfloat16()
    bytes_ = krt.tensor(np.arange(64).reshape(8, 8).astype(np.int8))

    def run(x: Any, h: Any, b: Any) -> Any:
        return x.bfloat16() @ w, h * 2, h.sum(), krt.matmul(b, bytes_), b > 3

    few = np.arange(32).reshape(4, 8).astype(np.int8)
    given = (normal(4, 8), normal(4, 8).astype(np.float16), few)
    return Program(krt.jit(run), given)


def no_elements() -> Program:
    return Program(krt.jit(lambda x: (x * 2, x.sum(0), krt.ones(3))), (normal(0, 3),))


def attention() -> Program:
    m = nn.MultiheadAttention(32, 4)
    return Program(krt.jit(lambda x: m(x, x, x)[0]), (normal(2, 17, 32),))


def recurrent() -> Program:
    m = nn.GRU(5, 12)
    return Program(krt.jit(m), (normal(11, 3, 5),))


def large_operands() -> Program:
    """Arguments and results that a call binds in place, and chunks for several threads."""
    w = krt.tensor(normal(512, 512))
    return Program(krt.jit(lambda x: ((x @ w).relu(), x.cumsum(1))), (normal(512, 512),))


PROGRAMS: Final = (
    adam_with_dropout, cnn_with_momentum, frozen_panels, dynamic_batch, two_dynamic_sizes,
    scan_with_state, epoch_by_scan, while_and_branch, loop_with_index, routines, singular,
    nested_arguments, random_numbers, domain, accumulated_gradient, narrow_types, no_elements,
    attention, recurrent, large_operands,
)  # fmt: skip
#: Those that call C routines, such as the solver of linear systems.
CALL_ROUTINES: Final = (two_dynamic_sizes, routines, singular, large_operands)
