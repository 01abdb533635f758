"""Stores the fastest variants that autotuning found for later processes.

One small JSON file a kernel lies beside the object cache. Its name stands for the version of
kernelrt, the processor, the number of threads and the kernel. What it says is only how to write
the kernel, and the renderer checks that before it does; what does not check out is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kernelrt._version import __version__
from kernelrt.errors import KernelrtWarning
from kernelrt.native.core import get_num_threads
from kernelrt.util.environment import expected, switch

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec

__all__ = ["SETTING", "Tuned"]

SETTING: Final = "KERNELRT_TUNED"
"""The environment variable that says which variants are used: see :meth:`Tuned.find`."""
_SUFFIX: Final = ".krtt"
_MOST_BYTES: Final = 1 << 16
_MOST_FILES: Final = 4096


class Folder(Protocol):
    """Where files may lie."""

    @property
    def folder(self) -> Path:
        """It."""

    @property
    def usable(self) -> bool:
        """Whether it is there, and this user's alone."""


class Tuned:
    """The variants that were found for one device. May be used from any thread and process.

    Parameters
    ----------
    spec : DeviceSpec
        The device.
    folder : Folder or None
        Where they are kept; None: only in this process.

    Examples
    --------
    >>> from kernelrt.device.spec import DeviceSpec
    >>> tuned = Tuned(DeviceSpec.avx2(), None)
    >>> tuned.keep("0123456789abcdef", '{"tiles":{}}', keeps_bits=True)
    >>> tuned.find("0123456789abcdef"), tuned.find("fedcba9876543210")
    ('{"tiles":{}}', None)
    """

    def __init__(self, spec: DeviceSpec, folder: Folder | None) -> None:
        self._spec = spec
        self._folder = folder
        self._found: dict[str, str] = {}
        self._warned: set[str] = set()

    def find(self, kernel: str) -> str | None:
        """Give the variant for a kernel; None where none was found, or is to be used.

        ``KERNELRT_TUNED`` decides: with 0 none is, with ``any`` also those that change the order of
        floating-point sums, and with 1, or unset, only those whose results have the bits of the
        renderer's own choice.

        Parameters
        ----------
        kernel : str
            Fingerprint of its AST.
        """
        setting = switch(SETTING, "any")
        if setting is None:
            self._warn(f"{expected(SETTING, 'any')}; it is taken for 1")
        if setting == "off":
            return None
        found = self._look_up(kernel, keeps_bits=False) if setting == "any" else None
        return self._look_up(kernel, keeps_bits=True) if found is None else found

    def keep(self, kernel: str, variant: str, *, keeps_bits: bool) -> None:
        """Note the variant for a kernel. A full disk only means that later processes lack it.

        Parameters
        ----------
        kernel : str
            Fingerprint of its AST.
        variant : str
            How it is to be written.
        keeps_bits : bool
            Whether its results have the bits of the renderer's own choice.
        """
        name = self._name(kernel, keeps_bits)
        self._found[name] = variant
        if self._folder is None or not self._folder.usable:
            return
        content = {**self._header(kernel), "variant": variant}
        with contextlib.suppress(OSError):
            _write(self._folder.folder / name, json.dumps(content, indent=1))
            _bound(self._folder.folder)

    def refuse(self, kernel: str, why: str) -> None:
        """Forget what was found for a kernel, because it cannot be written that way."""
        for keeps_bits in (True, False):
            self._found.pop(self._name(kernel, keeps_bits), None)
        self._warn(f"what autotuning noted for the kernel {kernel} is ignored: {why}")

    def _look_up(self, kernel: str, keeps_bits: bool) -> str | None:
        name = self._name(kernel, keeps_bits)
        if name in self._found or self._folder is None or not self._folder.usable:
            return self._found.get(name)
        path = self._folder.folder / name
        try:
            text = _read(path)
            if text is None:
                return None
            variant = _variant_in(text, self._header(kernel))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self._warn(f"{path} is ignored: {error!r}; delete it, or tune the kernel again")
            return None
        self._found[name] = variant
        return variant

    def _header(self, kernel: str) -> dict[str, Any]:
        return {
            "format": 1,
            "kernelrt": __version__,
            "triple": self._spec.triple,
            "cpu": self._spec.cpu,
            "features": self._spec.features,
            "vector_bits": self._spec.vector_bits,
            "threads": get_num_threads(),
            "kernel": kernel,
        }

    def _name(self, kernel: str, keeps_bits: bool) -> str:
        content = json.dumps([self._header(kernel), keeps_bits], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest() + _SUFFIX

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, KernelrtWarning, stacklevel=2)


def _variant_in(text: str, header: dict[str, Any]) -> str:
    """The variant that a file's text names, if it was written for what `header` says."""
    content: Any = json.loads(text)
    if any(content[field] != value for field, value in header.items()):
        raise ValueError("it was written for something else")
    variant = content["variant"]
    if type(variant) is not str:
        raise ValueError("it names no variant")
    return variant


def _read(path: Path) -> str | None:
    """What a file of this user says; None where there is none."""
    try:
        # Not through a link, and never a device or a pipe that could block.
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, os.O_RDONLY | flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(str(error)) from None
    try:
        info = os.fstat(handle)
        mine = not hasattr(os, "geteuid") or info.st_uid == os.geteuid()
        if not stat.S_ISREG(info.st_mode) or not mine or info.st_size > _MOST_BYTES:
            raise ValueError("it is no small file of this user")
        return os.read(handle, _MOST_BYTES).decode()
    finally:
        os.close(handle)


def _write(path: Path, text: str) -> None:
    """Write beside the place and rename into it: readers see all or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _bound(folder: Path) -> None:
    """Let the oldest go where there are very many."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    files = [e for e in entries if e.name.endswith(_SUFFIX)]
    if len(files) > _MOST_FILES:
        files.sort(key=lambda e: e.stat(follow_symlinks=False).st_mtime)
        for entry in files[: -_MOST_FILES // 2]:
            Path(entry.path).unlink(missing_ok=True)
