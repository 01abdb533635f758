"""Row-wise operations, reductions along either axis, copies, functions of a million numbers."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.limits import Work, cases_of, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.cases import Case

ROWS = ((1024, 1024), (64, 50000), (128, 128), (32, 10))
#: Shapes whose rows fit into no cache.
LONG = ((8, 2_000_000), (1, 16_000_000))
SQUARE = (4096, 4096)
MILLION = 1_000_000
FLOAT = 4


def _nn() -> Any:
    import jax.nn

    return jax.nn


def _functional() -> Any:
    import torch.nn.functional

    return torch.nn.functional


def _jnp() -> Any:
    import jax.numpy

    return jax.numpy


def _labelled(rows: int, classes: int) -> Callable[[], list[NDArray[Any]]]:
    def make() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        scores = rng.standard_normal((rows, classes), np.float32)
        return [scores, rng.integers(0, classes, rows)]

    return make


def _jax_cross_entropy(x: Any, y: Any) -> Any:
    chosen = _jnp().take_along_axis(_nn().log_softmax(x, axis=-1), y[:, None], axis=1)
    return -chosen.mean()


def _jax_layer_norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / _jnp().sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


def over_rows(rows: int, n: int) -> tuple[Work, ...]:
    """Return softmax and similar operations on one shape."""
    shape = f"{rows} x {n}"
    name = f"{rows}x{n}"
    moved = 2 * FLOAT * rows * n
    return (
        Work(
            f"softmax-{name}", f"softmax {shape}", normal((rows, n)),
            lambda x: x.softmax(-1), lambda x: x.softmax(-1),
            lambda x: _nn().softmax(x, axis=-1), copied=moved, aim=1.5,
        ),
        Work(
            f"log-softmax-{name}", f"log-softmax {shape}", normal((rows, n)),
            lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1),
            lambda x: _nn().log_softmax(x, axis=-1), copied=moved, aim=1.5,
        ),
        Work(
            f"cross-entropy-{name}", f"cross entropy with gradient {shape}", _labelled(rows, n),
            lambda x, y: x.cross_entropy(y), lambda x, y: _functional().cross_entropy(x, y),
            _jax_cross_entropy, gradient=True, copied=moved, aim=1.5,
        ),
        Work(
            f"layer-norm-{name}", f"layer norm with gradient {shape}",
            normal((rows, n), (n,), (n,)),
            lambda x, w, b: x.layer_norm((n,), w, b),
            lambda x, w, b: _functional().layer_norm(x, (n,), w, b),
            _jax_layer_norm, gradient=True, copied=2 * moved, aim=1.5,
        ),
    )  # fmt: skip


def _log_sum_exp(x: Any) -> Any:
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


def statistics(rows: int, n: int) -> tuple[Work, ...]:
    """Return statistics of rows that depend on another reduction of the row."""
    shape, name = f"{rows} x {n}", f"{rows}x{n}"
    # A copy that reads half as much and writes it moves the same number of bytes.
    moved = FLOAT * rows * n
    return (
        Work(
            f"logsumexp-{name}", f"logsumexp of {shape}", normal((rows, n)),
            lambda x: x.logsumexp(-1), lambda x: x.logsumexp(-1),
            lambda x: _nn().logsumexp(x, axis=-1), _log_sum_exp, copied=moved, aim=1.5,
        ),
        Work(
            f"var-{name}", f"variance of {shape}", normal((rows, n)),
            lambda x: x.var(-1), lambda x: x.var(-1),
            lambda x: x.var(-1, ddof=1), lambda x: x.var(-1, ddof=1), copied=moved, aim=1.5,
            tolerance=1e-3,
        ),
    )  # fmt: skip


def reductions() -> tuple[Work, ...]:
    """Return sums, maxima and their indices; a transpose, and sums of two arrays."""
    out: list[Work] = []
    half = FLOAT * SQUARE[0] * SQUARE[1]
    for axis, words in ((0, "along axis 0"), (1, "along axis 1"), (None, "whole")):
        where = () if axis is None else (axis,)
        for name, ours, theirs in (
            ("sum", "sum", "sum"), ("max", "amax", "max"), ("argmax", "argmax", "argmax")
        ):  # fmt: skip
            out.append(
                Work(
                    f"{name}-{'whole' if axis is None else axis}",
                    f"{name} of 4096 x 4096 {words}",
                    normal(SQUARE),
                    lambda x, ours=ours, where=where: getattr(x, ours)(*where),
                    lambda x, ours=ours, where=where: getattr(x, ours)(*where),
                    lambda x, theirs=theirs, axis=axis: getattr(x, theirs)(axis=axis),
                    lambda x, theirs=theirs, axis=axis: getattr(x, theirs)(axis=axis),
                    # A copy that reads half as much and writes it moves as many bytes.
                    copied=half, aim=1.0, tolerance=1e-3,
                )
            )  # fmt: skip
    out.append(
        Work(
            "transpose", "transpose of 4096 x 4096", normal(SQUARE),
            lambda x: x.T.contiguous(), lambda x: x.T.contiguous(), lambda x: x.T + 0,
            lambda x: np.ascontiguousarray(x.T), copied=2 * half, aim=1.0,
        )
    )  # fmt: skip
    for count, word in ((MILLION, "1M"), (16 * MILLION, "16M")):
        out.append(
            Work(
                f"add-{word}", f"a + b of {word}", normal((count,), (count,)),
                *[lambda a, b: a + b] * 4, copied=3 * FLOAT * count, aim=1.0,
            )
        )  # fmt: skip
    return tuple(out)


#: Searches and maxima by type, on one thread: name, axis (None for the whole tensor), types.
SEARCHES = (
    ("argmax", 1, ("float32", "float64", "int32", "int64", "uint8")),
    ("argmin", None, ("float64", "uint8")),
    ("max", 1, ("float32", "int64")),
    ("cumsum", 0, ("float32", "float64", "int32", "int64", "uint8")),
    ("cumsum", 1, ("float32", "float64", "int32", "int64", "uint8")),
    ("cumsum", None, ("float32", "float64", "int32", "int64", "uint8")),
    *(
        (name, axis, dtypes)
        for name, dtypes in (
            ("cumprod", ("float32", "float64", "int64")),
            ("cummax", ("float32", "float64", "int64", "uint8")),
            ("logcumsumexp", ("float32", "float64")),
        )
        for axis in (0, 1)
    ),
    ("amax", 0, ("int64", "uint8")),
    ("amax", None, ("float64", "uint8")),
)
#: Operations of SEARCHES that also return positions.
POSITIONED = ("max", "cummax")


def _numbers(dtype: str) -> Callable[[], list[NDArray[Any]]]:
    def make() -> list[NDArray[Any]]:
        rng = np.random.default_rng(0)
        shape = (1024, 1024)
        if dtype.startswith("float"):
            return [rng.standard_normal(shape).astype(dtype)]
        return [rng.integers(0, 200, shape, dtype)]

    return make


def _along(name: str, axis: int | None, places: bool, x: Any) -> Any:
    if name == "cumsum" and axis is None:
        x, axis = x.reshape(-1), 0
    found = getattr(x, name)(*(() if axis is None else (axis,)))
    if name not in POSITIONED:
        return found
    return found[0] + found[1] if places else found[0]


def searches() -> tuple[Work, ...]:
    """Return positions, maxima and cumulative operations of 1024 x 1024 numbers, by type."""
    out: list[Work] = []
    for name, axis, dtypes in SEARCHES:
        words = "whole" if axis is None else f"along axis {axis}"
        title = f"{name} with indices" if name in POSITIONED else name
        ours = functools.partial(_along, name, axis, True)
        in_numpy: Any = None
        if name == "logcumsumexp":
            in_numpy = functools.partial(np.logaddexp.accumulate, axis=axis)
        elif name not in POSITIONED:
            in_numpy = functools.partial(getattr(np, name), axis=axis)
        out += [
            Work(
                f"{name}-{dtype}-{'whole' if axis is None else axis}",
                f"{title} of 1024 x 1024 {dtype} {words}",
                _numbers(dtype), ours, ours, numpy=in_numpy, aim=1.0, tolerance=1e-3, threads=(1,),
            )
            for dtype in dtypes
        ]  # fmt: skip
    out += [
        Work(
            f"{name}-gradient-{axis}",
            f"{name} with gradient of 1024 x 1024 float32 along axis {axis}",
            _numbers("float32"), rule, rule, gradient=True, aim=1.0, tolerance=1e-3, threads=(1,),
        )
        for name in ("cumsum", "cumprod", "cummax", "logcumsumexp")
        for axis in (0, 1)
        for rule in [functools.partial(_along, name, axis, False)]
    ]  # fmt: skip
    return tuple(out)


def functions() -> tuple[Work, ...]:
    """Return elementary functions of one million numbers."""
    names = ("exp", "log", "tanh", "erf", "gelu", "sin", "cos", "tan", "atan", "pow")
    return tuple(_function(name) for name in names)


def _positive() -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    return [(rng.random(MILLION) * 4 + 0.01).astype(np.float32)]


def _function(name: str) -> Work:
    in_numpy = {"erf": None, "gelu": None, "atan": "arctan", "pow": "power"}.get(name, name)
    special = {
        "gelu": (lambda x: x.gelu(), lambda x: _functional().gelu(x)),
        "pow": (lambda x: x**1.7, lambda x: x**1.7),
    }
    ours, theirs = special.get(name, (lambda x: getattr(x, name)(),) * 2)
    numpy: Any = None
    if name == "pow":
        numpy = lambda x: x**1.7  # noqa: E731
    elif in_numpy is not None:
        numpy = getattr(np, in_numpy)
    return Work(
        f"{name}-1M", f"{name} of 1M", _positive if name in ("log", "pow") else normal((MILLION,)),
        ours, theirs, numpy=numpy, copied=2 * FLOAT * MILLION, aim=1.2,
    )  # fmt: skip


def attention(batch: int, heads: int, length: int, width: int, *, gradient: bool) -> Work:
    """Return causal attention written with plain operations; torch uses its fused function."""

    def ours(q: Any, k: Any, v: Any) -> Any:
        import kernelrt as krt

        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(width))
        later = krt.ones(length, length).triu(1).cast("bool")
        return scores.masked_fill(later, -math.inf).softmax(-1) @ v

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return _functional().scaled_dot_product_attention(q, k, v, is_causal=True)

    shape = (batch, heads, length, width)
    name = "x".join(map(str, shape))
    with_gradient = " with gradient" if gradient else ""
    return Work(
        f"attention{'-gradient' if gradient else ''}-{name}",
        f"causal attention{with_gradient} {name.replace('x', ' x ')}",
        normal(shape, shape, shape), ours, theirs, gradient=gradient,
        aim=1.5 if gradient else 2.0, tolerance=1e-3,
    )  # fmt: skip


def works() -> tuple[Work, ...]:
    """Return all computations."""
    out = [work for shape in ROWS for work in over_rows(*shape)]
    out += [work for shape in LONG for work in statistics(*shape)]
    out += [*reductions(), *searches(), *functions()]
    for shape in ((12, 4, 64, 32), (1, 8, 512, 64), (1, 4, 128, 32)):
        out += [attention(*shape, gradient=gradient) for gradient in (False, True)]
    return tuple(out)


def cases() -> tuple[Case, ...]:
    """Return the cases of all computations."""
    return cases_of(works())
