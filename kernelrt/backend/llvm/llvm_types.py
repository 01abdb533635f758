"""LLVM IR as text: types, constants, values, and conversions between vector shapes.

In registers, bool is i1, and float16 and bfloat16 are float (32 bits). In memory, bool is a byte,
and float16 and bfloat16 are 16-bit integers. All other dtypes have the same type in both. LLVM's
own types half and bfloat are not used, for three reasons. LLVM ends the process if it cannot lower
a vector length of bfloat. Its bfloat conversion flushes subnormals to 0 if the processor's
instruction does so. And its conversion to half may call a function that does not exist.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.backend.llvm.guarded_compares import GuardedCompares

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType

__all__ = ["Text", "Value", "literal", "memory_type", "register_type", "suffix", "vector"]

_MEMORY = {
    dt.bool_: "i8", dt.uint8: "i8", dt.int8: "i8", dt.uint16: "i16", dt.int16: "i16",
    dt.uint32: "i32", dt.int32: "i32", dt.uint64: "i64", dt.int64: "i64",
    dt.float16: "i16", dt.bfloat16: "i16", dt.float32: "float", dt.float64: "double",
}  # fmt: skip


class Value(NamedTuple):
    """An operand: its text, number of lanes (1 for a scalar) and element dtype."""

    text: str
    lanes: int
    dtype: DType


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory."""
    return _MEMORY[dtype]


def register_type(dtype: DType) -> str:
    """Return the LLVM type of one element in a register."""
    return "i1" if dtype is dt.bool_ else _MEMORY[dtype.accumulator]


