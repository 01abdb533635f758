"""``kernelrt digits``: trains on the embedded digits and prints the time it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import kernelrt as krt
from kernelrt import nn
from kernelrt.data import digits_split
from kernelrt.runtime import kernels
from kernelrt.runtime.profiler import table
from kernelrt.util.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kernelrt.data import DigitsSplit

__all__ = ["run"]

PROFILED_STEPS = 200
ROWS = 12


def mlp() -> nn.Module:
    """Return the default network: 64-128-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> nn.Module:
    """Return the network of ``--cnn``: two convolutions, pooling, dropout, one linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(512, 10),
    )


class Trainer:
    """A model, its optimizer, and the jitted functions for training and testing."""

    def __init__(self, model: nn.Module, lr: float, threads: int | None) -> None:
        self.model = model
        self.optimizer = nn.optim.Adam(nn.parameters(model), lr=lr)
        self.step = krt.jit(self._step, threads=threads)
        self.predict = krt.jit(self._predict, threads=threads)

    def _step(self, x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        self.optimizer.zero_grad()
        loss: krt.Tensor = self.model(x).cross_entropy(y)
        loss.backward()
        self.optimizer.step()
        return loss

    def _predict(self, x: krt.Tensor) -> krt.Tensor:
        classes: krt.Tensor = self.model(x).argmax(-1)
        return classes

    def accuracy(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        """Return the share of `images` that are classified correctly."""
        self.model.eval()
        try:
            return float((self.predict(images).numpy() == labels).mean())
        finally:
            self.model.train()


@dataclass
class Timing:
    """The times of a training run, in seconds."""

    first_step: float = 0.0
    compiling: float = 0.0
    steps: list[float] = field(default_factory=list)

    @property
    def per_step(self) -> float:
        """Median seconds of a step, without the first step."""
        return float(np.median(self.steps)) if self.steps else self.first_step


def batches(
    split: DigitsSplit, batch: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield the training data once in a random order, without an incomplete last batch."""
    order = rng.permutation(len(split.train_labels))
    for start in range(0, len(order) - batch + 1, batch):
        chosen = order[start : start + batch]
        yield split.train_images[chosen], split.train_labels[chosen]


def train(trainer: Trainer, split: DigitsSplit, options: argparse.Namespace) -> Timing:
    """Run all epochs."""
    with Progress(None, options.epochs, unit="epoch") as progress:
        return _train(trainer, split, options, progress)


def _train(
    trainer: Trainer, split: DigitsSplit, options: argparse.Namespace, progress: Progress
) -> Timing:
    timing = Timing()
    rng = np.random.default_rng(options.seed)
    started = perf_counter()
    for epoch in range(options.epochs):
        loss = None
        for x, y in batches(split, options.batch, rng):
            before = perf_counter()
            loss = trainer.step(x, y)
            after = perf_counter()
            if timing.first_step:
                timing.steps.append(after - before)
            else:
                timing.first_step = after - started
                timing.compiling = kernels.seconds
        if loss is not None and progress.shown:
            progress.show(epoch + 1, f"loss {loss.item():.4f}")
    return timing


def run(options: argparse.Namespace) -> int:
    """Train, test, and print the results."""
    started = perf_counter()
    split = digits_split()
    if options.batch > len(split.train_labels):
        raise krt.ShapeError(
            f"--batch: expected at most {len(split.train_labels)} images, not {options.batch}"
        )
    krt.manual_seed(options.seed)
    name = "a CNN" if options.cnn else "an MLP 64-128-10"
    print(
        f"training {name} on {len(split.train_labels):,} digits, batch {options.batch}, "
        f"Adam, {options.epochs} epoch{'s' if options.epochs > 1 else ''}",
        flush=True,
    )
    trainer = Trainer(cnn() if options.cnn else mlp(), options.lr, options.threads)
    built = perf_counter() - started
    timing = train(trainer, split, options)
    accuracy = trainer.accuracy(split.test_images, split.test_labels)
    right = round(accuracy * len(split.test_labels))
    took = perf_counter() - started
    for label, text in (
        ("test accuracy", f"{accuracy:.1%} ({right} of {len(split.test_labels)} held-out images)"),
        ("first step", f"{built + timing.first_step:.2f} s, {_compiling(timing)}"),
        ("steps", f"{1 / timing.per_step:,.0f} a second ({timing.per_step * 1e6:.0f} us each)"),
        ("all", f"{took:.1f} s for {len(timing.steps) + 1:,} steps"),
    ):
        print(f"  {label:<14} {text}")
    if not options.no_profile:
        print("\nwhere the time of a step goes\n")
        print(profile(trainer, split, options.batch))
    return 0


def _compiling(timing: Timing) -> str:
    return f"of which compiling {timing.compiling:.2f} s ({kernels.compiled} kernels so far)"


def profile(trainer: Trainer, split: DigitsSplit, batch: int) -> str:
    """Run further steps, and return the table of their kernels."""
    x, y = split.train_images[:batch], split.train_labels[:batch]
    found = [p for _ in range(PROFILED_STEPS) for p in trainer.step.profile(x, y)]
    return table(found, limit=ROWS)
