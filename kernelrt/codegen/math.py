"""Transcendental functions as polynomials in the graph language, so that they fuse and vectorize.

LLVM has no vector library here: an intrinsic such as llvm.exp would end in one libm call a lane.
:data:`MATH` replaces the nodes by branch-free sequences of plain arithmetic before code is
written. Greatest error found, in units in the last place, and vector instructions of an AVX-512
loop beside its load and store (D: one of them a division):

========  =========================  ====================  ============  ============
function  float32                    float64               instructions  instructions
                                                           float32       float64
========  =========================  ====================  ============  ============
exp       1.63                       1.56                  17            23
log       0.94                       0.84                  29            34 D
tanh      2.00                       2.00                  22 D          30 D
erf       1.51                       1.79                  27            58
sin, cos  1.61                       0.81                  56            144
pow       0.67 (samples)             1.54                  108           128 D
========  =========================  ====================  ============  ============

float32 errors are over all 2**32 numbers, compared with float64 functions of the C library;
float64 errors over some 10**7 samples each, compared with its long double functions.
sin and cos hold for arguments of any size. Only for the few float64 within 2**-50 of a multiple
of pi/2 beyond the first is their error absolute, 2**-104 of a quadrant, rather than relative.

Special values are NumPy's: NaN in is NaN out; infinities, signed zeros, subnormal arguments and
results are those of the C library. float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_erf import erf
from kernelrt.codegen.math_exp import exp, tanh
from kernelrt.codegen.math_log import log
from kernelrt.codegen.math_pow import power
from kernelrt.codegen.math_trig import cos, sin
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.ir.rewrite import Table
    from kernelrt.ir.uop import UOp

__all__ = ["MATH", "decompose"]

_FUNCTIONS: Final[dict[Op, Callable[..., UOp]]] = {
    Op.EXP: exp,
    Op.LOG: log,
    Op.POW: power,
    Op.TANH: tanh,
    Op.ERF: erf,
    Op.SIN: sin,
    Op.COS: cos,
}


def decompose(u: UOp) -> UOp | None:
    """Plain arithmetic for a transcendental node; None for any other.

    Parameters
    ----------
    u : UOp
        A node of the kernel stage.
    """
    function = _FUNCTIONS.get(u.op)
    if function is None or not u.dtype.is_float:
        return None
    if u.dtype.is_narrow:
        return function(*(s.cast(dt.float32) for s in u.src)).cast(u.dtype)
    return function(*u.src)


#: Rules that leave no transcendental node in a kernel.
MATH: Final[Table] = dict.fromkeys(_FUNCTIONS, (decompose,))
