"""Instruction sequences of elementwise ops."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kernelrt import dtype as dt
from kernelrt.backend.llvm.fmod import fmod
from kernelrt.backend.llvm.llvm_types import Text, Value, memory_type, register_type, suffix, vector
from kernelrt.dtype import DType
from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op

__all__ = ["alu"]


def alu(b: Text, op: Op, dtype: DType, operands: list[Value]) -> Value:
    """Emit `op` on `operands`, with scalars broadcast. `dtype` is the result's.

    Raises
    ------
    CompileError
        `op` has no instruction.
    """
    rule = _RULES.get(op)
    if rule is None:
        raise CompileError(f"{op.name} has no LLVM instruction; lower it before code generation")
    values, lanes = b.align(operands)
    return Value(rule(b, dtype, values), lanes, dtype)


_Rule = Callable[[Text, DType, list[Value]], str]


def _by_kind(
    flt: str, signed: str, unsigned: str | None = None, boolean: str | None = None
) -> _Rule:
    def rule(b: Text, _: DType, v: list[Value]) -> str:
        kind = v[0].dtype
        if kind.is_float:
            word = flt
        elif kind.is_bool:
            word = boolean or unsigned or signed
        else:
            word = signed if kind.is_signed else unsigned or signed
        return b.emit(f"{word} {b.type_of(v[0])} {v[0].text}, {v[1].text}")

    return rule


def _intrinsic(name: str) -> _Rule:
    def rule(b: Text, _: DType, v: list[Value]) -> str:
        ty = b.type_of(v[0])
        return b.call(f"llvm.{name}.{suffix(v[0])}", ty, *((ty, x.text) for x in v))

    return rule


def _rounding(name: str) -> _Rule:
    def rule(b: Text, _: DType, v: list[Value]) -> str:
        return _to_integer(b, name, v[0])

    return rule


def _to_integer(b: Text, name: str, x: Value) -> str:
    """Round a float to an integer by the intrinsic `name`, or by arithmetic with the same result.

    Without an instruction LLVM would call the C library for each lane.
    """
    ty, size, mask = b.type_of(x), suffix(x), vector("i1", x.lanes)
    if b.has_rounding:
        return b.call(f"llvm.{name}.{size}", ty, (ty, x.text))
    kind = x.dtype.accumulator  # the register type of narrow floats

    def number(value: float) -> str:
        return b.constant(value, kind, x.lanes).text

    # Numbers from here on have no fraction; below, adding it rounds to the nearest integer.
    limit = number(2.0**23 if kind is dt.float32 else 2.0**52)
    magnitude = b.call(f"llvm.fabs.{size}", ty, (ty, x.text))
    raised = b.emit(f"fadd {ty} {magnitude}, {limit}")
    near = b.emit(f"fsub {ty} {raised}, {limit}")
    given = magnitude if name == "trunc" else x.text
    if name in ("floor", "ceil"):
        near = b.call(f"llvm.copysign.{size}", ty, (ty, near), (ty, x.text))
    if name != "roundeven":
        beyond, step = ("olt", 1.0) if name == "ceil" else ("ogt", -1.0)
        missed = b.emit(f"fcmp {beyond} {ty} {near}, {given}")
        change = b.emit(f"select {mask} {missed}, {ty} {number(step)}, {ty} {number(0.0)}")
        near = b.emit(f"fadd {ty} {near}, {change}")
    near = b.call(f"llvm.copysign.{size}", ty, (ty, near), (ty, x.text))
    small = b.emit(f"fcmp olt {ty} {magnitude}, {limit}")
    # Adding zero makes signaling NaNs quiet, as instructions do.
    other = b.emit(f"fadd {ty} {x.text}, {number(0.0)}")
    return b.emit(f"select {mask} {small}, {ty} {near}, {ty} {other}")


def _neg(b: Text, dtype: DType, v: list[Value]) -> str:
    ty = b.type_of(v[0])
    if dtype.is_float:
        return b.emit(f"fneg {ty} {v[0].text}")
    zero = b.constant(0, dtype, v[0].lanes).text
    return b.emit(f"sub {ty} {zero}, {v[0].text}")


def _abs(b: Text, dtype: DType, v: list[Value]) -> str:
    if dtype.is_float:
        return _intrinsic("fabs")(b, dtype, v)
    if not dtype.is_signed:
        return v[0].text
    ty = b.type_of(v[0])
    return b.call(f"llvm.abs.{suffix(v[0])}", ty, (ty, v[0].text), ("i1", "false"))


def _not(b: Text, dtype: DType, v: list[Value]) -> str:
    ones = b.constant(True if dtype.is_bool else -1, dtype, v[0].lanes).text
    return b.emit(f"xor {b.type_of(v[0])} {v[0].text}, {ones}")


def _select(b: Text, condition: str, yes: Value, no: Value) -> str:
    mask = vector("i1", yes.lanes)
    ty = b.type_of(yes)
    return b.emit(f"select {mask} {condition}, {ty} {yes.text}, {ty} {no.text}")


def _where(b: Text, _: DType, v: list[Value]) -> str:
    return _select(b, v[0].text, v[1], v[2])


def _integer_constant(value: Value) -> int | None:
    """Return the number in every lane of an integer constant, or None."""
    if value.text.startswith("%"):
        return None
    return int(value.text.removesuffix(")").split()[-1])


def _float_constant(value: Value) -> float | None:
    """Return the number in every lane of a float constant, or None."""
    if value.text.startswith("%"):
        return None
    digits = value.text.removesuffix(")").split()[-1].removeprefix("0x")
    number: float = struct.unpack(">d", bytes.fromhex(digits))[0]
    return number


def _is_plain_constant(value: Value) -> bool:
    """Return whether `value` is a float constant other than NaN."""
    number = _float_constant(value)
    return number is not None and number == number


def _extreme(predicate: str) -> _Rule:
    """Return a rule for NumPy's maximum or minimum: NaN wins, and of equal numbers the first.

    For example, 0.0 and -0.0 are equal. ``select(y > x, y, x)`` alone gives x if either is NaN,
    which is correct if y cannot be NaN.
    """
    signed, unsigned, ordered, unordered = {
        "max": ("sgt", "ugt", "ogt", "ugt"),
        "min": ("slt", "ult", "olt", "ult"),
    }[predicate]

    def rule(b: Text, dtype: DType, v: list[Value]) -> str:
        x, y = v
        ty = b.type_of(x)
        if dtype.is_bool and b.folds_compares:  # LLVM would make the same of the select
            return b.emit(f"{'or' if predicate == 'max' else 'and'} {ty} {x.text}, {y.text}")
        if not dtype.is_float:
            word = signed if dtype.is_signed else unsigned
            return _select(b, b.emit(f"icmp {word} {ty} {x.text}, {y.text}"), x, y)
        if _is_plain_constant(y):
            return _select(b, b.emit(f"fcmp {ordered} {ty} {y.text}, {x.text}"), y, x)
        if _is_plain_constant(x):
            return _select(b, b.emit(f"fcmp {unordered} {ty} {y.text}, {x.text}"), y, x)
        best = _select(b, b.emit(f"fcmp {ordered} {ty} {y.text}, {x.text}"), y, x)
        isnan = b.emit(f"fcmp uno {ty} {y.text}, {y.text}")
        return _select(b, isnan, y, Value(best, x.lanes, dtype))

    return rule


def _fenced(b: Text, value: Value) -> str:
    """Return a float divisor behind a fence, so that LLVM does not look at its lanes.

    If LLVM finds that both operands are 0 in a lane, it assumes that the quotient is 0, although it
    is NaN. The reason is that SimplifyDemandedVectorElts treats division as it treats
    multiplication.
    """
    number = _float_constant(value)
    if value.lanes == 1 or (number is not None and number != 0.0):
        return value.text
    return b.fence(value).text


def _divide(b: Text, _: DType, v: list[Value]) -> str:
    return b.emit(f"fdiv {b.type_of(v[0])} {v[0].text}, {_fenced(b, v[1])}")


def _safe_divisor(b: Text, dtype: DType, x: Value, y: Value) -> tuple[str, str]:
    """Return a divisor that cannot trap, and the mask of lanes in which the divisor was 0."""
    ty = b.type_of(y)
    zero = b.constant(0, dtype, y.lanes).text
    bad = b.emit(f"icmp eq {ty} {y.text}, {zero}")
    if dtype.is_signed:
        minus = b.constant(-1, dtype, y.lanes).text
        least = b.constant(int(dtype.min), dtype, y.lanes).text
        a = b.emit(f"icmp eq {ty} {y.text}, {minus}")
        c = b.emit(f"icmp eq {ty} {x.text}, {least}")
        mask = vector("i1", y.lanes)
        overflow = b.emit(f"and {mask} {a}, {c}")
        trapping = b.emit(f"or {mask} {bad}, {overflow}")
    else:
        trapping = bad
    one = b.constant(1, dtype, y.lanes)
    return _select(b, trapping, one, y), bad


def _divmod(want_quotient: bool) -> _Rule:
    """Return a rule for floor division or remainder; x / 0 gives 0, min // -1 wraps."""

    def rule(b: Text, dtype: DType, v: list[Value]) -> str:
        x, y = v
        if dtype.is_float:
            return _float_divmod(b, dtype, x, y, want_quotient)
        ty = b.type_of(x)
        zero = b.constant(0, dtype, x.lanes)
        divisor = y.text
        bad = None
        if _integer_constant(y) in (None, 0, -1):
            divisor, bad = _safe_divisor(b, dtype, x, y)
        if dtype.is_unsigned:
            word = "udiv" if want_quotient else "urem"
            out = b.emit(f"{word} {ty} {x.text}, {divisor}")
        else:
            out = _floor_signed(b, dtype, x, divisor, want_quotient)
        if bad is None:
            return out
        return _select(b, bad, zero, Value(out, x.lanes, dtype))

    return rule


