"""Tensor operations in NumPy, under the names of kernelrt and torch.

``row.call(NUMPY, *(peer(a) for a in arrays))`` computes the call of a row of `tests/surface/tables`
in float64, without torch. A missing operation raises :class:`AttributeError`; unsupported arguments
raise :class:`Lacking`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from surface.rows import Methods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["NUMPY", "Lacking", "Peer", "peer"]

Array = np.ndarray[Any, Any]
Dim = int | tuple[int, ...] | None


class Lacking(AttributeError):  # noqa: N818 - not an error: there is no truth
    """This module cannot compute the true result of a call."""


class Peer(NDArrayOperatorsMixin):
    """An array whose methods have the names and the meaning of a tensor's methods.

    Operators and slices are NumPy's. A missing method raises AttributeError.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array

    def __array_ufunc__(
        self, ufunc: Any, how: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        found = getattr(ufunc, how)(*(_plain(x) for x in inputs), **options)
        if out:  # an operator in place
            out[0].array = found
            return out[0]
        return tuple(map(peer, found)) if isinstance(found, tuple) else peer(found)

    def __contains__(self, value: Any) -> bool:
        return bool((self.array == value).any())

    def __getitem__(self, index: Any) -> Peer:
        return peer(self.array[_plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[_plain(index)] = _plain(value)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.unbind())

    def __round__(self) -> Peer:
        return self.round()

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)
    T = property(lambda self: self.permute(*range(self.ndim)[::-1]))
    mT = property(lambda self: self.transpose(-1, -2))  # noqa: N815 - the name of torch's
    real = property(lambda self: self)

    def div(self, y: Any, rounding_mode: str | None = None) -> Peer:
        rounded: dict[str | None, Callable[[Any], Any]]
        rounded = {None: peer, "trunc": np.trunc, "floor": np.floor}
        return rounded[rounding_mode](self / y)

    def clamp(self, min: Any = None, max: Any = None) -> Peer:  # noqa: A002
        low = self if min is None else np.maximum(self, min)
        return low if max is None else np.minimum(low, max)

    clip = clamp

    def logit(self, eps: float | None = None) -> Peer:
        x = self if eps is None else self.clamp(eps, 1 - eps)
        return np.log(x / (1 - x))

    def prelu(self, weight: Peer) -> Peer:
        axes = (-1,) + (1,) * (self.ndim - 2)
        return self.leaky_relu(weight.reshape(axes if weight.array.size > 1 else ()))

    def gelu(self, approximate: str = "none") -> Peer:
        if approximate == "tanh":
            return 0.5 * self * (1 + np.tanh(math.sqrt(2 / math.pi) * (self + 0.044715 * self**3)))
        return 0.5 * self * _each(math.erfc)(-self / math.sqrt(2))

    def softplus(self, beta: float = 1, threshold: float = 20) -> Peer:
        scaled = beta * self
        return peer(np.where(scaled > threshold, self, np.logaddexp(0, scaled) / beta))

    def glu(self, dim: int = -1) -> Peer:
        left, right = self.chunk(2, dim)
        return left * right.sigmoid()

    def dropout(self, p: float = 0.5, training: bool = True) -> Peer:
        if training and 0 < p < 1:
            raise Lacking
        return self * 0 if training and p else self

    def var(
        self, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: int = 1
    ) -> Peer:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        ddof = correction if unbiased is None else int(unbiased)
        return peer(np.var(self.array, _axes(self, dim), ddof=ddof, keepdims=keepdim))

    def max(self, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Peer):
            return np.maximum(self, dim)
        values = self.amax(dim, keepdim)
        return values if dim is None else (values, self.argmax(dim, keepdim))

    def min(self, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Peer):
            return np.minimum(self, dim)
        values = self.amin(dim, keepdim)
        return values if dim is None else (values, self.argmin(dim, keepdim))

    def norm(self, p: Any = 2, dim: Dim = None, keepdim: bool = False) -> Peer:
        size = np.abs(self)
        if p == "fro":
            p = 2
        if p == math.inf:
            return size.amax(dim, keepdim)
        if p == -math.inf:
            return size.amin(dim, keepdim)
        return (size != 0).sum(dim, keepdim) * 1.0 if p == 0 else (
            (size**p).sum(dim, keepdim) ** (1 / p))  # fmt: skip

    def logsumexp(self, dim: Dim, keepdim: bool = False) -> Peer:
        top = self.amax(dim, True)
        out = np.log(np.exp(self - top).sum(dim, True)) + top
        return out if keepdim else out.amax(dim)

    def sort(self, dim: int = -1, descending: bool = False, **_: bool) -> Any:
        if self.ndim == 0 or descending:
            raise Lacking
        places = peer(np.argsort(self.array, dim, kind="stable"))
        return self.take_along_dim(places, dim), places

    def flatten(self, start: int = 0, end: int = -1) -> Peer:
        start, end = (d % max(self.ndim, 1) for d in (start, end))
        return self.reshape(*self.shape[:start], -1, *self.shape[end + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Peer:
        dim %= self.ndim
        return self.reshape(*self.shape[:dim], *sizes, *self.shape[dim + 1 :])

    def squeeze(self, dim: Dim = None) -> Peer:
        dims = range(self.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
        gone = {d % self.ndim for d in dims if self.shape[d] == 1}
        return self.reshape([n for d, n in enumerate(self.shape) if d not in gone])

    def expand(self, *sizes: int) -> Peer:
        lead = len(sizes) - self.ndim
        shape = [self.shape[i - lead] if n == -1 else n for i, n in enumerate(sizes)]
        return peer(np.broadcast_to(self.array, shape))

    def split(self, size: Any, dim: int = 0) -> tuple[Peer, ...]:
        sizes = (size,) * -(-self.shape[dim] // size) if isinstance(size, int) else size
        return tuple(peer(p) for p in np.split(self.array, np.cumsum(sizes)[:-1], dim))

    split_with_sizes = split

    def pad(self, pad: Sequence[int], mode: str = "constant", value: float = 0) -> Peer:
        if mode != "constant":
            raise Lacking
        pairs = [(0, 0)] * (self.ndim - len(pad) // 2)
        pairs += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
        parts = tuple(slice(max(-lo, 0), n - max(-hi, 0))
                      for (lo, hi), n in zip(pairs, self.shape, strict=True))  # fmt: skip
        grown = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
        return peer(np.pad(self.array[parts], grown, constant_values=value))

    def addmm(self, x: Peer, y: Peer, beta: float = 1, alpha: float = 1) -> Peer:
        return beta * self + alpha * (x @ y)

    addmv = baddbmm = addmm

    def conv(
        self, weight: Peer, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Peer:  # fmt: skip
        """Return the cross-correlation, spelled out."""
        n = weight.ndim - 2
        if self.ndim == n + 1:
            return self[None].conv(weight, bias, stride, padding, dilation, groups)[0]
        steps, gaps = _each_axis(stride, n), _each_axis(dilation, n)
        reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
        if padding == "same":
            pairs = [(r // 2, r - r // 2) for r in reach]
        else:
            pairs = [(p, p) for p in _each_axis(0 if padding == "valid" else padding, n)]
        x, taps = np.pad(self.array, [(0, 0), (0, 0), *pairs]), weight.array
        sizes = [(m - r - 1) // s + 1
                 for m, r, s in zip(x.shape[2:], reach, steps, strict=True)]  # fmt: skip
        out = np.zeros((x.shape[0], weight.shape[0], *sizes))
        per_group = weight.shape[0] // groups
        for o in range(weight.shape[0]):
            first = o // per_group * weight.shape[1]
            for tap in np.ndindex(*weight.shape[2:]):
                places = zip(tap, gaps, steps, sizes, strict=True)
                part = tuple(slice(t * d, t * d + s * m, s) for t, d, s, m in places)
                lines = x[:, first : first + weight.shape[1], *part]
                out[:, o] += np.tensordot(lines, taps[(o, slice(None), *tap)], (1, 0))
        return peer(out) if bias is None else out + bias.reshape(-1, *[1] * n)

    conv1d = conv2d = conv3d = conv

    def conv_transpose(
        self, weight: Peer, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Peer:  # fmt: skip
        """Return the transposed convolution: flipped taps over the zero-stuffed input."""
        n = weight.ndim - 2
        steps, gaps, pads, more = (
            _each_axis(v, n) for v in (stride, dilation, padding, output_padding))
        spread = np.zeros((*self.shape[:2], *(
            (m - 1) * s + 1 for m, s in zip(self.shape[2:], steps, strict=True))))
        spread[(..., *(slice(None, None, s) for s in steps))] = self.array
        reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
        grown = np.pad(spread, [(0, 0), (0, 0), *(
            (r - p, r - p + o) for r, p, o in zip(reach, pads, more, strict=True))])
        parts = weight.array.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        taps = np.flip(parts, tuple(range(3, n + 3))).reshape(-1, *parts.shape[2:])
        return peer(grown).conv(peer(taps), bias, 1, 0, dilation, groups)

    conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose

    def scaled_dot_product_attention(
        self, key: Peer, value: Peer, mask: Any = None, is_causal: bool = False, scale: Any = None
    ) -> Peer:
        scores = self @ key.mT * (scale or self.shape[-1] ** -0.5)
        if is_causal:
            mask = np.tri(*scores.shape[-2:], dtype=bool)
        if mask is not None:
            mask = np.asarray(mask)
            scores = scores + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask)
        # A fully masked query gives zeros.
        return scores.softmax(-1).nan_to_num() @ value

    def pool(
        self, reduce: Callable[..., Array], fill: float, kernel: Any, stride: Any, padding: Any,
        n: int,
    ) -> Peer:  # fmt: skip
        """Reduce each window."""
        taps, pads = _each_axis(kernel, n), _each_axis(padding, n)
        steps = taps if stride is None else _each_axis(stride, n)
        lead = self.shape[: self.ndim - n]
        pairs = [(0, 0)] * len(lead) + [(p, p) for p in pads]
        x = np.pad(self.array, pairs, constant_values=fill)
        sizes = [(m - k) // s + 1 for m, k, s in zip(x.shape[-n:], taps, steps, strict=True)]
        out = np.zeros((*lead, *sizes))
        for at in np.ndindex(*sizes):
            part = tuple(slice(i * s, i * s + k) for i, s, k in zip(at, steps, taps, strict=True))
            out[(..., *at)] = reduce(x[(..., *part)], tuple(range(-n, 0)))
        return peer(out)

    def interpolate(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest"
    ) -> Peer:
        if mode != "nearest":
            raise Lacking
        n, out = self.ndim - 2, self.array
        for axis, given in enumerate(_each_axis(scale_factor if size is None else size, n), 2):
            old = self.shape[axis]
            new = int(old * given) if size is None else given
            step = old / new if size is not None or new == old else 1 / given
            places = np.floor(np.arange(new) * step)
            out = np.take(out, places.astype(int), axis)
        return peer(out)

    def standard(self, axes: tuple[int, ...], eps: float) -> Peer:
        """Normalize to mean 0 and variance 1 along `axes`."""
        return (self - self.mean(axes, True)) / np.sqrt(self.var(axes, False, True) + eps)

    def group_norm(self, groups: int, weight: Any = None, bias: Any = 0, eps: float = 1e-5) -> Peer:
        out = self.reshape(self.shape[0], groups, -1).standard((-1,), eps).reshape(self.shape)
        each = (-1, *[1] * (self.ndim - 2))
        return out if weight is None else out * weight.reshape(each) + bias.reshape(each)

    def batch_norm(
        self, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False
    ) -> Peer:
        each = (-1, *[1] * (self.ndim - 2))
        axes = (0, *range(2, self.ndim))
        out = self.standard(axes, 1e-5) if training else (
            (self - mean.reshape(each)) / np.sqrt(var.reshape(each) + 1e-5))  # fmt: skip
        return out if weight is None else out * weight.reshape(each) + bias.reshape(each)

    def huber_loss(self, y: Any, reduction: str = "mean", delta: float = 1) -> Peer:
        apart = np.abs(self - y)
        inside, outside = 0.5 * apart**2, delta * (apart - 0.5 * delta)
        return _reduced(peer(np.where(apart < delta, inside, outside)), reduction)

    def smooth_l1_loss(self, y: Any, reduction: str = "mean", beta: float = 1) -> Peer:
        if beta == 0:
            return self.l1_loss(y, reduction)
        return self.huber_loss(y, reduction, beta) / beta

    def binary_cross_entropy_with_logits(
        self, y: Any, weight: Any = 1, reduction: str = "mean", pos_weight: Any = 1
    ) -> Peer:
        losses = -pos_weight * y * self.logsigmoid() - (1 - y) * (-self).logsigmoid()
        return _reduced(weight * losses, reduction)

    def kl_div(self, y: Any, reduction: str = "mean", log_target: bool = False) -> Peer:
        losses = np.exp(y) * (y - self) if log_target else y * np.log(y) - y * self
        return _reduced(losses, reduction)

    def nll_loss(
        self, labels: Any, weight: Any = None, reduction: str = "mean", ignore_index: int = -100
    ) -> Peer:
        axis = 1 if self.ndim > 1 else 0
        labels = peer(labels)
        picked = self.take_along_dim(labels.unsqueeze(axis), axis).squeeze(axis)
        each = peer(np.ones(self.shape[axis]) if weight is None else weight)[labels]
        each = each * (labels != ignore_index)
        total = (-picked * each).sum() / each.sum()
        return total if reduction == "mean" else _reduced(-picked * each, reduction)

    def cross_entropy(
        self, labels: Peer, weight: Any = None, reduction: str = "mean", ignore_index: int = -100,
        label_smoothing: float = 0,
    ) -> Peer:  # fmt: skip
        if labels.dtype.kind == "f" or (label_smoothing and weight is not None):
            raise Lacking
        logs = self.log_softmax(1 if self.ndim > 1 else 0)
        hard = logs.nll_loss(labels, weight, reduction, ignore_index)
        if not label_smoothing:
            return hard
        even = _reduced(-logs.mean(1) * (labels != ignore_index), reduction)
        return (1 - label_smoothing) * hard + label_smoothing * even

    def _at(self, dim: int, index: Peer) -> tuple[Array, ...]:
        """Return the positions of the elements that `index` names along an axis."""
        return tuple(index.array if d == dim % self.ndim else places
                     for d, places in enumerate(np.indices(index.shape)))  # fmt: skip

    def _as_vector(self) -> Peer:
        return self if self.ndim else self.reshape(1)

    def gather(self, dim: int, index: Peer) -> Peer:
        if not (self.ndim and index.ndim):
            x, places = self._as_vector(), index._as_vector()
            return x[x._at(dim, places)].reshape(index.shape)
        return self[self._at(dim, index)]

    def scatter_add(self, dim: int, index: Peer, y: Peer) -> Peer:
        if not (self.ndim and index.ndim and y.ndim):
            found = self._as_vector().scatter_add(dim, index._as_vector(), y._as_vector())
            return found.reshape(self.shape)
        out = self.clone()
        np.add.at(out.array, self._at(dim, index), y.array[tuple(map(slice, index.shape))])
        return out

    def scatter(self, dim: int, index: Peer, y: Any = None, *, value: Any = None) -> Peer:
        if not (self.ndim and index.ndim):
            places = index._as_vector()
            return self._as_vector().scatter(dim, places, y, value=value).reshape(self.shape)
        out = self.clone()
        out[self._at(dim, index)] = value if y is None else y
        return out

    def index_add(self, dim: int, index: Peer, y: Peer, alpha: float = 1) -> Peer:
        if self.ndim == 0:
            raise Lacking
        out = self.clone()
        part = (slice(None),) * (dim % self.ndim)
        np.add.at(out.array, (*part, index.array), alpha * y.array)
        return out

    def index_fill(self, dim: int, index: Peer, value: Any) -> Peer:
        if self.ndim == 0:
            raise Lacking
        out = self.clone()
        out[(slice(None),) * dim + (index,)] = value
        return out

    def embedding(self, weight: Peer, padding_idx: int | None = None) -> Peer:
        if padding_idx is not None:
            raise Lacking("padding_idx: NumPy has no gradients, so none can be left out there")
        return weight[self]


def peer(value: Any) -> Peer:
    """Return an array or a number as a :class:`Peer`."""
    return value if isinstance(value, Peer) else Peer(np.array(value))


def _plain(value: Any) -> Any:
    """Replace peers by their arrays, also in containers."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    return value.array if isinstance(value, Peer) else value


def _axes(x: Peer, dim: Any) -> Any:
    """Return axes in NumPy's form; a scalar has the axis 0, too."""
    return None if x.ndim == 0 else tuple(dim) if isinstance(dim, list) else dim


def _last(shape: Any) -> tuple[int, ...]:
    """Return the numbers of the last axes, as many as a shape has."""
    return tuple(range(-np.size(shape), 0))


def _each_axis(value: Any, n: int) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value] * n


def _reduced(losses: Any, reduction: str) -> Peer:
    how: dict[str, Callable[[Peer], Peer]] = {
        "none": peer, "sum": Peer.sum, "mean": Peer.mean,
        "batchmean": lambda x: x.sum() / x.shape[0],
    }  # fmt: skip
    return how[reduction](losses)


def _each(function: Callable[[float], float]) -> Callable[[Any], Peer]:
    """Return a function of the C library that takes arrays."""
    return lambda x: peer(np.vectorize(function, otypes=[np.float64])(_plain(x)))


def _max_pool(n: int) -> Callable[..., Peer]:
    return lambda x, kernel, stride=None, padding=0: x.pool(
        np.max, -np.inf, kernel, stride, padding, n)


def _avg_pool(n: int) -> Callable[..., Peer]:
    def pool(
        x: Peer, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Peer:  # fmt: skip
        if ceil_mode:
            raise Lacking
        if count_include_pad:
            return x.pool(np.mean, 0, kernel, stride, padding, n)
        return x.pool(np.nanmean, np.nan, kernel, stride, padding, n)

    return pool


#: Implementations of methods.
METHODS: dict[str, Callable[..., Any]] = {
    # elements
    "add": lambda x, y, alpha=1: x + alpha * y,
    "sub": lambda x, y, alpha=1: x - alpha * y,
    "rsub": lambda x, y, alpha=1: y - alpha * x,
    "clamp_min": lambda x, low: x.clamp(low),
    "clamp_max": lambda x, high: x.clamp(max=high),
    "lerp": lambda x, end, weight: x + weight * (end - x),
    "addcmul": lambda x, y, z, value=1: x + value * y * z,
    "addcdiv": lambda x, y, z, value=1: x + value * y / z,
    "where": lambda x, condition, y: np.where(condition, x.array, y),
    "masked_fill": lambda x, mask, value: np.where(mask, value, x),
    "xlogy": lambda x, y: x * np.log(y),
    "xlog1py": lambda x, y: x * np.log1p(y),
    "isclose": lambda x, y, rtol=1e-05, atol=1e-08, **nan: np.isclose(x, y, rtol, atol, **nan),
    "round": lambda x, decimals=0: np.round(x.array, decimals),
    "nan_to_num": lambda x, nan=0.0, *ends: np.nan_to_num(x.array, True, nan, *ends),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "frac": lambda x: x - np.trunc(x),
    "double": lambda x: x.array.astype(np.float64),
    "long": lambda x: x.array.astype(np.int64),
    "bool": lambda x: x.array.astype(bool),
    # activations
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: x.clamp(0, 6),
    "hardtanh": lambda x, min_val=-1, max_val=1: x.clamp(min_val, max_val),
    "hardsigmoid": lambda x: (x / 6 + 0.5).clamp(0, 1),
    "hardswish": lambda x: x * x.hardsigmoid(),
    "hardshrink": lambda x, lambd=0.5: x * (np.abs(x) > lambd),
    "softshrink": lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    "tanhshrink": lambda x: x - np.tanh(x),
    "threshold": lambda x, threshold, value: np.where(x > threshold, x, value),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x),
    "elu": lambda x, alpha=1: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "celu": lambda x, alpha=1: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "selu": lambda x: 1.0507009873554804934193 * x.elu(1.6732632423543772848170),
    "silu": lambda x: x * x.sigmoid(),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    # reductions
    "sum": lambda x, dim=None, keepdim=False: np.sum(x.array, _axes(x, dim), keepdims=keepdim),
    "mean": lambda x, dim=None, keepdim=False: np.mean(x.array, _axes(x, dim), keepdims=keepdim),
    "prod": lambda x, dim=None, keepdim=False: np.prod(x.array, _axes(x, dim), keepdims=keepdim),
    "std": lambda x, *args, **options: np.sqrt(x.var(*args, **options)),
    "amax": lambda x, dim=None, keepdim=False: np.max(x.array, _axes(x, dim), keepdims=keepdim),
    "amin": lambda x, dim=None, keepdim=False: -(-x).amax(dim, keepdim),
    "argmax": lambda x, dim=None, keepdim=False: (
        np.argmax(x.array, _axes(x, dim), keepdims=keepdim)),
    "argmin": lambda x, dim=None, keepdim=False: (-x).argmax(dim, keepdim),
    "any": lambda x, dim=None, keepdim=False: np.any(x.array, _axes(x, dim), keepdims=keepdim),
    "all": lambda x, dim=None, keepdim=False: np.all(x.array, _axes(x, dim), keepdims=keepdim),
    "count_nonzero": lambda x, dim=None: (x != 0).sum(dim),
    "nansum": lambda x, dim=None, keepdim=False: x.nan_to_num().sum(dim, keepdim),
    "log_softmax": lambda x, dim: x - x.logsumexp(dim, True),
    "softmax": lambda x, dim: np.exp(x.log_softmax(dim)),
    "softmin": lambda x, dim: (-x).softmax(dim),
    "cumsum": lambda x, dim: peer(np.cumsum(x.array, dim)).reshape(x.shape),
    "cumprod": lambda x, dim: np.cumprod(x.array, dim),
    "diff": lambda x, n=1, dim=-1: np.diff(x.array, n, dim),
    "logcumsumexp": lambda x, dim: np.log(np.exp(x).cumsum(dim)),
    "argsort": lambda x, dim=-1, **how: x.sort(dim, **how)[1],
    "msort": lambda x: x.sort(0)[0],
    # movement
    "reshape": lambda x, *shape: x.array.reshape(*shape),
    "view_as": lambda x, like: x.reshape(like.shape),
    "ravel": lambda x: x.reshape(-1),
    "unsqueeze": lambda x, dim: np.expand_dims(x.array, dim),
    "permute": lambda x, *dims: (
        np.transpose(x.array, dims[0] if dims and isinstance(dims[0], tuple) else dims)),
    "transpose": lambda x, a, b: np.swapaxes(x.array, a, b),
    "movedim": lambda x, source, target: np.moveaxis(x.array, source, target),
    "t": lambda x: x.T,
    "broadcast_to": lambda x, shape: np.broadcast_to(x.array, shape),
    "expand_as": lambda x, like: x.broadcast_to(like.shape),
    "repeat": lambda x, *times: np.tile(x.array, times),
    "tile": lambda x, *times: np.tile(x.array, times[0] if isinstance(times[0], tuple) else times),
    "repeat_interleave": lambda x, times, dim=None: np.repeat(x.array, times, dim),
    "flip": lambda x, *dims: np.flip(x.array, dims[0] if isinstance(dims[0], tuple) else dims),
    "roll": lambda x, shifts, dims=None: np.roll(x.array, shifts, dims),
    "narrow": lambda x, dim, start, length: np.take(x.array, range(start, start + length), dim),
    "chunk": lambda x, chunks, dim=0: x.split(-(-x.shape[dim] // chunks), dim),
    "unbind": lambda x, dim=0: tuple(np.moveaxis(x.array, dim, 0)),
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x.array, offset, dim1, dim2),
    "contiguous": lambda x: x.array.copy(),
    # products
    "matmul": lambda x, y: np.matmul(x.array, y),
    "outer": lambda x, y: x[:, None] * y,
    "linear": lambda x, weight, bias=0: x @ weight.T + bias,
    # normalization and losses
    "layer_norm": lambda x, shape, weight=1, bias=0, eps=1e-05: (
        x.standard(_last(shape), eps) * weight + bias),
    "rms_norm": lambda x, shape, weight=1, eps=1e-05: (
        x / np.sqrt((x**2).mean(_last(shape), True) + eps) * weight),
    "mse_loss": lambda x, y, reduction="mean": _reduced((x - y) ** 2, reduction),
    "l1_loss": lambda x, y, reduction="mean": _reduced(np.abs(x - y), reduction),
    "binary_cross_entropy": lambda x, y, weight=1, reduction="mean": (
        _reduced(-weight * (y * np.log(x) + (1 - y) * np.log(1 - x)), reduction)),
    # index operands
    "take_along_dim": lambda x, index, dim: np.take_along_axis(x.array, index.array, dim),
    "index_select": lambda x, dim, index: np.take(x.array, index.array, dim),
    "one_hot": lambda x, classes: (x[..., None] == np.arange(classes)).long(),
}  # fmt: skip

#: NumPy functions of the same name and meaning.
SAME = """
    negative absolute abs sign exp exp2 expm1 log log2 log10 log1p sqrt reciprocal square sin cos
    tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh floor ceil trunc isnan isinf
    isfinite logical_not logical_and logical_or logical_xor maximum minimum fmax fmin fmod
    remainder floor_divide true_divide power float_power arctan2 hypot copysign signbit logaddexp
    logaddexp2 heaviside nextafter gcd lcm sinc deg2rad rad2deg fix isposinf isneginf isreal
    positive multiply bitwise_and bitwise_or bitwise_xor greater greater_equal less less_equal
    equal not_equal tril triu fliplr flipud diagflat trace kron inner i0 conj rot90 tensordot diag
"""

#: Other names of methods.
ALSO = {
    "neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2", "sgn": "sign", "pow": "power",
    "mul": "multiply", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "view": "reshape", "reshape_as": "view_as",
    "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim", "clone": "contiguous",
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "vdot": "matmul",
    "ger": "outer",
}  # fmt: skip


def _method(function: Callable[..., Any], *, plain: bool) -> Callable[..., Any]:
    """Return a method that returns peers; `plain` if the function takes arrays."""

    def call(*args: Any, **options: Any) -> Any:
        found = function(*(_plain(args) if plain else args), **options)
        return tuple(map(peer, found)) if isinstance(found, tuple) else peer(found)

    return call


for _name in SAME.split():
    setattr(Peer, _name, _method(getattr(np, _name), plain=True))
for _name in ("erf", "erfc", "lgamma"):
    setattr(Peer, _name, _each(getattr(math, _name)))
for _name, _function in METHODS.items():
    setattr(Peer, _name, _method(_function, plain=False))
for _name, _other in ALSO.items():
    setattr(Peer, _name, getattr(Peer, _other))
for _n in (1, 2, 3):
    setattr(Peer, f"max_pool{_n}d", _max_pool(_n))
    setattr(Peer, f"avg_pool{_n}d", _avg_pool(_n))


class _Linalg:
    """Functions of numpy.linalg, and norms."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ("inv", "det", "cholesky", "eigvalsh", "svdvals", "matrix_power",
                        "pinv", "cond", "slogdet", "matmul", "vecdot", "cross"):  # fmt: skip
            raise AttributeError(name)
        return _method(getattr(np.linalg, name), plain=True)

    def solve(self, a: Peer, b: Peer, left: bool = True) -> Peer:
        if not left:
            return self.solve(a.mT, b.mT).mT
        if b.ndim == a.ndim - 1:
            return self.solve(a, b[..., None])[..., 0]
        return peer(np.linalg.solve(a.array, b.array))

    def solve_triangular(
        self, a: Peer, b: Peer, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Peer:
        part = np.triu(a.array) if upper else np.tril(a.array)
        if unitriangular:
            np.einsum("...ii->...i", part)[...] = 1
        return self.solve(peer(part), b, left)

    def vector_norm(self, x: Peer, *args: Any, **options: Any) -> Peer:
        return x.norm(*args, **options)

    def matrix_norm(
        self, x: Peer, order: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False
    ) -> Peer:
        rows, columns = (d % x.ndim for d in dim)
        moved = np.moveaxis(x.array, (rows, columns), (-2, -1))
        if order in ("nuc", 2, -2):
            values = np.linalg.svdvals(moved)
            found = {"nuc": values.sum(-1), 2: values.max(-1), -2: values.min(-1)}[order]
        elif order == "fro":
            found = np.sqrt((moved**2).sum((-2, -1)))
        else:
            sums = np.abs(moved).sum(-2 if abs(order) == 1 else -1)
            found = sums.max(-1) if order > 0 else sums.min(-1)
        return peer(np.expand_dims(found, (rows, columns)) if keepdim else found)

    def norm(self, x: Peer, order: Any = None, dim: Any = None, keepdim: bool = False) -> Peer:
        pair = dim if isinstance(dim, tuple) else (-2, -1) if x.ndim == 2 else None
        if order is not None and pair is not None and not isinstance(dim, int):
            return self.matrix_norm(x, order, pair, keepdim)
        return x.norm(2 if order is None else order, dim, keepdim)


class _Library(Methods):
    """NumPy under the names of torch and kernelrt."""

    __name__ = "numpy"
    float64, int64, bool = np.float64, np.int64, np.bool_
    linalg = _Linalg()

    def __init__(self) -> None:
        self.nn = self
        self.functional = Methods()

    def where(self, condition: Any, x: Any, y: Any) -> Peer:
        return peer(np.where(*_plain((condition, x, y))))

    def cat(self, parts: Sequence[Peer], dim: int = 0) -> Peer:
        kept = [part for part in _plain(list(parts)) if part.shape != (0,)]
        return peer(np.concatenate(kept, dim))

    concat = concatenate = cat

    def stack(self, parts: Sequence[Peer], dim: int = 0) -> Peer:
        return peer(np.stack(_plain(parts), dim))

    hstack, vstack, dstack, row_stack, column_stack = (
        staticmethod(_method(function, plain=True))
        for function in (np.hstack, np.vstack, np.dstack, np.vstack, np.column_stack))

    def meshgrid(self, *parts: Any, indexing: str) -> tuple[Peer, ...]:
        lines = _plain(parts[0] if isinstance(parts[0], list) else parts)
        return tuple(map(peer, np.meshgrid(*lines, indexing=indexing)))

    def einsum(self, equation: str, *operands: Any) -> Peer:
        if not all(isinstance(x, Peer) for x in operands) or equation == "...i->i":
            raise Lacking
        return peer(np.einsum(equation, *_plain(operands)))

    def tensor(self, data: Any, dtype: Any = None) -> Peer:
        return peer(np.array(data, dtype))

    def eye(self, n: int, dtype: Any) -> Peer:
        return peer(np.eye(n, dtype=dtype))

    def arange(self, n: int, dtype: Any = None) -> Peer:
        return peer(np.arange(n, dtype=dtype))


NUMPY = _Library()
