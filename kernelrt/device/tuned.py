"""Stores the fastest variants that autotuning found, for later processes.

Each kernel has a small JSON file in the folder of the object cache. The file name is a hash of the
version of kernelrt, the target, the number of threads and the kernel. The file holds a variant
of the kernel, which the renderer verifies before use. Invalid files are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kernelrt._version import __version__
from kernelrt.errors import KernelrtWarning
from kernelrt.native.core import get_num_threads
from kernelrt.util.atomic_file import writing
from kernelrt.util.environment import expected, switch

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec

__all__ = ["SETTING", "Tuned"]

SETTING: Final = "KERNELRT_TUNED"
"""Environment variable that selects which variants are used: see :meth:`Tuned.find`."""
_SUFFIX: Final = ".krtt"
_MOST_BYTES: Final = 1 << 16
_MOST_FILES: Final = 4096


class Folder(Protocol):
    """Folder in which files are stored."""

    @property
    def folder(self) -> Path:
        """Path of the folder."""

    @property
    def usable(self) -> bool:
        """Whether the folder exists and only this user can write to it."""


class Tuned:
    """The variants that autotuning found for one device. Safe to use from any thread and process.

    Parameters
    ----------
    spec : DeviceSpec
        The device.
    folder : Folder or None
        Folder of the stored variants. With None, variants are kept in this process only.

    Examples
    --------
    >>> from kernelrt.device.spec import DeviceSpec
    >>> tuned = Tuned(DeviceSpec.avx2(), None)
    >>> tuned.keep("0123456789abcdef", '{"tiles":{}}', keeps_bits=True)
    >>> tuned.find("0123456789abcdef"), tuned.find("fedcba9876543210")
    ('{"tiles":{}}', None)
    """

    def __init__(self, spec: DeviceSpec, folder: Folder | None) -> None:
        self._target = spec.code_key
        self._folder = folder
        self._found: dict[str, str] = {}
        self._warned: set[str] = set()

    def find(self, kernel: str) -> str | None:
        """Return the variant to use for a kernel, or None for the renderer's default.

        ``KERNELRT_TUNED`` selects the variants. 0 means none. 1, or no value, means those whose
        results are bitwise equal to those of the renderer's default. ``any`` also allows those that
        change the order of floating-point sums.

        Parameters
        ----------
        kernel : str
            Fingerprint of the kernel AST.
        """
        setting = switch(SETTING, "any")
        if setting is None:
            self._warn(f"{expected(SETTING, 'any')}; the value is treated as 1")
        if setting == "off":
            return None
        found = self._look_up(kernel, keeps_bits=False) if setting == "any" else None
        return self._look_up(kernel, keeps_bits=True) if found is None else found

    def keep(self, kernel: str, variant: str, *, keeps_bits: bool) -> None:
        """Store the variant for a kernel. If the disk is full, only this process has it.

        Parameters
        ----------
        kernel : str
            Fingerprint of the kernel AST.
        variant : str
            Text of the variant: see :class:`~kernelrt.device.program.Variant`.
        keeps_bits : bool
            Whether its results are bitwise equal to those of the renderer's default.
        """
        name = self._name(kernel, keeps_bits)
        self._found[name] = variant
        if self._folder is None or not self._folder.usable:
            return
        content = {**self._header(kernel), "variant": variant}
        with contextlib.suppress(OSError):
            with writing(self._folder.folder / name, cached=True) as file:
                file.write(json.dumps(content, indent=1).encode())
            _bound(self._folder.folder)

    def refuse(self, kernel: str, why: str) -> None:
        """Drop the variants of a kernel, which the renderer rejected, and warn."""
        for keeps_bits in (True, False):
            self._found.pop(self._name(kernel, keeps_bits), None)
        self._warn(f"autotuning: the stored variant of the kernel {kernel} is ignored: {why}")

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
            self._warn(
                f"autotuning: {path} is ignored: {type(error).__name__}: {error}; delete it, or "
                "tune the kernel again"
            )
            return None
        self._found[name] = variant
        return variant

    def _header(self, kernel: str) -> dict[str, Any]:
        return {
            "format": 2,
            "kernelrt": __version__,
            "target": self._target,
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
    """Return the variant in the text of a file. Raise ValueError if a field of `header` differs."""
    content: Any = json.loads(text)
    for field, value in header.items():
        if content[field] != value:
            raise ValueError(f"{field}: expected {value!r}, not {content[field]!r}")
    variant = content["variant"]
    if type(variant) is not str:
        raise ValueError(f"variant: expected a str, not {type(variant).__name__}")
    return variant


def _read(path: Path) -> str | None:
    """Return the text of a file of this user; None if there is no file."""
    try:
        # Do not follow a link, and do not block on a device or pipe.
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
            raise ValueError(
                f"expected a regular file of this user of at most {_MOST_BYTES} bytes, not one of "
                f"user {info.st_uid} of {info.st_size} bytes"
            )
        return os.read(handle, _MOST_BYTES).decode()
    finally:
        os.close(handle)


def _bound(folder: Path) -> None:
    """Delete the oldest files if there are more than _MOST_FILES."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    files = [e for e in entries if e.name.endswith(_SUFFIX)]
    if len(files) > _MOST_FILES:
        files.sort(key=lambda e: e.stat(follow_symlinks=False).st_mtime)
        for entry in files[: -_MOST_FILES // 2]:
            Path(entry.path).unlink(missing_ok=True)
