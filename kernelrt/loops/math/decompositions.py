"""Transcendental functions as polynomials of UOps, so that they fuse and vectorize.

LLVM has no vector math library here: an intrinsic such as llvm.exp would become one libm call for
each lane. :func:`decompositions` replaces these nodes by plain arithmetic before code generation.
Only cold paths have branches. ir/ops.py has the numbers of instructions. The table lists the
greatest errors that were found on targets with fused multiply-add, in units in the last place.

========  ==============  =======
function  float32         float64
========  ==============  =======
exp       1.63            1.56
exp2      1.21            1.2
expm1     1.64            1.6
log       0.94            0.84
log2      1.01            1.1
log10     0.93            1.0
log1p     1.18            1.1
sin, cos  1.61            0.81
tan       1.84            1.7
asin      1.31            1.4
acos      1.26            1.2
atan      1.39            1.5
atan2     1.5 (samples)   1.6
sinh      1.50            1.7
cosh      1.19            1.3
tanh      2.00            2.00
asinh     1.34            1.2
acosh     1.90            1.9
atanh     1.22            1.1
erf       1.52            1.73
erfc      1.44            1.5
lgamma    0.51            1.6
pow       1.18 (samples)  1.54
========  ==============  =======

The errors for float32 were measured with all 2**32 numbers, against the float64 functions of the C
library. The errors for float64 were measured with some 10**6 samples for each function, against the
long double functions. The errors of sin, cos and tan hold for arguments of any size. Two errors are
absolute instead of relative: that of sin, cos and tan in float64 for the few arguments beyond 2**30
within 2**-50 of a multiple of pi/2 (2**-104 of a quadrant), and that of lgamma in float64 close to
a zero at a negative number (some 2**-52).

Special values are those of NumPy: NaN gives NaN. Infinities, signed zeros, subnormal arguments and
results are as in the C library. float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.loops.math.arc import acos, asin, atan, atan2
from kernelrt.loops.math.erf import erf, erfc
from kernelrt.loops.math.exp import exp, exp2, expm1, tanh
from kernelrt.loops.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from kernelrt.loops.math.lgamma import lgamma
from kernelrt.loops.math.log import log, log1p, log2, log10
from kernelrt.loops.math.pow import power
from kernelrt.loops.math.primitives import FUSES
from kernelrt.loops.math.trig import cos, sin, tan

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.rewrite import Table
    from kernelrt.ir.uop import UOp

__all__ = ["decompose", "decompositions"]

_FUNCTIONS: Final[dict[Op, Callable[..., UOp]]] = {
    Op.EXP: exp, Op.EXP2: exp2, Op.EXPM1: expm1,
    Op.LOG: log, Op.LOG2: log2, Op.LOG10: log10, Op.LOG1P: log1p, Op.POW: power,
    Op.SIN: sin, Op.COS: cos, Op.TAN: tan,
    Op.ASIN: asin, Op.ACOS: acos, Op.ATAN: atan, Op.ATAN2: atan2,
    Op.SINH: sinh, Op.COSH: cosh, Op.TANH: tanh,
    Op.ASINH: asinh, Op.ACOSH: acosh, Op.ATANH: atanh,
    Op.ERF: erf, Op.ERFC: erfc, Op.LGAMMA: lgamma,
}  # fmt: skip


def decompose(u: UOp, *, fuses: bool = True) -> UOp | None:
    """Return plain arithmetic for a transcendental node, or None for any other node.

    Parameters
    ----------
    u : UOp
        A node of a kernel AST.
    fuses : bool
        Whether the target has a fused multiply-add instruction.
    """
    function = _FUNCTIONS.get(u.op)
    if function is None or not u.dtype.is_float:
        return None
    token = FUSES.set(fuses)
    try:
        if u.dtype.is_narrow:
            return function(*(s.cast(dt.float32) for s in u.src)).cast(u.dtype)
        return function(*u.src)
    finally:
        FUSES.reset(token)


def _in_two_steps(u: UOp) -> UOp:
    """Return a multiplication and an addition for an FMA node."""
    a, b, c = u.src
    return a * b + c


_FUSED: Final[Table] = dict.fromkeys(_FUNCTIONS, (decompose,))
_SEPARATE: Final[Table] = {
    **dict.fromkeys(_FUNCTIONS, (functools.partial(decompose, fuses=False),)),
    Op.FMA: (_in_two_steps,),
}


def decompositions(target: DeviceSpec) -> Table:
    """Return the rewrite rules that lower all transcendental nodes of a kernel for `target`.

    The rules depend only on whether the target has a fused multiply-add instruction. If it has
    none, they also lower FMA nodes.
    """
    return _FUSED if target.has_fma else _SEPARATE
