"""Transcendental functions as polynomials in the graph language, so that they fuse and vectorize.

LLVM has no vector library here: an intrinsic such as llvm.exp would end in one libm call a lane.
:data:`MATH` replaces the nodes by sequences of plain arithmetic before code is written.

=========  ===========================  ============================
function   float32, all inputs          float64, samples
=========  ===========================  ============================
exp
log
tanh
=========  ===========================  ============================

Special values are NumPy's: NaN in is NaN out, infinities, signed zeros and subnormal numbers give
what the C library gives. float16 and bfloat16 are computed in float32 and rounded once.
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
    if u.dtype in (dt.float16, dt.bfloat16):
        return function(*(s.cast(dt.float32) for s in u.src)).cast(u.dtype)
    return function(*u.src)


#: Rules that leave no transcendental node in a kernel.
MATH: Final[Table] = dict.fromkeys(_FUNCTIONS, (decompose,))
