"""The exact floating-point remainder, as a function outside the kernel.

LLVM's instruction frem would call the C library's fmod for each lane. This function divides whole
vectors, and needs a loop only for quotients of more than 52 bits. It subtracts multiples of the
divisor without rounding, with an FMA if the target has one, otherwise with split factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.backend.llvm.llvm_types import vector

if TYPE_CHECKING:
    from kernelrt.backend.llvm.llvm_types import Text, Value

__all__ = ["fmod"]


def fmod(b: Text, x: Value, y: Value) -> str:
    """Return ``x - trunc(x / y) * y`` without rounding, with the sign of `x`.

    If an operand is NaN, `x` is infinite or `y` is zero, the result is NaN. If only `y` is
    infinite, the result is `x`.
    """
    ty, wide = b.type_of(x), vector("double", x.lanes)
    name = f"krt.fmod.{x.lanes}"
    b.define(name, lambda: _source(name, x.lanes, b.has_fma))
    fused = (("trunc", 1), ("fma", 3)) if b.has_fma else ()
    for intrinsic, operands in (("fabs", 1), ("copysign", 2), *fused):
        suffix = "f64" if x.lanes == 1 else f"v{x.lanes}f64"
        b.declare(f"llvm.{intrinsic}.{suffix}", wide, *(wide,) * operands)
    if x.lanes > 1:
        b.declare(f"llvm.vector.reduce.or.v{x.lanes}i1", "i1", vector("i1", x.lanes))
    dividend, divisor = (_converted(b, v.text, ty, wide) for v in (x, y))
    out = b.emit(f"call {wide} @{name}({wide} {dividend}, {wide} {divisor})")
    return _converted(b, out, wide, ty)


def _converted(b: Text, text: str, of: str, to: str) -> str:
    if of == to:
        return text
    return b.emit(f"{'fpext' if 'double' in to else 'fptrunc'} {of} {text} to {to}")


def _source(name: str, lanes: int, has_fma: bool) -> str:
    """Return the text of the function. It takes doubles, which can hold all narrower floats.

    Each iteration subtracts a multiple of ``d = y * 2**k`` from the remainder r. The factor of d is
    smaller than 2**52, and k falls to 0 in the last iteration. If a quotient overflows, d is
    multiplied by 2**1000, up to twice. This is exact, because y is below 1 in this case.
    """
    t = {
        "D": vector("double", lanes), "I": vector("i64", lanes), "M": vector("i1", lanes),
        "S": "f64" if lanes == 1 else f"v{lanes}f64",
    }  # fmt: skip

    def real(bits: int) -> str:
        return f"0x{bits:016X}" if lanes == 1 else f"splat (double 0x{bits:016X})"

    def whole(number: int) -> str:
        return f"{number}" if lanes == 1 else f"splat (i64 {number})"

    constants = {
        "zero": real(0), "one": real(1023 << 52), "inf": real(2047 << 52),
        "nan": real(4095 << 51), "limit": real(1023 + 52 << 52), "far": real(1023 + 1000 << 52),
        "i52": whole(52), "i51": whole(51), "true": "true" if lanes == 1 else "splat (i1 true)",
        "high": whole(-1 << 27),
    }  # fmt: skip
    again = "and i1 %long, true"
    if lanes > 1:
        again = f"call i1 @llvm.vector.reduce.or.v{lanes}i1({t['M']} %long)"
    subtract = (_FUSED if has_fma else _SPLIT) + _CORRECT
    loop, last = (
        subtract.format(q=q, d=d, out=out, i=i, **t, **constants)
        for q, d, out, i in (("%q3", "%d3", "%r2", 1), ("%q0", "%d0", "%r4", 3))
    )
    return _TEMPLATE.format(name=name, again=again, loop=loop, last=last, **t, **constants)


_FUSED = """\
  %t{i} = call {D} @llvm.trunc.{S}({D} {q})
  %m{i} = fneg {D} %t{i}
  %r{i} = call {D} @llvm.fma.{S}({D} %m{i}, {D} {d}, {D} %r)"""

# The same without an FMA. A product that exceeds r may be infinite; then t is one less. The product
# of t and d is p - e: p is rounded, and e is computed from factors split into their high 26 bits
# and the others (T. J. Dekker, "A floating-point technique for extending the available
# precision", 1971). The low part of d has up to 27 bits. That of t, an integer of at most 52 bits,
# has 26. So the four products are exact.
_SPLIT = """\
  %up{i} = fadd {D} {q}, {limit}
  %near{i} = fsub {D} %up{i}, {limit}
  %above{i} = fcmp ogt {D} %near{i}, {q}
  %below{i} = fsub {D} %near{i}, {one}
  %whole{i} = select {M} %above{i}, {D} %below{i}, {D} %near{i}
  %whole_p{i} = fmul {D} %whole{i}, {d}
  %exceeds{i} = fcmp ogt {D} %whole_p{i}, %r
  %less{i} = fsub {D} %whole{i}, {one}
  %t{i} = select {M} %exceeds{i}, {D} %less{i}, {D} %whole{i}
  %p{i} = fmul {D} %t{i}, {d}
  %tbits{i} = bitcast {D} %t{i} to {I}
  %thigh{i} = and {I} %tbits{i}, {high}
  %th{i} = bitcast {I} %thigh{i} to {D}
  %tl{i} = fsub {D} %t{i}, %th{i}
  %dbits{i} = bitcast {D} {d} to {I}
  %dhigh{i} = and {I} %dbits{i}, {high}
  %dh{i} = bitcast {I} %dhigh{i} to {D}
  %dl{i} = fsub {D} {d}, %dh{i}
  %hh{i} = fmul {D} %th{i}, %dh{i}
  %hl{i} = fmul {D} %th{i}, %dl{i}
  %lh{i} = fmul {D} %tl{i}, %dh{i}
  %ll{i} = fmul {D} %tl{i}, %dl{i}
  %e1{i} = fsub {D} %p{i}, %hh{i}
  %e2{i} = fsub {D} %e1{i}, %hl{i}
  %e3{i} = fsub {D} %e2{i}, %lh{i}
  %e{i} = fsub {D} %e3{i}, %ll{i}
  %about{i} = fsub {D} %r, %p{i}
  %r{i} = fadd {D} %about{i}, %e{i}"""

# The quotient q = r / d is rounded, so trunc(q) may be one too large; if it is, d is added to the
# difference. The difference and the sum are smaller than d, and multiples of the last place of r or
# of d, so they are exact.
_CORRECT = """
  %negative{i} = fcmp olt {D} %r{i}, {zero}
  %back{i} = fadd {D} %r{i}, {d}
  {out} = select {M} %negative{i}, {D} %back{i}, {D} %r{i}"""

_TEMPLATE = """\
define internal {D} @{name}({D} %x, {D} %y) #0 {{
entry:
  %a = call {D} @llvm.fabs.{S}({D} %x)
  %b = call {D} @llvm.fabs.{S}({D} %y)
  %below = fcmp olt {D} %a, %b
  %finite = fcmp olt {D} %a, {inf}
  %nonzero = fcmp ogt {D} %b, {zero}
  %divides = and {M} %finite, %nonzero
  %notbelow = xor {M} %below, {true}
  %real = and {M} %divides, %notbelow
  %r0 = select {M} %real, {D} %a, {D} {zero}
  %d0 = select {M} %real, {D} %b, {D} {one}
  br label %check
