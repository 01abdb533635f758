"""LLVM IR spelled out: types, constants, values and how they change shape.

Values in registers: bool is i1, float16 and bfloat16 are held as float (they are narrow only in
memory), everything else as itself. In memory bool is a byte and bfloat16 an integer: LLVM's own
bfloat ends the process where a vector of it has no natural width, and its conversion to bfloat
makes subnormals 0 where the processor's does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType

__all__ = ["Text", "Value", "literal", "memory_type", "register_type", "vector"]

_MEMORY = {
    dt.bool_: "i8", dt.uint8: "i8", dt.int8: "i8", dt.uint16: "i16", dt.int16: "i16",
    dt.uint32: "i32", dt.int32: "i32", dt.uint64: "i64", dt.int64: "i64",
    dt.float16: "half", dt.bfloat16: "i16", dt.float32: "float", dt.float64: "double",
}  # fmt: skip


class Value(NamedTuple):
    """An operand: its text, its lanes (1 for a scalar) and its scalar type."""

    text: str
    lanes: int
    dtype: DType


def memory_type(dtype: DType) -> str:
    """LLVM type of one element in memory."""
    return _MEMORY[dtype]


def register_type(dtype: DType) -> str:
    """LLVM type of one element in a register."""
    if dtype is dt.bool_:
        return "i1"
    if dtype in (dt.float16, dt.bfloat16):
        return "float"
    return _MEMORY[dtype]


def vector(scalar: str, lanes: int) -> str:
    """`scalar`, or a vector of it."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def literal(value: bool | float, dtype: DType) -> str:
    """A scalar constant of the register type of `dtype`."""
    if dtype is dt.bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = dt.nearest(float(value), dtype)
    return f"0x{struct.pack('>d', number).hex().upper()}"


