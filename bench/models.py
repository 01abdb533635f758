"""Training steps of medium-sized models, written once for kernelrt and torch.

Tensors of both have the same methods; :class:`Words` holds the functions that differ.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import limits
from bench.cases import OURS, Case, Side
from bench.limits import THREADS
from bench.peers import torch_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.cases import Call

Array = Any
Parameters = dict[str, Any]
LR = 1e-3


@dataclass(frozen=True)
class Words:
    """Functions that the two libraries name or call differently."""

    cat: Callable[..., Array]
    conv2d: Callable[..., Array]
    max_pool2d: Callable[..., Array]
    batch_norm: Callable[..., Array]
    layer_norm: Callable[..., Array]
    upsampled: Callable[..., Array]
    cross_entropy: Callable[..., Array]
    attention: Callable[..., Array]


@dataclass(frozen=True)
class Model:
    """A loss as a function of parameters and a batch.

    Attributes
    ----------
    name, title : str
        Short name, and title in the table.
    shapes : dict
        Shapes of the parameters. A parameter whose name ends in ``bias`` starts at 0, one whose
        name ends in ``gain`` at 1.
    batch : callable
        Returns the arrays of one batch, the same each time.
    loss : callable
        ``(words, parameters, *batch)`` -> scalar.
    decay : float
        Weight decay of AdamW; 0 for Adam.
    aim : float
        See Case.
    products : float
        Number of floating-point operations in the matrix products of a step; 0 if other work takes
        much of the time, too.
    """

    name: str
    title: str
    shapes: dict[str, tuple[int, ...]]
    batch: Callable[[], list[NDArray[Any]]]
    loss: Callable[..., Array]
    decay: float
    aim: float
    products: float = 0.0

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return new parameters, the same each time."""
        rng = np.random.default_rng(1)
        out = {}
        for name, shape in self.shapes.items():
            if name.endswith("bias"):
                out[name] = np.zeros(shape, np.float32)
            elif name.endswith("gain"):
                out[name] = np.ones(shape, np.float32)
            else:
                bound = 1 / math.sqrt(math.prod(shape[1:]))
                out[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
        return out


def _kernelrt_words() -> Words:
    import kernelrt as krt

    def attention(q: Array, k: Array, v: Array) -> Array:
        n, width = q.shape[-2:]
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(width))
        later = krt.ones(n, n).triu(1).cast("bool")
        return scores.masked_fill(later, -math.inf).softmax(-1) @ v

    return Words(
        krt.cat,
        lambda x, w, b=None, **options: x.conv2d(w, b, **options),
        lambda x, size: x.max_pool2d(size),
        lambda x, gain, bias: x.batch_norm(None, None, gain, bias, training=True),
        lambda x, gain, bias: x.layer_norm(gain.shape, gain, bias),
        lambda x, w, b: x.conv_transpose2d(w, b, stride=2, padding=1),
        lambda x, y: x.cross_entropy(y),
        attention,
    )


def _torch_words() -> Words:
    import torch
    import torch.nn.functional as f

    return Words(
        torch.cat,
        f.conv2d,
        f.max_pool2d,
        lambda x, gain, bias: f.batch_norm(x, None, None, gain, bias, training=True),
        lambda x, gain, bias: f.layer_norm(x, gain.shape, gain, bias),
        lambda x, w, b: f.conv_transpose2d(x, w, b, stride=2, padding=1),
        f.cross_entropy,
        lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
    )


