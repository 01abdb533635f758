"""An ensemble of networks, each with a learning rate of its own, trained as one.

`nn.stack_modules` makes one module of 16, whose tensors have a first axis for the members, and the
optimizer takes a rate for each. They learn handwritten digits, each from batches in an order of its
own; an epoch is a `krt.scan` over its batches, so it is one call. Then they vote.

python examples/ensemble.py [--plot]
"""

import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn
from kernelrt.data import digits_split

MEMBERS, EPOCHS, BATCH = 16, 12, 64
RATES = np.logspace(-4.5, -0.5, MEMBERS)


def make_member() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


class Ensemble:
    """The members, and how they learn."""

    def __init__(self, images, labels) -> None:
        self.members = nn.stack_modules(make_member, MEMBERS)
        self.opt = nn.optim.Adam(self.members.parameters(), lr=krt.tensor(RATES).float())
        self.images, self.labels = krt.tensor(images), krt.tensor(labels)

    @krt.jit
    def epoch(self, orders):
        """A step for each of `orders`, of shape (steps, MEMBERS, BATCH): the losses of all."""

        def turn(carry, chosen):
            logits = self.members(self.images[chosen])
            losses = krt.vmap(lambda out, y: out.cross_entropy(y))(logits, self.labels[chosen])
            self.opt.zero_grad()
            losses.sum().backward()  # each member has the gradient of its own loss
            self.opt.step()
            return carry, losses.detach()

        return krt.scan(turn, None, orders)[1].mean(0)

    @krt.jit
    def chances(self, images):
        """What each member thinks of each image, of shape (MEMBERS, images, 10)."""
        with krt.no_grad():
            return self.members(images.expand(MEMBERS, *images.shape)).softmax(-1)


def main(plot: bool = False) -> float:
    krt.manual_seed(0)
    rng = np.random.default_rng(0)
    data = digits_split()
    ensemble = Ensemble(data.train_images.reshape(-1, 64), data.train_labels)
    tests = data.test_images.reshape(-1, 64)
    count = len(data.train_labels)
    steps = count // BATCH
    seconds, losses = [], np.zeros(MEMBERS)
    for epoch in range(EPOCHS):
        orders = np.stack([rng.permutation(count)[: steps * BATCH] for _ in range(MEMBERS)])
        batches = np.ascontiguousarray(orders.reshape(MEMBERS, steps, BATCH).swapaxes(0, 1))
        started = perf_counter()
        losses = ensemble.epoch(batches).numpy()
        seconds.append(perf_counter() - started)
        print(f"\repoch {epoch + 1:2} of {EPOCHS}: the losses of {MEMBERS} members go from "
              f"{losses.min():.4f} to {losses.max():.4f}", end="", flush=True)  # fmt: skip
    chances = ensemble.chances(tests).numpy()
    alone = (chances.argmax(-1) == data.test_labels).mean(1)
    trusted = np.argsort(losses)[: MEMBERS // 2]  # by what they are trained on, not by the test
    together = float((chances[trusted].mean(0).argmax(-1) == data.test_labels).mean())
    everyone = float((chances.mean(0).argmax(-1) == data.test_labels).mean())
    print("\n\nlearning rate   loss  accuracy on the test")
    for rate, loss, accuracy in zip(RATES, losses, alone, strict=True):
        print(f"{rate:13.5f} {loss:6.4f}  {accuracy:6.1%}  {'#' * int(accuracy * 40)}")
    print(f"\nvotes: {together:.1%} by the half with the least losses, {everyone:.1%} by all; "
          f"{alone.max():.1%} has the best alone, which only the test can tell")  # fmt: skip
    usual = float(np.median(seconds)) / steps
    print(f"{usual * 1e6:.0f} us a step of all {MEMBERS}, {usual / MEMBERS * 1e6:.1f} us a member")
    if plot:
        show(alone, together)
    return together


def show(alone: np.ndarray, together: float) -> None:
    import matplotlib.pyplot as plt

    plt.semilogx(RATES, alone, "o-", label="members")
    plt.axhline(together, color="gray", label="the better half together")
    plt.xlabel("learning rate")
    plt.ylabel("accuracy")
    plt.legend()
    plt.show()


if __name__ == "__main__":
    main("--plot" in sys.argv[1:])
