"""Evolution strategies balance a pole: whole generations without Python, and without gradients.

A generation (Salimans et al., 2017) tries 128 policies, those of one plus and minus a random
direction each, on carts and poles that are written in tensor operations: all of them take each step
together. The mean of the directions, weighted by the ranks of what they reached, is the slope that
Adam follows. An episode is a `krt.scan`, and so are the generations around it.

python examples/evolution_strategies.py [--plot]
"""

import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

CALLS, GENERATIONS, PAIRS, HIDDEN, STEPS, SPREAD = 8, 5, 64, 16, 500, 0.5
NUMBERS = 4 * HIDDEN + HIDDEN + HIDDEN  # of a policy: weights, biases, weights
BOUNDS = (2.4, 0.21)  # of the cart's place, and of the pole's angle


def physics(state, force):
    """Poles on carts 0.02 s later (Barto, Sutton and Anderson, 1983); states of shape (n, 4)."""
    x, v, angle, spin = state.unbind(1)
    sin, cos = angle.sin(), angle.cos()
    push = (force + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    slip = push - 0.05 * turn * cos / 1.1
    return krt.stack([x + 0.02 * v, v + 0.02 * slip, angle + 0.02 * spin, spin + 0.02 * turn], 1)


def lifetimes(policies, state):
    """How many steps each policy, of shape (n, NUMBERS), keeps its pole up, from `state` on."""
    count = policies.shape[0]
    first = policies[:, : 4 * HIDDEN].reshape(count, 4, HIDDEN)
    bias = policies[:, 4 * HIDDEN : 5 * HIDDEN]
    second = policies[:, 5 * HIDDEN :]

    def turn(carry, _):
        state, alive, steps = carry
        hidden = ((state.unsqueeze(1) @ first).squeeze(1) + bias).tanh()
        state = physics(state, 10 * (hidden * second).sum(1).tanh())
        stands = (state[:, 0].abs() < BOUNDS[0]) & (state[:, 2].abs() < BOUNDS[1])
        alive = alive & stands
        # What fell stays where it is, lest its numbers grow without bounds.
        state = krt.where(alive.unsqueeze(1), state, 0.0)
        return (state, alive, steps + alive), None

    begin = state, krt.ones(count, dtype=krt.bool), krt.zeros(count)
    return krt.scan(turn, begin, length=STEPS)[0][2]


class Strategy:
    """The policy in the middle, and how it moves."""

    def __init__(self) -> None:
        # Not zeros: of those, plus and minus a direction are one and the same policy.
        self.center = nn.Parameter(krt.randn(NUMBERS) * 0.5)
        self.opt = nn.optim.Adam([self.center], lr=0.1)

    def generation(self):
        """Try policies, move, and say how long they stood on average."""
        noise = krt.randn(PAIRS, NUMBERS)
        start = krt.rand(PAIRS, 4) * 0.1 - 0.05
        policies = self.center.detach() + SPREAD * krt.cat([noise, -noise])
        lived = lifetimes(policies, krt.cat([start, start]))  # a pair starts alike
        ranks = (lived.unsqueeze(0) < lived.unsqueeze(1)).sum(1).float() / (2 * PAIRS - 1)
        slope = ((ranks[:PAIRS] - ranks[PAIRS:]).unsqueeze(1) * noise).mean(0) / SPREAD
        self.center.grad = -slope
        self.opt.step()
        self.opt.zero_grad()
        return lived.mean()

    @krt.jit
    def run(self):
        """The next generations; their means, and how 100 poles fare with the policy then."""
        _, means = krt.scan(lambda c, _: (c, self.generation()), None, length=GENERATIONS)
        policies = self.center.detach().unsqueeze(0).expand(100, NUMBERS)
        return means, lifetimes(policies, krt.rand(100, 4) * 0.1 - 0.05)


def main(plot: bool = False) -> float:
    krt.manual_seed(0)
    strategy = Strategy()
    tried: list[float] = []
    reached: list[float] = []
    seconds = []
    for call in range(CALLS):
        started = perf_counter()
        means, lived = strategy.run()
        tried += means.tolist()
        reached.append(float(lived.numpy().mean()))
        seconds.append(perf_counter() - started)
        print(f"\rgeneration {(call + 1) * GENERATIONS:3}: policies that are tried stand for "
              f"{tried[-1]:5.0f} of {STEPS} steps, the one in the middle for {reached[-1]:5.0f}",
              end="", flush=True)  # fmt: skip
    usual = float(np.median(seconds)) / GENERATIONS
    print(f"\n{usual * 1e3:.1f} ms a generation, which is {2 * PAIRS * STEPS / usual / 1e6:.1f} "
          "million steps of a pole a second")  # fmt: skip
    if plot:
        show(tried, reached)
    return reached[-1]


def show(tried: list[float], reached: list[float]) -> None:
    import matplotlib.pyplot as plt

    plt.plot(np.arange(1, len(tried) + 1), tried, label="tried")
    plt.plot(GENERATIONS * np.arange(1, len(reached) + 1), reached, "o-", label="in the middle")
    plt.xlabel("generations")
    plt.ylabel("steps until the pole falls")
    plt.legend()
    plt.show()


if __name__ == "__main__":
    main("--plot" in sys.argv[1:])