def _floor_signed(b: Text, dtype: DType, x: Value, divisor: str, want_quotient: bool) -> str:
    ty, mask = b.type_of(x), vector("i1", x.lanes)
    zero = b.constant(0, dtype, x.lanes)
    remainder = b.emit(f"srem {ty} {x.text}, {divisor}")
    inexact = b.emit(f"icmp ne {ty} {remainder}, {zero.text}")
    crossed = b.emit(f"xor {ty} {remainder}, {divisor}")
    opposite = b.emit(f"icmp slt {ty} {crossed}, {zero.text}")
    adjust = b.emit(f"and {mask} {inexact}, {opposite}")
    if want_quotient:
        quotient = b.emit(f"sdiv {ty} {x.text}, {divisor}")
        step = b.emit(f"sext {mask} {adjust} to {ty}")
        return b.emit(f"add {ty} {quotient}, {step}")
    step = _select(b, adjust, Value(divisor, x.lanes, dtype), zero)
    return b.emit(f"add {ty} {remainder}, {step}")


def _float_divmod(b: Text, dtype: DType, x: Value, y: Value, want_quotient: bool) -> str:
    """Emit NumPy's floor_divide or remainder for floats, from an exact remainder."""
    ty, mask, size = b.type_of(x), vector("i1", x.lanes), suffix(x)
    zero = b.constant(0.0, dtype, x.lanes)
    divisor = _fenced(b, y)
    rest = fmod(b, x, Value(divisor, y.lanes, dtype))
    nonzero = b.emit(f"fcmp une {ty} {rest}, {zero.text}")
    a = b.emit(f"fcmp olt {ty} {y.text}, {zero.text}")
    c = b.emit(f"fcmp olt {ty} {rest}, {zero.text}")
    differ = b.emit(f"xor {mask} {a}, {c}")
    adjust = b.emit(f"and {mask} {nonzero}, {differ}")
    if not want_quotient:
        shifted = b.emit(f"fadd {ty} {rest}, {y.text}")
        moved = _select(b, adjust, Value(shifted, x.lanes, dtype), Value(rest, x.lanes, dtype))
        sign = b.call(f"llvm.copysign.{size}", ty, (ty, zero.text), (ty, y.text))
        return _select(b, nonzero, Value(moved, x.lanes, dtype), Value(sign, x.lanes, dtype))
    difference = b.emit(f"fsub {ty} {x.text}, {rest}")
    quotient = b.emit(f"fdiv {ty} {difference}, {divisor}")
    one = b.constant(1.0, dtype, x.lanes).text
    lowered = b.emit(f"fsub {ty} {quotient}, {one}")
    q = _select(b, adjust, Value(lowered, x.lanes, dtype), Value(quotient, x.lanes, dtype))
    # The quotient is whole up to rounding: as NumPy, round up from a fraction above 1/2.
    whole = _to_integer(b, "floor", Value(q, x.lanes, dtype))
    fraction = b.emit(f"fsub {ty} {q}, {whole}")
    above = b.emit(f"fcmp ogt {ty} {fraction}, {b.constant(0.5, dtype, x.lanes).text}")
    next_ = b.emit(f"fadd {ty} {whole}, {one}")
    rounded = _select(b, above, Value(next_, x.lanes, dtype), Value(whole, x.lanes, dtype))
    plain = b.emit(f"fdiv {ty} {x.text}, {divisor}")
    # A zero gets the sign of the quotient; division by zero or NaN gives the plain quotient.
    empty = b.emit(f"fcmp oeq {ty} {rounded}, {zero.text}")
    signed = b.call(f"llvm.copysign.{size}", ty, (ty, zero.text), (ty, plain))
    out = _select(b, empty, Value(signed, x.lanes, dtype), Value(rounded, x.lanes, dtype))
    by_zero = b.emit(f"fcmp oeq {ty} {y.text}, {zero.text}")
    return _select(b, by_zero, Value(plain, x.lanes, dtype), Value(out, x.lanes, dtype))


