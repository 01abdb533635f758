"""docs/environment.md: every variable that is read anywhere, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from kernelrt.device.spec import NATIVE, TARGETS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "environment.md"
NAME = re.compile(r"\b(?:KERNELRT|OMP|XDG)_[A-Z][A-Z_]*[A-Z]\b")
#: A variable of the environment is written in quotes, or as its only word in a string.
READ = re.compile(r"""["'](KERNELRT_[A-Z_]*[A-Z]|OMP_NUM_THREADS|XDG_CACHE_HOME)["']""")
SOURCES = (
    "*.py", "kernelrt/**/*.py*", "csrc/*.[ch]", "tests/**/*.py", "tests/**/*.c", "bench/**/*.py",
)  # fmt: skip


def read_in_sources() -> set[str]:
    found: set[str] = set()
    for pattern in SOURCES:
        for path in ROOT.glob(pattern):
            if path.suffix in {".py", ".pyx", ".pyi", ".c", ".h"} and path != Path(__file__):
                found |= set(READ.findall(path.read_text(encoding="utf-8")))
    return found


def test_every_variable_is_on_the_page_and_no_other() -> None:
    listed = set(NAME.findall(PAGE.read_text(encoding="utf-8")))
    assert read_in_sources() == listed


def test_the_page_lists_the_targets() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [row] = re.findall(r"^\| `KERNELRT_TARGET` \| (.*?) \|", text, re.MULTILINE)
    assert re.findall(r"`(.*?)`", row) == [NATIVE, *TARGETS]
    table = dict(re.findall(r"^\| `((?:x86|arm)[^`]*)` \| (.*?) \|", text, re.MULTILINE))
    assert [*table] == [*TARGETS]
    for name, vectors in table.items():
        bits = re.match(r"(\d+) bits", vectors)
        assert bits is None or int(bits[1]) == TARGETS[name]().vector_bits


def test_the_index_names_the_page() -> None:
    assert "(docs/environment.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
