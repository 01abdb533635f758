"""Exact integer arithmetic of ops: one table for constants, sizes and bounds.

Results do not wrap. They wrap later, when they become a CONST of a type.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.dtype import DType

__all__ = ["EXACT", "RING", "exact"]

#: Sums and products, which linear forms expand.
RING: Final = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG})

#: Ops with the same meaning in all integer types.
EXACT: Final[Mapping[Op, Callable[..., Any]]] = {
    Op.NEG: operator.neg, Op.ABS: abs, Op.ADD: operator.add, Op.SUB: operator.sub,
    Op.MUL: operator.mul, Op.MAX: max, Op.MIN: min, Op.AND: operator.and_, Op.OR: operator.or_,
    Op.XOR: operator.xor, Op.LT: operator.lt, Op.LE: operator.le, Op.EQ: operator.eq,
    Op.NE: operator.ne, Op.IDIV: lambda a, b: a // b if b else 0,
    Op.MOD: lambda a, b: a % b if b else 0, Op.WHERE: lambda c, a, b: a if c else b,
}  # fmt: skip


def exact(op: Op, dtype: DType, values: Sequence[int]) -> int | None:
    """Apply `op` to integers; return None if `op` is not an integer operation.

    Parameters
    ----------
    op : Op
        Operation other than CAST, which depends on the type of the result.
    dtype : DType
        Type of the operands; for a WHERE, of the branches.
    values : sequence of int
        Operands.

    Examples
    --------
    >>> from kernelrt import dtype
    >>> exact(Op.IDIV, dtype.int64, [-7, 2])
    -4
    """
    if op in EXACT:
        return EXACT[op](*values)  # type: ignore[no-any-return]
    if op is Op.NOT:
        return not values[0] if dtype.is_bool else ~values[0]
    if op in (Op.SHL, Op.SHR):
        number, by = values
        if 0 <= by < dtype.bits:
            return number << by if op is Op.SHL else number >> by
        return -1 if op is Op.SHR and number < 0 else 0
    return None