def _shift(left: bool) -> _Rule:
    """Return a rule for shifts.

    A shift by the width or more gives 0. A right shift of a signed integer gives the sign in this
    case.
    """

    def rule(b: Text, dtype: DType, v: list[Value]) -> str:
        x, y = v
        ty = b.type_of(x)
        word = "shl" if left else "ashr" if dtype.is_signed else "lshr"
        number = _integer_constant(y)
        if number is not None and 0 <= number < dtype.bits:
            return b.emit(f"{word} {ty} {x.text}, {y.text}")
        width = b.constant(dtype.bits, dtype, x.lanes).text
        inside = b.emit(f"icmp ult {ty} {y.text}, {width}")
        zero = b.constant(0, dtype, x.lanes)
        amount = _select(b, inside, y, zero)
        shifted = Value(b.emit(f"{word} {ty} {x.text}, {amount}"), x.lanes, dtype)
        rest = zero
        if word == "ashr":
            last = b.constant(dtype.bits - 1, dtype, x.lanes).text
            rest = Value(b.emit(f"ashr {ty} {x.text}, {last}"), x.lanes, dtype)
        return _select(b, inside, shifted, rest)

    return rule


def _compare(flt: str, signed: str, unsigned: str) -> _Rule:
    def rule(b: Text, _: DType, v: list[Value]) -> str:
        kind = v[0].dtype
        ty = b.type_of(v[0])
        if kind.is_float:
            return b.emit(f"fcmp {flt} {ty} {v[0].text}, {v[1].text}")
        word = signed if kind.is_signed else unsigned
        return b.emit(f"icmp {word} {ty} {v[0].text}, {v[1].text}")

    return rule


