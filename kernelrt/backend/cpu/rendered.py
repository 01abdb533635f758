"""Disk cache of rendered programs, so that the next process renders nothing.

A program depends only on its AST, its device, its variant and the code of this package. The names
of cache files are hashes of all of these.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelrt import dtype as dt
from kernelrt._version import __version__
from kernelrt.device.program import ProgramSpec
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.fingerprint import content
from kernelrt.ir.size import plain
from kernelrt.util.lazy_import import BEGUN_NS, Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelrt.backend import llvm
    from kernelrt.device.program import Variant
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.util.object_cache import ObjectCache
else:
    llvm = Module("kernelrt.backend.llvm")

__all__ = ["StoredRenderer", "decoded", "encoded", "package_stamp"]

#: Fields of a ProgramSpec that the caller passes in.
_GIVEN: Final = ("device", "ast")
#: Fields that contain UOps.
_NODES: Final = ("global_size", "local_size", "vars", "flops", "bytes", "cycles")
_FIELDS: Final = [f.name for f in fields(ProgramSpec) if f.name not in (*_GIVEN, *_NODES)]
_TYPES: Final = {d.name: d for d in dt.ALL}


class StoredRenderer:
    """A code generator with a cache on disk.

    The modules of the code generator are only imported for a program that is not in the cache.

    Parameters
    ----------
    device : DeviceSpec
        Target of the generated code.
    cache : ObjectCache, optional
        Cache of programs.
    """

    def __init__(self, device: DeviceSpec, cache: ObjectCache | None) -> None:
        self.device = device
        self._target = device.code_key
        self._cache = cache
        self._stamp = None if cache is None else package_stamp()

    def render(self, ast: UOp, variant: str | None = None) -> ProgramSpec:
        """Return the program of a kernel AST with the tiling `variant`, or with the default one."""
        if self._cache is None or self._stamp is None:
            return self._renderer().render(ast, variant)
        key = ("program", __version__, self._stamp, self._target, variant or "", content(ast))
        data = self._cache.get(key)
        known = None if data is None else decoded(data, self.device, ast)
        if known is not None:
            return known
        program = self._renderer().render(ast, variant)
        if self._stamp is not None:
            self._cache.put(key, encoded(program))
        return program

    def variants(self, ast: UOp, around: str | None = None) -> Iterator[Variant]:
        """Yield variants (tilings) of a kernel: first `around`, or else the renderer's choice."""
        return self._renderer().variants(ast, around)

    def outline(self, ast: UOp, variant: str | None = None) -> str:
        """Return the loops of a kernel AST as text."""
        return self._renderer().outline(ast, variant)

    def _renderer(self) -> llvm.LLVMRenderer:
        late = "kernelrt.backend.llvm" not in sys.modules
        kind = llvm.LLVMRenderer
        if late and self._stamp is not None and package_stamp() != self._stamp:
            self._stamp = None  # the package was edited before this import
        return kind(self.device)


def encoded(program: ProgramSpec) -> bytes:
    """Serialize a program without its device and AST."""
    sizes = [plain(getattr(program, name)) for name in _NODES]
    order = toposort([node for node in _flat(sizes) if isinstance(node, UOp)])
    places = {node: i for i, node in enumerate(order)}

    def packed(value: Any) -> Any:
        if isinstance(value, UOp):
            return {"node": places[value]}
        return [packed(v) for v in value] if isinstance(value, tuple | list) else value

    nodes = [
        [node.op.name, node.dtype.name, [places[s] for s in node.src], node.arg] for node in order
    ]
    chunk_bytes = [*program.chunk_bytes.items()]
    own = {name: getattr(program, name) for name in _FIELDS} | {"chunk_bytes": chunk_bytes}
    whole = {"nodes": nodes, "sizes": packed(sizes), "own": own}
    return zlib.compress(json.dumps(whole, separators=(",", ":")).encode(), 1)


def decoded(data: bytes, device: DeviceSpec, ast: UOp) -> ProgramSpec | None:
    """Deserialize a program that :func:`encoded` has serialized; None if `data` is invalid."""
    try:
        whole = json.loads(zlib.decompress(data))
        nodes: list[UOp] = []
        for op, dtype, src, arg in whole["nodes"]:
            nodes.append(UOp(Op[op], _TYPES[dtype], tuple(nodes[i] for i in src), _frozen(arg)))

        def unpacked(value: Any) -> Any:
            if isinstance(value, dict):
                return nodes[value["node"]]
            return tuple(unpacked(v) for v in value) if isinstance(value, list) else value

        own = whole["own"] | dict(zip(_NODES, unpacked(whole["sizes"]), strict=True))
        own["vars"] = [*own["vars"]]
        own["chunk_bytes"] = dict(own["chunk_bytes"])
        return ProgramSpec(device=device, ast=ast, **own)
    except (zlib.error, ValueError, KeyError, IndexError, TypeError):
        return None


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flat(value)
        else:
            yield value


def _frozen(arg: Any) -> Any:
    """Return a node's `arg` with tuples in place of the lists that JSON gives."""
    return tuple(_frozen(a) for a in arg) if isinstance(arg, list) else arg


def package_stamp(begun_ns: int = BEGUN_NS) -> str | None:
    """Hash the names, sizes and modification times of the package's files.

    The hash is part of a cached program's key. So a program that another version of the package has
    cached is not found.

    Returns
    -------
    str or None
        The hash. None if the package is not in files, for example in a zip archive. Also None if a
        file was changed since `begun_ns`, because this process may have imported an older text of
        it.
    """
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    try:
        for entry in sorted(_files(root), key=lambda e: e.path):
            info = entry.stat()
            if info.st_mtime_ns > begun_ns:
                return None
            place = entry.path.removeprefix(str(root))
            digest.update(f"{place} {info.st_size} {info.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return digest.hexdigest()


def _files(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as listing:
        entries: Sequence[os.DirEntry[str]] = list(listing)
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files(entry.path)
        elif entry.name.endswith((".py", ".so", ".pyd")):
            yield entry
