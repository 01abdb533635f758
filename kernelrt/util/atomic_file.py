"""Write files so that a reader finds either the whole file or none."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING, BinaryIO, Final

from kernelrt.errors import DTypeError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["UNFINISHED", "checked_path", "destination", "encodable", "write_text", "writing"]

#: Suffix of files that are not finished; a process that was killed leaves them behind.
UNFINISHED: Final = ".part"


@contextlib.contextmanager
def writing(target: Path, *, cached: bool = False) -> Iterator[BinaryIO]:
    """Open a new file next to `target` for writing. At the end of the block, it replaces `target`.

    If the block raises, `target` stays as it is. The new file has a random name and is opened with
    O_EXCL, so nothing is written to an existing file or through a symbolic link. The new file gets
    the permissions of `target`.

    Parameters
    ----------
    target : Path
        File to write.
    cached : bool
        Whether the file belongs to a cache. If so, only this user may read it. The function then
        does not wait until the data is on the disk, because this would take longer than the cache
        saves, so after a power failure the file may be incomplete.
    """
    unfinished = target.with_name(f".{target.name}.{os.urandom(8).hex()}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(unfinished, flags, 0o600 if cached else 0o666)
    try:
        if not cached and target.is_file() and not target.is_symlink():
            os.fchmod(handle, target.stat().st_mode & 0o777)
        # At exit the builtin open is gone, and os.fdopen cannot import io.
        with io.open(handle, "wb") as file:  # noqa: UP020
            yield file
            if not cached:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def path_text(path: object, *, expected: str = "a str or a path") -> str:
    """Return `path` as a str; raise an error if it cannot name a file."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise DTypeError(f"path: expected {expected}, not {type(path).__name__}")
    if "\0" in text:
        raise StateError(f"path: expected no null character, not {text!r}")
    if not {*text.split("/")} - {"", "."}:
        raise StateError(
            f"path: expected the name of a file, not {text!r}, which "
            f"{'names a folder' if text else 'is empty'}"
        )
    return text


def checked_path(path: object, *, expected: str = "a str or a path") -> Path:
    """Return `path` as a Path; raise an error if it cannot name a file."""
    from pathlib import Path  # import kernelrt does not load it

    return Path(path_text(path, expected=expected))


def destination(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write, in a folder that exists.

    Call this function before long work whose result goes into the file, so that a wrong path raises
    an error at once.
    """
    target = checked_path(path)
    if target.is_dir():
        raise IsADirectoryError(f"path: expected the name of a file, but {str(path)!r} is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path: the folder {str(target.parent)!r} does not exist; create it first"
        )
    return target


def encodable(text: str) -> str:
    """Return text with lone surrogates as escapes, because UTF-8 cannot encode them.

    Names of files and functions may have them.
    """
    return text.encode(errors="backslashreplace").decode()


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text to a file, a device or a pipe; return its path.

    A symbolic link stays, and the file that it names is written. Lone surrogates are escaped.
    """
    target = destination(path)
    data = encodable(text).encode()
    real = checked_path(os.path.realpath(target))
    if real.exists() and not real.is_file():  # replacing a device would remove it
        real.write_bytes(data)
        return target
    with writing(real) as file:
        file.write(data)
    return target
