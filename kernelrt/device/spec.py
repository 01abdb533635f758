"""DeviceSpec: the properties of a processor that code generation needs.

:func:`host` is the target of this process. It is the processor itself, unless the environment
variable ``KERNELRT_TARGET`` names another target.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from kernelrt import dtype as dt
from kernelrt.errors import DeviceError
from kernelrt.ir.ops import HALVES, Op, Parts
from kernelrt.util.lazy_import import Module, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kernelrt.device import processor
    from kernelrt.dtype import DType
else:
    processor = Module("kernelrt.device.processor")

__all__ = [
    "LINE", "NATIVE", "PAGE", "SETTING", "TARGETS", "TLB_PAGES", "WAY", "DeviceSpec", "host",
    "lacking", "machine", "named", "runnable", "target_name",
]  # fmt: skip

SETTING: Final = "KERNELRT_TARGET"
"""Environment variable that names the target of a process: a key of :data:`TARGETS`, or native."""
NATIVE: Final = "native"
LINE: Final = 64
"""Bytes of a cache line."""
PAGE: Final = 4096
"""Bytes of a page: physical memory is contiguous within one."""
WAY: Final = 4096
"""Bytes of a way of the L1 cache: addresses this far apart map to the same set.

The cache is indexed while the address is translated, so a way is no larger than a page.
"""
TLB_PAGES: Final = 2048
"""Pages whose addresses a core keeps translated, about: TLBs hold 1,500 to 3,000."""

_ARM64: Final = ("aarch64", "arm64")
#: Features of every 64-bit Arm processor.
_ARM64_BASE: Final = ("neon", "fp-armv8")
#: Features that code generation uses, with their bits in Linux's AT_HWCAP and AT_HWCAP2 and their
#: names on macOS. LLVM does not name all of those that a processor has.
_ARM64_FEATURES: Final = {
    "dotprod": (16, 1 << 20, "FEAT_DotProd"), "i8mm": (26, 1 << 13, "FEAT_I8MM"),
}  # fmt: skip
_KIB = 1024
_L1_DEFAULT = 32 * _KIB
_L2_DEFAULT = 512 * _KIB
_L3_DEFAULT = 16 << 20
_L2_WAYS = 16  # assumed, at least; processors have 4 to 20


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A target of code generation, as plain data. The device itself need not exist.

    Attributes
    ----------
    name : str
        Name in the device registry, e.g. ``"CPU"``.
    triple : str
        LLVM target triple.
    cpu : str
        LLVM CPU name.
    features : str
        LLVM feature string, ``"+avx2,+fma,..."``.
    vector_bits : int
        Width of the vector registers to use, in bits.
    vector_registers : int
        Number of vector registers.
    cores : int
        Number of processors that this process may use.
    l1_bytes, l2_bytes : int
        Data cache sizes of one core, in bytes.
    l3_bytes : int
        Size of the cache that cores share, in bytes.

    Examples
    --------
    >>> DeviceSpec.avx2().lanes(4)
    8
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    cores: int = 1
    l1_bytes: int = _L1_DEFAULT
    l2_bytes: int = _L2_DEFAULT
    l3_bytes: int = _L3_DEFAULT

    def lanes(self, itemsize: int) -> int:
        """Return the number of elements of `itemsize` bytes in a vector register."""
        return max(1, self.vector_bits // (8 * itemsize))

    @property
    def code_key(self) -> str:
        """Everything that generated code depends on: all fields but the number of cores.

        The sizes of the caches decide the default tiling. The machine code of a given LLVM IR
        depends on the triple, the CPU name and the features alone.
        """
        return repr(replace(self, cores=1))

    @property
    def in_files(self) -> Self:
        """The target of code in files, whose objects are ELF files on every system.

        Kernels call no functions, so the same code runs on Linux and macOS. The register x18 is not
        used, because macOS reserves it. On an Arm processor, only features that the reader of the
        file can check are used.
        """
        architecture = "aarch64" if self.is_arm64 else self.triple.partition("-")[0]
        triple = f"{architecture}-unknown-linux-gnu"
        if not self.is_arm64:
            return replace(self, triple=triple)
        known = [f for f in (*_ARM64_BASE, *_ARM64_FEATURES) if self.has(f)]
        features = ",".join(f"+{f}" for f in (*known, "reserve-x18"))
        return replace(self, triple=triple, cpu="generic", features=features)

    @property
    def few_registers(self) -> bool:
        """Whether the tile of a product has 16 vector registers, not 32."""
        return self.vector_registers <= 16

    @property
    def panel_bytes(self) -> int:
        """Maximum size of a packed panel of an operand in bytes, a quarter of the L2 cache."""
        return self.l2_bytes // 4

    def evicts(self, lines: int, step_bytes: int) -> bool:
        """Return whether lines that are `step_bytes` apart evict each other from the L2 cache.

        Parameters
        ----------
        lines : int
            Number of lines.
        step_bytes : int
            Distance of their addresses.

        Examples
        --------
        >>> DeviceSpec.avx2().evicts(512, 4096), DeviceSpec.avx2().evicts(512, 4096 + 64)
        (True, False)
        """
        # A way has a power of two of sets; 1.25 MiB are 20 ways of 64 KiB.
        way = 1 << (self.l2_bytes // _L2_WAYS | 1).bit_length() - 1
        return lines > self.l2_bytes // max(LINE, math.gcd(step_bytes, way))

    def has(self, feature: str) -> bool:
        """Return whether `feature` (``"avx512f"``, ``"fma"``) is enabled."""
        return f"+{feature}" in self.features.split(",")

    @property
    def is_arm64(self) -> bool:
        """Whether this is a 64-bit Arm processor."""
        return self.triple.startswith(_ARM64)

    @property
    def is_x86(self) -> bool:
        """Whether this is a 64-bit x86 processor."""
        return self.triple.startswith("x86_64")

    @property
    def has_fma(self) -> bool:
        """Whether there is a fused multiply-add instruction."""
        return self.is_arm64 or self.has("fma")

    def adds_products(self, op: Op, dtype: DType) -> bool:
        """Return whether one instruction computes the product `op` and adds it to a sum.

        Examples
        --------
        >>> from kernelrt import dtype as dt
        >>> DeviceSpec.avx2().adds_products(Op.MUL, dt.float32)
        True
        >>> DeviceSpec.avx2().adds_products(Op.MUL, dt.int32)
        False
        """
        if op is Op.MUL:
            return self.has_fma and dtype.is_float
        return op is Op.DOT and (dtype.is_float or self.is_arm64 or self.has_vnni)

    @property
    def has_half(self) -> bool:
        """Whether there is an instruction to convert float16 from and to float32."""
        return self.is_arm64 or self.has("f16c")

    @property
    def has_vnni(self) -> bool:
        """Whether this is an x86-64 processor that adds products of words with one instruction."""
        vectors = self.has("avx512vnni") and self.has("avx512vl")
        return vectors or (self.has("avxvnni") and self.vector_bits <= 256)

    @property
    def has_rounding(self) -> bool:
        """Whether there is an instruction to round floats to integers."""
        return self.is_arm64 or self.has("sse4.1")

    def dot(self, dtype: DType, other: DType | None = None) -> Parts | None:
        """Return how the dot-product instruction for two types reads words of its operands.

        Parameters
        ----------
        dtype, other : DType
            Types of the operands; by default both have the same.

        Returns
        -------
        Parts or None
            None if there is no such instruction. The instruction may exist only for another
            signedness of the bytes of `other`. Then `other_signed` differs from the signedness of
            `other`, and the caller has to flip the highest bit of each of its bytes.

        Examples
        --------
        >>> from kernelrt import dtype as dt
        >>> DeviceSpec.avx2().dot(dt.int8, dt.int16), DeviceSpec.neon().dot(dt.int8)
        (Parts(number=2, signed=True, other_signed=True), None)
        >>> DeviceSpec.neon_dot().dot(dt.int8, dt.uint8)
        Parts(number=4, signed=True, other_signed=True)
        """
        types = (dtype, other or dtype)
        return next((p for p in self._forms(*types) if self.has_dot(p, dtype)), None)

    def _forms(self, dtype: DType, other: DType) -> Iterator[Parts]:
        """Yield how words of numbers of two types may be read, the best first."""
        if dtype.is_int and other.is_int:
            if dtype.bits == other.bits == 8:
                signed = dtype.is_signed
                yield Parts(4, signed, other.is_signed)
                yield Parts(4, signed, not other.is_signed)
            if max(dtype.max, other.max) < 1 << 15:
                yield HALVES
        elif dtype is other is dt.bfloat16:
            yield HALVES

    def has_dot(self, parts: Parts, dtype: DType) -> bool:
        """Return whether there is a dot-product instruction for `parts` of words.

        Parameters
        ----------
        parts : Parts
            How it reads the words of its operands.
        dtype : DType
            Type of the operands or of the sum: an integer or a float.

        Examples
        --------
        >>> from kernelrt import dtype as dt
        >>> DeviceSpec.neon_dot().has_dot(Parts(4, True, False), dt.int32)
        False
        """
        alike = parts.signed is parts.other_signed
        if self.is_arm64:
            return parts.number == 4 and self.has("dotprod") and (alike or self.has("i8mm"))
        if not self.triple.startswith("x86_64"):
            return False
        if dtype.is_float:
            return self.has("avx512bf16") and self.has("avx512vl")
        return parts == HALVES or (self.has_vnni and not alike)

    @classmethod
    def avx512(cls, cores: int = 1) -> Self:
        """Return the spec of an x86-64 server with AVX-512."""
        extra = "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
        return cls(
            "CPU", "x86_64-unknown-linux-gnu", "x86-64-v4", f"{_AVX2},{extra}", 512, 32, cores,
            48 * _KIB, 2048 * _KIB, 32 << 20,
        )  # fmt: skip

    @classmethod
    def avx2(cls, cores: int = 1) -> Self:
        """Return the spec of an x86-64 machine with AVX2 and FMA."""
        return cls("CPU", "x86_64-unknown-linux-gnu", "x86-64-v3", _AVX2, 256, 16, cores)

    @classmethod
    def neon(cls, cores: int = 1) -> Self:
        """Return the spec of a 64-bit Arm machine."""
        return cls(
            "CPU", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 128, 32, cores,
            64 * _KIB,
        )  # fmt: skip

    @classmethod
    def neon_dot(cls, cores: int = 1) -> Self:
        """Return the spec of a 64-bit Arm machine with dot products of bytes of like signedness."""
        spec = cls.neon(cores)
        return replace(spec, features=f"{spec.features},+dotprod")

    @classmethod
    def neon_i8mm(cls, cores: int = 1) -> Self:
        """Return the spec of a 64-bit Arm machine with dot products of all bytes."""
        spec = cls.neon_dot(cores)
        return replace(spec, features=f"{spec.features},+i8mm")

    @classmethod
    def sse4(cls, cores: int = 1) -> Self:
        """Return the spec of an x86-64 machine with SSE4.2 but without fused multiply-add."""
        return cls("CPU", "x86_64-unknown-linux-gnu", "x86-64-v2", _SSE4, 128, 16, cores)

    @classmethod
    def generic(cls, cores: int = 1) -> Self:
        """Return the spec of any x86-64 machine: SSE2, without fused multiply-add."""
        return cls("CPU", "x86_64-unknown-linux-gnu", "x86-64", "+sse,+sse2", 128, 16, cores)


# All that LLVM's name of the level allows, beyond what every x86-64 processor has: `lacking` finds
# only features that are named.
_SSE4 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+crc32,+cx16,+sahf"
_AVX2 = f"{_SSE4},+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+xsave"

TARGETS: Final[Mapping[str, Callable[[], DeviceSpec]]] = {
    "x86-64": DeviceSpec.generic, "x86-64-v2": DeviceSpec.sse4, "x86-64-v3": DeviceSpec.avx2,
    "x86-64-v4": DeviceSpec.avx512, "armv8-a": DeviceSpec.neon,
    "armv8.2-a": DeviceSpec.neon_dot, "armv8.6-a": DeviceSpec.neon_i8mm,
}  # fmt: skip
"""Targets by name, in each architecture the newest last.

