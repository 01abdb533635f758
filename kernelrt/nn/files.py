"""Reads and writes state dicts: compressed NumPy archives, and safetensors.

A file may come from an untrusted source. Nothing in it is executed. Before memory is allocated,
each size that the file declares is compared with the size of the file: a tensor that the file
cannot hold is an error.
"""

from __future__ import annotations

import ast
import errno
import io
import math
import os
import stat
import struct
import zlib
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DTypeError, StateError
from kernelrt.nn import tree
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.util import lazy_import
from kernelrt.util.atomic_file import checked_path, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["load", "save"]

Array = np.ndarray[Any, Any]

_BFLOAT16 = ":bfloat16"
"""Suffix of the name of a bfloat16 array in an archive, which holds its bits as uint16.

NumPy has no bfloat16.
"""
_SAFE = ".safetensors"
_METADATA = "__metadata__"
_FOREIGN = (".bin", ".ckpt", ".h5", ".onnx", ".pkl", ".pt", ".pth")
_SAFE_TYPES = {
    "BOOL": dt.bool_, "U8": dt.uint8, "I8": dt.int8, "U16": dt.uint16, "I16": dt.int16,
    "U32": dt.uint32, "I32": dt.int32, "U64": dt.uint64, "I64": dt.int64, "F16": dt.float16,
    "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64,
}  # fmt: skip
#: Dtypes of the safetensors format that kernelrt does not have.
_SAFE_LACKING = (
    "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0",
    "C64", "C128",
)
_SAFE_NAMES = {held: name for name, held in _SAFE_TYPES.items()}
_MOST_HEADER = 100 << 20
_MOST_NPY_HEADER = 1 << 16
_MOST_AXES = 64
_MOST_NAME = 60_000
_DATA = (str, bytes, bytearray, int, float, complex)
_DEFLATE_RATIO = 1032
"""Maximum compression ratio of deflate."""


def save(
    state: object, path: str | os.PathLike[str] | IO[bytes], *, format: str | None = None,
) -> None:  # fmt: skip
    """Write a state dict. A file is replaced atomically: readers see the old file or the new one.

    Parameters
    ----------
    state : mapping of str to Tensor, or object
        A state dict; or a module, an optimizer, or nested lists and dicts of them.
    path : path_like or file
        Name of the file, or a writable binary file object such as ``io.BytesIO()``, which is
        written from its current position. If the name ends in ``.safetensors``, the file has that
        format, which other libraries read. Otherwise it is a compressed NumPy archive, whose name
        should end in ``.npz``.
    format : "npz" or "safetensors", optional
        Format for a file object; "npz" by default.

    Raises
    ------
    DTypeError
        `path` is neither a file name nor a binary file object.
    StateError
        The file name has the suffix of another format, or is that of a folder, a device or a pipe.
        Or `format` is unknown, or is given together with a file name. Or a mapping or list contains
        a value that would be lost, such as a number, a string or an array. Or two tensors have the
        same name, or the format cannot hold a name.

    Examples
    --------
    >>> import os, tempfile
    >>> layer = krt.nn.Linear(4, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "layer.npz")
    ...     krt.nn.save(layer, path)
    ...     list(krt.nn.load(path))
    ['weight', 'bias']
    """
    if not isinstance(path, str | os.PathLike) and hasattr(path, "write"):
        _check_binary(path)
        lazy_import.load("json", "zipfile")
        if format not in (None, "npz", "safetensors"):
            raise StateError(f"format: expected 'npz' or 'safetensors', not {format!r}")
        safe = format == "safetensors"
        (_write_safetensors if safe else _write_archive)(_held(state, safe=safe), path)
        return
    if format is not None:
        raise StateError(
            f"format: expected None with a file name, not {format!r}; the suffix of the name, .npz "
            "or .safetensors, selects the format"
        )
    target = _path(path)
    if target.suffix in _FOREIGN:
        raise StateError(
            f"path: expected a name that ends in .npz or .safetensors, not {str(target)!r}; "
            f"kernelrt does not write {target.suffix} files"
        )
    if target.exists() and not target.is_file():
        raise StateError(
            f"path: expected the name of a file, but {str(target)!r} is a folder, a device or a "
            "pipe; pass another name, or open the device or the pipe in mode 'wb', and pass the "
            "file object and a format"
        )
    safe = target.suffix == _SAFE
    held = _held(state, safe=safe)
    write = _write_safetensors if safe else _write_archive
    with writing(target) as file:
        write(held, file)


