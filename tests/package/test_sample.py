"""A run of the suite takes a part of the cases; together the parts are all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import sample
from support.package import PACKAGE
from support.skip_list import require_command

pytestmark = pytest.mark.cases(1 / 8)  # they start pytest or compilers

CASES = """
import pytest

@pytest.mark.parametrize("n", range(30))
def test_usual(n): ...

@pytest.mark.cases(7)
@pytest.mark.parametrize("n", range(30))
def test_more(n): ...

@pytest.mark.exhaustive
@pytest.mark.parametrize("n", range(8))
def test_long(n): ...

def test_single(): ...
"""


class Case:
    """An item that was collected."""

    path = Path("test_a.py")

    def __init__(self, nodeid, mark):
        self.nodeid, self.mark = nodeid, mark

    def get_closest_marker(self, name):
        return self.mark if name == "cases" else None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 10, 31])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_every_case_is_in_one_part(count, parts):
    ranks = [sample.ranks(range(count), parts, draw, "f") for draw in range(parts)]
    for of_case in zip(*ranks, strict=True):
        assert sorted(of_case) == list(range(parts))
    sizes = [found.count(0) for found in ranks]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert sample.ranks(range(count), parts, parts + 1, "f") == ranks[1 % parts]
    if parts > 1:
        # The part of the next draw comes next.
        assert [n for n, rank in enumerate(ranks[0]) if rank == 1] == [
            n for n, rank in enumerate(ranks[1]) if rank == 0
        ]


def test_functions_take_different_parts():
    found = {tuple(sample.ranks(range(30), 10, 0, name)) for name in "abcdefgh"}
    assert len(found) > 4


@pytest.mark.parametrize(("count", "size", "parts"), [(1, 1 / 4, 4), (3, 1 / 2, 6), (9, 4, 2)])
def test_a_run_takes_as_many_cases_as_the_marker_says(count, size, parts):
    mark = pytest.mark.cases(size)
    items = [Case(f"test_a.py::test_a[{n}]", mark) for n in range(count)]
    drawn = [sample.chosen(items, draw, whole=lambda _: False) for draw in range(parts)]
    taken = [[item for item, rank in part.items() if rank == 0] for part in drawn]
    assert sorted(item.nodeid for part in taken for item in part) == [i.nodeid for i in items]
    assert max(map(len, taken)) <= max(1, size) + 1


def test_the_commit_is_that_of_git_or_the_version(tmp_path, monkeypatch):
    text = '[project]\nversion = "1.2"\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sample, "ROOT", tmp_path)
    assert sample.commit() == "1.2"
    require_command("git")
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    assert sample.commit() == git(tmp_path, "rev-parse", "HEAD")


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_numbers_of_texts_differ_and_stay():
    assert sample.number("a") == sample.number("a") != sample.number("b")


def test_a_change_of_what_all_tests_use_touches_all_folders():
    everything = set(sample.EVERYTHING.split())
    assert sample.touched_by(["tests/support/once.py"]) == everything | set(sample.ALWAYS)
    tests = {path.name for path in (sample.ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert everything | set(sample.ALWAYS) == tests
    assert sample.touched_by(["tests/sanitize.py", "README.md"]) == set(sample.ALWAYS)
    assert sample.touched_by(["tests/nn/test_a.py"]) == {*sample.ALWAYS, "nn"}


def test_the_table_of_what_a_change_touches_names_what_is_there():
    tests = {path.name for path in (sample.ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    named = {name for folders in sample.TOUCHES.values() for name in folders.split()}
    assert named | set(sample.ALWAYS) == tests
    for prefix in sample.TOUCHES:
        assert list(sample.ROOT.glob(f"{prefix}*")), prefix


def test_a_change_touches_the_folders_of_its_longest_path(tmp_path, monkeypatch):
    require_command("git")

    def write(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1", encoding="ascii")

    def commit(name):
        write(name)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-m", name)

    monkeypatch.setattr(sample, "ROOT", tmp_path)
    git(tmp_path, "init")
    commit("kernelrt/a.py")
    commit("docs/a.md")
    always = set(sample.ALWAYS)
    assert sample.touched("HEAD~1") == always
    commit("kernelrt/tune/a.py")
    assert sample.touched("HEAD~1") == always | {"tune"}
    commit("tests/nn/test_a.py")
    assert sample.touched("HEAD~2") == always | {"tune", "nn"}
    commit("kernelrt/new.py")
    assert sample.touched("HEAD~1") == always | set(sample.TOUCHES["kernelrt/"].split())
    git(tmp_path, "mv", "kernelrt/tune/a.py", "kernelrt/tune/b and c.py")
    assert sample.touched("HEAD") == always | {"tune"}
    git(tmp_path, "rm", "-qf", "kernelrt/tune/b and c.py")
    assert sample.touched("HEAD") == always | {"tune"}
    git(tmp_path, "reset", "-q", "--hard")
    write("tests/jit/test_new.py")
    assert sample.touched("HEAD") == always | {"jit"}
    refused = r"git could not list what changed .* single revision"
    with pytest.raises(pytest.UsageError, match=refused):
        sample.touched("no-such-commit")


@pytest.fixture
def suite(tmp_path):
    """A suite of four functions with the conftest.py of this one; runs it and lists what ran."""
    root = Path(__file__).parents[1]
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_bytes((root / "conftest.py").read_bytes())
    (tests / "support").symlink_to(root / "support")
    marks = 'markers = ["cases(n): n cases", "exhaustive: with --all only"]'
    (tmp_path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{marks}\n")
    (tests / "test_few.py").write_text(CASES, encoding="utf-8")

    def run(*arguments, status=0):
        command = [sys.executable, "-m", "pytest", "-v", "-p", "xdist"]
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={
                **os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(Path(PACKAGE).parent),
            },
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "PASSED" in line]
        found = {part for line in lines for part in line.split() if "::" in part}
        return found, done.stdout + done.stderr

    return run


def of(name, found):
    return {test for test in found if f"::{name}" in test}


def test_runs_take_parts_and_the_rest_is_marked_exhaustive(suite):
    found, text = suite("tests", "-n0", "--draw", "first")
    assert len(of("test_usual", found)) == 3
    assert len(of("test_more", found)) in (7, 8)
    assert of("test_single", found)
    assert not of("test_long", found)
    assert "--draw 'first'" in text
    assert re.search(rf"test_few.py +{69 - len(found)} of +69", text)
    rest, _ = suite("tests", "-n0", "--draw", "first", "-m", "exhaustive")
    everything, text = suite("tests", "-n0", "--all")
    assert len(everything) == 69
    assert "cases: all" in text
    assert found | rest == everything
    assert not found & rest
    more, _ = suite("tests", "-n0", "--draw", "second", "--times", "3")
    assert len(of("test_usual", more)) == 9
    usual, _ = suite("tests", "-n0", "--draw", "second")
    rest, _ = suite("tests", "-n0", "--draw", "second", "--times", "3", "-m", "exhaustive")
    assert usual | rest == more
    assert not usual & rest


def test_what_is_marked_exhaustive_rotates_with_times(suite):
    ran = [
        {*of("test_long", suite("tests", "-n0", "--draw", f"{n}", "--times", "2")[0])}
        for n in range(4)
    ]
    assert all(len(some) == 1 for some in ran)
    assert len(set.union(*ran)) > 1


def test_what_is_selected_by_name_or_has_failed_runs_whole(suite):
    found, text = suite("tests", "-n0", "-k", "test_usual")
    assert len(found) == 30
    assert "cases: all" in text
    rest, _ = suite("tests", "-n0", "-k", "test_usual", "-m", "exhaustive")
    assert len(rest) == 27


def test_failed_cases_are_repeated_whatever_is_drawn(suite, tmp_path):
    file = tmp_path / "tests" / "test_few.py"
    text = file.read_text(encoding="utf-8")
    failing = text.replace("def test_usual(n): ...", "def test_usual(n): assert n < 25")
    for options in ([], ["--draw", "second"], ["-m", "exhaustive", "--draw", "third"]):
        file.write_text(failing, encoding="utf-8")
        suite("tests", "-n0", "--all", status=1)
        file.write_text(text, encoding="utf-8")
        found, _ = suite("tests", "-n0", "--lf", *options)
        assert found == {f"tests/test_few.py::test_usual[{n}]" for n in range(25, 30)}
    (tmp_path / "tests" / "more").mkdir()
    (tmp_path / "tests" / "more" / "test_more.py").write_text(text, encoding="utf-8")
    found, _ = suite("tests/more", "-n0", "--lf")
    assert len(of("test_usual", found)) == 3


@pytest.mark.parametrize("option", ["--times", "--one-in"])
def test_numbers_below_one_are_refused(suite, option):
    _, text = suite("tests", "-n0", option, "0", status=4)
    assert f"{option}: expected at least 1, not 0" in text


def test_minutes_start_no_case_after_them_and_say_so(suite):
    found, text = suite("tests", "--all", "--minutes", "0")
    assert not found
    told = r"no time left after 0 minutes =+\ntest_few.py +69\n69 cases did not run"
    assert re.search(told, text)
    found, text = suite("tests", "--all", "--minutes", "10")
    assert len(found) == 69
    assert "no time left" not in text
    _, text = suite("tests", "-n0", "--all", "--minutes", "-1", status=4)
    assert "--minutes: expected at least 0, not -1" in text


def test_minutes_run_the_usual_part_first(suite):
    usual, _ = suite("tests", "-n0", "--draw", "a")
    _, text = suite("tests", "-n0", "--draw", "a", "--all", "--minutes", "10")
    order = re.findall(r"^(tests/\S+) PASSED", text, re.MULTILINE)
    assert len(order) == 69
    assert set(order[: len(usual)]) == usual
    _, text = suite("tests", "-n0", "--draw", "a", "--minutes", "10", "-m", "exhaustive")
    order = re.findall(r"^(tests/\S+) PASSED", text, re.MULTILINE)
    more, _ = suite("tests", "-n0", "--draw", "a", "--times", "2", "-m", "exhaustive")
    assert set(order[: len(more)]) == more


def test_one_in_some_functions_runs(suite):
    ran = [suite("tests", "-n0", "--one-in", "2", "--draw", f"{n}")[0] for n in range(6)]
    functions = [{test.partition("[")[0] for test in found} for found in ran]
    assert min(map(len, functions)) < 3
    assert len(set.union(*functions)) == 3
    usual, _ = suite("tests", "-n0", "--draw", "0")
    assert ran[0] < usual


def test_a_folder_runs_on_every_core_and_every_worker_has_the_same_draw(suite):
    found, text = suite("tests")
    assert re.search(r"\d+ workers? \[1[12] items\]", text)
    assert found == suite("tests", "-n0")[0]


def test_tests_with_some_words_in_their_paths_run_first(suite, tmp_path):
    for name in ("first", "middle", "other"):
        (tmp_path / "tests" / f"test_{name}.py").write_text("def test_it(): ...\n")
    _, text = suite("tests", "-n0", "--first", "_other.py,middle")
    order = re.findall(r"^tests/test_(\w+)\.py::\S+ PASSED", text, re.MULTILINE)
    assert list(dict.fromkeys(order)) == ["other", "middle", "few", "first"]


def test_what_is_named_runs_whole_and_in_one_process(suite):
    found, text = suite("tests/test_few.py")
    assert len(found) == 69
    assert "worker" not in text
    names = [f"tests/test_few.py::test_usual[{n}]" for n in (4, 5)]
    found, text = suite(*names)
    assert found == {*names}
    assert "worker" not in text
