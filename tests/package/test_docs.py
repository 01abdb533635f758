"""The pages of docs/ are true: every block of Python on them runs, in order, page by page."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.skip_list import require_command

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

#: Times, and figures that depend on the processor.
NUMBER = re.compile(r"\d[\d,.]*")

#: Pages that are run elsewhere, or not at all, and why.
ELSEWHERE = {
    "data.md": "tests/data/test_batches.py, which looks at the numbers that it prints",
    "architecture.md": "its one block is a step whose model is not shown",
}
#: Packages that a page uses.
PACKAGES = {"call.md": "numba"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block that names one."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, textwrap.dedent(text)) for _, language, text in found]


RUN = [
    page
    for page in PAGES
    if page.name not in ELSEWHERE and any(language == "python" for language, _ in blocks(page))
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block prints stands below it, except for numbers where it has no prompts.

    A block of C is compiled as its first line says.
    """
    if page.name in PACKAGES:
        pytest.importorskip(PACKAGES[page.name])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    printed = io.StringIO()
    for language, text in blocks(page):
        if language == "c" and (command := re.match(r"/\* (cc .*) \*/\n", text)):
            compile_c(shlex.split(command[1]), text)
        elif language == "python" and ">>> " in text:
            test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
            runner.run(test, clear_globs=False)
            names = test.globs
        elif language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), names)  # noqa: S102 - our own text
        elif language == "text":
            assert NUMBER.sub("0", printed.getvalue()) == NUMBER.sub("0", text)
    assert runner.summarize(verbose=False).failed == 0


def compile_c(command: list[str], text: str) -> None:
    [source] = [word for word in command if word.endswith(".c")]
    Path(source).write_text(text, encoding="ascii")
    command[0] = require_command("cc", "gcc", "clang")
    subprocess.run(command, check=True)


@pytest.mark.cases(len(PAGES))
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_prompt_stands_in_a_block(page: Path) -> None:
    prompts = re.compile(r"^ *>>> ", re.MULTILINE)
    inside = sum(len(prompts.findall(text)) for kind, text in blocks(page) if kind == "python")
    assert inside == len(prompts.findall(page.read_text(encoding="utf-8")))


def test_pages_that_are_run_elsewhere_exist() -> None:
    assert {page.name for page in PAGES} >= {*ELSEWHERE, *PACKAGES}
