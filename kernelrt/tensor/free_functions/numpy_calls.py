"""NumPy functions called with tensors, such as ``numpy.exp(x)`` and ``numpy.sum(x, axis=0)``.

The results are lazy tensors with the dtypes of the PyTorch operation of the same name. Parameters
have NumPy's names, order and defaults, so ``numpy.std(x)`` divides by the count. Functions that are
missing here come from `kernelrt.array_api` if it has them.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.free_functions import creation, joining
from kernelrt.tensor.free_functions import numpy_functions as more
from kernelrt.tensor.free_functions.dtype_info import can_cast
from kernelrt.tensor.free_functions.numpy_functions import tensor_of as _tensor
from kernelrt.tensor.methods import comparison, cumulative, einsum
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["FUNCTIONS", "READERS", "call", "universal", "written"]

#: Universal functions for which the method has another name.
_RENAMED: Final = {
    "absolute": "abs", "fabs": "abs", "rint": "round", "degrees": "rad2deg", "radians": "deg2rad",
    "conjugate": "conj", "invert": "bitwise_not",
}  # fmt: skip
#: Universal functions for which the method has the same name.
_SAME: Final = frozenset((
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "ceil",
    "copysign", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1", "float_power", "floor",
    "fmax", "fmin", "fmod", "frexp", "gcd", "heaviside", "hypot", "isfinite", "isinf", "isnan",
    "lcm", "ldexp", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "nextafter", "rad2deg",
    "reciprocal", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
))  # fmt: skip
#: Universal functions taken from array_api; the sign of NaN is NaN there, unlike in PyTorch.
_STANDARD: Final = frozenset(("sign", "vecdot"))
_REDUCE: Final = {
    "add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logical_and": "all",
    "logical_or": "any",
}  # fmt: skip
_ACCUMULATE: Final = {"add": "cumsum", "multiply": "cumprod"}


def universal(own: Any, ufunc: Any, method: str, inputs: Sequence[Any], options: Any) -> Any:
    """Return the result of a universal function of `inputs`, one of which is `own`.

    Return NotImplemented if the function or an option is not supported.
    """
    name = str(ufunc.__name__)
    given = {k: v for k, v in options.items() if v is not None}
    if method == "__call__":
        of_standard = name in _STANDARD and given.keys() <= {"axis"}
        if of_standard and (do := _standard(name)) is not None:
            return do(*map(_tensor, inputs), **given)
        known = name if name in _SAME else _RENAMED.get(name)
        if known is None or given or not hasattr(own, known):
            return NotImplemented
        first, *rest = inputs
        if not isinstance(first, TensorBase):
            first = own._lift(first, "x1", like=True)
        return getattr(first, known)(*rest)
    known = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {}).get(name)
    allowed = {"axis", "dtype", "keepdims"} if method == "reduce" else {"axis", "dtype"}
    if known is None or given.keys() - allowed or inputs[0] is not own or len(inputs) > 1:
        return NotImplemented
    x = own.to(given["dtype"]) if "dtype" in given else own
    if method == "accumulate":
        return getattr(x, known)(given.get("axis", 0))
    axis = options.get("axis", 0)
    return getattr(x, known)(axis, keepdim=bool(given.get("keepdims", False)))


def _typed(value: Any, dtype: Any) -> Any:
    return _tensor(value) if dtype is None else _tensor(value).to(dtype)


def _reduced(name: str) -> Callable[..., Any]:
    def do(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
        return getattr(_tensor(a), name)(axis, keepdim=bool(keepdims))

    return do


def _summed(name: str) -> Callable[..., Any]:
    def do(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = False) -> Any:
        return getattr(_typed(a, dtype), name)(axis, keepdim=bool(keepdims))

    return do


def _spread(name: str) -> Callable[..., Any]:
    def do(
        a: Any, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, correction: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        less = ddof if correction is None else correction
        return getattr(_typed(a, dtype), name)(axis, correction=less, keepdim=bool(keepdims))

    return do


def _running(name: str) -> Callable[..., Any]:
    def do(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        x = _typed(a, dtype)
        return getattr(x.flatten(), name)(0) if axis is None else getattr(x, name)(axis)

    return do


def _along(x: Any, axis: Any) -> tuple[Any, Any]:
    """Return the tensor and axis; for axis None, the flattened tensor and axis 0."""
    return (x.flatten(), 0) if axis is None else (x, axis)


def _sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    x, dim = _along(_tensor(a), axis)
    return x.sort(dim, stable=bool(stable) or kind in ("stable", "mergesort")).values


def _argsort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    x, dim = _along(_tensor(a), axis)
    return x.argsort(dim, stable=bool(stable) or kind in ("stable", "mergesort"))


def _joined(join: Callable[..., Any]) -> Callable[..., Any]:
    def do(tup: Any) -> Any:
        return join([_tensor(t) for t in tup])

    return do


def _each(make: Callable[..., Any]) -> Callable[..., Any]:
    def do(*arys: Any) -> Any:
        made = tuple(make(_tensor(a)) for a in arys)
        return made[0] if len(made) == 1 else made

    return do


def _concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Any:
    parts = [_typed(a, dtype) for a in arrays]
    if axis is None:
        return joining.cat([p.flatten() for p in parts], 0)
    return joining.cat(parts, axis)


def _stack(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Any:
    return joining.stack([_typed(a, dtype) for a in arrays], axis)


def _where(condition: Any, x: Any, y: Any) -> Any:
    return comparison.where(_tensor(condition), x, y)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    return _tensor(a).clamp(low, high)


def _row_major(order: Any, name: str) -> None:
    if order not in ("C", "K", "A"):
        raise DTypeError(f"{name}: order: expected 'C' (row-major), not {order!r}")


def _reshape(a: Any, shape: Any, order: Any = "C") -> Any:
    _row_major(order, "numpy.reshape")
    return a.reshape(shape)


def _ravel(a: Any, order: Any = "C") -> Any:
    _row_major(order, "numpy.ravel")
    return a.flatten()


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.permute(tuple(range(a.ndim))[::-1] if axes is None else tuple(axes))


def _expand_dims(a: Any, axis: Any) -> Any:
    if not isinstance(axis, tuple | list):
        return a.unsqueeze(axis)
    rank = a.ndim + len(axis)
    for place in sorted(i % rank for i in axis):
        a = a.unsqueeze(place)
    return a


def _flip(m: Any, axis: Any = None) -> Any:
    return m.flip(tuple(range(m.ndim)) if axis is None else axis)


def _tile(A: Any, reps: Any) -> Any:  # noqa: N803
    return A.tile(reps if isinstance(reps, tuple | list) else (reps,))


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x, dim = _along(_tensor(a), axis)
    return x.repeat_interleave(repeats, dim)


def _split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    size = ary.shape[axis]
    if isinstance(indices_or_sections, int | np.integer):
        if indices_or_sections <= 0 or size % indices_or_sections:
            raise ShapeError(
                f"numpy.split: {size} elements cannot be split into {indices_or_sections} equal "
                "parts; pass the split indices, as in [2, 3], or use numpy.array_split"
            )
        return list(ary.chunk(int(indices_or_sections), axis))
    edges = [0, *(min(max(i + size * (i < 0), 0), size) for i in indices_or_sections), size]
    pairs = itertools.pairwise(edges)
    return [ary.narrow(axis, start, max(end - start, 0)) for start, end in pairs]


def _dot(a: Any, b: Any) -> Any:
    x, y = _tensor(a), _tensor(b)
    if 0 in (x.ndim, y.ndim):
        return x * y
    if y.ndim > 2:
        return einsum.tensordot(x, y, ([x.ndim - 1], [y.ndim - 2]))
    return x @ y


def _median(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return _tensor(a).quantile(0.5, axis, keepdim=bool(keepdims))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:  # noqa: A002
    if ord is not None and (not isinstance(axis, int)):
        raise DTypeError(
            f"numpy.linalg.norm: ord={ord!r} is not supported for tensors unless axis is one int; "
            "pass one axis, or use kernelrt.linalg.norm"
        )
    return _tensor(x).norm(2 if ord is None else ord, axis, keepdim=bool(keepdims))


def _nan_to_num(x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None,
                neginf: Any = None) -> Any:  # fmt: skip
    if not copy:
        raise DTypeError(
            "numpy.nan_to_num: copy: expected True: the function never changes a tensor in place"
        )
    return x.nan_to_num(nan, posinf, neginf)


#: Implementations by the name below ``numpy.``, with NumPy's parameters.
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{n: _summed(n) for n in ("sum", "prod", "mean", "nansum", "nanmean")},
    **{n: _reduced(n) for n in ("amax", "amin", "any", "all", "argmax", "argmin")},
    "max": _reduced("amax"), "min": _reduced("amin"),
    "std": _spread("std"), "var": _spread("var"),
    "cumsum": _running("cumsum"), "cumprod": _running("cumprod"),
    "sort": _sort, "argsort": _argsort, "median": _median,
    "quantile": more.of_share("quantile", 1), "percentile": more.of_share("quantile", 100),
    "nanquantile": more.of_share("nanquantile", 1),
    "nanpercentile": more.of_share("nanquantile", 100),
    "nanmedian": lambda a, axis=None: more.as_float(a).nanquantile(0.5, axis),
    "nanmax": more.nan_extreme("amax"), "nanmin": more.nan_extreme("amin"),
    "ptp": lambda a, axis=None: _tensor(a).amax(axis) - _tensor(a).amin(axis),
    "average": more.average, "cov": more.cov,
    "corrcoef": lambda x, rowvar=True: more.as_float(x if rowvar else _tensor(x).mT).corrcoef(),
    "unique": more.unique, "histogram": more.histogram, "digitize": more.digitize,
    "searchsorted": more.searchsorted, "interp": more.interp,
    "bincount": lambda x, weights=None, minlength=0: _tensor(x).bincount(weights, minlength),
    "isin": lambda element, test_elements, *, invert=False: _tensor(
        element).isin(_tensor(test_elements), invert=bool(invert)),
    "argwhere": lambda a: a.argwhere(), "flatnonzero": lambda a: a.flatten().nonzero()[:, 0],
    "trapezoid": lambda y, x=None, dx=1.0, axis=-1: cumulative.trapezoid(
        _tensor(y), x, dx=dx if x is None else None, dim=axis),
    "take": more.take, "append": more.append, "broadcast_arrays": more.broadcast_arrays,
    "array_split": more.array_split,
    "hsplit": lambda ary, indices_or_sections: list(ary.hsplit(indices_or_sections)),
    "vsplit": lambda ary, indices_or_sections: list(ary.vsplit(indices_or_sections)),
    "rot90": lambda m, k=1, axes=(0, 1): m.rot90(k, axes),
    "fliplr": lambda m: m.fliplr(), "flipud": lambda m: m.flipud(),
    "diag": lambda v, k=0: v.diag(k),
    "trace": lambda a, offset=0, axis1=0, axis2=1: a.diagonal(offset, axis1, axis2).sum(-1),
    "cross": lambda a, b, axis=-1: _tensor(a).cross(_tensor(b), dim=axis),
    "vdot": lambda a, b: _tensor(a).flatten() @ _tensor(b).flatten(),
    "sinc": lambda x: x.sinc(), "i0": lambda x: x.i0(), "angle": lambda z: z.angle(),
    "fix": lambda x: x.trunc(), "isreal": lambda x: creation.ones_like(x, dt.bool_),
    "count_nonzero": lambda a, axis=None: a.count_nonzero(axis),
    "concatenate": _concatenate, "stack": _stack,
    "vstack": _joined(joining.vstack), "hstack": _joined(joining.hstack),
    "atleast_1d": _each(joining.atleast_1d), "atleast_2d": _each(joining.atleast_2d),
    "atleast_3d": _each(joining.atleast_3d), "dstack": _joined(joining.dstack),
    "column_stack": _joined(joining.column_stack),
    "where": _where, "clip": _clip, "reshape": _reshape, "ravel": _ravel,
    "transpose": _transpose, "matrix_transpose": lambda x: x.mT,
    "squeeze": lambda a, axis=None: a.squeeze() if axis is None else a.squeeze(axis),
    "expand_dims": _expand_dims,
    "swapaxes": lambda a, axis1, axis2: a.transpose(axis1, axis2),
    "moveaxis": lambda a, source, destination: a.movedim(source, destination),
    "flip": _flip,
    "roll": lambda a, shift, axis=None: a.roll(shift) if axis is None else a.roll(shift, axis),
    "tile": _tile,
    "repeat": _repeat,
    "broadcast_to": lambda array, shape: array.broadcast_to(shape),
    "split": _split,
    "tril": lambda m, k=0: m.tril(k), "triu": lambda m, k=0: m.triu(k),
    "diagonal": lambda a, offset=0, axis1=0, axis2=1: a.diagonal(offset, axis1, axis2),
    "dot": _dot, "outer": lambda a, b: _tensor(a).flatten().outer(_tensor(b).flatten()),
    "inner": lambda a, b: _tensor(a).inner(_tensor(b)),
    "kron": lambda a, b: _tensor(a).kron(_tensor(b)),
    "tensordot": lambda a, b, axes=2: einsum.tensordot(_tensor(a), _tensor(b), axes),
    "einsum": lambda subscripts, *operands: einsum.einsum(subscripts, *map(_tensor, operands)),
    "linalg.norm": _norm,
    "zeros_like": lambda a, dtype=None: creation.zeros_like(a, dtype),
    "ones_like": lambda a, dtype=None: creation.ones_like(a, dtype),
    "empty_like": lambda prototype, dtype=None: creation.empty_like(prototype, dtype),
    "full_like": lambda a, fill_value, dtype=None: creation.full_like(a, fill_value, dtype),
    "copy": lambda a: a.clone(),
    "round": lambda a, decimals=0: a.round(decimals=decimals),
    "around": lambda a, decimals=0: a.round(decimals=decimals),
    "diff": lambda a, n=1, axis=-1: a.diff(n, axis),
    "nan_to_num": _nan_to_num,
    "take_along_axis": lambda arr, indices, axis: _tensor(arr).take_along_dim(
        _tensor(indices), axis),
    "shape": lambda a: a.shape, "ndim": lambda a: a.ndim,
    "real": lambda val: val, "conj": lambda x: x,
}  # fmt: skip

#: Functions that only read values; tensors are passed to them as arrays.
READERS: Final = frozenset((
    "allclose", "array2string", "array_equal", "array_equiv", "array_repr", "array_str",
    "can_cast", "common_type", "isclose", "iscomplexobj", "isrealobj", "may_share_memory",
    "result_type", "save", "savetxt", "savez", "savez_compressed", "shares_memory", "size",
))  # fmt: skip


def written(found: Any, out: tuple[Any, ...], name: str) -> Any:
    """Write the results of the universal function `name` to the tensors `out`; return these.

    Raises
    ------
    DTypeError
        The dtype of a result cannot be cast to that of its tensor, such as float to integer.
    ShapeError
        A result has another shape than its tensor.
    """
    results = [_tensor(one) for one in (found if isinstance(found, tuple) else (found,))]
    for one, target in zip(results, out, strict=True):
        if not can_cast(one.dtype, target.dtype):
            raise DTypeError(
                f"{name}: out is {target.dtype.name}, which cannot hold the {one.dtype.name} "
                f"result; pass a tensor of {one.dtype.name} as out, or omit out"
            )
        if one.shape != target.shape:
            raise ShapeError(
                f"{name}: out has shape {format_shape(target.dims)}, but the result has shape "
                f"{format_shape(one.dims)}; pass a tensor of that shape, or omit out"
            )
    for one, target in zip(results, out, strict=True):
        target[...] = one
    return out[0] if len(out) == 1 else out


def call(function: Any, args: Any, options: Any) -> Any:
    """Return the result of a NumPy function of tensors; raise DTypeError if it is unsupported."""
    path = f"{function.__module__}.{function.__name__}".partition(".")[2]
    if path in READERS:
        return function(*_arrays(args), **_arrays(options))
    do = FUNCTIONS.get(path)
    if do is None and (do := _standard(path)) is not None:
        args = [_tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    if do is None:
        raise DTypeError(
            f"numpy.{path}: this function is not implemented for tensors; call "
            f"numpy.{path}(x.numpy()) outside of traced functions"
        )
    kept = {k: v for k, v in options.items() if v is not None and v is not np._NoValue}
    if "axis" in options:
        kept["axis"] = options["axis"]
    try:
        bound = inspect.signature(do).bind(*args, **kept)
    except TypeError as error:
        raise DTypeError(
            f"numpy.{path}: kernelrt's version for tensors does not accept the arguments: {error}; "
            f"change the arguments, or call numpy.{path}(x.numpy(), ...)"
        ) from None
    return do(*bound.args, **bound.kwargs)


def _standard(path: str) -> Callable[..., Any] | None:
    """Return the function of this name in `kernelrt.array_api`, or None."""
    place, _, name = path.rpartition(".")
    module = "kernelrt.array_api" + ("." + place if place else "")  # imports this package
    if place not in ("", "linalg"):
        return None
    load(module)
    found = sys.modules[module]
    return getattr(found, name) if name in found.__all__ else None


def _arrays(value: Any) -> Any:
    if isinstance(value, TensorBase):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_arrays, value))
    return {k: _arrays(v) for k, v in value.items()} if isinstance(value, dict) else value