def _held(state: object, *, safe: bool) -> dict[str, Tensor]:
    """Return the tensors by name. Raise StateError if anything else in `state` would be lost."""
    _check_own_states(state)
    for name, value in _lost(state):
        raise StateError(
            f"state: {name!r} is of type {kind_name(value)}, but files hold tensors only; convert "
            "numbers and arrays with kernelrt.tensor, keep other values elsewhere, or write the "
            "whole state with pickle"
        )
    held = tree.tensors_by_name(state, ask_root=True)
    for name in held:
        _check_name(name, safe=safe)
    return held


def _check_own_states(state: object) -> None:
    """Raise StateError if an object's own state dict contains anything but tensors."""
    for place, value in tree.named_objects(state):
        for name, held in (tree.own_state(value) or {}).items():
            if not isinstance(held, Tensor):
                whose = f"{place!r}" if place else "the object"
                raise StateError(
                    f"state: {whose} is of type {kind_name(value)}, whose state_dict() contains "
                    f"{name!r} of type {kind_name(held)}, but files hold tensors only; write this "
                    "state_dict() with pickle, and pass only modules and tensors to save"
                )


def _check_binary(file: object) -> None:
    if isinstance(file, io.TextIOBase):
        raise DTypeError(
            "path: expected a binary file, not a text file; open it with mode 'wb' or 'rb'"
        )


def _path(path: object) -> Path:
    # These modules are slow to import, so they are imported late; `lazy_import` allows for a signal
    # handler that runs during the import and saves, too.
    lazy_import.load("json", "pathlib", "zipfile")
    return checked_path(path, expected="a str, a path or a binary file")


def _check_name(name: str, *, safe: bool) -> None:
    """Raise StateError for a tensor name that a file cannot store and return unchanged."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise StateError(
            f"state: {name!r} is not a valid name, because UTF-8 cannot encode a lone "
            "surrogate; rename the tensor"
        ) from None
    why = None
    if safe and name == _METADATA:
        why = "the format reserves this name"
    elif not safe and name.endswith(_BFLOAT16):
        why = f"the ending {_BFLOAT16} marks bfloat16 arrays"
    elif not safe and ("\0" in name or length > _MOST_NAME):
        why = f"names in archives have at most {_MOST_NAME} bytes and no null characters"
    if why is not None:
        shown = name if len(name) < 100 else f"{name[:100]}..."
        raise StateError(
            f"state: a tensor cannot have the name {shown!r} in this file, because {why}; rename it"
        )


def _lost(state: object) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of the values in nested mappings and lists that a file cannot hold."""
    inside: list[tuple[str, object, tuple[object, ...]]] = [("", state, ())]
    while inside:
        name, value, above = inside.pop()
        if isinstance(value, Mapping | list | tuple) and not hasattr(type(value), "tree_items"):
            if not any(value is outer for outer in above):
                start = f"{name}." if name else ""
                inside.extend(
                    (start + key, child, (*above, value)) for key, child in tree.children(value)
                )
        elif not isinstance(value, Tensor) and (
            isinstance(value, _DATA) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")
        ):
            yield name, value