def _cast(b: Text, dtype: DType, v: list[Value]) -> str:
    x = v[0]
    src, dst = x.dtype, dtype
    here, there = b.type_of(x), vector(register_type(dst), x.lanes)
    if src.is_float and dst.is_float:
        return _cast_float(b, x, dst, here, there)
    if dst.is_bool:
        zero = b.constant(0, src, x.lanes).text
        return b.emit(f"{'fcmp une' if src.is_float else 'icmp ne'} {here} {x.text}, {zero}")
    if src.is_float:
        return _cast_to_int(b, x, dst, here, there)
    if dst.is_float:
        word = "sitofp" if src.is_signed else "uitofp"
        text = b.emit(f"{word} {here} {x.text} to {there}")
        return _round_narrow(b, text, dst, x.lanes)
    if dst.bits == src.bits and not src.is_bool:
        return x.text
    if dst.bits < src.bits:
        return b.emit(f"trunc {here} {x.text} to {there}")
    word = "sext" if src.is_signed else "zext"
    return b.emit(f"{word} {here} {x.text} to {there}")


def _cast_to_int(b: Text, x: Value, dst: DType, here: str, there: str) -> str:
    """Truncate a float to an integer, saturating, as :func:`kernelrt.dtype.truncated` does.

    LLVM's own ``fptosi.sat`` converts NaN to 0, and is scalar on x86.
    """
    kind = x.dtype.accumulator  # the register type of narrow floats
    mask = vector("i1", x.lanes)
    low, high = int(dst.min), int(dst.max)
    least, beyond = (b.constant(float(n), kind, x.lanes).text for n in (low, high + 1))
    word = "fptosi" if dst.is_signed else "fptoui"
    # NaN is never above the minimum; it counts as beyond the maximum if that is its result.
    enters, leaves = "oge", "uge" if dst.of_nan == high else "oge"
    whole = b.emit(f"{word} {here} {x.text} to {there}")
    above = b.emit(f"fcmp {enters} {here} {x.text}, {least}")
    raised = b.emit(
        f"select {mask} {above}, {there} {whole}, {there} {b.constant(low, dst, x.lanes).text}"
    )
    over = b.emit(f"fcmp {leaves} {here} {x.text}, {beyond}")
    top = b.constant(high, dst, x.lanes).text
    return b.emit(f"select {mask} {over}, {there} {top}, {there} {raised}")


