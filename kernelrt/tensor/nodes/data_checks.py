"""Checks of data that are part of a plan and run with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.ir.domain import CUT, WIDE, Domain
from kernelrt.ir.shape import as_uop
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from kernelrt.ir import Dim

__all__ = ["checked_index", "demanded", "finite", "if_all", "if_each"]

_T = TypeVar("_T", bound=TensorBase)


def checked_index(index: UOp, size: Dim, fine: UOp, told: UOp, domain: Domain) -> UOp:
    """Return `index`, with a check that raises DomainError where `fine` is false.

    Parameters
    ----------
    index : UOp
        Indices in [0, size), int64.
    size : Dim
        Size of the axis.
    fine : UOp
        Bools of the same shape.
    told : UOp
        Numbers of the same shape. The error names one for which `fine` is false.
    domain : Domain
        Description of the expected numbers.
    """
    if told.dtype.is_float and told.dtype is not dt.float64:
        first, bits = -1, UOp(Op.BITCAST, dt.uint32, (told.cast(dt.float32),))
    else:
        first, bits = -1 - WIDE, UOp(Op.BITCAST, dt.uint64, (told.cast(dt.float64),))
        bits = bits.alu(Op.SHR, build.full(CUT, dt.uint64, bits.shape))
    number = bits.cast(dt.int64)
    code = build.full(first, dt.int64, number.shape).alu(Op.SUB, number)
    return UOp(Op.BOUND, dt.int64, (build.where(fine, index, code), as_uop(size)), domain)


def demanded(value: _T, fine: Any, told: Any, domain: Domain) -> _T:
    """Return `value`, with a check that raises DomainError where `fine` is false.

    Parameters
    ----------
    value : Tensor
        Value computed from the data.
    fine, told : Tensor
        Bools, and the numbers that errors name; same shape as `value`.
    domain : Domain
        Description of the expected numbers.
    """
    node = value.uop
    none = build.full(0, dt.int64, node.shape)
    check = checked_index(none, 1, fine.uop, told.detach().uop, domain)
    # The check becomes an index to an additional axis of size 1.
    line = build.reshape(node, (*node.shape, 1))
    positions = [build.iota_along(node.shape, a) for a in range(len(node.shape))]
    checked = UOp(Op.GATHER, node.dtype, (line, *positions, check))
    return value._of(custom(checked, _passed, node))


def _passed(_node: UOp, gradient: UOp, _i: int) -> UOp:
    return gradient


def if_all(value: _T, data: Any, low: float, high: float, name: str) -> _T:
    """Return a scalar `value`, with a check that all `data` are in [low, high] and not NaN.

    Reductions with a check inside run on one thread. So the check applies to the minimum and
    maximum of `data`, after their reductions.
    """
    if build.has_zero(data.dims):
        return value
    least, most = data.detach().amin(), data.detach().amax()
    above = least >= low
    fine, told = above & (most <= high), most.where(above, least)
    return demanded(value, fine, told, _interval(low, high, name))


def if_each(value: _T, data: Any, low: float, high: float, name: str) -> _T:
    """Return `value`, with a check that each element of `data` (same shape) is in [low, high]."""
    fine = (data >= low) & (data <= high)
    return demanded(value, fine, data, _interval(low, high, name))


def finite(data: _T, name: str) -> _T:
    """Return `data`, with a check that no element is NaN or infinite."""
    return demanded(data, cast("Any", data).abs() < math.inf, data, Domain(name, "finite numbers"))


def _interval(low: float, high: float, name: str) -> Domain:
    if high == math.inf:
        return Domain(name, f"numbers of at least {low:g}")
    return Domain(name, f"numbers from {low:g} to {high:g}")
