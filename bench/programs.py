"""Whole programs in torch's style, with the same source for both libraries.

In the code of the programs, ``k`` is the library: kernelrt or torch. A step is jitted in kernelrt
and eager in torch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import limits
from bench.cases import OURS, Case, Side
from bench.limits import THREADS
from bench.peers import torch_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.cases import Call

Library = Any
Tensor = Any
Arrays = list["NDArray[Any]"]
#: Steps whose losses must agree.
STEPS = 50


@dataclass(frozen=True)
class Program:
    """A module, its training data and its loss.

    Attributes
    ----------
    name, title : str
        Short name, and title in the table.
    model : callable
        Makes the module in a library.
    batch : callable
        Returns the arrays of a step, the same each time.
    loss : callable
        ``(k, model, *tensors)`` -> scalar.
    aim : float
        See Case.
    lr : float
        Adam's learning rate.
    """

    name: str
    title: str
    model: Callable[[Library], Any]
    batch: Callable[[], Arrays]
    loss: Callable[..., Tensor]
    aim: float = 1.5
    lr: float = 1e-3


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return normal numbers, the same each time."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def labels(classes: int, *shape: int) -> NDArray[np.int64]:
    """Return class numbers, the same each time."""
    return np.random.default_rng([classes, *shape]).integers(0, classes, shape)


def _nn(k: Library) -> Any:
    """Return the module that programs call ``nn``; torch's is imported here."""
    if k.__name__ == "torch":
        import torch.nn

        return torch.nn
    return k.nn


def _functional(k: Library) -> Any:
    if k.__name__ == "torch":
        import torch.nn.functional

        return torch.nn.functional
    return k.nn.functional


# ---- Recurrent networks


def _recurrent(kind: str, k: Library) -> Any:
    nn = _nn(k)

    class Classifier(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = getattr(nn, kind)(16, 64, num_layers=1, batch_first=True)
            self.head = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.rnn(x)
            return self.head(out[:, -1])

    return Classifier()


def _classified(k: Library, model: Any, x: Tensor, y: Tensor) -> Tensor:
    return _functional(k).cross_entropy(model(x), y)


# ---- Convolutions


def _resnet(k: Library) -> Any:
    nn, f = _nn(k), _functional(k)

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outside)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outside)
            self.short = nn.Sequential()
            if inside != outside:
                self.short = nn.Sequential(
                    nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
                )

        def forward(self, x: Tensor) -> Tensor:
            inner = f.relu(self.bn1(self.conv1(x)))
            return f.relu(self.bn2(self.conv2(inner)) + self.short(x))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def _autoencoder(k: Library) -> Any:
    nn = _nn(k)

    class Autoencoder(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
                nn.Flatten(), nn.Linear(32 * 7 * 7, 32),
            )  # fmt: skip
            self.decoder = nn.Sequential(
                nn.Linear(16, 32 * 7 * 7), nn.ReLU(), nn.Unflatten(1, (32, 7, 7)),
                nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1),
            )  # fmt: skip

        def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, spread = self.encoder(x).chunk(2, dim=1)
            return self.decoder(mean + noise * (spread / 2).exp()), mean, spread

    return Autoencoder()


def _evidence(k: Library, model: Any, x: Tensor, noise: Tensor) -> Tensor:
    out, mean, spread = model(x, noise)
    pixels = _functional(k).binary_cross_entropy_with_logits(out, x, reduction="sum")
    divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
    return (pixels + divergence) / x.shape[0]


# ---- Attention


