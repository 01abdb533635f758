"""PPO balances poles: one update, from the rollout to the last minibatch, is one call of a plan.

CartPole is written in tensor operations, with the physics and limits of Gymnasium's CartPole-v1. A
scan over time steps lets 64 poles run side by side, a scan backwards makes advantages of what they
gave, and a scan over minibatches takes Adam's steps. Members of a population, each with poles,
weights and random numbers of its own, have a first axis in all of it: ``--seeds 64`` trains 64
agents at once. It ends when the last 100 episodes (of the median agent) gave 475 in the mean.

python examples/ppo_cartpole.py [--seeds 64] [--updates 100] [--all] [--plot file.png]
"""

import argparse
import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

ENVS, STEPS, MINIBATCHES, EPOCHS, LONGEST = 64, 64, 8, 4, 500
RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 2.5e-3, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
BATCH = ENVS * STEPS
GOAL, RECENT = 475.0, 100


def physics(state, action):
    """Poles on carts 0.02 s later (Barto, Sutton and Anderson, 1983), and whether they fell."""
    x, v, angle, spin = state.unbind(-1)
    force = krt.where(action, 10.0, -10.0)
    sin, cos = angle.sin(), angle.cos()
    push = (force + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    slip = push - 0.05 * turn * cos / 1.1
    after = krt.stack([x + 0.02 * v, v + 0.02 * slip, angle + 0.02 * spin, spin + 0.02 * turn], -1)
    return after, (after[..., 0].abs() > 2.4) | (after[..., 2].abs() > np.pi / 15)


def beginning(members):
    return krt.rand(members, ENVS, 4) * 0.1 - 0.05


def network(outputs, gain):
    """Two layers of 64 tanh, and a last one whose weights are as small as `gain` says."""
    layers = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer, size in zip(layers[::2], (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, size)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Agents:
    """Actors and critics of all members, their optimizer, and where their poles are."""

    def __init__(self, members: int = 1, updates: int = 100) -> None:
        self.members, self.updates = members, updates
        self.actor = nn.stack_modules(lambda: network(2, 0.01), members)
        self.critic = nn.stack_modules(lambda: network(1, 1.0), members)
        # A vector of rates makes every step one of each member alone.
        self.opt = nn.optim.Adam(nn.parameters(self), lr=RATE, eps=1e-5)
        self.rate = krt.tensor(RATE)
        self.poles = beginning(members).realize()
        self.ages = krt.zeros(members, ENVS, dtype=krt.int32)

    def rollout(self):
        """What happened to each pole in the next steps, (STEPS, members, ENVS, ...), and the end."""

        def turn(carry, _):
            state, age = carry
            logs, value = self.actor(state).log_softmax(-1), self.critic(state).squeeze(-1)
            action = krt.rand(self.members, ENVS) < logs[..., 1].exp()
            chosen = krt.where(action, logs[..., 1], logs[..., 0])
            after, fell = physics(state, action)
            age = age + 1
            over = fell | (age >= LONGEST)
            ended = krt.where(over, age, 0)
            after = krt.where(over.unsqueeze(-1), beginning(self.members), after)
            return (after, krt.where(over, 0, age)), (state, action, chosen, value, over, ended)

        (poles, ages), seen = krt.scan(turn, (self.poles, self.ages), length=STEPS)
        self.poles.assign(poles)
        self.ages.assign(ages)
        return *seen, self.critic(poles).squeeze(-1)

    def judged(self, values, last, over):
        """Advantages (STEPS, members, ENVS) by a scan backwards; each step gives a reward of 1."""

        def turn(carry, x):
            later, advantage = carry
            value, over = x
            on = GAMMA * krt.where(over, 0.0, 1.0)
            advantage = 1 + on * later - value + on * LAMBDA * advantage
            return (value, advantage), advantage

        return krt.scan(turn, (last, krt.zeros_like(last)), (values, over), reverse=True)[1]

    def loss(self, state, action, before, advantage, target):
        """The sum of what each member minimizes for a minibatch, all (members, rows, ...)."""
        logs = self.actor(state).log_softmax(-1)
        ratio = (krt.where(action, logs[..., 1], logs[..., 0]) - before).exp()
        middle, width = advantage.mean(-1, keepdim=True), advantage.std(-1, keepdim=True)
        advantage = (advantage - middle) / (width + 1e-8)
        gain = krt.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        entropy = -(logs.exp() * logs).sum(-1)
        error = (self.critic(state).squeeze(-1) - target).square()
        return (VALUE * 0.5 * error - gain - ENTROPY * entropy).mean(-1).sum()

    @krt.jit
    def update(self):
        """Act, judge and learn; gives the ages (STEPS, members, ENVS) of episodes that ended."""
        with krt.no_grad():
            state, action, chosen, values, over, ended, last = self.rollout()
            advantage = self.judged(values, last, over)
            rows = [
                t.transpose(0, 1).reshape(self.members, BATCH, *t.shape[3:])
                for t in (state, action, chosen, advantage, advantage + values)
            ]

        def minibatch(carry, places):
            taken = [krt.vmap(lambda t, i: t[i])(t, places) for t in rows]
            self.opt.zero_grad()
            self.loss(*taken).backward()
            self.actor.clip_grad_norm_(NORM)
            self.critic.clip_grad_norm_(NORM)
            self.opt.step()
            return carry, None

        def epoch(carry, _):
            order = krt.rand(self.members, BATCH).argsort(-1)
            places = order.reshape(self.members, MINIBATCHES, -1).transpose(0, 1)
            return krt.scan(minibatch, carry, places)[0], None

        krt.scan(epoch, None, length=EPOCHS)
        return ended


def main(seeds: int = 1, updates: int = 100, go_on: bool = False, plot: str | None = None) -> float:
    krt.manual_seed(0)
    agents = Agents(seeds)
    recent = [np.zeros(0, np.int32)] * seeds
    curve: list[np.ndarray] = []
    seconds: list[float] = []
    reached = None
    started = perf_counter()
    for k in range(updates):
        since = perf_counter()
        if not go_on:
            agents.opt.lr = RATE * (1 - k / updates)
        ended = agents.update().numpy()
        seconds.append(perf_counter() - since)
        for m in range(seeds):
            of_m = ended[:, m]
            recent[m] = np.concatenate([recent[m], of_m[of_m > 0]])[-RECENT:]
        means = np.array([r.mean() if len(r) == RECENT else 0.0 for r in recent])
        curve.append(means)
        show(k, updates, means)
        if np.median(means) >= GOAL and reached is None:
            reached = perf_counter() - started
            if not go_on:
                break
    taken = float(np.median(seconds))
    print(f"\n{seeds * BATCH / taken:,.0f} steps a second, learning included")
    if reached is not None:
        print(f"the last {RECENT} episodes gave {GOAL:.0f} after {reached:.2f} s")
    return float(np.median(curve[-1]))


def show(k: int, updates: int, means: np.ndarray) -> None:
    print(f"\r{k + 1:4} of {updates}: {np.median(means):6.1f}", end="", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
