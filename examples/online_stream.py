"""Learn from a stream of a million samples, one at a time, in loops that Python does not see.

Each sample is drawn, predicted, and learned from before the next one comes; the target drifts, so
learning never ends. `online_regression.py` makes a call for each sample. Here a call is a
`krt.scan` over 100,000 of them: weights, momentum, running normalization, the drifting target and
the stream of random numbers are carried from turn to turn.

python examples/online_stream.py [--plot]
"""

import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

CALLS, SAMPLES, FEATURES, IM2COL = 10, 100_000, 8, 1000
DRIFT = 0.002


class Stream:
    """Samples and what learns from them; all tensors here are state of one plan."""

    def __init__(self) -> None:
        self.target = krt.randn(FEATURES)
        self.mean, self.square = krt.zeros(FEATURES), krt.ones(FEATURES)
        self.net = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
        self.opt = nn.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.5)

    def sample(self):
        """The next one. What it is made of wanders: samples from long ago are wrong by now."""
        self.target.assign(self.target * (1 - DRIFT**2 / 2) + krt.randn(FEATURES) * DRIFT)
        z = krt.randn(FEATURES)
        return z * 3 + 1, (self.target @ z).tanh()

    def learn(self, x, y):
        """The prediction for a sample, from which the weights learn afterwards."""
        self.mean.assign(self.mean * 0.999 + x * 0.001)
        self.square.assign(self.square * 0.999 + x * x * 0.001)
        scale = (self.square - self.mean * self.mean + 1e-6).rsqrt()
        prediction = self.net(((x - self.mean) * scale).reshape(1, -1)).reshape(())
        self.opt.zero_grad()
        (prediction - y).square().backward()
        self.opt.step()
        return prediction.detach()

    @krt.jit
    def run(self):
        """Errors of the next samples, averaged over windows."""

        def turn(carry, _):
            x, y = self.sample()
            return carry, ((self.learn(x, y) - y).square(), y.square())

        _, (errors, sizes) = krt.scan(turn, None, length=SAMPLES)
        return errors.reshape(-1, IM2COL).mean(1), sizes.mean()


def main(plot: bool = False) -> float:
    krt.manual_seed(0)
    stream = Stream()
    errors: list[np.ndarray] = []
    seconds, size = [], 0.0
    for call in range(CALLS):
        started = perf_counter()
        found, power = stream.run()
        errors.append(found.numpy())
        size += power.item() / CALLS
        seconds.append(perf_counter() - started)
        print(
            f"\r{(call + 1) * SAMPLES:9,} samples, mean squared error {errors[-1].mean():.5f}, "
            f"{SAMPLES / seconds[-1]:9,.0f} samples a second", end="", flush=True,
        )  # fmt: skip
    all_errors = np.concatenate(errors)
    first, last = float(all_errors[0]), float(all_errors[-50:].mean())
    print(
        f"\nmean squared error: {first:.4f} over the first {IM2COL:,} samples, {last:.4f} over the"
    )
    print(f"last {50 * IM2COL:,}; always saying 0 has {size:.4f}")
    print(f"{np.median(seconds) / SAMPLES * 1e6:.2f} us a sample; the first call took "
          f"{seconds[0] - np.median(seconds):.2f} s more, to compile")  # fmt: skip
    if plot:
        show(all_errors, size)
    return last / size


def show(errors: np.ndarray, size: float) -> None:
    import matplotlib.pyplot as plt

    plt.semilogy(np.arange(len(errors)) * IM2COL, errors, label="the network, as it learns")
    plt.axhline(size, color="gray", label="always 0")
    plt.xlabel("samples")
    plt.ylabel(f"squared error, mean of {IM2COL:,}")
    plt.legend()
    plt.show()


if __name__ == "__main__":
    main("--plot" in sys.argv[1:])