def _translator(k: Library) -> Any:
    nn = _nn(k)

    class Translator(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.source = nn.Embedding(100, 64)
            self.target = nn.Embedding(100, 64)
            inner = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(inner, 2, enable_nested_tensor=False)
            outer = nn.TransformerDecoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.decoder = nn.TransformerDecoder(outer, 2)
            self.head = nn.Linear(64, 100)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            later = k.ones(y.shape[1], y.shape[1], dtype=k.bool).triu(1)
            memory = self.encoder(self.source(x))
            return self.head(self.decoder(self.target(y), memory, tgt_mask=later))

    return Translator()


def _translated(k: Library, model: Any, x: Tensor, y: Tensor) -> Tensor:
    out = model(x, y[:, :-1])
    return _functional(k).cross_entropy(out.flatten(0, 1), y[:, 1:].flatten(), label_smoothing=0.1)


# ---- Reinforcement learning


def _actor_critic(k: Library) -> Any:
    nn = _nn(k)

    def network(inside: int, outside: int) -> Any:
        return nn.Sequential(
            nn.Linear(inside, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
            nn.Linear(64, outside),
        )  # fmt: skip

    return nn.ModuleDict({"policy": network(8, 4), "one": network(10, 1), "two": network(10, 1)})


def _soft_actor_critic(
    k: Library, model: Any, state: Tensor, action: Tensor, reward: Tensor, noise: Tensor
) -> Tensor:
    d, f = k.distributions, _functional(k)
    mean, log_std = model["policy"](state).chunk(2, dim=-1)
    spread = log_std.clamp(-5, 2).exp()
    if k.__name__ == "torch":
        policy = d.TransformedDistribution(d.Normal(mean, spread), [d.TanhTransform()])
    else:
        policy = d.TanhNormal(mean, spread)
    chosen = (mean + spread * noise).tanh()
    likely = policy.log_prob(chosen).sum(-1)
    pair = k.cat([state, action], dim=-1)
    values = [model[name](pair).squeeze(-1) for name in ("one", "two")]
    fit = sum(f.mse_loss(value, reward) for value in values)
    ahead = k.cat([state, chosen], dim=-1)
    worth = k.minimum(model["one"](ahead), model["two"](ahead)).squeeze(-1)
    return fit + (0.2 * likely - worth).mean()


# ---- Equations


def _field(k: Library) -> Any:
    nn = _nn(k)
    return nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )


def _burgers(k: Library, model: Any, points: Tensor, start: Tensor) -> Tensor:
    """Return the loss: residuals of Burgers' equation and of the initial value."""
    grad = k.autograd.grad if k.__name__ == "torch" else k.grad
    points = points.detach().clone().requires_grad_()
    u = model(points)
    (first,) = grad(u.sum(), [points], create_graph=True)
    u_t, u_x = first[:, :1], first[:, 1:]
    (second,) = grad(u_x.sum(), [points], create_graph=True)
    rest = u_t + u * u_x - 0.01 / np.pi * second[:, 1:]
    there = model(start)
    return rest.pow(2).mean() + (there + (np.pi * start[:, 1:]).sin()).pow(2).mean()


def _filter(k: Library) -> Any:
    nn = _nn(k)

    class Noise(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.process = nn.Parameter(k.zeros(4, dtype=k.float64) - 2)
            self.sensor = nn.Parameter(k.zeros(2, dtype=k.float64))

    return Noise()


def _likelihood(k: Library, model: Any, seen: Tensor) -> Tensor:
    """Return the log-likelihood of positions under a Kalman filter of constant velocity."""
    batch, steps, _ = seen.shape
    move = k.eye(4, dtype=k.float64) + 0.1 * k.eye(4, dtype=k.float64).roll(2, 1).triu()
    look = k.eye(4, dtype=k.float64)[:2]
    process, sensor = k.diag(model.process.exp()), k.diag(model.sensor.exp())
    x = k.zeros(batch, 4, 1, dtype=k.float64)
    p = k.eye(4, dtype=k.float64).expand(batch, 4, 4)
    total = 0.0
    for step in range(steps):
        x, p = move @ x, move @ p @ move.mT + process
        rest = seen[:, step, :, None] - look @ x
        spread = look @ p @ look.mT + sensor
        gain = k.linalg.solve(spread, look @ p).mT
        total = total + (rest.mT @ k.linalg.solve(spread, rest)).sum() + k.logdet(spread).sum()
        x, p = x + gain @ rest, p - gain @ look @ p
    return total / (batch * steps)


@functools.cache
def programs() -> tuple[Program, ...]:
    """Return all programs."""
    return (
        Program(
            "lstm", "LSTM 16-64, 32 steps, batch 16", functools.partial(_recurrent, "LSTM"),
            lambda: [normal(16, 32, 16), labels(10, 16)], _classified,
        ),
        Program(
            "gru", "GRU 16-64, 32 steps, batch 16", functools.partial(_recurrent, "GRU"),
            lambda: [normal(16, 32, 16), labels(10, 16)], _classified,
        ),
        Program(
            "resnet", "ResNet-8 with batch norm, 32 x 32, batch 32", _resnet,
            # At lr 1e-3, torch's float32 deviates from its float64 by 5e-4 within 50 steps.
            lambda: [normal(32, 3, 32, 32), labels(10, 32)], _classified, lr=1e-4,
        ),
        Program(
            "vae", "VAE with transposed convolution, 28 x 28, batch 32", _autoencoder,
            lambda: [1 / (1 + np.exp(-normal(32, 1, 28, 28))), normal(32, 16)], _evidence,
        ),
        Program(
            "transformer", "transformer encoder-decoder 64, 4 heads, batch 8", _translator,
            lambda: [labels(100, 8, 20), labels(100, 8, 17)], _translated,
        ),
        Program(
            "sac", "soft actor-critic 8-64-64, batch 64", _actor_critic,
            lambda: [normal(64, 8), np.tanh(normal(64, 2)), normal(64), normal(64, 2, seed=1)],
            _soft_actor_critic, aim=5,
        ),
        Program(
            "pinn", "Burgers' equation, 2-32-32-1, 256 points", _field,
            lambda: [normal(256, 2), normal(64, 2) * np.float32([0, 1])], _burgers,
        ),
        Program(
            "kalman", "Kalman filter with solve, 4 states, 20 steps, batch 16", _filter,
            lambda: [normal(16, 20, 2).cumsum(1).astype(np.float64)], _likelihood,
        ),
    )  # fmt: skip


def weights(program: Program) -> dict[str, NDArray[Any]]:
    """Return the initial parameters of torch's module, which both libraries start from."""
    import torch

    torch.manual_seed(0)
    return {n: t.numpy().copy() for n, t in program.model(torch).state_dict().items()}


def kernelrt_step(program: Program) -> Call:
    """Build a forward, backward and Adam step in one plan that returns the loss."""
    import kernelrt as krt
    from kernelrt.nn import optim

    model = program.model(krt)
    model.load_state_dict(weights(program))
    optimizer = optim.Adam(model.parameters(), lr=program.lr)

    @krt.jit
    def step(*batch: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss: krt.Tensor = program.loss(krt, model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    batch = [krt.tensor(array) for array in program.batch()]
    return lambda: step(*batch).item()


def torch_step(program: Program) -> Call:
    """Build the same step, eager, with the fused optimizer."""
    import torch

    model = program.model(torch)
    model.load_state_dict({n: torch.from_numpy(a) for n, a in weights(program).items()})
    optimizer = torch.optim.Adam(model.parameters(), lr=program.lr, fused=True)
    batch = [torch.from_numpy(array) for array in program.batch()]

    def call() -> object:
        optimizer.zero_grad()
        loss = program.loss(torch, model, *batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


def case_of(program: Program, threads: int) -> Case:
    """Return a case with both sides for a number of threads."""
    return Case(
        f"{program.name}-{threads}",
        f"{program.title}, {threads} thread{'s' if threads > 1 else ''}",
        (
            Side(
                OURS,
                functools.partial(kernelrt_step, program),
                functools.partial(limits.our_threads, threads),
                ("torch",),
            ),
            Side(
                "torch fused",
                functools.partial(torch_step, program),
                functools.partial(torch_side.threads, threads),
                ("torch",),
            ),
        ),
        aim=program.aim,
    )


def cases() -> tuple[Case, ...]:
    """Return each program with one and two threads."""
    return tuple(case_of(program, threads) for program in programs() for threads in THREADS)
