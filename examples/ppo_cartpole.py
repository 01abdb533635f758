"""PPO balances poles: an update, from the rollout to the last minibatch, is one call of a plan.

CartPole is written in tensor operations, with the physics and limits of Gymnasium's CartPole-v1. A
scan over time lets 64 poles run side by side, a scan backwards makes advantages of what they gave,
and a scan over minibatches takes steps of Adam. All of it has a first axis for agents, each with
poles, weights and random numbers of its own, so that ``--seeds 64`` trains 64 of them at once. It
ends when the last 100 episodes of every agent gave 475 in the mean.

python examples/ppo_cartpole.py [--seeds 64] [--updates 100] [--plot curve.png]
"""

import argparse
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

ENVS, STEPS, MINIBATCHES, EPOCHS, LONGEST = 64, 64, 8, 2, 500
RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 6e-3, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
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
    """Two hidden layers of 64 tanh units; `gain` scales the weights of the last layer."""
    first, second, last = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)
    for layer, size in ((first, 2**0.5), (second, 2**0.5), (last, gain)):
        nn.init.orthogonal_(layer.weight, size)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)


class Agents:
    """Actors and critics, their optimizer, and where their poles are."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.actor = nn.stack_modules(lambda: network(2, 0.01), members)
        self.critic = nn.stack_modules(lambda: network(1, 1.0), members)
        self.opt = nn.optim.Adam(nn.parameters(self), lr=RATE, eps=1e-5)
        self.poles = beginning(members).realize()
        self.ages = krt.zeros(members, ENVS, dtype=krt.int32)

    def rollout(self):
        """What the next steps showed, all (STEPS, members, ENVS, ...), and the value of the end."""

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


def main(seeds: int = 1, updates: int = 100, file: str | None = None) -> float:
    krt.manual_seed(0)
    agents = Agents(seeds)
    recent = [np.zeros(0, np.int32)] * seeds
    reached: list[int | None] = [None] * seeds
    curve: list[np.ndarray] = []
    marks = [perf_counter()]
    for k in range(1, updates + 1):
        agents.opt.lr = RATE * (1 - (k - 1) / updates)
        ended = agents.update().numpy()
        for m in range(seeds):
            ages = ended[:, m]
            recent[m] = np.concatenate([recent[m], ages[ages > 0]])[-RECENT:]
        marks.append(perf_counter())
        means = np.array([ages.mean() if len(ages) else 0.0 for ages in recent])
        for m in range(seeds):
            if reached[m] is None and len(recent[m]) == RECENT and means[m] >= GOAL:
                reached[m] = k
        curve.append(means)
        print(f"\r{k * BATCH:8,} steps: the last {RECENT} episodes gave {np.median(means):5.1f}, "
              f"those of the best agent {means.max():5.1f}", end="", flush=True)  # fmt: skip
        if all(reached):
            break
    done = [k for k in reached if k]
    print(f"\n{len(done)} of {seeds} came to {GOAL:.0f}", end="")
    if done:
        print(f", the median one with {np.median(done) * BATCH:,.0f} steps", end="")
    print(f", in {marks[-1] - marks[0]:.2f} s, of which the first update took "
          f"{marks[1] - marks[0]:.2f} s, with tracing and compiling")  # fmt: skip
    if len(marks) > 2:
        taken = float(np.median(np.diff(marks)[1:]))
        print(f"{taken * 1e3:.1f} ms an update, {seeds * BATCH / taken:,.0f} steps a second, "
              "learning included")  # fmt: skip
    if file is not None:
        show(np.array(curve), file)
    return float(np.median(np.max(curve, 0)))


def show(curve: np.ndarray, file: str) -> None:
    """Draw the median agent, and where half of them are."""
    import matplotlib.pyplot as plt

    steps = np.arange(1, len(curve) + 1) * BATCH
    low, middle, high = np.quantile(curve, [0.25, 0.5, 0.75], axis=1)
    plt.fill_between(steps, low, high, alpha=0.3)
    plt.plot(steps, middle)
    plt.axhline(GOAL, linestyle=":", color="gray")
    plt.xlabel("steps of the environment")
    plt.ylabel(f"mean of the last {RECENT} episodes")
    plt.savefig(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1, help="how many agents")
    parser.add_argument("--updates", type=int, default=100, help="the most updates")
    parser.add_argument("--plot", dest="file", help="a file for the curve; needs matplotlib")
    main(**vars(parser.parse_args()))
