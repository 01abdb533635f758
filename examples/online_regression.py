"""Learn from a stream: predict each sample when it comes, then learn from it, one at a time.

The target drifts, so the model has to keep learning. Each sample costs one call of a plan that
predicts and learns.

python examples/online_regression.py
"""

from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

SAMPLES, FEATURES = 20_000, 8


class OnlineRegressor:
    """A small network with running normalization of its inputs, all of it state of one plan."""

    def __init__(self, features: int) -> None:
        self.mean = krt.zeros(features)
        self.square = krt.ones(features)
        self.net = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 1))
        self.opt = nn.optim.SGD(nn.parameters(self.net), lr=0.02, momentum=0.5)

    @krt.jit
    def predict_and_learn(self, x, y):
        self.mean.assign(self.mean * 0.999 + x * 0.001)
        self.square.assign(self.square * 0.999 + x * x * 0.001)
        scale = (self.square - self.mean * self.mean + 1e-6).rsqrt()
        prediction = self.net(((x - self.mean) * scale).reshape(1, -1)).reshape(())
        self.opt.zero_grad()
        (prediction - y).square().backward()
        self.opt.step()
        return prediction


def main() -> float:
    krt.manual_seed(0)
    rng = np.random.default_rng(0)
    model = OnlineRegressor(FEATURES)
    weights = rng.standard_normal(FEATURES)
    errors, times = np.empty(SAMPLES), np.empty(SAMPLES)
    for i in range(SAMPLES):
        weights += rng.standard_normal(FEATURES) * 0.002
        x = (rng.standard_normal(FEATURES) * 3 + 1).astype(np.float32)
        y = float(np.tanh(weights @ (x - 1) / 3))
        started = perf_counter()
        prediction = model.predict_and_learn(x, y).item()
        times[i] = perf_counter() - started
        errors[i] = (prediction - y) ** 2
    first, last = float(errors[:1000].mean()), float(errors[-1000:].mean())
    print(f"mean squared error: {first:.4f} over the first 1,000 samples, {last:.4f} over the last")
    print(f"{np.median(times) * 1e6:.1f} us a sample, to predict and to learn")
    return last / first


if __name__ == "__main__":
    main()
