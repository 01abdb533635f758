"""Code without jit: one operation after the other, as in a notebook."""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.peers import torch_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.cases import Call

ELEMENTS = 16
ROWS = 64
STEPS, MOST_ROWS = 64, 30
BATCH, FEATURES, HIDDEN = 32, 8, 64
POINTS = 256
LR = 1e-3


def weights() -> dict[str, NDArray[np.float32]]:
    """Return weights and biases by their names in a Sequential."""
    rng = np.random.default_rng(0)

    def draw(fan_in: int, *shape: int) -> NDArray[np.float32]:
        return rng.uniform(-(fan_in**-0.5), fan_in**-0.5, shape).astype(np.float32)

    return {
        "0.weight": draw(FEATURES, HIDDEN, FEATURES),
        "0.bias": draw(FEATURES, HIDDEN),
        "2.weight": draw(HIDDEN, 1, HIDDEN),
        "2.bias": draw(HIDDEN, 1),
    }


def example() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return one batch of inputs and targets."""
    rng = np.random.default_rng(1)
    shapes = (BATCH, FEATURES), (BATCH, 1)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, y


def _line() -> NDArray[np.float32]:
    return np.linspace(-1, 1, ELEMENTS, dtype=np.float32)


def _table() -> NDArray[np.float32]:
    return np.linspace(-1, 1, ROWS * ELEMENTS, dtype=np.float32).reshape(ROWS, ELEMENTS)


def _sequential(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def kernelrt_expression() -> Call:
    """Build a computed product and sum."""
    import kernelrt as krt

    x = krt.tensor(_line()).realize()

    def expression() -> Any:
        return (x * 2 + 1).realize()

    return expression


def torch_expression() -> Call:
    """Build kernelrt_expression in PyTorch."""
    import torch

    x = torch.from_numpy(_line())

    def expression() -> Any:
        return x * 2 + 1

    return expression


def kernelrt_schedule() -> Call:
    """Build a computed product with a different number in each call."""
    import kernelrt as krt

    x = krt.tensor(_line()).realize()
    rates = itertools.count(1)

    def scaled() -> Any:
        return (x * (1 / next(rates))).realize()

    return scaled


def torch_schedule() -> Call:
    """Build kernelrt_schedule in PyTorch."""
    import torch

    x = torch.from_numpy(_line())
    rates = itertools.count(1)

    def scaled() -> Any:
        return x * (1 / next(rates))

    return scaled


def kernelrt_rows() -> Call:
    """Build a call that writes twice a row of a table to another row; rows take turns."""
    import kernelrt as krt

    source = krt.tensor(_table()).realize()
    target = krt.zeros(ROWS, ELEMENTS).realize()
    rows = itertools.count()

    def row() -> Any:
        i = next(rows) % ROWS
        target[i] = source[i] * 2
        return target[i].realize()

    return row


def torch_rows() -> Call:
    """Build kernelrt_rows in PyTorch."""
    import torch

    source = torch.from_numpy(_table())
    target = torch.zeros(ROWS, ELEMENTS)
    rows = itertools.count()

    def row() -> Any:
        i = next(rows) % ROWS
        target[i] = source[i] * 2
        return target[i]

    return row


def kernelrt_step() -> Call:
    """Build a forward, backward and Adam step that returns the loss."""
    import kernelrt as krt
    from kernelrt import nn

    model = _sequential(nn)
    model.load_state_dict(weights())
    optimizer = nn.optim.Adam(nn.parameters(model), lr=LR)
    x, y = (krt.tensor(a).realize() for a in example())

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def torch_step() -> Call:
    """Build kernelrt_step in PyTorch."""
    import torch

    model = _sequential(torch.nn)
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights().items()})
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    x, y = (torch.from_numpy(a) for a in example())

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def kernelrt_sync() -> Call:
    """Build a copy of one network's weights into another; it returns one of them."""
    from kernelrt import nn

    source, target = _sequential(nn), _sequential(nn)
    source.load_state_dict(weights())

    def sync() -> Any:
        target.load_state_dict(source.state_dict())
        return target.state_dict()["2.bias"].detach()

    return sync


def torch_sync() -> Call:
    """Build kernelrt_sync in PyTorch."""
    import torch

    source, target = _sequential(torch.nn), _sequential(torch.nn)
    source.load_state_dict({name: torch.from_numpy(w) for name, w in weights().items()})

    def sync() -> Any:
        target.load_state_dict(source.state_dict())
        return target.state_dict()["2.bias"].detach()

    return sync


