"""PPO on CartPole: ``examples/ppo_cartpole.py`` against PyTorch with environments in Python.

``python -m bench.ppo`` prints two numbers for each side: environment steps per second, including
the time to learn, and seconds until the last 100 episodes had a mean return of 475. Both sides use
the hyperparameters of the example. ``--seeds 64`` also measures 64 agents at once.

The PyTorch side is written like common scripts: environments are objects with Gymnasium's
interface, stepped one after the other, and the networks run in each step. With ``--arrays`` NumPy
steps its environments together. With ``--few`` both sides use the numbers of environments, steps
and updates of CleanRL's ``ppo.py``.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

EXAMPLE = Path(__file__).parents[1] / "examples" / "ppo_cartpole.py"
UPDATES = 100
#: The numbers of CleanRL's ``ppo.py``.
FEW = {"ENVS": 4, "STEPS": 128, "MINIBATCHES": 4, "EPOCHS": 4, "BATCH": 4 * 128, "RATE": 2.5e-4}


def example(numbers: Mapping[str, float]) -> Any:
    """Return the example's module with some of its numbers replaced."""
    spec = importlib.util.spec_from_file_location("ppo_cartpole", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(numbers)
    return module


# ---- environments in Python


class Pole:
    """One environment, like Gymnasium's CartPole-v1."""

    def __init__(self, rng: np.random.Generator, longest: int) -> None:
        self._rng, self._longest = rng, longest

    def reset(self) -> NDArray[np.float32]:
        """Begin an episode."""
        self.state = [float(x) for x in self._rng.uniform(-0.05, 0.05, 4)]
        self.age = 0
        return np.array(self.state, np.float32)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool]:
        """Push the cart; return the observation, the reward, and whether the episode is over."""
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        sin, cos = math.sin(angle), math.cos(angle)
        push = (force + 0.05 * spin * spin * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        slip = push - 0.05 * turn * cos / 1.1
        x, v, angle, spin = x + 0.02 * v, v + 0.02 * slip, angle + 0.02 * spin, spin + 0.02 * turn
        self.state = [x, v, angle, spin]
        self.age += 1
        over = abs(x) > 2.4 or abs(angle) > math.pi / 15 or self.age >= self._longest
        return np.array(self.state, np.float32), 1.0, over


class OneByOne:
    """Environments stepped one after the other; each restarts when its episode is over."""

    def __init__(self, count: int, longest: int, rng: np.random.Generator) -> None:
        self._poles = [Pole(rng, longest) for _ in range(count)]
        self.seen = np.stack([pole.reset() for pole in self._poles])
        self.ended: list[int] = []

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Step all environments; return which episodes were over."""
        over = np.zeros(len(self._poles), np.float32)
        for k, (pole, action) in enumerate(zip(self._poles, actions, strict=True)):
            self.seen[k], _, done = pole.step(action)
            if done:
                over[k] = 1
                self.ended.append(pole.age)
                self.seen[k] = pole.reset()
        return over


class Together:
    """Environments stepped together, by NumPy."""

    def __init__(self, count: int, longest: int, rng: np.random.Generator) -> None:
        self._rng, self._longest = rng, longest
        self._state = rng.uniform(-0.05, 0.05, (count, 4))
        self._ages = np.zeros(count, np.int64)
        self.seen = self._state.astype(np.float32)
        self.ended: list[int] = []

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Step all environments; return which episodes were over."""
        x, v, angle, spin = self._state.T
        force = np.where(actions == 1, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * spin * spin * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        slip = push - 0.05 * turn * cos / 1.1
        self._state = np.stack(
            [x + 0.02 * v, v + 0.02 * slip, angle + 0.02 * spin, spin + 0.02 * turn], 1
        )
        self._ages += 1
        over = (
            (np.abs(self._state[:, 0]) > 2.4) | (np.abs(self._state[:, 2]) > math.pi / 15)
            | (self._ages >= self._longest)
        )  # fmt: skip
        self.ended += self._ages[over].tolist()
        self._state[over] = self._rng.uniform(-0.05, 0.05, (int(over.sum()), 4))
        self._ages[over] = 0
        self.seen = self._state.astype(np.float32)
        return over.astype(np.float32)


# ---- the two sides: each returns an update function, which returns the ended episodes


def ours(ppo: Any, members: int = 1) -> Callable[[float], list[NDArray[Any]]]:
    """Build an update of the example that returns the ended episodes of each agent."""
    import kernelrt as krt

    krt.manual_seed(0)
    agents = ppo.Agents(members)

    def update(rate: float) -> list[NDArray[Any]]:
        agents.opt.lr = rate
        ended = agents.update().numpy()
        return [ended[:, m][ended[:, m] > 0] for m in range(members)]

    return update


def torch_side(p: Any, *, arrays: bool = False) -> Callable[[float], list[NDArray[Any]]]:
    """Build an update in PyTorch with the numbers of the example `p`."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    kind = Together if arrays else OneByOne
    envs: Any = kind(p.ENVS, p.LONGEST, np.random.default_rng(0))

    def network(outputs: int, gain: float) -> nn.Sequential:
        layers = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)
        for layer, size in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
            nn.init.orthogonal_(layer.weight, size)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    actor, critic = network(2, 0.01), network(1, 1.0)
    params = [*actor.parameters(), *critic.parameters()]
    opt = torch.optim.Adam(params, lr=p.RATE, eps=1e-5, fused=True)
    states = torch.zeros(p.STEPS, p.ENVS, 4)
    actions = torch.zeros(p.STEPS, p.ENVS, dtype=torch.int64)
    chosen, values, overs, advantages = torch.zeros(4, p.STEPS, p.ENVS).unbind()

    @torch.no_grad()
    def rollout() -> None:
        for t in range(p.STEPS):
            states[t] = torch.from_numpy(envs.seen)
            policy: Any = torch.distributions.Categorical(logits=actor(states[t]))
            actions[t] = policy.sample()
            chosen[t] = policy.log_prob(actions[t])
            values[t] = critic(states[t]).squeeze(-1)
            overs[t] = torch.from_numpy(envs.step(actions[t].numpy()))
        later, advantage = critic(torch.from_numpy(envs.seen)).squeeze(-1), torch.zeros(p.ENVS)
        for t in reversed(range(p.STEPS)):
            on = p.GAMMA * (1 - overs[t])
            advantage = 1 + on * later - values[t] + on * p.LAMBDA * advantage
            advantages[t], later = advantage, values[t]

    def learn() -> None:
        rows = (
            states.reshape(-1, 4), actions.reshape(-1), chosen.reshape(-1), advantages.reshape(-1),
            (advantages + values).reshape(-1),
        )  # fmt: skip
        for _ in range(p.EPOCHS):
            for places in torch.randperm(p.BATCH).chunk(p.MINIBATCHES):
                state, action, before, advantage, target = (row[places] for row in rows)
                policy: Any = torch.distributions.Categorical(logits=actor(state))
                ratio = (policy.log_prob(action) - before).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(
                    ratio * advantage, ratio.clamp(1 - p.CLIP, 1 + p.CLIP) * advantage
                ).mean()
                error = (critic(state).squeeze(-1) - target).square().mean()
                loss = p.VALUE * 0.5 * error - gain - p.ENTROPY * policy.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(actor.parameters(), p.NORM)
                nn.utils.clip_grad_norm_(critic.parameters(), p.NORM)
                opt.step()

    def update(rate: float) -> list[NDArray[Any]]:
        opt.param_groups[0]["lr"] = rate
        envs.ended.clear()
        rollout()
        learn()
        return [np.array(envs.ended, np.int64)]

    return update


# ---- measurement


@dataclass(frozen=True)
class Course:
    """The result of a training run.

    Attributes
    ----------
    update : float
        Median seconds of an update, without the first.
    first : float
        Seconds of the first update, with tracing and compilation.
    seconds : float
        Seconds until the last episodes of every agent had reached the goal, or until the run ended.
    steps : int
        Number of steps of each agent in these seconds.
    reached : int
        Number of agents that reached the goal.
    """

    update: float
    first: float
    seconds: float
    steps: int
    reached: int


def course(
    p: Any, update: Callable[[float], list[NDArray[Any]]], updates: int = UPDATES
) -> Course:
    """Train until all agents have reached the goal."""
    recent: list[NDArray[Any]] = []
    done: set[int] = set()
    marks = [time.perf_counter()]
    for k in range(updates):
        ended = update(p.RATE * (1 - k / UPDATES))
        recent = recent or [ages[:0] for ages in ended]
        recent = [
            np.concatenate([old, new])[-p.RECENT :]
            for old, new in zip(recent, ended, strict=True)
        ]  # fmt: skip
        marks.append(time.perf_counter())
        for m, ages in enumerate(recent):
            if len(ages) == p.RECENT and ages.mean() >= p.GOAL:
                done.add(m)
        if len(done) == len(recent):
            break
    times = np.diff(marks)
    return Course(
        update=float(np.median(times[1:] if len(times) > 1 else times)), first=float(times[0]),
        seconds=marks[-1] - marks[0], steps=len(times) * p.BATCH, reached=len(done),
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=0, help="also measure this many at once")
    parser.add_argument("--arrays", action="store_true", help="peer's environments in NumPy")
    parser.add_argument("--few", action="store_true", help="use CleanRL's number of environments")
    parser.add_argument("--threads", type=int, help="of both sides; else their default")
    given = parser.parse_args()
    if given.threads:
        import torch

        import kernelrt as krt

        torch.set_num_threads(given.threads)
        krt.set_num_threads(given.threads)
    p = example(FEW if given.few else {})
    sides: list[tuple[str, int, Callable[[float], list[NDArray[Any]]]]] = [
        ("kernelrt", 1, ours(p)), ("torch", 1, torch_side(p, arrays=given.arrays)),
    ]  # fmt: skip
    if given.seeds:
        sides.append((f"kernelrt, {given.seeds} agents", given.seeds, ours(p, given.seeds)))
    for name, members, update in sides:
        found = course(p, update)
        print(
            f"{name}: {members * p.BATCH / found.update:,.0f} steps a second, "
            f"{found.update * 1e3:.1f} ms an update; {found.reached} of {members} came to "
            f"{p.GOAL:.0f} in {found.steps:,} steps and {found.seconds:.2f} s, "
            f"of which the first update took {found.first:.2f} s"
        )


if __name__ == "__main__":
    main()