def vector(scalar: str, lanes: int) -> str:
    """Return the LLVM type of a vector of `scalar`, or `scalar` itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def suffix(value: Value) -> str:
    """Return the suffix of intrinsics for the type of `value`, such as ``v8f32``."""
    return _suffix(register_type(value.dtype), value.lanes)


def _parts(ty: str) -> tuple[str, int]:
    """Return the scalar type and the number of lanes of an LLVM type."""
    lanes, _, scalar = ty.strip("<>").rpartition(" x ")
    return scalar, int(lanes or 1)


def _suffix(scalar: str, lanes: int) -> str:
    name = {"float": "f32", "double": "f64"}.get(scalar, scalar)
    return name if lanes == 1 else f"v{lanes}{name}"


def literal(value: bool | float, dtype: DType) -> str:
    """Return a scalar constant of the register type of `dtype`."""
    if dtype is dt.bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = dt.nearest(float(value), dtype)
    return f"0x{struct.pack('>d', number).hex().upper()}"


class Text:
    """Names values, and appends instructions to the current list of lines.

    The attribute `known` memoizes values that may be used in these lines.

    Parameters
    ----------
    has_half : bool
        Whether the target has instructions to convert between float16 and float32.
    folds_compares : bool
        Whether LLVM replaces two compares of floats by one that is wrong for signaling NaNs.
    has_rounding : bool
        Whether the target rounds floats to integers.
    has_fma : bool
        Whether the target multiplies and adds in one instruction.
    """

    def __init__(
        self,
        has_half: bool = True,
        folds_compares: bool = False,
        has_rounding: bool = True,
        has_fma: bool = True,
    ) -> None:
        self.has_half = has_half
        self.folds_compares = folds_compares
        self.has_rounding = has_rounding
        self.has_fma = has_fma
        self._guarded = GuardedCompares(self._append, self._fence) if folds_compares else None
        self.lines: list[str] = []
        self.known: dict[object, Value] = {}
        self.declarations: dict[str, str] = {}
        self._next = 0
        self._loaded: dict[tuple[str, DType], str] = {}

    def name(self, prefix: str = "v") -> str:
        """Return a new value name."""
        self._next += 1
        return f"%{prefix}{self._next}"

    def emit(self, instruction: str) -> str:
        """Append ``name = instruction``. Return the name."""
        guarded = self._guarded
        return self._append(instruction) if guarded is None else guarded.emit(instruction)

    def _append(self, instruction: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def declare(self, function: str, result: str, *types: str) -> None:
        """Declare an intrinsic in the module."""
        self.declarations[function] = f"declare {result} @{function}({', '.join(types)})"

    def define(self, function: str, write: Callable[[], str]) -> None:
        """Add a function to the module, next to the kernel, unless it is already there."""
        if function not in self.declarations:
            self.declarations[function] = write()

    def call(self, function: str, result: str, *arguments: tuple[str, str]) -> str:
        """Declare and call an intrinsic. Return the name of its result."""
        self.declare(function, result, *(t for t, _ in arguments))
        passed = ", ".join(f"{t} {v}" for t, v in arguments)
        return self.emit(f"call {result} @{function}({passed})")

    def void_call(self, function: str, *arguments: tuple[str, str]) -> None:
        """Declare and call an intrinsic without a result."""
        self.declare(function, "void", *(t for t, _ in arguments))
        self.lines.append(f"  call void @{function}({', '.join(f'{t} {v}' for t, v in arguments)})")

    # The alignment is passed as an argument, as up to LLVM 21. Later versions read that as an
    # attribute of the pointer; older ones do not accept the attribute.

    # LLVM pads a mask of, for example, six lanes with undefined lanes. On AVX2 it then has loaded
    # lanes that are off (LLVM 20 and 22). So this code pads the mask itself: the added lanes are
    # frozen and cleared by an AND. A shuffle with constant lanes fails if the whole mask is off
    # (both versions), and so does an AND without a freeze for three int64 (LLVM 20).

    def masked_load(self, scalar: str, address: str, align: int, mask: Value) -> str:
        """Load consecutive elements in the lanes of `mask`; other lanes are zero."""
        wide = self._padded(mask)
        ty = vector(scalar, wide.lanes)
        raw = self.call(
            f"llvm.masked.load.{_suffix(scalar, wide.lanes)}.p0", ty, ("ptr", address),
            ("i32", str(align)), (vector("i1", wide.lanes), wide.text), (ty, "zeroinitializer"),
        )  # fmt: skip
        return self._resized(ty, raw, mask.lanes, wide.lanes)

    def masked_store(
        self, scalar: str, value: str, address: str, align: int, mask: Value
    ) -> None:
        """Store consecutive elements in the lanes of `mask`."""
        wide = self._padded(mask)
        ty = vector(scalar, wide.lanes)
        value = self._resized(vector(scalar, mask.lanes), value, wide.lanes, mask.lanes)
        self.void_call(
            f"llvm.masked.store.{_suffix(scalar, wide.lanes)}.p0", (ty, value), ("ptr", address),
            ("i32", str(align)), (vector("i1", wide.lanes), wide.text),
        )  # fmt: skip

    def _padded(self, mask: Value) -> Value:
        """Pad `mask` to a power of two of lanes; the added lanes are false."""
        lanes = 1 << (mask.lanes - 1).bit_length()
        if lanes == mask.lanes:
            return mask
        key = "padded", mask
        found = self.known.get(key)
        if found is None:
            ty = vector("i1", lanes)
            wide = self._resized(vector("i1", mask.lanes), mask.text, lanes, mask.lanes)
            there = ", ".join(f"i1 {literal(i < mask.lanes, dt.bool_)}" for i in range(lanes))
            text = self.emit(f"and {ty} {self.emit(f'freeze {ty} {wide}')}, <{there}>")
            found = self.known[key] = Value(text, lanes, dt.bool_)
        return found

    def _resized(self, ty: str, text: str, lanes: int, before: int) -> str:
        """Return a vector of type `ty` cut or extended to `lanes` lanes; new ones are undefined."""
        if lanes == before:
            return text
        picks = ", ".join(f"i32 {i}" if i < before else "i32 poison" for i in range(lanes))
        return self.emit(f"shufflevector {ty} {text}, {ty} poison, <{lanes} x i32> <{picks}>")

    def fence(self, value: Value) -> Value:
        """Return `value`, a float, behind a fence: LLVM's optimizations do not look through it.

        The fence takes no instruction.
        """
        text = self._fence(self.type_of(value), value.text)
        return Value(text, value.lanes, value.dtype)

    def _fence(self, ty: str, text: str) -> str:
        scalar, lanes = _parts(ty)
        return self.call(f"llvm.arithmetic.fence.{_suffix(scalar, lanes)}", ty, (ty, text))

    # Shapes of values -------------------------------------------------------------------

    def type_of(self, value: Value) -> str:
        """Return the LLVM type of `value`."""
        return vector(register_type(value.dtype), value.lanes)

    def constant(self, number: bool | float, dtype: DType, lanes: int = 1) -> Value:
        """Return `number` in every lane."""
        text = literal(number, dtype)
        return Value(text if lanes == 1 else f"splat ({register_type(dtype)} {text})", lanes, dtype)

    def splat(self, value: Value, lanes: int) -> Value:
        """Broadcast a scalar to all lanes."""
        if value.lanes == lanes:
            return value
        if not value.text.startswith("%"):
            return Value(
                f"splat ({register_type(value.dtype)} {value.text})", lanes, value.dtype
            )
        key = "splat", value, lanes
        found = self.known.get(key)
        if found is None:
            scalar = register_type(value.dtype)
            wide = vector(scalar, lanes)
            first = self.emit(f"insertelement {wide} poison, {scalar} {value.text}, i64 0")
            text = self.emit(
                f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer"
            )
            found = self.known[key] = Value(text, lanes, value.dtype)
        return found

    def lane(self, value: Value, lane: int) -> Value:
        """Extract one lane as a scalar."""
        if value.lanes == 1:
            return value
        text = self.emit(f"extractelement {self.type_of(value)} {value.text}, i64 {lane}")
        return Value(text, 1, value.dtype)

    def pack(self, values: list[Value]) -> Value:
        """Pack scalars into one vector."""
        if len(values) == 1:
            return values[0]
        dtype = values[0].dtype
        scalar, wide = register_type(dtype), vector(register_type(dtype), len(values))
        text = "poison"
        for i, value in enumerate(values):
            text = self.emit(f"insertelement {wide} {text}, {scalar} {value.text}, i64 {i}")
        return Value(text, len(values), dtype)

    def shuffle(self, a: Value, b: Value | None, mask: list[int]) -> Value:
        """Select lanes of `a` and `b` by number. The number -1 gives an undefined lane."""
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
        """Broadcast scalars in `values` to the number of lanes of the others."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values], lanes

    # Memory -------------------------------------------------------------------------------

    def from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        """Convert a loaded value to its register type."""
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
        elif self.has_half and lanes == 1:
            out = self._from_one_float16(text)
        elif self.has_half:
            half = self.emit(f"bitcast {narrow} {text} to {vector('half', lanes)}")
            out = self.emit(f"fpext {vector('half', lanes)} {half} to {wide}")
        else:
            out = self._from_float16(text, lanes)
        if dtype.is_float:
            self._loaded[out, dtype] = text
        return Value(out, lanes, dtype)

    def to_memory(self, value: Value) -> str:
        """Convert a value to its memory type. A value that was loaded gets the same bits again."""
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
        if not self.has_half:
            return self._to_float16(value)
        half = vector("half", value.lanes)
        small = self.emit(f"fptrunc {wide} {value.text} to {half}")
        return self.emit(f"bitcast {half} {small} to {narrow}")

    def _to_bfloat16(self, value: Value) -> str:
        """Round a float to its upper half, to nearest, ties to even; NaN stays NaN."""
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

    def _from_one_float16(self, text: str) -> str:
        """Convert the bits of one float16 to a float, by an instruction on a whole vector register.

        LLVM would write only a part of a register. Then the processor would wait for the
        instruction that wrote the rest of the register, such as the conversion of the previous
        element.
        """
        long = self.emit(f"zext i16 {text} to i32")
        whole = self.emit(f"insertelement <4 x i32> zeroinitializer, i32 {long}, i64 0")
        halves = self.emit(f"bitcast <4 x i32> {whole} to <8 x half>")
        first = self.emit(
            f"shufflevector <8 x half> {halves}, <8 x half> poison, "
            "<4 x i32> <i32 0, i32 1, i32 2, i32 3>"
        )
        floats = self.emit(f"fpext <4 x half> {first} to <4 x float>")
        return self.emit(f"extractelement <4 x float> {floats}, i64 0")

    def _from_float16(self, text: str, lanes: int) -> str:
        """Convert the bits of a float16 to a float by arithmetic only."""
        bits, wide = vector("i32", lanes), vector("float", lanes)
        long = self.emit(f"zext {vector('i16', lanes)} {text} to {bits}")
        rest = self.emit(f"and {bits} {long}, {self._bits(0x7FFF, lanes)}")
        moved = self.emit(f"shl {bits} {rest}, {self._bits(13, lanes)}")
        # The exponent's bias is 15, not float's 127. The multiplication makes subnormals normal.
        small = self.emit(f"bitcast {bits} {moved} to {wide}")
        scale = self.constant(2.0**112, dt.float32, lanes).text
        scaled = self.emit(f"fmul {wide} {small}, {scale}")
        value = self.emit(f"bitcast {wide} {scaled} to {bits}")
        endless = self.emit(f"icmp ugt {bits} {rest}, {self._bits(0x7BFF, lanes)}")
        top = self.emit(f"or {bits} {value}, {self._bits(0x7F800000, lanes)}")
        out = self.emit(f"select {vector('i1', lanes)} {endless}, {bits} {top}, {bits} {value}")
        sign = self.emit(f"xor {bits} {long}, {rest}")
        high = self.emit(f"shl {bits} {sign}, {self._bits(16, lanes)}")
        both = self.emit(f"or {bits} {out}, {high}")
        return self.emit(f"bitcast {bits} {both} to {wide}")

    def _to_float16(self, value: Value) -> str:
        """Convert a float to the bits of the nearest float16, ties to even, by arithmetic only."""
        lanes = value.lanes
        bits, wide, mask = vector("i32", lanes), self.type_of(value), vector("i1", lanes)

        def number(n: int) -> str:
            return self._bits(n, lanes)

        raw = self.emit(f"bitcast {wide} {value.text} to {bits}")
        size = self.emit(f"and {bits} {raw}, {number(0x7FFFFFFF)}")
        sign = self.emit(f"xor {bits} {raw}, {size}")
        # Normal numbers: change the bias; round to nearest, ties to an even last bit.
        shifted = self.emit(f"lshr {bits} {size}, {number(13)}")
        odd = self.emit(f"and {bits} {shifted}, {number(1)}")
        rounded = self.emit(f"add {bits} {size}, {odd}")
        near = self.emit(f"add {bits} {rounded}, {number(0xFFF - (112 << 23))}")
        normal = self.emit(f"lshr {bits} {near}, {number(13)}")
        # Subnormal numbers: adding 1/2 rounds to their last place.
        plain = self.emit(f"bitcast {bits} {size} to {wide}")
        half = self.constant(0.5, dt.float32, lanes).text
        sum_ = self.emit(f"fadd {wide} {plain}, {half}")
        raised = self.emit(f"bitcast {wide} {sum_} to {bits}")
        tiny = self.emit(f"sub {bits} {raised}, {number(0x3F000000)}")
        is_tiny = self.emit(f"icmp ult {bits} {size}, {number(0x38800000)}")
        out = self.emit(f"select {mask} {is_tiny}, {bits} {tiny}, {bits} {normal}")
        is_nan = self.emit(f"icmp ugt {bits} {size}, {number(0x7F800000)}")
        endless = self.emit(
            f"select {mask} {is_nan}, {bits} {number(0x7E00)}, {bits} {number(0x7C00)}"
        )
        is_great = self.emit(f"icmp uge {bits} {size}, {number(0x47800000)}")
        out = self.emit(f"select {mask} {is_great}, {bits} {endless}, {bits} {out}")
        high = self.emit(f"lshr {bits} {sign}, {number(16)}")
        both = self.emit(f"or {bits} {out}, {high}")
        return self.emit(f"trunc {bits} {both} to {vector('i16', lanes)}")

    def _bits(self, number: int, lanes: int) -> str:
        return str(number) if lanes == 1 else f"splat (i32 {number})"