def advantages(library: str) -> Call:
    """Build the advantages of a rollout, computed backwards row by row; the call returns all."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(2)
    rewards, values = (lib.tensor(rng.random((STEPS, 1), np.float32)) for _ in range(2))
    dones = lib.tensor((rng.random((STEPS, 1)) < 0.1).astype(np.float32))

    def advantages() -> Any:
        out, last = lib.zeros_like(rewards), 0.0
        for t in reversed(range(STEPS - 1)):
            alive = 1.0 - dones[t + 1]
            delta = rewards[t] + 0.99 * values[t + 1] * alive - values[t]
            out[t] = last = delta + 0.99 * 0.95 * alive * last
        return out.numpy()

    return advantages


def growing(library: str) -> Call:
    """Build attention over one row more in each call, up to MOST_ROWS; it returns the last row."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(3)
    x = lib.tensor(rng.standard_normal((MOST_ROWS, HIDDEN), np.float32))
    q, k, v = (lib.tensor(rng.standard_normal((HIDDEN, HIDDEN), np.float32) / 8) for _ in range(3))
    calls = itertools.count()

    def row() -> Any:
        rows = x[: next(calls) % MOST_ROWS + 1]
        scores = (rows @ q) @ (rows @ k).T / 8
        return (scores.softmax(-1) @ (rows @ v))[-1].numpy()

    return row


def batches(library: str) -> Call:
    """Build an SGD step of a layer, for a batch of a different size in each call."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(4)
    x = lib.tensor(rng.standard_normal((ROWS, FEATURES), np.float32))
    weight = lib.tensor(np.zeros((FEATURES, 1), np.float32), requires_grad=True)
    calls = itertools.count()

    def step() -> float:
        batch = x[: next(calls) * 7 % (ROWS - 1) + 2]
        loss = (batch @ weight - 1.0).square().mean()
        loss.backward()
        with lib.no_grad():
            weight.sub_(weight.grad * 0.1)
        weight.grad = None
        return float(loss.item())

    return step


def carried(library: str) -> Call:
    """Build a step of a state, which the next call continues; each call reads a number from it."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(5)
    weight = lib.tensor(rng.standard_normal((HIDDEN, HIDDEN), np.float32) / 8)
    held = [lib.zeros(1, HIDDEN)]

    def step() -> float:
        held[0] = (held[0] @ weight + 0.1).tanh()
        return float(held[0].sum().item())

    return step


def denoised(library: str) -> Call:
    """Build a sampler: steps of a small network on points; no value is read between the steps."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(6)
    first, second = (lib.tensor(rng.standard_normal(shape, np.float32) / 8)
                     for shape in ((3, HIDDEN), (HIDDEN, 2)))  # fmt: skip
    start = rng.standard_normal((POINTS, 2), np.float32)
    beta = lib.tensor(np.linspace(1e-4, 0.02, STEPS, dtype=np.float32))

    def sample() -> float:
        x = lib.tensor(start)
        with lib.no_grad():
            for t in range(STEPS):
                time = lib.full((POINTS, 1), t / STEPS)
                noise = (lib.cat([x, time], 1) @ first).tanh() @ second
                x = (x - beta[t] * noise) / (1 - beta[t]).sqrt()
        return float(x.sum().item())

    return sample


def tabular(library: str) -> Call:
    """Build Q-learning of one transition, with index tensors.

    The call returns the greatest value of the state.
    """
    lib = importlib.import_module(library)
    rng = np.random.default_rng(7)
    values = lib.zeros(ROWS, FEATURES)
    states, actions = (lib.tensor(rng.integers(0, n, 256)) for n in (ROWS, FEATURES))
    rewards = lib.tensor(rng.random(256, np.float32))
    calls = itertools.count()

    def learn() -> float:
        t = next(calls) % 255
        s, a, after = states[t], actions[t], states[t + 1]
        values[s, a] += 0.1 * (rewards[t] + 0.9 * values[after].max() - values[s, a])
        return float(values[s].max().item())

    return learn


def counted(library: str) -> Call:
    """Build a confusion matrix of one batch, pair by pair, with masks and index tensors."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(8)
    labels, guesses = (lib.tensor(rng.integers(0, FEATURES, BATCH)) for _ in range(2))

    def count() -> Any:
        table = lib.zeros(FEATURES, FEATURES)
        for label, guess in zip(labels, guesses):  # noqa: B905 - as users write it
            table[label, guess] += 1
        table[labels, labels] *= 2
        table[table > 3] = 3
        return table.numpy()

    return count


