"""Disk cache of objects and programs, so that the next process compiles nothing.

Only this process's user may write to the folder, since code from it runs in this process. A file
holds three things: a magic number, a hash, and the object. The hash is the SHA-256 of the file's
name and of the object. A file that does not match its hash, such as a renamed one, is a miss. Files
are written under a temporary name and then renamed, so that readers never see a partial file.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import stat
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kernelrt.util.atomic_file import UNFINISHED, writing
from kernelrt.util.environment import expected, switch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ObjectCache"]

_MAGIC = b"krtobj02"
_DIGEST = 32
_SUFFIX = ".krto"
#: Default limit of the folder in bytes.
DEFAULT_LIMIT = 256 << 20
#: Maximum size in bytes of a file that is read or written; kernels are far smaller.
MOST = 64 << 20
#: Maximum number of files in a folder of the default limit, few enough to list while a kernel
#: waits. A larger folder may hold one file per `_BYTES_A_FILE` of its limit.
MOST_FILES = 32_768
_BYTES_A_FILE = DEFAULT_LIMIT // MOST_FILES
# Eviction continues below the limits, so that it is not needed again at once.
_EVICT_TO = 0.75
# Maximum number of files that one eviction removes; the next one removes further files.
_EVICT_AT_ONCE = 2_048
# The folder is listed about once for this fraction of a limit that is written to it.
_LOOK_AFTER = 1 / 64
# Age in seconds at which a file's time of last use is updated.
_TOUCH_AFTER = 3600.0


class ObjectCache:
    """A folder of compiled objects, of limited size.

    The key of an object covers everything that it was made from.

    Parameters
    ----------
    folder : path
        The folder. It is created if needed, with permissions for its owner only. It may be a link
        to a folder, if the link belongs to this user. The cache is disabled, with a warning, if the
        folder belongs to another user or others may write to it.
    limit : int
        Maximum size in bytes. The number of objects is limited, too: to `MOST_FILES`, or to one for
        each 8 KiB of `limit` if that is more. The least recently used objects are removed first.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = ObjectCache(folder)
    ...     cache.put(("ir text", "cpu"), b"object")
    ...     cache.get(("ir text", "cpu")), cache.get(("ir text", "another cpu"))
    (b'object', None)
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int = DEFAULT_LIMIT) -> None:
        self.folder = Path(folder).absolute()  # the current folder may change
        self.limit = limit
        self.most_files = max(MOST_FILES, limit // _BYTES_A_FILE)
        self.hits = 0
        self.misses = 0
        self._unseen = 0.0  # share of `_LOOK_AFTER` written here since the folder was listed
        self._looks_at_exit = False
        self._usable: bool | None = None

    @classmethod
    def default(cls) -> Self | None:
        """Open the user's cache. Return None if ``KERNELRT_CACHE`` is 0, off, no or false.

        The folder is ``KERNELRT_CACHE_DIR`` if that is set, otherwise the folder ``kernelrt`` in
        ``XDG_CACHE_HOME`` or in ``~/.cache``. If the user has no home, it is a folder such as
        ``kernelrt-1000``, with the user's number, in the folder for temporary files.
        ``KERNELRT_CACHE_SIZE`` sets the limit: a number of bytes, or a number with the suffix K, M
        or G.
        """
        setting = switch("KERNELRT_CACHE")
        if setting == "off":
            return None
        if setting is None:
            warnings.warn(
                f"{expected('KERNELRT_CACHE')}; the value is ignored, and the kernel cache stays "
                "on",
                RuntimeWarning,
                stacklevel=2,
            )
        return cls(_default_folder(), _default_limit())

    @property
    def usable(self) -> bool:
        """Whether the folder exists, and only this user may write to it.

        The first access of this property creates the folder.
        """
        if self._usable is None:
            self._usable = self._prepare()
        return self._usable

    def get(self, key: Iterable[str]) -> bytes | None:
        """Return the object stored under `key`, or None."""
        if not self.usable:
            return None
        path = self._path(key)
        data = self._read(path)
        if data is None:
            self.misses += 1
            return None
        self.hits += 1
        return data

    def put(self, key: Iterable[str], data: bytes) -> None:
        """Store `data` under `key`. If the disk is full or the folder is gone, do nothing."""
        if not self.usable or len(data) > MOST:
            return
        path = self._path(key)
        try:
            with writing(path, cached=True) as file:
                file.write(_MAGIC + _seal(path, data) + data)
        except OSError:
            return
        self._grown(path, len(data) + len(_MAGIC) + _DIGEST)

    def drop(self, key: Iterable[str]) -> bool:
        """Remove the object stored under `key`. Return whether there was one."""
        if not self.usable:
            return False
        try:
            self._path(key).unlink()
        except OSError:
            return False
        return True

    def clear(self) -> None:
        """Remove all objects."""
        for name, _ in self._files():
            (self.folder / name).unlink(missing_ok=True)

    def _path(self, key: Iterable[str]) -> Path:
        digest = hashlib.sha256()
        for part in key:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return self.folder / (digest.hexdigest() + _SUFFIX)

    def _read(self, path: Path) -> bytes | None:
        try:
            # Do not follow a link, and do not block on a device or a pipe.
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _NONBLOCK)
        except OSError:
            return None
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != _user(info):
                return None
            if info.st_size > MOST + len(_MAGIC) + _DIGEST:
                return None
            content = _read_all(handle, info.st_size)
        except OSError:
            return None
        finally:
            os.close(handle)
        start = len(_MAGIC) + _DIGEST
        data = content[start:]
        if not data or content[:start] != _MAGIC + _seal(path, data):
            return None
        if time.time() - info.st_mtime > _TOUCH_AFTER:
            with contextlib.suppress(OSError):
                os.utime(path)
        return data

    def _prepare(self) -> bool:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            link = self.folder.lstat()
            folder = self.folder.resolve()  # follow a link only once
            info = folder.lstat()
        except (OSError, RuntimeError) as error:
            return self._refuse(f"it cannot be created ({error})")
        if not stat.S_ISDIR(info.st_mode):
            return self._refuse("the path is not a folder")
        if {info.st_uid, link.st_uid} != {_user(info)}:
            return self._refuse("it belongs to another user")
        if os.name == "posix" and info.st_mode & 0o022:
            return self._refuse(
                f"others may write to it (mode {stat.S_IMODE(info.st_mode):o}); "
                "run chmod 700 on it"
            )
        self.folder = folder
        return True

    def _refuse(self, why: str) -> bool:
        warnings.warn(
            f"the cache folder {self.folder} is not used: {why}. Each process compiles its kernels "
            "again; set KERNELRT_CACHE_DIR to another folder, or turn the cache off with "
            "KERNELRT_CACHE=0",
            RuntimeWarning,
            stacklevel=2,
        )
        return False

    def _files(self) -> list[tuple[str, os.stat_result]]:
        try:
            with os.scandir(self.folder) as listing:
                entries = list(listing)
        except OSError:
            return []
        found = []
        for entry in entries:
            if entry.name.endswith((_SUFFIX, UNFINISHED)):
                with contextlib.suppress(OSError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
        return found

    def _grown(self, path: Path, nbytes: int) -> None:
        """Note that a file was written; from time to time, list the folder and remove old files.

        Many short processes may write to the folder, and none knows what the others write. So even
        a process that writes one file sometimes lists the folder. The probability grows with the
        size of the file; the hash in the file's name serves as the random number.
        """
        share = (nbytes / max(1, self.limit) + 1 / self.most_files) / _LOOK_AFTER
        self._unseen += share
        chance = int(path.name[:8], 16) / 2**32
        if self._unseen > 1:
            self._unseen = 0.0
            self._evict()
        elif chance < share and not self._looks_at_exit:
            # Listing 30,000 files takes 0.1 s. At exit, no computation has to wait for it.
            self._looks_at_exit = True
            atexit.register(self._evict)

    def _evict(self) -> None:
        files = self._files()
        size = sum(info.st_size for _, info in files)
        if size <= self.limit and len(files) <= self.most_files:
            return
        count = len(files)
        oldest = sorted(files, key=lambda item: item[1].st_mtime)
        for name, info in oldest[:_EVICT_AT_ONCE]:
            if size <= self.limit * _EVICT_TO and count <= self.most_files * _EVICT_TO:
                break
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
                size -= info.st_size
                count -= 1


def _default_folder() -> Path:
    if folder := os.environ.get("KERNELRT_CACHE_DIR"):
        return _expanded(Path(folder))
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "kernelrt"
    try:
        return Path.home() / ".cache" / "kernelrt"
    except RuntimeError:  # no HOME, and a user that the system does not know, as in containers
        return Path(tempfile.gettempdir()) / f"kernelrt-{os.getuid()}"


def _expanded(folder: Path) -> Path:
    """Replace ``~`` by the home folder: a shell does not do this in a quoted path."""
    try:
        return folder.expanduser()
    except RuntimeError:
        return folder


def _default_limit() -> int:
    given = os.environ.get("KERNELRT_CACHE_SIZE", "").strip()
    if not given:
        return DEFAULT_LIMIT
    number, shift = given, 0
    if given[-1].upper() in _SUFFIXES:
        number, shift = given[:-1], _SUFFIXES[given[-1].upper()]
    if not (number.isascii() and number.isdigit() and len(number) < _MOST_DIGITS):
        warnings.warn(
            f"KERNELRT_CACHE_SIZE is {given!r}; expected a number of bytes, or a number with the "
            f"suffix K, M or G, as in 512M. The limit stays at {DEFAULT_LIMIT >> 20}M.",
            RuntimeWarning,
            stacklevel=3,
        )
        return DEFAULT_LIMIT
    return int(number) << shift


_MOST_DIGITS = 20  # more than any number of bytes needs, far fewer than int() rejects
_SUFFIXES = {"K": 10, "M": 20, "G": 30}
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


def _seal(path: Path, data: bytes) -> bytes:
    """Return the hash of a file's name (which depends on the key) and of the object in it."""
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


def _read_all(handle: int, size: int) -> bytes:
    content = os.read(handle, size)
    while len(content) < size and (more := os.read(handle, size - len(content))):
        content += more
    return content


def _user(info: os.stat_result) -> int:
    """Return this user's id. On systems without user ids, return the owner in `info`."""
    return os.geteuid() if hasattr(os, "geteuid") else info.st_uid
