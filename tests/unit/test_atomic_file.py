"""Files that are whole or absent."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from kernelrt.util.atomic_file import write_text, writing

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert write_text(str(target), "first") == target
    write_text(target, "zweite Fassung: \u00e4")
    assert target.read_bytes().decode() == "zweite Fassung: \u00e4"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_text(target, "first")

    def interrupted() -> None:
        with writing(target) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_links_devices_and_pipes_stay(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("before")
    link.symlink_to(real)
    write_text(link, "after")
    assert link.is_symlink()
    assert real.read_text() == "after"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join()
    assert found == ["text"]
    assert pipe.is_fifo()


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_text(tmp_path, "text")
    with pytest.raises(FileNotFoundError, match="missing' does not exist"):
        write_text(tmp_path / "missing" / "page.html", "text")


def test_lone_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    target = tmp_path / "\udc80.html"
    write_text(target, "a\udc80")
    assert target.read_text() == "a\\udc80"