def masked(library: str) -> Call:
    """Build reads under a mask, and writes by a mask, by index vectors and of a column."""
    lib = importlib.import_module(library)
    rng = np.random.default_rng(9)
    table = lib.tensor(rng.standard_normal((ELEMENTS, ELEMENTS), np.float32))
    index = lib.tensor(rng.integers(0, ELEMENTS, ELEMENTS))

    def write() -> Any:
        chosen = table[table > 0]
        table[table > 3] = 3
        table[index] = 0.5
        table[:, 2] = 1.5
        return np.append(chosen.numpy(), table.numpy())

    return write


def increased(library: str) -> Call:
    """Build a running average in place, without gradients to record."""
    lib = importlib.import_module(library)
    average, value = lib.zeros(ELEMENTS), lib.ones(ELEMENTS)

    def average_in_place() -> Any:
        average.mul_(0.9).add_(value, alpha=0.1)
        return average.numpy()

    return average_in_place


def copied(library: str) -> Call:
    """Build a conversion of a small array to a tensor."""
    lib = importlib.import_module(library)
    array = np.arange(float(ELEMENTS), dtype=np.float32)
    return lambda: lib.tensor(array)


def _compile_at_once() -> None:
    """Compile each graph when it is first computed; bench.drawn measures new graphs."""
    from kernelrt.tensor.eager.plan_cache import plans

    plans.interprets = False


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return the comparisons. (An aim of 0.5 means half of torch's speed.)"""

    def sides(ours: Any, theirs: Any) -> tuple[Side, ...]:
        return (
            Side(OURS, ours, enter=_compile_at_once),
            Side("torch", theirs, enter=functools.partial(torch_side.threads, 1), needs=("torch",)),
        )

    def both(make: Callable[[str], Call]) -> tuple[Side, ...]:
        return sides(functools.partial(make, "kernelrt"), functools.partial(make, "torch"))

    return (
        Case("eager expression", f"x * 2 + 1 of {ELEMENTS} elements, no jit",
             sides(kernelrt_expression, torch_expression), aim=0.5),
        Case("eager schedule", f"x * another number of {ELEMENTS} elements, no jit",
             sides(kernelrt_schedule, torch_schedule), aim=0.5),
        Case("eager rows", f"a row of {ELEMENTS} elements read, doubled, written, no jit",
             sides(kernelrt_rows, torch_rows), aim=0.5),
        Case("eager step", f"MLP {FEATURES}-{HIDDEN}-1, batch {BATCH}: Adam step, no jit",
             sides(kernelrt_step, torch_step), aim=0.5),
        Case("eager sync", "its load_state_dict from another",
             sides(kernelrt_sync, torch_sync), aim=0.5),
        Case("eager advantages", f"advantages of {STEPS} steps, row by row, no jit",
             both(advantages), aim=0.3),
        Case("eager growing", f"attention over 1 to {MOST_ROWS} rows of {HIDDEN}, no jit",
             both(growing), aim=0.3, tolerance=1e-3),
        Case("eager batches", f"SGD steps over 2 to {ROWS} rows, no jit", both(batches), aim=0.3),
        Case("eager carried", f"a state of {HIDDEN} carried, a number read, no jit",
             both(carried), aim=0.3, tolerance=1e-3),
        Case("eager sampler", f"{STEPS} steps of a sampler of {POINTS} points, no jit",
             both(denoised), aim=0.3, tolerance=1e-3),
        Case("eager tabular", f"Q-learning of a transition, {ROWS} x {FEATURES}, no jit",
             both(tabular), aim=0.5),
        Case("eager counted", f"a confusion matrix of {BATCH} pairs, no jit",
             both(counted), aim=0.3),
        Case("eager masked", f"masks, index vectors, a column of {ELEMENTS} x {ELEMENTS}, no jit",
             both(masked), aim=0.3),
        Case("eager increased", f"a running average of {ELEMENTS} in place, no jit",
             both(increased), aim=0.3, tolerance=1e-3),
        Case("eager data", f"a tensor of an array of {ELEMENTS}", both(copied), aim=0.5),
    )  # fmt: skip
