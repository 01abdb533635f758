"""Epochs over data in memory: in one call, in loops over batches, and their kernels alone."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.networks import DIGITS
from bench.peers import kernelrt_side, torch_side

if TYPE_CHECKING:
    from bench.cases import Call

EPOCHS = 10
#: A tiny learning rate: weights that fit the data give subnormal numbers, which are slow. With
#: weights that hardly change, all epochs take the same time.
NETWORK = replace(DIGITS, lr=1e-6)
SEED = 3


@functools.cache
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return rows of pixels and their labels."""
    from kernelrt.data import digits_split

    split = digits_split()
    return split.train_images.reshape(-1, 64), split.train_labels


def steps() -> int:
    """Return the number of steps of an epoch."""
    return len(digits()[1]) // NETWORK.batch


def _step() -> Any:
    """Return the jitted step of the shared model, with its initial state.

    All sides train the same model. If gradients stay zero for long, momentum becomes subnormal,
    which is slow. Sides that are timed in turns should all meet such numbers, or none.
    """
    from kernelrt import nn

    step, root, initial = _trained()
    nn.load_state_dict(root, initial)
    return step


@functools.cache
def _trained() -> tuple[Any, object, dict[str, np.ndarray[Any, Any]]]:
    """Return the step, the state that it trains, and the initial values of that state."""
    import kernelrt as krt
    from kernelrt import nn

    model = kernelrt_side.model_of(NETWORK)
    optimizer = nn.optim.Adam(nn.parameters(model), lr=NETWORK.lr)
    root = [model, optimizer]
    initial = {name: value.numpy().copy() for name, value in nn.state_dict(root).items()}

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss: krt.Tensor = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    return step, root, initial


def whole(*, epochs: int = EPOCHS, shuffle: bool = True) -> Call:
    """Build all epochs in one call."""
    step = _step()
    x, y = digits()

    def call() -> object:
        return step.over(
            x, y, batch_size=NETWORK.batch, shuffle=shuffle, seed=SEED, epochs=epochs,
            drop_last=True,
        ).numpy()  # fmt: skip

    return call


def loop() -> Call:
    """Build a call of the jitted step for each batch."""
    from kernelrt.data import batches

    step = _step()
    x, y = digits()

    def call() -> object:
        feed = batches(x, y, batch_size=NETWORK.batch, shuffle=True, seed=SEED, drop_last=True)
        losses = [step(*batch) for _ in range(EPOCHS) for batch in feed]
        return np.stack([loss.numpy() for loss in losses])

    return call


def kernels(*, epochs: int = EPOCHS) -> Call:
    """Build one launch table with the kernels of all steps of an epoch, and nothing else."""
    from kernelrt._dispatch import FOLLOWS, PlanCore

    step = _step()
    batch, data = NETWORK.batch, digits()
    plan = step.plan(*(part[:batch] for part in data))
    held = [b.numpy() for b in plan.buffers]
    sites = [
        plan.sites(next(
            i for i, b in enumerate(held)
            if b.dtype == part.dtype and np.array_equal(b, part[:batch].ravel())
        ))
        for part in data
    ]  # fmt: skip
    rows = []
    for first in range(0, batch * steps(), batch):
        ops = [[*row[:8], (), 0] for row in plan._rows()]  # noqa: SLF001 - run serially
        for op in ops:
            op[6] &= ~FOLLOWS
        for part, places in zip(data, sites, strict=True):
            for op, slot, offset in places:
                ops[op][2] = list(ops[op][2])
                ops[op][2][slot] = part[first:].ctypes.data + offset
        rows += [tuple(op) for op in ops]
    core = PlanCore(rows)
    core.set_threads(1)

    def call() -> object:
        for _ in range(epochs):
            core.execute()
        return plan, data  # keeps their memory alive

    return call


def torch_loop(*, fused: bool) -> Call:
    """Build a PyTorch loop over batches, whose orders are computed beforehand."""
    import torch
    from torch import nn

    from kernelrt.data import batches

    model = torch_side.model_of(NETWORK)
    optimizer = torch.optim.Adam(model.parameters(), lr=NETWORK.lr, fused=fused)
    loss_of = nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in digits())
    places = np.arange(len(y))
    feed = batches(places, batch_size=NETWORK.batch, shuffle=True, seed=SEED, drop_last=True)
    orders = [torch.from_numpy(rows) for _ in range(EPOCHS) for rows in feed]

    def call() -> object:
        losses = []
        for rows in orders:
            optimizer.zero_grad()
            loss = loss_of(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).numpy()

    return call


def cases() -> tuple[Case, ...]:
    """Return cases over epochs of the digits."""
    sides = (
        Side(OURS, whole),
        Side("the kernels alone", kernels, limit=True),
        Side("a loop of calls", loop),
        *(
            Side(
                f"torch{' fused' if fused else ''}, {n} thread{'s' if n > 1 else ''}",
                functools.partial(torch_loop, fused=fused),
                functools.partial(torch_side.threads, n),
                ("torch",),
            )
            for n in (1, 2)
            for fused in (False, True)
        ),
    )
    title = f"digits MLP 64-128-10, a step of {EPOCHS} epochs in one call"
    beside_kernels = (
        Case(
            f"digits-{epochs}-epoch-{'shuffled' if shuffle else 'in-order'}",
            f"the same, epochs in one call: {epochs}, {'shuffled' if shuffle else 'in order'}",
            (
                Side(OURS, functools.partial(whole, epochs=epochs, shuffle=shuffle), alone),
                Side("the kernels alone", functools.partial(kernels, epochs=epochs), limit=True),
            ),
            unit=epochs * steps(),
        )
        for alone in (functools.partial(kernelrt_side.threads, 1),)
        for epochs in (1, EPOCHS)
        for shuffle in (False, True)
    )
    return (Case("digits-epochs", title, sides, unit=EPOCHS * steps()), *beside_kernels)