def kernelrt_step(model: Model) -> Call:
    """Build a forward, backward and optimizer step of one batch that returns the loss."""
    import kernelrt as krt
    from kernelrt.nn import optim

    words = _kernelrt_words()
    parameters = {
        name: krt.tensor(value).requires_grad_() for name, value in model.weights().items()
    }
    leaves = list(parameters.values())
    optimizer = (
        optim.AdamW(leaves, lr=LR, weight_decay=model.decay)
        if model.decay
        else optim.Adam(leaves, lr=LR)
    )

    @krt.jit
    def step(*batch: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss: krt.Tensor = model.loss(words, parameters, *batch)
        loss.backward()
        optimizer.step()
        return loss

    batch = [krt.tensor(array) for array in model.batch()]
    return lambda: step(*batch).item()


def torch_step(model: Model) -> Call:
    """Build the same step with torch's fused optimizer."""
    import torch

    words = _torch_words()
    parameters = {
        name: torch.from_numpy(value).requires_grad_() for name, value in model.weights().items()
    }
    leaves = list(parameters.values())
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(leaves, lr=LR, weight_decay=model.decay, fused=True)
        if model.decay
        else torch.optim.Adam(leaves, lr=LR, fused=True)
    )
    batch = [torch.from_numpy(array) for array in model.batch()]

    def call() -> object:
        optimizer.zero_grad()
        loss = model.loss(words, parameters, *batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


# ---- The models


def perceptron(sizes: tuple[int, ...], count: int) -> Model:
    """Return an MLP with ReLU and a mean squared error."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        shapes |= {f"{number}.weight": (fan_out, fan_in), f"{number}.bias": (fan_out,)}
    last = len(sizes) - 2

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [
            rng.standard_normal((count, sizes[0]), np.float32),
            rng.standard_normal((count, sizes[-1]), np.float32),
        ]

    def loss(_: Words, p: Parameters, x: Array, y: Array) -> Array:
        for number in range(last + 1):
            x = x @ p[f"{number}.weight"].T + p[f"{number}.bias"]
            x = x.relu() if number < last else x
        return (x - y).square().mean()

    words = "-".join(map(str, sizes))
    # Products per layer: forward, gradient of the weights, and (not in the first) of the inputs.
    each = [2.0 * count * a * b for a, b in itertools.pairwise(sizes)]
    return Model(
        f"mlp-{words}", f"MLP {words}, batch {count}, Adam", shapes, batch, loss, 0.0, 2.1,
        products=3 * sum(each) - each[0],
    )  # fmt: skip


def lstm(steps: int = 32, hidden: int = 64, inputs: int = 32, count: int = 32) -> Model:
    """Return an LSTM with a handwritten cell, unrolled over a sequence."""
    shapes = {
        "input": (4 * hidden, inputs), "hidden": (4 * hidden, hidden), "bias": (4 * hidden,),
        "out": (10, hidden), "out.bias": (10,),
    }  # fmt: skip

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [
            rng.standard_normal((steps, count, inputs), np.float32),
            np.zeros((count, hidden), np.float32),
            rng.integers(0, 10, count),
        ]

    def loss(words: Words, p: Parameters, x: Array, state: Array, y: Array) -> Array:
        h = c = state
        for t in range(steps):
            gates = x[t] @ p["input"].T + h @ p["hidden"].T + p["bias"]
            i, f = gates[:, :hidden].sigmoid(), gates[:, hidden : 2 * hidden].sigmoid()
            g, o = gates[:, 2 * hidden : 3 * hidden].tanh(), gates[:, 3 * hidden :].sigmoid()
            c = f * c + i * g
            h = o * c.tanh()
        return words.cross_entropy(h @ p["out"].T + p["out.bias"], y)

    title = f"LSTM by hand, {steps} steps, hidden {hidden}, batch {count}, Adam"
    return Model("lstm", title, shapes, batch, loss, 0.0, 3.0)


def vae(count: int = 64, latent: int = 16) -> Model:
    """Return a VAE with two strided and two transposed convolutions."""
    shapes = {
        "down1": (16, 1, 4, 4), "down1.bias": (16,), "down2": (32, 16, 4, 4), "down2.bias": (32,),
        "mean": (latent, 1568), "mean.bias": (latent,), "spread": (latent, 1568),
        "spread.bias": (latent,), "back": (1568, latent), "back.bias": (1568,),
        "up1": (32, 16, 4, 4), "up1.bias": (16,), "up2": (16, 1, 4, 4), "up2.bias": (1,),
    }  # fmt: skip

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [
            rng.random((count, 1, 28, 28), np.float32),
            rng.standard_normal((count, latent), np.float32),
        ]

    def loss(words: Words, p: Parameters, x: Array, noise: Array) -> Array:
        h = words.conv2d(x, p["down1"], p["down1.bias"], stride=2, padding=1).relu()
        h = words.conv2d(h, p["down2"], p["down2.bias"], stride=2, padding=1).relu()
        h = h.reshape(count, 1568)
        mean = h @ p["mean"].T + p["mean.bias"]
        spread = h @ p["spread"].T + p["spread.bias"]
        z = mean + (spread * 0.5).exp() * noise
        h = (z @ p["back"].T + p["back.bias"]).relu().reshape(count, 32, 7, 7)
        h = words.upsampled(h, p["up1"], p["up1.bias"]).relu()
        again = words.upsampled(h, p["up2"], p["up2.bias"]).sigmoid()
        off = (again - x).square().sum() / count
        return off + (mean.square() + spread.exp() - 1 - spread).sum() * (0.5 / count)

    return Model("vae", f"VAE 28 x 28, batch {count}, Adam", shapes, batch, loss, 0.0, 2.0)


def resnet(count: int = 64) -> Model:
    """Return a ResNet of three stages with one residual block each, with batch norm."""
    widths = (16, 32, 64)
    shapes: dict[str, tuple[int, ...]] = {"first": (16, 3, 3, 3)}
    wide = 16
    for width in widths:
        shapes |= {
            f"{width}.a": (width, wide, 3, 3), f"{width}.a.gain": (width,),
            f"{width}.a.bias": (width,), f"{width}.b": (width, width, 3, 3),
            f"{width}.b.gain": (width,), f"{width}.b.bias": (width,),
        }  # fmt: skip
        if width != wide:
            shapes[f"{width}.way"] = (width, wide, 1, 1)
        wide = width
    shapes |= {"out": (10, 64), "out.bias": (10,)}

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal((count, 3, 32, 32), np.float32), rng.integers(0, 10, count)]

    def normed(words: Words, p: Parameters, x: Array, name: str) -> Array:
        return words.batch_norm(x, p[f"{name}.gain"], p[f"{name}.bias"])

    def loss(words: Words, p: Parameters, x: Array, y: Array) -> Array:
        x = words.conv2d(x, p["first"], padding=1).relu()
        for width in widths:
            stride = 1 if width == widths[0] else 2
            h = words.conv2d(x, p[f"{width}.a"], stride=stride, padding=1)
            h = normed(words, p, h, f"{width}.a").relu()
            h = normed(words, p, words.conv2d(h, p[f"{width}.b"], padding=1), f"{width}.b")
            if stride == 2:
                x = words.conv2d(x, p[f"{width}.way"], stride=2)
            x = (x + h).relu()
        return words.cross_entropy(x.mean((2, 3)) @ p["out"].T + p["out.bias"], y)

    return Model(
        "resnet-8", f"ResNet-8 32 x 32, batch {count}, Adam", shapes, batch, loss, 0.0, 2.2
    )


def cnn(count: int = 64) -> Model:
    """Return a CNN with two convolutions, a pool and two linear layers on 28 x 28 images."""
    shapes = {
        "a": (32, 1, 3, 3), "a.bias": (32,), "b": (64, 32, 3, 3), "b.bias": (64,),
        "c": (128, 9216), "c.bias": (128,), "d": (10, 128), "d.bias": (10,),
    }  # fmt: skip

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal((count, 1, 28, 28), np.float32), rng.integers(0, 10, count)]

    def loss(words: Words, p: Parameters, x: Array, y: Array) -> Array:
        x = words.conv2d(x, p["a"], p["a.bias"]).relu()
        x = words.max_pool2d(words.conv2d(x, p["b"], p["b.bias"]).relu(), 2)
        x = (x.reshape(count, 9216) @ p["c"].T + p["c.bias"]).relu()
        return words.cross_entropy(x @ p["d"].T + p["d.bias"], y)

    return Model("cnn-28", f"CNN 28 x 28, batch {count}, Adam", shapes, batch, loss, 0.0, 2.3)


def gpt(layers: int = 4, width: int = 128, heads: int = 4, n: int = 64, count: int = 12) -> Model:
    """Return a character-level decoder with learned positions."""
    vocabulary = 65
    shapes: dict[str, tuple[int, ...]] = {"token": (vocabulary, width), "place": (n, width)}
    for number in range(layers):
        shapes |= {
            f"{number}.1.gain": (width,), f"{number}.1.bias": (width,),
            f"{number}.qkv": (3 * width, width), f"{number}.proj": (width, width),
            f"{number}.2.gain": (width,), f"{number}.2.bias": (width,),
            f"{number}.up": (4 * width, width), f"{number}.up.bias": (4 * width,),
            f"{number}.down": (width, 4 * width), f"{number}.down.bias": (width,),
        }  # fmt: skip
    shapes |= {"last.gain": (width,), "last.bias": (width,)}

    def batch() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        return [rng.integers(0, vocabulary, (count, n)), rng.integers(0, vocabulary, (count, n))]

    def split(x: Array) -> Array:
        return x.reshape(count, n, heads, width // heads).transpose(1, 2)

    def loss(words: Words, p: Parameters, tokens: Array, following: Array) -> Array:
        x = p["token"][tokens] + p["place"]
        for k in range(layers):
            h = words.layer_norm(x, p[f"{k}.1.gain"], p[f"{k}.1.bias"]) @ p[f"{k}.qkv"].T
            q, key, v = (split(h[:, :, i * width : (i + 1) * width]) for i in range(3))
            mixed = words.attention(q, key, v).transpose(1, 2).reshape(count, n, width)
            x = x + mixed @ p[f"{k}.proj"].T
            h = words.layer_norm(x, p[f"{k}.2.gain"], p[f"{k}.2.bias"])
            h = h @ p[f"{k}.up"].T + p[f"{k}.up.bias"]
            h = h * (h * 1.702).sigmoid()
            x = x + h @ p[f"{k}.down"].T + p[f"{k}.down.bias"]
        scores = words.layer_norm(x, p["last.gain"], p["last.bias"]) @ p["token"].T
        return words.cross_entropy(
            scores.reshape(count * n, vocabulary), following.reshape(count * n)
        )

    title = f"char GPT {layers} x {width}, context {n}, batch {count}, AdamW"
    return Model("gpt", title, shapes, batch, loss, 0.1, 2.0)


def models() -> tuple[Model, ...]:
    """Return all models."""
    return (
        perceptron((17, 256, 256, 6), 256),
        perceptron((64, 256, 256, 8), 64),
        perceptron((17, 400, 300, 1), 100),
        lstm(),
        vae(),
        resnet(),
        cnn(),
        gpt(),
    )


def case_of(model: Model, threads: int) -> Case:
    """Return a case with both sides; for an MLP, a third side has its products at peak speed."""
    sides = [
        Side(
            OURS,
            functools.partial(kernelrt_step, model),
            functools.partial(limits.our_threads, threads),
        ),
        Side(
            "torch fused",
            functools.partial(torch_step, model),
            functools.partial(torch_side.threads, threads),
            ("torch",),
        ),
    ]
    if model.products:
        make = functools.partial(limits.multiply_adds, model.products / threads)
        sides.append(Side("peak", make, limit=True))
    return Case(
        f"{model.name}-{threads}",
        f"{model.title}, {threads} thread{'s' if threads > 1 else ''}",
        tuple(sides),
        aim=model.aim,
        tolerance=2e-3,
    )


def cases() -> tuple[Case, ...]:
    """Return each model with one and two threads."""
    return tuple(case_of(model, threads) for model in models() for threads in THREADS)