def load(
    path: str | os.PathLike[str] | IO[bytes], *, max_bytes: int | None = None
) -> dict[str, Tensor]:
    """Read a state dict that :func:`save` wrote, or a safetensors file.

    Nothing in the file is executed, and no more memory is allocated than the file can fill. A
    compressed archive can fill a thousand times its own size; use `max_bytes` to set a limit.

    Parameters
    ----------
    path : path_like or file
        Name of the file; or a readable binary file object, which is read from its current position
        to its end.
    max_bytes : int, optional
        Maximum total size of the tensors in bytes.

    Returns
    -------
    dict of str to Tensor
        The tensors by name, with their shapes and dtypes; :func:`load_state_dict` copies them.

    Raises
    ------
    DTypeError
        `path` is neither a file name nor a binary file object.
    OSError
        The file cannot be read; FileNotFoundError if it does not exist.
    StateError
        The file is neither an archive of arrays nor a safetensors file, or is corrupt. Or it is a
        device or a pipe, which have no size. Or a tensor has a dtype that kernelrt lacks, such as
        F8_E4M3 of safetensors. Or the tensors take more than `max_bytes`.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> krt.nn.save({"w": krt.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> krt.nn.load(file, max_bytes=1000)
    {'w': tensor([1., 1.])}
    """
    most = None if max_bytes is None else integer(max_bytes, "max_bytes", 0)
    if not isinstance(path, str | os.PathLike) and hasattr(path, "read"):
        return _read_stream(path, most)
    source = _path(path)
    mode = source.stat().st_mode  # before opening, because opening a pipe would block
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise StateError(
            f"path: expected a regular file, but {str(source)!r} is a device or a pipe; copy its "
            "contents to a file first"
        )
    with source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _read(file, size, source.suffix == _SAFE, repr(str(source)), most)


def _read_stream(stream: Any, most: int | None) -> dict[str, Tensor]:
    _check_binary(stream)
    lazy_import.load("json", "zipfile")
    data = stream.read()
    if not isinstance(data, bytes):
        raise DTypeError(
            f"path: expected a binary file, whose read() returns bytes, not {kind_name(data)}"
        )
    if not data:
        raise StateError("path: the file is at its end; call seek(0) first")
    # Every zip archive begins with one of these, the second if it is empty.
    packed = data.startswith((b"PK\x03\x04", b"PK\x05\x06"))
    return _read(io.BytesIO(data), len(data), not packed, "the file", most)


def _read(
    file: IO[bytes], size: int, safe: bool, called: str, most: int | None
) -> dict[str, Tensor]:
    import zipfile

    try:
        return dict((_read_safetensors if safe else _read_archive)(file, size, most))
    except _LackingTypeError as error:
        raise StateError(f"{called}: {error}") from None
    except (
        # Errors that zipfile and zlib raise for corrupt data.
        ValueError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, OverflowError,
        NotImplementedError, RecursionError, OSError, KeyError,
    ) as error:  # fmt: skip
        if isinstance(error, StateError) or (
            isinstance(error, OSError) and error.errno != errno.EINVAL
        ):
            raise  # A disk error. EINVAL means a corrupt file: its offsets seek before the start.
        raise StateError(
            f"{called} is not a state dict: expected a .npz or .safetensors file, as written by "
            f"kernelrt.nn.save; {error}"
        ) from error


class _LackingTypeError(ValueError):
    """A valid file contains a tensor of a dtype that kernelrt lacks."""


def _check_total(total: int, most: int | None) -> None:
    if most is not None and total > most:
        raise StateError(
            f"max_bytes: expected tensors of at most {most} bytes, not {total}; pass a larger "
            "max_bytes if you trust the file"
        )


# ---- NumPy archives


def _write_archive(held: Mapping[str, Tensor], file: IO[bytes]) -> None:
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in held.items():
            plain = value.detach()
            if plain.dtype is dt.bfloat16:
                name, plain = name + _BFLOAT16, plain.bitcast(dt.uint16)  # noqa: PLW2901
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, plain.numpy(), allow_pickle=False)


