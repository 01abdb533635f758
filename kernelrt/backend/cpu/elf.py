"""ELF object files: undefined symbols, and linking of kernels to position-independent code."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.device.spec import PAGE
from kernelrt.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ALIGNMENT", "flat", "undefined"]

# ELF-64, little endian (System V ABI): the header, a section header, a symbol, a relocation.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC = 1, 2
_IDENT = b"\x7fELF\x02\x01"
_X86_64, _AARCH64 = 62, 183
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_CHOSEN = 10  # a function that the dynamic linker chooses when it loads the code

ALIGNMENT: Final = 64
"""Alignment of each kernel's code in bytes; the code of a program begins at a page."""


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class _Object:
    """A parsed object file."""

    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]


def _parse(data: bytes) -> _Object:
    fields = _HEADER.unpack_from(data)
    machine, offset, size, count, names_at = (fields[i] for i in (2, 6, 11, 12, 13))
    raw = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
    names = raw[names_at][4]
    sections = [
        _Section(
            _text(data, names + s[0]), s[1], s[2],
            b"" if s[1] == _NOBITS else data[s[4] : s[4] + s[5]], s[6], s[7], s[8],
        )
        for s in raw
    ]  # fmt: skip
    symbols: list[_Symbol] = []
    for section in sections:
        if section.kind == _SYMTAB:
            strings = sections[section.link].data
            symbols += [
                _Symbol(_text(strings, name), info & 15, where, value)
                for name, info, _, where, value, _ in _SYMBOL.iter_unpack(section.data)
            ]
    return _Object(machine, sections, symbols)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(0, start)].decode()


def undefined(data: bytes) -> list[str]:
    """Return the names of the symbols that an ELF object refers to, but does not define.

    The list is empty if the object is malformed or in another format.
    """
    try:
        symbols = _parse(data).symbols if data.startswith(_IDENT) else []
    except (struct.error, ValueError, IndexError):
        return []
    return [s.name for s in symbols if s.name and s.section == 0]


def flat(objects: Iterable[tuple[str, bytes]], triple: str) -> tuple[bytes, list[int]]:
    """Link objects to one block of position-independent code and constants.

    Parameters
    ----------
    objects : iterable of (str, bytes)
        Name of the function to call, and the object that defines it.
    triple : str
        Target of the objects.

    Returns
    -------
    code : bytes
        The block. It runs at the start of any page.
    entries : list of int
        Offset of each function in the block.

    Raises
    ------
    CompileError
        An object calls a function that it does not define, has writable data, is for another
        target, or is malformed.
    """
    code = bytearray()
    entries = []
    machine = _MACHINES.get(triple.partition("-")[0], 0)
    for name, data in objects:
        code += bytes(-len(code) % ALIGNMENT)
        try:
            entries.append(_add(code, name, data, machine))
        except (struct.error, ValueError, IndexError, KeyError) as error:
            raise CompileError(
                f"kernel {name!r}: the object file is malformed, or not in the ELF format of Linux "
                f"({error})"
            ) from None
    return bytes(code), entries


def _add(code: bytearray, name: str, data: bytes, machine: int) -> int:
    """Append the sections of an object to `code`; return the offset of the function `name`."""
    if not data.startswith(_IDENT):
        raise ValueError("no ELF header")
    if missing := undefined(data):
        raise CompileError(
            f"kernel {name!r} calls {', '.join(missing)}, which it does not define; a kernel of a "
            "saved model must define all functions that it calls"
        )
    parsed = _parse(data)
    if parsed.machine != machine or any(s.kind == _CHOSEN for s in parsed.symbols):
        raise ValueError("another processor, or functions chosen at run time")
    places: dict[int, int] = {}
    for i, section in enumerate(parsed.sections):
        if not section.flags & _ALLOC or section.name == ".eh_frame" or not section.data:
            continue
        if section.kind == _NOBITS or section.flags & _WRITE:
            raise CompileError(
                f"kernel {name!r}: the object has writable data ({section.name}), which a saved "
                "model cannot hold; make the data constant"
            )
        if section.alignment > PAGE:
            raise ValueError(f"section {section.name} has the alignment {section.alignment}")
        code += bytes(-len(code) % max(section.alignment, 1))
        places[i] = len(code)
        code += section.data
    for section in parsed.sections:
        if section.kind == _RELA and section.info in places:
            base = places[section.info]
            for offset, info, addend in _RELOCATION.iter_unpack(section.data):
                symbol = parsed.symbols[info >> 32]
                target = places[symbol.section] + symbol.value + addend
                _relocate(code, parsed.machine, info & 0xFFFFFFFF, base + offset, target)
    defined = {s.name: places[s.section] + s.value for s in parsed.symbols if s.section in places}
    return defined[name]


# Relocations (System V ABI for AMD64, table 4.9; ELF for the Arm 64-bit architecture, chapter 5).
_PC32 = {(_X86_64, 2), (_X86_64, 4), (_AARCH64, 261)}
_PAGE_HI21 = 275
_ADD_LO12 = 277
#: Loads and stores, by the bits that their immediate is shifted by.
_LOADS_LO12 = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_BRANCHES = {282, 283}


def _relocate(code: bytearray, machine: int, kind: int, at: int, target: int) -> None:
    """Write the distance from `at` to `target`; both are offsets in `code`."""
    if (machine, kind) in _PC32:
        struct.pack_into("<i", code, at, target - at)
        return
    if machine != _AARCH64:
        raise ValueError(f"relocation {kind}")
    (word,) = struct.unpack_from("<I", code, at)
    if kind == _PAGE_HI21:
        pages = (target >> 12) - (at >> 12) & 0x1FFFFF
        word = word & 0x9F00001F | (pages & 3) << 29 | pages >> 2 << 5
    elif kind == _ADD_LO12:
        word = word & 0xFFC003FF | (target & 0xFFF) << 10
    elif kind in _LOADS_LO12:
        word = word & 0xFFC003FF | (target & 0xFFF) >> _LOADS_LO12[kind] << 10
    elif kind in _BRANCHES:
        word = word & 0xFC000000 | (target - at) >> 2 & 0x3FFFFFF
    else:
        raise ValueError(f"relocation {kind}")
    struct.pack_into("<I", code, at, word)
