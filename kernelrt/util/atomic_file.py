"""Write files that are whole or absent."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["UNFINISHED", "write_text", "writing"]


#: Suffix of files that are not finished; a process that was killed leaves them behind.
UNFINISHED: Final = ".part"


@contextlib.contextmanager
def writing(target: Path, *, cached: bool = False) -> Iterator[BinaryIO]:
    """Open a file beside `target` for writing; it replaces `target` at the end of the block.

    If the block raises, `target` stays as it is. The file has a random name and is opened with
    O_EXCL: this never writes to an existing file or through a symbolic link.

    Parameters
    ----------
    target : Path
        File to write.
    cached : bool
        Whether the file belongs to a cache. Only this user may read it, and after a power failure
        it may be incomplete: waiting for the disk would take longer than the cache saves.
    """
    unfinished = target.with_name(f".{target.name}.{os.urandom(8).hex()}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(unfinished, flags, 0o600 if cached else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if not cached:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text to a file, a device or a pipe; return its path.

    A symbolic link stays, and the file that it names is written.
    """
    from pathlib import Path  # import kernelrt does not load it

    target = Path(path)
    real = Path(os.path.realpath(target))
    if real.exists() and not real.is_file():  # replacing a device would remove it
        real.write_text(text, encoding="utf-8")
        return target
    with writing(real) as file:
        file.write(text.encode())
    return target