def _read_archive(file: IO[bytes], size: int, most: int | None) -> Iterator[tuple[str, Tensor]]:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.filename.endswith("/data.pkl") for entry in entries):
            _broken("torch.save wrote it; use load_state_dict(torch.load(path)) instead")
        if sum(entry.compress_size for entry in entries) > size:
            _broken("its entries overlap")
        _check_total(sum(entry.file_size for entry in entries), most)
        seen: set[str] = set()
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if name in seen:
                _broken(f"{name!r} appears twice")
            seen.add(name)
            if entry.flag_bits & 1 or entry.compress_type not in (
                zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
            ):  # fmt: skip
                _broken(f"{name!r} is encrypted, or compressed with an unsupported method")
            ratio = _DEFLATE_RATIO if entry.compress_type == zipfile.ZIP_DEFLATED else 1
            if entry.file_size > ratio * entry.compress_size:
                _broken(f"{name!r} declares {entry.file_size} bytes, more than it can hold")
            with archive.open(entry) as opened:
                array = _read_npy(opened, name, entry.file_size)
            if name.endswith(_BFLOAT16):
                if array.dtype != np.uint16:
                    _broken(f"{name!r} is {array.dtype}, expected uint16")
                yield name.removesuffix(_BFLOAT16), tensor(array).bitcast(dt.bfloat16)
            else:
                yield name, tensor(array)