def _cast_float(b: Text, x: Value, dst: DType, here: str, there: str) -> str:
    if dst is dt.float64:
        return b.emit(f"fpext {here} {x.text} to {there}")
    text = x.text
    if dst.is_narrow:
        return _round_narrow(b, text, dst, x.lanes, here)
    return b.emit(f"fptrunc {here} {text} to {there}") if here != there else text


def _round_narrow(b: Text, text: str, dst: DType, lanes: int, here: str = "") -> str:
    """Round a float to float16 or bfloat16 precision; the result is held as float."""
    if not dst.is_narrow:
        return text
    if here == vector("double", lanes):
        text = _round_to_odd(b, text, lanes)
    return b.from_memory(b.to_memory(Value(text, lanes, dst)), dst, lanes).text


def _round_to_odd(b: Text, text: str, lanes: int) -> str:
    """Round a double to a float so that rounding the float to a narrow type is correct.

    If the float is inexact, it is first rounded toward zero, and then its last bit is set (Boldo
    and Melquiond, "When double rounding is odd", 2005).
    """
    double, single, bits, mask = (vector(t, lanes) for t in ("double", "float", "i32", "i1"))
    near = b.emit(f"fptrunc {double} {text} to {single}")
    back = b.emit(f"fpext {single} {near} to {double}")
    inexact = b.emit(f"fcmp one {double} {back}, {text}")
    size = Value("", lanes, dt.float64)
    here = b.call(f"llvm.fabs.{suffix(size)}", double, (double, text))
    there = b.call(f"llvm.fabs.{suffix(size)}", double, (double, back))
    away = b.emit(f"fcmp ogt {double} {there}, {here}")
    raw = b.emit(f"bitcast {single} {near} to {bits}")
    step = b.emit(f"sext {mask} {away} to {bits}")
    stepped = b.emit(f"add {bits} {raw}, {step}")
    odd = b.emit(f"or {bits} {stepped}, {b.constant(1, dt.int32, lanes).text}")
    chosen = b.emit(f"select {mask} {inexact}, {bits} {odd}, {bits} {raw}")
    return b.emit(f"bitcast {bits} {chosen} to {single}")


def _bitcast(b: Text, dtype: DType, v: list[Value]) -> str:
    x = v[0]
    here, there = (vector(memory_type(kind), x.lanes) for kind in (x.dtype, dtype))
    small = b.to_memory(x)
    moved = small if here == there else b.emit(f"bitcast {here} {small} to {there}")
    return b.from_memory(moved, dtype, x.lanes).text


# No operation may be fused with another ("contract"). LLVM fuses in one place and not in the next,
# but a value that two kernels or two loops compute must be equal in both.
_RULES: dict[Op, _Rule] = {
    Op.NEG: _neg,
    Op.ABS: _abs,
    Op.NOT: _not,
    Op.SQRT: _intrinsic("sqrt"),
    Op.FLOOR: _rounding("floor"),
    Op.CEIL: _rounding("ceil"),
    Op.TRUNC: _rounding("trunc"),
    Op.ROUND: _rounding("roundeven"),
    Op.FMA: _intrinsic("fma"),
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.ADD: _by_kind("fadd", "add", boolean="or"),
    Op.SUB: _by_kind("fsub", "sub", boolean="xor"),
    Op.MUL: _by_kind("fmul", "mul", boolean="and"),
    Op.DIV: _divide,
    Op.IDIV: _divmod(True),
    Op.MOD: _divmod(False),
    Op.MAX: _extreme("max"),
    Op.MIN: _extreme("min"),
    Op.AND: _by_kind("and", "and"),
    Op.OR: _by_kind("or", "or"),
    Op.XOR: _by_kind("xor", "xor"),
    Op.SHL: _shift(True),
    Op.SHR: _shift(False),
    Op.LT: _compare("olt", "slt", "ult"),
    Op.LE: _compare("ole", "sle", "ule"),
    Op.EQ: _compare("oeq", "eq", "eq"),
    Op.NE: _compare("une", "ne", "ne"),
    Op.WHERE: _where,
}