The x86-64 levels are those of the System V psABI. ``armv8.2-a`` has the optional dot products of
bytes, too. Of what Armv8.6-A adds, ``armv8.6-a`` has products of signed with unsigned bytes alone.
Sizes of caches are constants, so that all machines run the same code.
"""


@functools.cache
def host() -> DeviceSpec:
    """Return the target of this process: this machine, or the one that ``KERNELRT_TARGET`` names.

    The first call reads the variable. It also asks LLVM for this processor, and imports llvmlite
    for this, unless the answer is in the cache on disk.

    Raises
    ------
    DeviceError
        ``KERNELRT_TARGET`` names no target, or one whose code this machine cannot run.

    Examples
    --------
    >>> host().name
    'CPU'
    """
    return named(target_name(), machine(), SETTING)


def target_name() -> str:
    """Return the value of ``KERNELRT_TARGET`` in lower case, or :data:`NATIVE` if it is not set.

    Examples
    --------
    >>> target_name() in (NATIVE, *TARGETS)
    True
    """
    return os.environ.get(SETTING, "").strip().lower() or NATIVE


def named(name: str, here: DeviceSpec, source: str) -> DeviceSpec:
    """Return the target called `name` of a process on the machine `here`.

    Parameters
    ----------
    name : str
        :data:`NATIVE` for `here`, or a key of :data:`TARGETS`.
    here : DeviceSpec
        The machine.
    source : str
        The variable or option that gave the name, for error messages.

    Returns
    -------
    DeviceSpec
        The target, with the cores and the object format of `here`.

    Raises
    ------
    DeviceError
        There is no such target, or `here` cannot run its code.

    Examples
    --------
    >>> named("x86-64-v2", DeviceSpec.avx2(cores=4), "--target") == DeviceSpec.sse4(cores=4)
    True
    """
    if name == NATIVE:
        return here
    runs = ", ".join(runnable(here))
    if name not in TARGETS:
        raise DeviceError(
            f"{source}: {name!r} is no target; expected {NATIVE!r}, or one of "
            f"{', '.join(TARGETS)}; this machine runs {runs}"
        )
    there = TARGETS[name]()
    if missing := lacking(there, here):
        raise DeviceError(
            f"{source}: this machine ({here.cpu}) cannot run code for {name!r}, as it lacks "
            f"{', '.join(missing)}; set it to {NATIVE!r}, or to one of {runs}"
        )
    return replace(there, triple=here.triple, cores=here.cores)


def runnable(here: DeviceSpec) -> list[str]:
    """Return the names of the targets whose code the machine `here` can run.

    Examples
    --------
    >>> runnable(DeviceSpec.avx2()), runnable(DeviceSpec.neon())
    (['x86-64', 'x86-64-v2', 'x86-64-v3'], ['armv8-a'])
    """
    return [name for name, make in TARGETS.items() if not lacking(make(), here)]


def lacking(target: DeviceSpec, here: DeviceSpec) -> list[str]:
    """Return the features of `target`, or its architecture, that the machine `here` does not have.

    Examples
    --------
    >>> lacking(DeviceSpec.sse4(), DeviceSpec.generic())
    ['sse3', 'ssse3', 'sse4.1', 'sse4.2', 'popcnt', 'crc32', 'cx16', 'sahf']
    """
    wanted, found = (spec.triple.partition("-")[0] for spec in (target, here))
    if wanted != found and not (wanted in _ARM64 and found in _ARM64):
        return [wanted]
    everywhere = _ARM64_BASE if wanted in _ARM64 else ()
    features = [f[1:] for f in target.features.split(",")]
    return [f for f in features if f not in everywhere and not here.has(f)]


@functools.cache
def machine() -> DeviceSpec:
    """Return the spec of the processor that this process runs on, whatever its target.

    Examples
    --------
    >>> machine().name
    'CPU'
    """
    triple, name, features = processor.described()
    if triple.startswith(_ARM64):
        features |= _arm64_features()
    bits, registers = _vectors(triple, features)
    return DeviceSpec(
        name="CPU",
        triple=triple,
        cpu=name,
        features=",".join(f"{'+' if on else '-'}{f}" for f, on in sorted(features.items())),
        vector_bits=bits,
        vector_registers=registers,
        cores=_cores(),
        l1_bytes=_cache_bytes(1) or _L1_DEFAULT,
        l2_bytes=_cache_bytes(2) or _L2_DEFAULT,
        l3_bytes=_cache_bytes(3) or _L3_DEFAULT,
    )


def _arm64_features() -> dict[str, bool]:
    """Return which of the features in `_ARM64_FEATURES` this arm64 processor has."""
    load("ctypes")
    import ctypes

    process = ctypes.CDLL(None)
    found = {}
    for feature, (word, bit, name) in _ARM64_FEATURES.items():
        if sys.platform == "darwin":
            value, size = ctypes.c_int(0), ctypes.c_size_t(4)
            key = f"hw.optional.arm.{name}".encode()
            process.sysctlbyname(key, ctypes.byref(value), ctypes.byref(size), None, 0)
            found[feature] = bool(value.value)
        else:
            process.getauxval.restype = ctypes.c_ulong
            process.getauxval.argtypes = [ctypes.c_ulong]
            found[feature] = bool(process.getauxval(word) & bit)
    return found


def _vectors(triple: str, features: dict[str, bool]) -> tuple[int, int]:
    if triple.startswith(_ARM64):
        return 128, 32
    if all(features.get(f) for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        return 512, 32
    return (256, 16) if features.get("avx2") else (128, 16)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def _cache_bytes(level: int) -> int:
    """Return the size of the data cache of `level` of the first core, or 0 if it is unknown."""
    load("pathlib")
    from pathlib import Path

    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((index / "level").read_text()) != level:
                continue
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            return int(text.rstrip("K")) * (_KIB if text.endswith("K") else 1)
        except (OSError, ValueError):
            continue
    return 0
