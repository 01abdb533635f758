"""Reinforcement learning: balance a pole, with an actor and a critic that learn at each step.

The environment is plain Python, and each of its steps needs the policy at batch 1: the case in
which a framework's overhead is all there is.

python examples/reinforce_cartpole.py
"""

import math
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

EPISODES, STEPS, GAMMA = 300, 200, 0.98


class CartPole:
    """A pole on a cart (Barto, Sutton and Anderson, 1983), 50 steps a second."""

    def reset(self, rng: np.random.Generator) -> np.ndarray:
        self.state = rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, bool]:
        x, v, angle, spin = self.state
        force = 10.0 if action else -10.0
        sin, cos = math.sin(angle), math.cos(angle)
        push = (force + 0.05 * spin * spin * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        acceleration = push - 0.05 * turn * cos / 1.1
        x, v = x + 0.02 * v, v + 0.02 * acceleration
        angle, spin = angle + 0.02 * spin, spin + 0.02 * turn
        self.state = np.array([x, v, angle, spin])
        return self.state.astype(np.float32), abs(x) > 2.4 or abs(angle) > 0.21


class ActorCritic:
    """A policy and a value, learned together from whole episodes."""

    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 2), nn.Linear(64, 1)
        self.opt = nn.optim.Adam(nn.parameters(self), lr=5e-3)

    @krt.jit
    def act(self, state):
        return self.policy(self.body(state.reshape(1, 4))).softmax(-1)[0, 1]

    @krt.jit
    def learn(self, states, actions, returns, weights):
        # Episodes are padded to one length, so that one plan serves all; padding weighs nothing.
        hidden = self.body(states)
        values = self.value(hidden).reshape(-1)
        chosen = self.policy(hidden).log_softmax(-1).gather(1, actions.reshape(-1, 1)).reshape(-1)
        advantage = (returns - values).detach()
        loss = ((values - returns).square() - chosen * advantage) * weights
        self.opt.zero_grad()
        (loss.sum() / weights.sum()).backward()
        self.opt.step()


def main() -> float:
    krt.manual_seed(0)
    rng = np.random.default_rng(0)
    env, agent = CartPole(), ActorCritic()
    lengths: list[int] = []
    times: list[float] = []
    for _ in range(EPISODES):
        states = np.zeros((STEPS, 4), np.float32)
        actions = np.zeros(STEPS, np.int64)
        state, done, n = env.reset(rng), False, 0
        while not done and n < STEPS:
            started = perf_counter()
            probability = agent.act(state).item()
            times.append(perf_counter() - started)
            states[n], actions[n] = state, int(rng.random() < probability)
            state, done = env.step(int(actions[n]))
            n += 1
        returns = np.zeros(STEPS, np.float32)
        total = 0.0
        for i in reversed(range(n)):
            total = returns[i] = 1.0 + GAMMA * total
        weights = (np.arange(STEPS) < n).astype(np.float32)
        agent.learn(states, actions, returns / 10, weights)
        lengths.append(n)
    first, last = float(np.mean(lengths[:30])), float(np.mean(lengths[-30:]))
    print(f"steps the pole stood: {first:.0f} in the first 30 episodes, {last:.0f} in the last 30")
    print(f"{np.median(times) * 1e6:.1f} us an action")
    return last


if __name__ == "__main__":
    main()