check:
  %r = phi {D} [ %r0, %entry ], [ %r2, %scaled ]
  %q0 = fdiv {D} %r, %d0
  %long = fcmp oge {D} %q0, {limit}
  %again = {again}
  br i1 %again, label %scaled, label %last
scaled:
  %over0 = fcmp oeq {D} %q0, {inf}
  %far0 = fmul {D} %d0, {far}
  %d1 = select {M} %over0, {D} %far0, {D} %d0
  %q1 = fdiv {D} %r, %d1
  %over1 = fcmp oeq {D} %q1, {inf}
  %far1 = fmul {D} %d1, {far}
  %d2 = select {M} %over1, {D} %far1, {D} %d1
  %q2 = fdiv {D} %r, %d2
  %above = fcmp oge {D} %q2, {limit}
  %bits = bitcast {D} %q2 to {I}
  %exponent = lshr {I} %bits, {i52}
  %less = sub {I} %exponent, {i51}
  %power = shl {I} %less, {i52}
  %scale = bitcast {I} %power to {D}
  %far2 = fmul {D} %d2, %scale
  %d3 = select {M} %above, {D} %far2, {D} %d2
  %q3 = fdiv {D} %r, %d3
{loop}
  br label %check
last:
{last}
  %rest = select {M} %below, {D} %a, {D} %r4
  %valid = or {M} %below, %divides
  %out = select {M} %valid, {D} %rest, {D} {nan}
  %signed = call {D} @llvm.copysign.{S}({D} %out, {D} %x)
  ret {D} %signed
}}"""
