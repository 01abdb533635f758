"""A run of the suite takes a part of the cases; together the parts are all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import once, sample, skip_list

CASES = """
import pytest

@pytest.mark.parametrize("n", range(30))
def test_usual(n): ...

@pytest.mark.cases(7)
@pytest.mark.parametrize("n", range(30))
def test_more(n): ...

@pytest.mark.exhaustive
def test_long(): ...

def test_single(): ...
"""


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 10, 31])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_every_case_is_in_one_part(count, size):
    parts = max(1, -(-count // size))
    found = [sample.part(range(count), size, draw, "f") for draw in range(parts)]
    assert sorted(i for part in found for i in part) == list(range(count))
    assert all(part == sorted(part) and len(part) <= size for part in found)
    assert sample.part(range(count), size, parts + 1, "f") == found[1 % parts]


def test_functions_take_different_parts():
    found = {tuple(sample.part(range(30), 3, 0, name)) for name in "abcdefgh"}
    assert len(found) > 4


def test_the_commit_is_that_of_git(tmp_path):
    found = sample.commit()
    if (sample.ROOT / ".git").exists():
        assert len(found) == 40
    assert sample.number("a") != sample.number("b")


def test_the_table_of_what_a_change_touches_names_what_is_there():
    tests = {path.name for path in (sample.ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    named = {name for folders in sample.TOUCHES.values() for name in folders.split()}
    assert named | set(sample.ALWAYS) == tests
    for prefix in sample.TOUCHES:
        assert list(sample.ROOT.glob(f"{prefix}*")), prefix


def test_a_change_touches_the_folders_of_its_longest_path(tmp_path, monkeypatch):
    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    def write(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1", encoding="ascii")
        git("add", "-A")
        git("commit", "-m", name)

    monkeypatch.setattr(sample, "ROOT", tmp_path)
    git("init")
    write("kernelrt/a.py")
    write("docs/a.md")
    always = set(sample.ALWAYS)
    assert sample.touched("HEAD~1") == always
    write("kernelrt/tune/a.py")
    assert sample.touched("HEAD~1") == always | {"tune"}
    write("tests/nn/test_a.py")
    assert sample.touched("HEAD~2") == always | {"tune", "nn"}
    write("kernelrt/new.py")
    assert sample.touched("HEAD~1") == always | set(sample.TOUCHES["kernelrt/"].split())
    with pytest.raises(pytest.UsageError, match="git knows no such commit"):
        sample.touched("no-such-commit")


@pytest.fixture
def suite(tmp_path):
    """A suite of four functions with the conftest.py of this one; runs it and lists what ran."""
    root = Path(__file__).parents[1]
    tests = tmp_path / "tests"
    (tests / "support").mkdir(parents=True)
    for name in ("conftest.py", *(f"support/{file.name}" for file in MODULES)):
        (tests / name).write_text((root / name).read_text(encoding="utf-8"), encoding="utf-8")
    marks = 'markers = ["cases(n): n cases", "exhaustive: with --all only"]'
    (tmp_path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{marks}\n")
    (tests / "test_few.py").write_text(CASES, encoding="utf-8")

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "xdist"]
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "PASSED" in line]
        return {part for line in lines for part in line.split() if "::" in part}, done.stdout

    return run


MODULES = [Path(module.__file__) for module in (once, sample, skip_list)]


def of(name, found):
    return {test for test in found if f"::{name}" in test}


def test_runs_take_parts_and_the_rest_is_marked_exhaustive(suite):
    found, text = suite("tests", "-n0", "--draw", "first")
    assert (len(of("test_usual", found)), len(of("test_more", found))) == (3, 6)
    assert of("test_single", found)
    assert not of("test_long", found)
    assert "--draw 'first'" in text
    assert re.search(r"test_few.py +52 of +62", text)
    rest, _ = suite("tests", "-n0", "--draw", "first", "-m", "exhaustive")
    everything, text = suite("tests", "-n0", "--all")
    assert len(everything) == 62
    assert "cases: all" in text
    assert found | rest == everything
    assert not found & rest
    more, _ = suite("tests", "-n0", "--draw", "second", "--times", "3")
    assert len(of("test_usual", more)) in (7, 8)
    assert not of("test_usual", more) >= of("test_usual", found)


def test_a_folder_runs_on_every_core_and_every_worker_has_the_same_draw(suite):
    found, text = suite("tests")
    assert re.search(r"\d+ workers? \[10 items\]", text)
    assert found == suite("tests", "-n0")[0]


def test_what_is_named_runs_whole_and_in_one_process(suite):
    found, text = suite("tests/test_few.py")
    assert len(found) == 62
    assert "worker" not in text
    names = [f"tests/test_few.py::test_usual[{n}]" for n in (4, 5)]
    found, text = suite(*names)
    assert found == {*names}
    assert "worker" not in text