class Text:
    """Names values and appends instructions to whichever list of lines is current."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self._next = 0
        self._loaded: dict[tuple[str, DType], str] = {}

    def name(self, prefix: str = "v") -> str:
        """A new value name."""
        self._next += 1
        return f"%{prefix}{self._next}"

    def emit(self, instruction: str) -> str:
        """Append ``name = instruction``; give the name."""
        name = self.name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def declare(self, function: str, result: str, *types: str) -> None:
        """Let the module know an intrinsic."""
        self.declarations[function] = f"declare {result} @{function}({', '.join(types)})"

    def define(self, function: str, write: Callable[[], str]) -> None:
        """Put a function of the module's own beside the kernel, once."""
        if function not in self.declarations:
            self.declarations[function] = write()

    def call(self, function: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an intrinsic, declaring it."""
        self.declare(function, result, *(t for t, _ in arguments))
        passed = ", ".join(f"{t} {v}" for t, v in arguments)
        return self.emit(f"call {result} @{function}({passed})")

    def void_call(self, function: str, *arguments: tuple[str, str]) -> None:
        """Call an intrinsic that gives nothing, declaring it."""
        self.declare(function, "void", *(t for t, _ in arguments))
        self.lines.append(f"  call void @{function}({', '.join(f'{t} {v}' for t, v in arguments)})")

    # The alignment is an argument here, as it was up to LLVM 21; later versions read that as an
    # attribute of the pointer, but not the other way round.

    def masked_load(self, suffix: str, ty: str, address: str, align: int, mask: Value) -> str:
        """The lanes of `mask` from consecutive elements; zero in the others."""
        return self.call(
            f"llvm.masked.load.{suffix}", ty, ("ptr", address), ("i32", str(align)),
            (f"<{mask.lanes} x i1>", mask.text), (ty, "zeroinitializer"),
        )  # fmt: skip

    def masked_store(
        self, suffix: str, ty: str, value: str, address: str, align: int, mask: Value
    ) -> None:
        """Write the lanes of `mask` to consecutive elements."""
        self.void_call(
            f"llvm.masked.store.{suffix}", (ty, value), ("ptr", address), ("i32", str(align)),
            (f"<{mask.lanes} x i1>", mask.text),
        )  # fmt: skip

    # Shapes of values -------------------------------------------------------------------

    def type_of(self, value: Value) -> str:
        """LLVM type of `value`."""
        return vector(register_type(value.dtype), value.lanes)

    def constant(self, number: bool | float, dtype: DType, lanes: int = 1) -> Value:
        """`number` in every lane."""
        text = literal(number, dtype)
        return Value(text if lanes == 1 else f"splat ({register_type(dtype)} {text})", lanes, dtype)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if value.lanes == lanes:
            return value
        if not value.text.startswith("%"):
            return Value(
                f"splat ({register_type(value.dtype)} {value.text})", lanes, value.dtype
            )
        scalar = register_type(value.dtype)
        wide = vector(scalar, lanes)
        first = self.emit(f"insertelement {wide} poison, {scalar} {value.text}, i64 0")
        text = self.emit(
            f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer"
        )
        return Value(text, lanes, value.dtype)

    def lane(self, value: Value, lane: int) -> Value:
        """One lane as a scalar."""
        if value.lanes == 1:
            return value
        text = self.emit(f"extractelement {self.type_of(value)} {value.text}, i64 {lane}")
        return Value(text, 1, value.dtype)

    def pack(self, values: list[Value]) -> Value:
        """Scalars side by side in one vector."""
        if len(values) == 1:
            return values[0]
        dtype = values[0].dtype
        scalar, wide = register_type(dtype), vector(register_type(dtype), len(values))
        text = "poison"
        for i, value in enumerate(values):
            text = self.emit(f"insertelement {wide} {text}, {scalar} {value.text}, i64 {i}")
        return Value(text, len(values), dtype)

    def shuffle(self, a: Value, b: Value | None, mask: list[int]) -> Value:
        """Lanes of `a` and `b`, picked by number; -1 leaves a lane open."""
        if len(mask) == 1:
            source = a if b is None or mask[0] < a.lanes else b
            return self.lane(source, mask[0] % a.lanes)
        wide = self.type_of(a)
        second = "poison" if b is None else b.text
        picks = ", ".join(f"i32 {m}" if m >= 0 else "i32 poison" for m in mask)
        text = self.emit(
            f"shufflevector {wide} {a.text}, {wide} {second}, <{len(mask)} x i32> <{picks}>"
        )
        return Value(text, len(mask), a.dtype)

    def align(self, values: list[Value]) -> tuple[list[Value], int]:
        """`values` brought to one number of lanes."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values], lanes

    # Memory -------------------------------------------------------------------------------

    def from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        """What was loaded, in its register type."""
        narrow, wide = vector(memory_type(dtype), lanes), vector(register_type(dtype), lanes)
        if narrow == wide:
            return Value(text, lanes, dtype)
        if dtype is dt.bool_:
            out = self.emit(f"icmp ne {narrow} {text}, {'0' if lanes == 1 else 'zeroinitializer'}")
        elif dtype is dt.bfloat16:
            bits = vector("i32", lanes)
            long = self.emit(f"zext {narrow} {text} to {bits}")
            high = self.emit(f"shl {bits} {long}, {self._bits(16, lanes)}")
            out = self.emit(f"bitcast {bits} {high} to {wide}")
        else:
            out = self.emit(f"fpext {narrow} {text} to {wide}")
        if dtype.is_float:
            self._loaded[out, dtype] = text
        return Value(out, lanes, dtype)

    def to_memory(self, value: Value) -> str:
        """A value as it is stored; what was loaded and only moves keeps all its bits."""
        narrow, wide = vector(memory_type(value.dtype), value.lanes), self.type_of(value)
        if narrow == wide:
            return value.text
        loaded = self._loaded.get((value.text, value.dtype))
        if loaded is not None:
            return loaded
        if value.dtype is dt.bool_:
            return self.emit(f"zext {wide} {value.text} to {narrow}")
        if value.dtype is dt.bfloat16:
            return self._to_bfloat16(value)
        return self.emit(f"fptrunc {wide} {value.text} to {narrow}")

    def _to_bfloat16(self, value: Value) -> str:
        """The upper half of a float, rounded to nearest, ties to even; NaN stays NaN."""
        lanes = value.lanes
        bits, wide = vector("i32", lanes), self.type_of(value)
        raw = self.emit(f"bitcast {wide} {value.text} to {bits}")
        high = self.emit(f"lshr {bits} {raw}, {self._bits(16, lanes)}")
        odd = self.emit(f"and {bits} {high}, {self._bits(1, lanes)}")
        half = self.emit(f"add {bits} {odd}, {self._bits(0x7FFF, lanes)}")
        near = self.emit(f"add {bits} {raw}, {half}")
        rounded = self.emit(f"lshr {bits} {near}, {self._bits(16, lanes)}")
        quiet = self.emit(f"or {bits} {high}, {self._bits(0x40, lanes)}")
        nan = self.emit(f"fcmp uno {wide} {value.text}, {value.text}")
        mask = vector("i1", lanes)
        out = self.emit(f"select {mask} {nan}, {bits} {quiet}, {bits} {rounded}")
        return self.emit(f"trunc {bits} {out} to {vector('i16', lanes)}")

    def _bits(self, number: int, lanes: int) -> str:
        return str(number) if lanes == 1 else f"splat (i32 {number})"
