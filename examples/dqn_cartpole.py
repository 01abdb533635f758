"""Deep Q-learning balances a pole: steps, buffer, training and target network are one plan.

A turn of the loop takes a step of the environment, written in tensor operations, with the action
that the network values most, or at times with any; it writes the step into a buffer of 10,000,
draws 64 steps from that, and learns from them. A target network follows the network slowly. Buffer,
weights and moments are state that the loop assigns to. So a call is 1,000 steps of deep Q-learning
(Mnih et al., 2015; the target is that of double Q-learning) without Python.

python examples/dqn_cartpole.py [--plot]
"""

import copy
import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

CALLS, STEPS, ROOM, BATCH, GAMMA, FOLLOWS, LONGEST = 20, 1000, 10_000, 64, 0.99, 0.01, 500
EXPLORING, LEAST = 6000, 0.02  # steps until the chance of any action is down to the least
TRIALS = 100


def physics(state, force):
    """Poles on carts 0.02 s later (Barto, Sutton and Anderson, 1983), and whether they fell."""
    x, v, angle, spin = state.unbind(-1)
    sin, cos = angle.sin(), angle.cos()
    push = (force + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    slip = push - 0.05 * turn * cos / 1.1
    after = krt.stack([x + 0.02 * v, v + 0.02 * slip, angle + 0.02 * spin, spin + 0.02 * turn], -1)
    return after, (after[..., 0].abs() > 2.4) | (after[..., 2].abs() > 0.21)


def beginning(*count):
    return krt.rand(*count, 4) * 0.1 - 0.05


class Agent:
    """A network, the one of some time ago, what it remembers, and where its pole is."""

    def __init__(self) -> None:
        self.net = nn.Sequential(
            nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )
        self.target = copy.deepcopy(self.net)
        self.opt = nn.optim.Adam(self.net.parameters(), lr=5e-4)
        self.before, self.after = krt.zeros(ROOM, 4), krt.zeros(ROOM, 4)
        self.action = krt.zeros(ROOM, dtype=krt.int64)
        self.fell = krt.zeros(ROOM)
        self.count = krt.tensor(0)
        self.pole, self.age = beginning().realize(), krt.tensor(0)

    def act(self):
        """A step of the environment, put into the buffer; whether an episode ended, and its age."""
        chance = (1 - self.count.float() / EXPLORING).clamp(LEAST, 1.0)
        best = self.net(self.pole.reshape(1, 4)).argmax(1).reshape(())
        action = krt.where(krt.rand(()) < chance, krt.randint(0, 2, ()), best)
        after, fell = physics(self.pole, krt.where(action == 1, 10.0, -10.0))
        place = self.count % ROOM
        self.before[place] = self.pole
        self.after[place] = after
        self.action[place] = action
        self.fell[place] = fell.float()
        age = self.age + 1
        over = fell | (age >= LONGEST)  # an episode that is cut off did not fall
        self.pole.assign(krt.where(over, beginning(), after))
        self.age.assign(krt.where(over, 0, age))
        self.count.add_(1)
        return over, age

    def learn(self):
        """A step of Adam on steps from the buffer."""
        places = (krt.rand(BATCH) * self.count.clamp(max=ROOM)).long()
        with krt.no_grad():
            chosen = self.net(self.after[places]).argmax(1, keepdim=True)
            later = self.target(self.after[places]).gather(1, chosen).reshape(-1)
            wanted = 1 + GAMMA * later * (1 - self.fell[places])
        values = self.net(self.before[places]).gather(1, self.action[places].reshape(-1, 1))
        self.opt.zero_grad()
        values.reshape(-1).huber_loss(wanted).backward()
        self.opt.step()

    @krt.jit
    def run(self):
        """The next steps: where episodes ended, and at which age."""

        def turn(carry, _):
            ended = self.act()
            self.learn()
            pairs = zip(self.target.parameters(), self.net.parameters(), strict=True)
            with krt.no_grad():
                for old, new in pairs:
                    old.lerp_(new, FOLLOWS)
            return carry, ended

        return krt.scan(turn, None, length=STEPS)[1]

    @krt.jit
    def trials(self):
        """How long each of some poles stands where the network decides alone."""

        def turn(carry, _):
            pole, stands, age = carry
            action = self.net(pole).argmax(1)
            after, fell = physics(pole, krt.where(action == 1, 10.0, -10.0))
            stands = stands & ~fell
            after = krt.where(stands.unsqueeze(1), after, 0.0)
            return (after, stands, age + stands), None

        begin = beginning(TRIALS), krt.ones(TRIALS, dtype=krt.bool), krt.zeros(TRIALS)
        with krt.no_grad():
            return krt.scan(turn, begin, length=LONGEST)[0][2]


def main(plot: bool = False) -> float:
    krt.manual_seed(0)
    agent = Agent()
    ends: list[tuple[int, int]] = []
    seconds = []
    best = 0.0
    for call in range(CALLS):
        started = perf_counter()
        over, ages = (t.numpy() for t in agent.run())
        seconds.append(perf_counter() - started)
        ends += [(call * STEPS + int(i), int(ages[i])) for i in np.flatnonzero(over)]
        mean = float(agent.trials().numpy().mean())
        best = max(best, mean)
        lately = np.mean([age for _, age in ends[-20:]])
        print(f"\r{(call + 1) * STEPS:6,} steps: the last 20 episodes had {lately:5.1f}, "
              f"and without exploring a pole stands for {mean:5.1f} of {LONGEST}",
              end="", flush=True)  # fmt: skip
    print(f"\n{len(ends)} episodes; at its best after one of the calls it stood for {best:.1f}")
    print(f"{np.median(seconds) / STEPS * 1e6:.1f} us a step, to act and to learn from {BATCH}")
    if plot:
        show(ends)
    return best


def show(ends: list[tuple[int, int]]) -> None:
    import matplotlib.pyplot as plt

    plt.plot(*zip(*ends, strict=True), ".", markersize=3)
    plt.xlabel("steps of the environment")
    plt.ylabel("steps of the episode that ended")
    plt.show()


if __name__ == "__main__":
    main("--plot" in sys.argv[1:])
