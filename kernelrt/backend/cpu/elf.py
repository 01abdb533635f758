"""Reads the undefined symbols of an object file, to name them when linking fails."""

from __future__ import annotations

import struct

__all__ = ["undefined"]

# ELF-64, little endian (System V ABI): the header, a section header, a symbol.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_IDENT = b"\x7fELF\x02\x01"


def undefined(data: bytes) -> list[str]:
    """Return the names of the symbols that an ELF object refers to, but does not define.

    Return an empty list if the object is malformed or in another format.
    """
    try:
        return _undefined(data) if data.startswith(_IDENT) else []
    except (struct.error, ValueError, IndexError):
        return []


def _undefined(data: bytes) -> list[str]:
    fields = _HEADER.unpack_from(data)
    offset, size, count = fields[6], fields[11], fields[12]
    sections = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
    names = []
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        begin, nbytes, strings = section[4], section[5], sections[section[6]][4]
        for at in range(begin, begin + nbytes, _SYMBOL.size):
            name, _, _, where, _, _ = _SYMBOL.unpack_from(data, at)
            if name and where == 0:
                start = strings + name
                names.append(data[start : data.index(0, start)].decode())
    return names