def _read_npy(file: IO[bytes], name: str, size: int) -> Array:
    """Check that the header of an array matches the `size` bytes of its entry; read it."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8 or start[6] not in (1, 2, 3):
        _broken(f"{name!r} is not an array")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > min(size, _MOST_NPY_HEADER):
        _broken(f"{name!r} has a header of {length} bytes, which is too long")
    text = file.read(length).decode("utf-8" if start[6] == 3 else "latin-1")
    try:
        header = ast.literal_eval(text.strip())
    except (SyntaxError, MemoryError, TypeError) as error:
        raise ValueError(f"{name!r} has a header that cannot be read") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        _broken(f"{name!r} has a header without exactly 'descr', 'fortran_order' and 'shape'")
    if not isinstance(header["fortran_order"], bool):
        _broken(f"{name!r} has fortran_order={header['fortran_order']!r}, expected a bool")
    kind = _numpy_type(header["descr"], name)
    shape = _checked_shape(header["shape"], name)
    count = math.prod(shape)
    if count * kind.itemsize != size - len(start) - width - length:
        _broken(f"{name!r} declares shape {shape} of {kind}, but has {size} bytes")
    array = np.empty(count, kind)
    _fill(file, array, name)
    if file.read(1):  # reading to the end also makes zipfile check the checksum
        _broken(f"{name!r} is longer than its header says")
    order = shape[::-1] if header["fortran_order"] else shape
    array = array.astype(kind.newbyteorder("="), copy=False).reshape(order)
    return np.ascontiguousarray(array.T) if header["fortran_order"] else array


def _numpy_type(descr: object, name: str) -> np.dtype[Any]:
    known = isinstance(descr, str) and len(descr) == 3 and descr[0] in "<>|=" and descr[1] in "biuf"
    if not known or descr[1:] not in {  # type: ignore[index]
        "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8",
    }:  # fmt: skip
        _broken(f"{name!r} has elements of unsupported type {descr!r}")
    return np.dtype(str(descr))


# ---- safetensors: 8 bytes with the length of a header in JSON, the header, the elements


def _write_safetensors(held: Mapping[str, Tensor], file: IO[bytes]) -> None:
    import json

    arrays: list[Array] = []
    header: dict[str, object] = {}
    at = 0
    for name, value in held.items():
        plain = value.detach()
        bits = plain.bitcast(dt.uint16) if plain.dtype is dt.bfloat16 else plain
        array = bits.numpy()
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        header[name] = {
            "dtype": _SAFE_NAMES[plain.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        arrays.append(array)
        at += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # aligns the elements
    if len(text) > _MOST_HEADER:
        raise StateError(
            f"state: names and shapes take {len(text)} bytes, but the header of a .safetensors "
            f"file has at most {_MOST_HEADER}; write parts of the state to several files"
        )
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays:
        file.write(array.reshape(-1).view(np.uint8).data)


def _read_safetensors(
    file: IO[bytes], size: int, most: int | None
) -> Iterator[tuple[str, Tensor]]:
    import json

    length = int.from_bytes(file.read(8), "little")
    room = size - 8 - length
    if size < 8 or room < 0 or length > _MOST_HEADER:
        _broken(f"its header would have {length} bytes, more than the file or the format allows")
    header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_once)
    if not isinstance(header, dict):
        _broken("its header is not a JSON object")
    header.pop(_METADATA, None)
    parts = sorted(_safe_part(name, value) for name, value in header.items())
    at = 0
    for begin, end, name in parts:
        if begin != at:
            _broken(f"{name!r} begins at byte {begin}, expected {at}")
        at = end
    if at != room:
        _broken(f"it has {room} bytes of elements, expected {at}")
    _check_total(room, most)
    for begin, _, name in parts:
        kind, shape = _SAFE_TYPES[header[name]["dtype"]], tuple(header[name]["shape"])
        bits = dt.uint16 if kind is dt.bfloat16 else kind
        array = np.empty(math.prod(shape), dt.to_numpy(bits).newbyteorder("<"))
        file.seek(8 + length + begin)
        _fill(file, array, name)
        value = tensor(array.astype(dt.to_numpy(bits), copy=False).reshape(shape))
        yield name, value.bitcast(dt.bfloat16) if kind is dt.bfloat16 else value


def _safe_part(name: str, value: object) -> tuple[int, int, str]:
    """Check that the description of an entry is consistent; return (start, end, name)."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        _broken(f"{name!r} is not described by dtype, shape and data_offsets")
    if value["dtype"] in _SAFE_LACKING:
        raise _LackingTypeError(
            f"{name!r} has dtype {value['dtype']}, which kernelrt does not support; write it as "
            f"one of {', '.join(_SAFE_TYPES)}, for example as BF16"
        )
    if not isinstance(value["dtype"], str) or value["dtype"] not in _SAFE_TYPES:
        _broken(f"{name!r} has unknown dtype {value['dtype']!r}")
    shape = _checked_shape(value["shape"], name)
    offsets = value["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        _broken(f"{name!r} has invalid offsets {offsets!r}")
    nbytes = math.prod(shape) * _SAFE_TYPES[value["dtype"]].itemsize
    if offsets[1] - offsets[0] != nbytes:
        _broken(f"{name!r} has {offsets[1] - offsets[0]} bytes, expected {nbytes}")
    return offsets[0], offsets[1], name


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _broken("a name appears twice")
    return found


# ---- Both formats


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _checked_shape(shape: object, name: str) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or len(shape) > _MOST_AXES or not all(
        map(_is_size, shape)
    ):  # fmt: skip
        _broken(f"{name!r} has an invalid shape")
    if math.prod(max(d, 1) for d in shape) >= 1 << 62:
        _broken(f"{name!r} has too many elements")
    return tuple(shape)


def _fill(file: IO[bytes], array: Array, name: str) -> None:
    """Read all bytes of `array`, and check that bools are 0 or 1."""
    target = array.view(np.uint8).data if array.size else memoryview(b"")
    at = 0
    while at < len(target):
        data = file.read(min(len(target) - at, 1 << 20))
        if not data:
            _broken(f"{name!r} ends early")
        target[at : at + len(data)] = data
        at += len(data)
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        _broken(f"{name!r} has bools that are neither 0 nor 1")


def _broken(why: str) -> NoReturn:
    raise ValueError(why)
