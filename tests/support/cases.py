"""One table of operations: each line serves tests of values, types, gradients and peers.

A case is a function that works on Tensors and, where the names are equal, on torch's; what NumPy
makes of the same inputs in float64 is the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """An operation on float inputs.

    Attributes
    ----------
    name : str
        Test id.
    op : callable
        On Tensors.
    truth : callable
        On float64 arrays.
    shapes : tuple of tuple of int
        Of the inputs.
    low, high : float
        The interval that inputs are drawn from.
    grad : bool
        Whether gradients are tested.
    peer : callable or None
        On torch tensors; `op` itself where it is ``"same"``.
    scale : float
        By how much the tolerance is larger than a few units in the last place.
    """

    name: str
    op: Callable[..., Any]
    truth: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 5),)
    low: float = -2.0
    high: float = 2.0
    grad: bool = True
    peer: Any = "same"
    scale: float = 1.0

    def inputs(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng([seed, *map(ord, self.name)])
        return [rng.uniform(self.low, self.high, s) for s in self.shapes]

    def __str__(self) -> str:
        return self.name


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def lse(x: Array, axis: Any, keepdims: bool = False) -> Array:
    return np.log(np.exp(x).sum(axis, keepdims=keepdims))


def torch_f() -> Any:
    import torch.nn.functional as f

    return f


ROW, PLANE, CUBE = ((5,),), ((3, 5),), ((2, 3, 4),)
PAIR = ((3, 5), (3, 5))
SPREAD = ((2, 3, 5), (3, 1))

UNARY = [
    Case("neg", lambda x: -x, lambda x: -x),
    Case("abs", lambda x: x.abs(), np.abs),
    Case("sign", lambda x: x.sign(), np.sign, grad=False),
    Case("exp", lambda x: x.exp(), np.exp),
    Case("exp2", lambda x: x.exp2(), np.exp2, scale=4),
    Case("log", lambda x: x.log(), np.log, low=0.1, high=9),
    Case("log2", lambda x: x.log2(), np.log2, low=0.1, high=9),
    Case("log10", lambda x: x.log10(), np.log10, low=0.1, high=9),
    Case("log1p", lambda x: x.log1p(), np.log1p, low=-0.9),
    Case("log1p_near_zero", lambda x: x.log1p(), np.log1p, low=-1e-6, high=1e-6),
    Case("expm1", lambda x: x.expm1(), np.expm1),
    Case("expm1_near_zero", lambda x: x.expm1(), np.expm1, low=-1e-6, high=1e-6),
    Case("sqrt", lambda x: x.sqrt(), np.sqrt, low=0.1, high=9),
    Case("rsqrt", lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x), low=0.1, high=9),
    Case("reciprocal", lambda x: x.reciprocal(), lambda x: 1 / x, low=0.2),
    Case("square", lambda x: x.square(), np.square),
    Case("sin", lambda x: x.sin(), np.sin),
    Case("cos", lambda x: x.cos(), np.cos),
    Case("tan", lambda x: x.tan(), np.tan, low=-1, high=1, scale=4),
    Case("asin", lambda x: x.asin(), np.arcsin, low=-0.9, high=0.9),
    Case("acos", lambda x: x.acos(), np.arccos, low=-0.9, high=0.9),
    Case("atan", lambda x: x.atan(), np.arctan, low=-4, high=4),
    Case("sinh", lambda x: x.sinh(), np.sinh),
    Case("cosh", lambda x: x.cosh(), np.cosh),
    Case("tanh", lambda x: x.tanh(), np.tanh),
    Case("asinh", lambda x: x.asinh(), np.arcsinh, low=-4, high=4),
    Case("acosh", lambda x: x.acosh(), np.arccosh, low=1.1, high=9, scale=2),
    Case("atanh", lambda x: x.atanh(), np.arctanh, low=-0.9, high=0.9, scale=2),
    Case("erf", lambda x: x.erf(), erf),
    Case("floor", lambda x: x.floor(), np.floor, grad=False),
    Case("ceil", lambda x: x.ceil(), np.ceil, grad=False),
    Case("trunc", lambda x: x.trunc(), np.trunc, grad=False),
    Case("round", lambda x: x.round(), np.round, grad=False),
    Case("sigmoid", lambda x: x.sigmoid(), sigmoid),
    Case("relu", lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    Case("clamp", lambda x: x.clamp(-0.5, 1), lambda x: np.clip(x, -0.5, 1)),
    Case("clamp_min", lambda x: x.clamp(min=0.25), lambda x: np.maximum(x, 0.25)),
    Case("pow_2", lambda x: x**2, lambda x: x**2),
    Case("pow_3", lambda x: x**3, lambda x: x**3),
    Case("pow_half", lambda x: x**0.5, np.sqrt, low=0.1),
    Case("pow_minus_1", lambda x: x**-1, lambda x: 1 / x, low=0.2),
    Case("pow_number", lambda x: x**2.5, lambda x: x**2.5, low=0.1, scale=4),
    Case("number_pow", lambda x: 2.5**x, lambda x: 2.5**x, scale=4),
    Case("number_minus", lambda x: 3 - x, lambda x: 3 - x),
    Case("number_over", lambda x: 3 / x, lambda x: 3 / x, low=0.2),
    Case("masked_fill", lambda x: x.masked_fill(x > 0, 7.0), lambda x: np.where(x > 0, 7, x)),
]

f = torch_f
ACTIVATIONS = [
    Case("leaky_relu", lambda x: x.leaky_relu(0.1), lambda x: np.where(x > 0, x, 0.1 * x),
         peer=lambda x: f().leaky_relu(x, 0.1)),
    Case("elu", lambda x: x.elu(), lambda x: np.where(x > 0, x, np.expm1(x)),
         peer=lambda x: f().elu(x)),
    Case("silu", lambda x: x.silu(), lambda x: x * sigmoid(x), peer=lambda x: f().silu(x)),
    Case("logsigmoid", lambda x: x.logsigmoid(), lambda x: np.log(sigmoid(x)),
         peer=lambda x: f().logsigmoid(x)),
    Case("gelu", lambda x: x.gelu(), lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
         peer=lambda x: f().gelu(x)),
    Case("gelu_tanh", lambda x: x.gelu("tanh"),
         lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
         peer=lambda x: f().gelu(x, approximate="tanh"), scale=2),
    Case("softplus", lambda x: x.softplus(), lambda x: np.log1p(np.exp(x)),
         peer=lambda x: f().softplus(x)),
    Case("softplus_beta", lambda x: x.softplus(3.0, 2.0),
         lambda x: np.where(3 * x > 2, x, np.log1p(np.exp(3 * x)) / 3),
         peer=lambda x: f().softplus(x, 3.0, 2.0), scale=2),
    Case("mish", lambda x: x.mish(), lambda x: x * np.tanh(np.log1p(np.exp(x))),
         peer=lambda x: f().mish(x), scale=2),
    Case("softsign", lambda x: x.softsign(), lambda x: x / (1 + np.abs(x)),
         peer=lambda x: f().softsign(x)),
    Case("relu6", lambda x: x.relu6(), lambda x: np.clip(x, 0, 6), high=8,
         peer=lambda x: f().relu6(x)),
    Case("hardswish", lambda x: x.hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), low=-5,
         high=5, peer=lambda x: f().hardswish(x), scale=2),
]  # fmt: skip

BINARY = [
    Case("add", lambda x, y: x + y, np.add, PAIR),
    Case("sub", lambda x, y: x - y, np.subtract, PAIR),
    Case("mul", lambda x, y: x * y, np.multiply, PAIR),
    Case("div", lambda x, y: x / y, np.divide, PAIR, low=0.3),
    Case("add_alpha", lambda x, y: x.add(y, alpha=0.5), lambda x, y: x + 0.5 * y, PAIR),
    Case("pow", lambda x, y: x**y, np.power, PAIR, low=0.2, scale=6),
    Case("atan2", lambda x, y: x.atan2(y), np.arctan2, PAIR, scale=2),
    Case("maximum", lambda x, y: x.maximum(y), np.maximum, PAIR),
    Case("minimum", lambda x, y: x.minimum(y), np.minimum, PAIR),
    Case("floor_divide", lambda x, y: x // y, lambda x, y: np.floor(x / y), PAIR, low=0.3,
         grad=False),
    Case("remainder", lambda x, y: x % y, lambda x, y: x - np.floor(x / y) * y, PAIR, low=0.3,
         grad=False, scale=4),
    Case("lerp", lambda x, y: x.lerp(y, 0.3), lambda x, y: x + 0.3 * (y - x), PAIR),
    Case("broadcast_add", lambda x, y: x + y, np.add, SPREAD),
    Case("broadcast_mul", lambda x, y: x * y, np.multiply, SPREAD),
    Case("broadcast_sub_reversed", lambda x, y: y - x, lambda x, y: y - x, SPREAD),
    Case("broadcast_scalar", lambda x, y: x * y, np.multiply, ((2, 3), ())),
    Case("broadcast_both", lambda x, y: x / y, np.divide, ((4, 1), (1, 5)), low=0.3),
    Case("reused", lambda x, y: x * y + x / y + x, lambda x, y: x * y + x / y + x, PAIR, low=0.3),
]  # fmt: skip

REDUCE = [
    Case("sum", lambda x: x.sum(), np.sum, CUBE),
    Case("sum_0", lambda x: x.sum(0), lambda x: x.sum(0), CUBE),
    Case("sum_last", lambda x: x.sum(-1), lambda x: x.sum(-1), CUBE),
    Case("sum_keepdim", lambda x: x.sum((0, 2), keepdim=True),
         lambda x: x.sum((0, 2), keepdims=True), CUBE),
    Case("mean", lambda x: x.mean(), np.mean, CUBE),
    Case("mean_axes", lambda x: x.mean((0, 1)), lambda x: x.mean((0, 1)), CUBE),
    Case("prod", lambda x: x.prod(1), lambda x: x.prod(1), CUBE, scale=2),
    Case("var", lambda x: x.var(1), lambda x: x.var(1, ddof=1), CUBE, scale=4),
    Case("var_population", lambda x: x.var((0, 2), correction=0),
         lambda x: x.var((0, 2)), CUBE, scale=4),
    Case("std", lambda x: x.std(-1, keepdim=True),
         lambda x: x.std(-1, ddof=1, keepdims=True), CUBE, scale=4),
    Case("amax", lambda x: x.amax((0, 2)), lambda x: x.max((0, 2)), CUBE),
    Case("amin", lambda x: x.amin(1, keepdim=True), lambda x: x.min(1, keepdims=True), CUBE),
    Case("max", lambda x: x.max(), np.max, CUBE),
    Case("max_values", lambda x: x.max(1)[0], lambda x: x.max(1), CUBE),
    Case("min_values", lambda x: x.min(-1, keepdim=True)[0],
         lambda x: x.min(-1, keepdims=True), CUBE),
    Case("norm", lambda x: x.norm(dim=1), lambda x: np.sqrt((x * x).sum(1)), CUBE),
    Case("logsumexp", lambda x: x.logsumexp(1), lambda x: lse(x, 1), CUBE, scale=2),
    Case("softmax", lambda x: x.softmax(-1), softmax, CUBE, scale=2),
    Case("softmax_middle", lambda x: x.softmax(1), lambda x: softmax(x, 1), CUBE, scale=2),
    Case("log_softmax", lambda x: x.log_softmax(-1), lambda x: np.log(softmax(x)), CUBE, scale=2),
    Case("cumsum", lambda x: x.cumsum(1), lambda x: x.cumsum(1), CUBE, scale=2),
    Case("cumsum_long", lambda x: x.cumsum(0), lambda x: x.cumsum(0), ((150, 2),), scale=20),
    Case("chained", lambda x: (x - x.mean(-1, keepdim=True)).square().sum(0).exp().sum(),
         lambda x: np.exp(((x - x.mean(-1, keepdims=True)) ** 2).sum(0)).sum(), CUBE, low=-1,
         high=1, scale=8),
]  # fmt: skip


def tril(x: Array, k: int = 0) -> Array:
    return np.tril(x, k)


MOVEMENT = [
    Case("reshape", lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1), CUBE),
    Case("flatten", lambda x: x.flatten(1), lambda x: x.reshape(2, 12), CUBE),
    Case("unflatten", lambda x: x.unflatten(2, (2, 2)), lambda x: x.reshape(2, 3, 2, 2), CUBE),
    Case("squeeze", lambda x: x.squeeze(1), lambda x: x.squeeze(1), ((3, 1, 2),)),
    Case("unsqueeze", lambda x: x.unsqueeze(-1), lambda x: x[..., None], CUBE),
    Case("permute", lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1), CUBE),
    Case("transpose", lambda x: x.transpose(0, -1), lambda x: x.swapaxes(0, 2), CUBE),
    Case("T", lambda x: x.T, lambda x: x.T, PLANE),
    Case("mT", lambda x: x.mT, lambda x: x.swapaxes(1, 2), CUBE),
    Case("movedim", lambda x: x.movedim(0, 2), lambda x: np.moveaxis(x, 0, 2), CUBE),
    Case("expand", lambda x: x.expand(4, -1, 5), lambda x: np.broadcast_to(x, (4, 3, 5)),
         ((3, 1),)),
    Case("repeat", lambda x: x.repeat(2, 3), lambda x: np.tile(x, (2, 3)), PLANE),
    Case("repeat_interleave", lambda x: x.repeat_interleave(3, 0), lambda x: x.repeat(3, 0),
         PLANE),
    Case("flip", lambda x: x.flip(0, 2), lambda x: np.flip(x, (0, 2)), CUBE),
    Case("roll", lambda x: x.roll(2, 1), lambda x: np.roll(x, 2, 1), CUBE),
    Case("narrow", lambda x: x.narrow(2, 1, 2), lambda x: x[..., 1:3], CUBE),
    Case("diagonal", lambda x: x.diagonal(), np.diagonal, PLANE),
    Case("tril", lambda x: x.tril(), tril, PLANE),
    Case("triu", lambda x: x.triu(1), lambda x: np.triu(x, 1), CUBE),
    Case("pad", lambda x: x.pad((1, 2, 0, 3)), lambda x: np.pad(x, ((0, 3), (1, 2))), PLANE,
         peer=lambda x: f().pad(x, (1, 2, 0, 3))),
    Case("pad_value", lambda x: x.pad((1, 0), value=-3.0),
         lambda x: np.pad(x, ((0, 0), (1, 0)), constant_values=-3), PLANE,
         peer=lambda x: f().pad(x, (1, 0), value=-3.0)),
    Case("pad_negative", lambda x: x.pad((-1, 2)), lambda x: np.pad(x[:, 1:], ((0, 0), (0, 2))),
         PLANE, peer=lambda x: f().pad(x, (-1, 2))),
    Case("split", lambda x: x.split(2, 1)[1] * 2, lambda x: x[:, 2:4] * 2, PLANE),
    Case("chunk", lambda x: x.chunk(2, 1)[0] + 1, lambda x: x[:, :3] + 1, PLANE),
    Case("index_int", lambda x: x[1], lambda x: x[1], CUBE),
    Case("index_negative", lambda x: x[..., -1], lambda x: x[..., -1], CUBE),
    Case("index_slice", lambda x: x[:, 1:, ::2], lambda x: x[:, 1:, ::2], CUBE),
    Case("index_none", lambda x: x[None, :, 1, None], lambda x: x[None, :, 1, None], CUBE),
    Case("contiguous", lambda x: x.T.contiguous() * 2, lambda x: x.T * 2, PLANE),
    Case("chain_of_views", lambda x: x.permute(2, 0, 1).reshape(4, 6)[1:3].T * 2,
         lambda x: x.transpose(2, 0, 1).reshape(4, 6)[1:3].T * 2, CUBE),
]  # fmt: skip

MATMUL = [
    Case("matmul", lambda x, y: x @ y, np.matmul, ((3, 5), (5, 4)), scale=2),
    Case("matmul_large", lambda x, y: x @ y, np.matmul, ((33, 65), (65, 17)), scale=20),
    Case("matmul_transposed", lambda x, y: x.T @ y.T, lambda x, y: x.T @ y.T, ((5, 3), (4, 5)),
         scale=2),
    Case("matmul_batch", lambda x, y: x @ y, np.matmul, ((2, 3, 5), (2, 5, 4)), scale=2),
    Case("matmul_spread", lambda x, y: x @ y, np.matmul, ((2, 1, 3, 5), (4, 5, 2)), scale=2),
    Case("matmul_vector", lambda x, y: x @ y, np.matmul, ((3, 5), (5,)), scale=2),
    Case("vector_matmul", lambda x, y: x @ y, np.matmul, ((5,), (2, 5, 3)), scale=2),
    Case("dot", lambda x, y: x.dot(y), np.dot, ((7,), (7,)), scale=2),
    Case("outer", lambda x, y: x.outer(y), np.outer, ((3,), (4,))),
    Case("matmul_one_row", lambda x, y: x @ y, np.matmul, ((1, 5), (5, 1)), scale=2),
    Case("linear", lambda x, w, b: x.linear(w, b).relu(),
         lambda x, w, b: np.maximum(x @ w.T + b, 0), ((4, 5), (3, 5), (3,)), scale=2,
         peer=lambda x, w, b: f().linear(x, w, b).relu()),
    Case("two_layers", lambda x, w, v: (x @ w).tanh() @ v,
         lambda x, w, v: np.tanh(x @ w) @ v, ((4, 5), (5, 6), (6, 2)), scale=4),
]  # fmt: skip


def conv(x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Cross-correlation of (batch, in, height, width), spelled out."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    out_channels, per_group, *taps = w.shape
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], taps, stride, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], out_channels, *sizes))
    for o in range(out_channels):
        first = o // (out_channels // groups) * per_group
        for i in range(sizes[0]):
            for j in range(sizes[1]):
                rows = slice(i * stride[0], i * stride[0] + dilation[0] * taps[0], dilation[0])
                columns = slice(j * stride[1], j * stride[1] + dilation[1] * taps[1], dilation[1])
                patch = x[:, first : first + per_group, rows, columns]
                out[:, o, i, j] = (patch * w[o]).sum((1, 2, 3))
    return out


def conv_case(name: str, x: Any, w: Any, stride: Any = (1, 1), padding: Any = (0, 0),
              dilation: Any = (1, 1), groups: int = 1) -> Case:  # fmt: skip
    return Case(
        name, lambda x, w: x.conv2d(w, None, stride, padding, dilation, groups),
        lambda x, w: conv(x, w, stride, padding, dilation, groups), (x, w), scale=4,
        peer=lambda x, w: f().conv2d(x, w, None, stride, padding, dilation, groups),
    )  # fmt: skip


def pool(x: Array, reduce: Any, kernel: Any, stride: Any, padding: int, fill: float) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    sizes = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            y, z = i * stride[0], j * stride[1]
            out[..., i, j] = reduce(x[..., y : y + kernel[0], z : z + kernel[1]], (2, 3))
    return out


IMAGES = ((2, 2, 6, 7),)
WINDOWS = [
    conv_case("conv2d", (2, 3, 6, 5), (4, 3, 3, 3)),
    conv_case("conv2d_1x1", (2, 3, 4, 5), (4, 3, 1, 1)),
    conv_case("conv2d_padding", (2, 3, 6, 5), (4, 3, 3, 3), padding=(1, 1)),
    conv_case("conv2d_stride", (2, 2, 7, 6), (3, 2, 3, 2), stride=(2, 3)),
    conv_case("conv2d_dilation", (1, 2, 7, 8), (3, 2, 2, 3), dilation=(3, 2)),
    conv_case("conv2d_groups", (2, 4, 5, 5), (6, 2, 3, 3), groups=2),
    conv_case("conv2d_depthwise", (2, 3, 5, 5), (3, 1, 3, 3), padding=(1, 1), groups=3),
    conv_case("conv2d_all", (2, 4, 9, 8), (4, 2, 3, 2), (2, 1), (2, 1), (1, 2), 2),
    conv_case("conv2d_whole", (2, 3, 3, 3), (2, 3, 3, 3)),
    Case("conv2d_bias", lambda x, w, b: x.conv2d(w, b),
         lambda x, w, b: conv(x, w, (1, 1), (0, 0), (1, 1), 1) + b[:, None, None],
         ((1, 2, 4, 4), (3, 2, 2, 2), (3,)), peer=lambda x, w, b: f().conv2d(x, w, b), scale=4),
    Case("conv2d_same", lambda x, w: x.conv2d(w, padding="same"),
         lambda x, w: conv(x, w, (1, 1), (1, 1), (1, 1), 1), ((1, 2, 4, 4), (3, 2, 3, 3)),
         peer=lambda x, w: f().conv2d(x, w, padding="same"), scale=4),
    Case("conv1d", lambda x, w: x.conv1d(w, stride=2, padding=1),
         lambda x, w: conv(x[:, :, None], w[:, :, None], (1, 2), (0, 1), (1, 1), 1)[:, :, 0],
         ((2, 3, 8), (4, 3, 3)), peer=lambda x, w: f().conv1d(x, w, stride=2, padding=1),
         scale=4),
    Case("max_pool2d", lambda x: x.max_pool2d(2),
         lambda x: pool(x, np.max, (2, 2), (2, 2), 0, 0), IMAGES,
         peer=lambda x: f().max_pool2d(x, 2)),
    Case("max_pool2d_overlap", lambda x: x.max_pool2d((3, 2), stride=(2, 1)),
         lambda x: pool(x, np.max, (3, 2), (2, 1), 0, 0), IMAGES,
         peer=lambda x: f().max_pool2d(x, (3, 2), (2, 1))),
    Case("max_pool2d_padding", lambda x: x.max_pool2d(3, 2, 1),
         lambda x: pool(x, np.max, (3, 3), (2, 2), 1, -np.inf), IMAGES,
         peer=lambda x: f().max_pool2d(x, 3, 2, 1)),
    Case("avg_pool2d", lambda x: x.avg_pool2d(2),
         lambda x: pool(x, np.mean, (2, 2), (2, 2), 0, 0), IMAGES,
         peer=lambda x: f().avg_pool2d(x, 2)),
    Case("interpolate", lambda x: x.interpolate(scale_factor=2),
         lambda x: x.repeat(2, -1).repeat(2, -2), IMAGES,
         peer=lambda x: f().interpolate(x, scale_factor=2)),
    Case("interpolate_to", lambda x: x.interpolate((6, 3)),
         lambda x: x[..., np.arange(6) * x.shape[2] // 6, :][
             ..., np.arange(3) * x.shape[3] // 3], IMAGES,
         peer=lambda x: f().interpolate(x, (6, 3))),
    Case("avg_pool2d_padding", lambda x: x.avg_pool2d(3, 2, 1),
         lambda x: pool(x, np.mean, (3, 3), (2, 2), 1, 0), IMAGES,
         peer=lambda x: f().avg_pool2d(x, 3, 2, 1)),
    Case("avg_pool2d_without_pad", lambda x: x.avg_pool2d(3, 2, 1, count_include_pad=False),
         lambda x: pool(x, np.nanmean, (3, 3), (2, 2), 1, np.nan), IMAGES,
         peer=lambda x: f().avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    Case("conv_pool_relu", lambda x, w: x.conv2d(w, padding=1).relu().max_pool2d(2).sum((2, 3)),
         lambda x, w: pool(np.maximum(conv(x, w, (1, 1), (1, 1), (1, 1), 1), 0), np.max, (2, 2),
                           (2, 2), 0, 0).sum((2, 3)),
         ((2, 1, 6, 6), (3, 1, 3, 3)), scale=8,
         peer=lambda x, w: f().max_pool2d(f().conv2d(x, w, padding=1).relu(), 2).sum((2, 3))),
]  # fmt: skip


def layer_norm(x: Array, w: Array | float = 1.0, b: Array | float = 0.0) -> Array:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * w + b


def group_norm(x: Array, groups: int) -> Array:
    y = x.reshape(x.shape[0], groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape)


LABELS = np.array([1, 0, 3, 3, 2])
GRID_LABELS = np.array([[1, 0, 3], [2, 2, 0]])


def cross_entropy(x: Array, labels: Array, smooth: float = 0.0) -> Array:
    logp = np.log(softmax(x))
    picked = logp[np.arange(len(labels)), labels]
    return -(1 - smooth) * picked - smooth * logp.mean(-1)


def as_peer(labels: Array) -> Any:
    import torch

    return torch.from_numpy(labels)


CLASS_WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25])
SCORES = ((5, 4),)
LOSSES = [
    Case("layer_norm", lambda x: x.layer_norm(5), layer_norm, PLANE, scale=16,
         peer=lambda x: f().layer_norm(x, (5,))),
    Case("layer_norm_affine", lambda x, w, b: x.layer_norm((5,), w, b), layer_norm,
         ((2, 3, 5), (5,), (5,)), scale=16,
         peer=lambda x, w, b: f().layer_norm(x, (5,), w, b)),
    Case("group_norm", lambda x: x.group_norm(2), lambda x: group_norm(x, 2), ((3, 4, 5),),
         scale=16, peer=lambda x: f().group_norm(x, 2)),
    Case("rms_norm", lambda x: x.rms_norm(5, eps=1e-5),
         lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5), PLANE, scale=8,
         peer=lambda x: f().rms_norm(x, (5,), eps=1e-5)),
    Case("batch_norm", lambda x, w, b: x.batch_norm(None, None, w, b, training=True),
         lambda x, w, b: group_norm(x.swapaxes(0, 1), 1).swapaxes(0, 1) * w[:, None] + b[:, None],
         ((4, 3, 5), (3,), (3,)), scale=16,
         peer=lambda x, w, b: f().batch_norm(x, None, None, w, b, training=True)),
    Case("cross_entropy", lambda x: x.cross_entropy(LABELS),
         lambda x: cross_entropy(x, LABELS).mean(), SCORES, scale=4,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS))),
    Case("cross_entropy_none", lambda x: x.cross_entropy(LABELS, reduction="none"),
         lambda x: cross_entropy(x, LABELS), SCORES, scale=4,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS), reduction="none")),
    Case("cross_entropy_sum", lambda x: x.cross_entropy(LABELS, reduction="sum"),
         lambda x: cross_entropy(x, LABELS).sum(), SCORES, scale=8,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS), reduction="sum")),
    Case("cross_entropy_smooth", lambda x: x.cross_entropy(LABELS, label_smoothing=0.2),
         lambda x: cross_entropy(x, LABELS, 0.2).mean(), SCORES, scale=8,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS), label_smoothing=0.2)),
    Case("cross_entropy_grid", lambda x: x.cross_entropy(GRID_LABELS),
         lambda x: cross_entropy(x.swapaxes(1, 2).reshape(6, 4), GRID_LABELS.reshape(6)).mean(),
         ((2, 4, 3),), scale=4, peer=lambda x: f().cross_entropy(x, as_peer(GRID_LABELS))),
    Case("cross_entropy_weight", lambda x: x.cross_entropy(LABELS, CLASS_WEIGHTS),
         lambda x: (cross_entropy(x, LABELS) * CLASS_WEIGHTS[LABELS]).sum()
         / CLASS_WEIGHTS[LABELS].sum(), SCORES, scale=8,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS),
                                          as_peer(CLASS_WEIGHTS).to(x.dtype))),
    Case("cross_entropy_ignore", lambda x: x.cross_entropy(LABELS, ignore_index=3),
         lambda x: cross_entropy(x, LABELS)[LABELS != 3].mean(), SCORES, scale=4,
         peer=lambda x: f().cross_entropy(x, as_peer(LABELS), ignore_index=3)),
    Case("nll_loss", lambda x: x.log_softmax(-1).nll_loss(LABELS),
         lambda x: cross_entropy(x, LABELS).mean(), SCORES, scale=4,
         peer=lambda x: f().nll_loss(x.log_softmax(-1), as_peer(LABELS))),
    Case("mse_loss", lambda x, y: x.mse_loss(y), lambda x, y: ((x - y) ** 2).mean(), PAIR,
         scale=2, peer=lambda x, y: f().mse_loss(x, y)),
    Case("l1_loss", lambda x, y: x.l1_loss(y, "sum"), lambda x, y: np.abs(x - y).sum(), PAIR,
         scale=4, peer=lambda x, y: f().l1_loss(x, y, reduction="sum")),
    Case("huber_loss", lambda x, y: x.huber_loss(y, delta=0.7),
         lambda x, y: np.where(np.abs(x - y) < 0.7, 0.5 * (x - y) ** 2,
                               0.7 * (np.abs(x - y) - 0.35)).mean(), PAIR, scale=4,
         peer=lambda x, y: f().huber_loss(x, y, delta=0.7)),
    Case("smooth_l1_loss", lambda x, y: x.smooth_l1_loss(y, beta=0.7),
         lambda x, y: np.where(np.abs(x - y) < 0.7, 0.5 * (x - y) ** 2 / 0.7,
                               np.abs(x - y) - 0.35).mean(), PAIR, scale=4,
         peer=lambda x, y: f().smooth_l1_loss(x, y, beta=0.7)),
    Case("bce", lambda x, y: x.sigmoid().binary_cross_entropy(y.sigmoid()),
         lambda x, y: (np.log1p(np.exp(x)) - x * sigmoid(y)).mean(), PAIR, scale=4,
         peer=lambda x, y: f().binary_cross_entropy(x.sigmoid(), y.sigmoid())),
    Case("bce_with_logits", lambda x, y: x.binary_cross_entropy_with_logits(y.sigmoid()),
         lambda x, y: (np.log1p(np.exp(x)) - x * sigmoid(y)).mean(), PAIR, scale=4,
         peer=lambda x, y: f().binary_cross_entropy_with_logits(x, y.sigmoid())),
    Case("kl_div", lambda x, y: x.log_softmax(-1).kl_div(y.softmax(-1), "sum"),
         lambda x, y: (softmax(y) * (np.log(softmax(y)) - np.log(softmax(x)))).sum(), PAIR,
         scale=16, peer=lambda x, y: f().kl_div(x.log_softmax(-1), y.softmax(-1),
                                               reduction="sum")),
]  # fmt: skip

INDEX = np.array([[0, 2, 1], [2, 2, 0]])
INDEXING = [
    Case("index_tensor", lambda x: x[np.array([2, 0, 2])], lambda x: x[[2, 0, 2]], PLANE,
         peer=lambda x: x[[2, 0, 2]]),
    Case("index_tensor_negative", lambda x: x[:, np.array([-1, 0])], lambda x: x[:, [-1, 0]],
         CUBE, peer=lambda x: x[:, [-1, 0]]),
    Case("index_tensors", lambda x: x[[0, 1, 1], [2, 0, 0]], lambda x: x[[0, 1, 1], [2, 0, 0]],
         CUBE),
    Case("index_tensors_apart", lambda x: x[[0, 1], :, [3, 0]], lambda x: x[[0, 1], :, [3, 0]],
         CUBE),
    Case("index_tensor_matrix", lambda x: x[INDEX], lambda x: x[INDEX], PLANE,
         peer=lambda x: x[as_peer(INDEX)]),
    Case("index_mixed", lambda x: x[1, [0, 2], 1:3], lambda x: x[1, [0, 2], 1:3], CUBE),
    Case("gather", lambda x: x.gather(1, _tensor(x, INDEX)),
         lambda x: np.take_along_axis(x[:2], INDEX, 1), PLANE),
    Case("gather_0", lambda x: x.gather(0, _tensor(x, INDEX)),
         lambda x: np.take_along_axis(x[:, :3], INDEX, 0), PLANE),
    Case("take_along_dim", lambda x: x.take_along_dim(_tensor(x, INDEX[:, :1]), 0),
         lambda x: np.take_along_axis(x, INDEX[:, :1], 0), PLANE),
    Case("index_select", lambda x: x.index_select(1, _tensor(x, INDEX[1])),
         lambda x: x[:, [2, 2, 0]], CUBE),
    Case("scatter_add", lambda x, y: x.scatter_add(1, _tensor(x, INDEX), y),
         lambda x, y: scatter_add(x, INDEX, y), ((2, 5), (2, 3))),
    Case("embedding", lambda w: _tensor(w, INDEX).embedding(w), lambda w: w[INDEX], ((3, 4),),
         peer=lambda w: f().embedding(as_peer(INDEX), w)),
    Case("where", lambda x, y: _where(x > y, x, y * 2), lambda x, y: np.where(x > y, x, y * 2),
         PAIR),
]  # fmt: skip


def scatter_add(x: Array, index: Array, y: Array) -> Array:
    out = x.copy()
    np.add.at(out, (np.arange(len(index))[:, None], index), y)
    return out


def _tensor(like: Any, data: Array) -> Any:
    """`data` as a tensor of the library of `like`."""
    if type(like).__module__.startswith("torch"):
        return as_peer(np.ascontiguousarray(data))
    import kernelrt

    return kernelrt.tensor(data)


def _where(condition: Any, x: Any, y: Any) -> Any:
    if type(x).__module__.startswith("torch"):
        import torch

        return torch.where(condition, x, y)
    import kernelrt

    return kernelrt.where(condition, x, y)


CASES = [*UNARY, *ACTIVATIONS, *BINARY, *REDUCE, *MOVEMENT, *MATMUL, *WINDOWS, *LOSSES, *INDEXING]
