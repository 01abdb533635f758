"""Under --strict-skips only what a machine lacks, or --without names, is a reason to skip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import skip_list
from support.package import PACKAGE

from kernelrt.device.spec import TARGETS

pytestmark = pytest.mark.cases(1 / 8)  # they start pytest or compilers

TESTS = Path(__file__).parents[1]
FILE = """
import pytest
from support import skip_list

skip_list.MACHINE["a lever"] = lambda: False
skip_list.MACHINE["a wheel"] = lambda: True

@skip_list.needs("a lever")
def test_lacking_by_mark():
    raise AssertionError

def test_lacking_by_call():
    skip_list.require("a lever")
    raise AssertionError

@skip_list.needs("a wheel")
def test_there():
    skip_list.require("a wheel")

def test_there_and_skipped():
    skip_list.lack("a wheel")

def test_command():
    skip_list.require_command("no-such-command", "nor-this")

def test_package():
    pytest.importorskip("no_such_package.part")

def test_reason_of_its_own():
    pytest.skip("too slow")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_failure():
    raise AssertionError

if {whole}:
    pytest.importorskip("no_such_module")
"""


def outcomes(tmp_path: Path, *options: str, whole: bool = False) -> tuple[dict[str, str], str]:
    """What pytest says of each test, and all that it prints."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "support").symlink_to(TESTS / "support")
    (tmp_path / "test_file.py").write_text(FILE.replace("{whole}", str(whole)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", "/dev/null",
         f"--rootdir={tmp_path}", "--confcutdir", str(tmp_path), "test_file.py", *options],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(PACKAGE).parent)},
    )  # fmt: skip
    return dict(re.findall(r"::test_(\w+) ([A-Z]+)", done.stdout)), done.stdout


ALLOWED = {"lacking_by_mark": "SKIPPED", "lacking_by_call": "SKIPPED", "there": "PASSED",
           "expected_failure": "XFAIL"}  # fmt: skip
OTHERS = ("there_and_skipped", "command", "package", "reason_of_its_own")


def test_any_reason_will_do_by_default(tmp_path):
    found, _ = outcomes(tmp_path)
    assert found == ALLOWED | dict.fromkeys(OTHERS, "SKIPPED")


def test_strictly_only_what_the_machine_lacks(tmp_path):
    found, output = outcomes(tmp_path, "--strict-skips")
    assert found == ALLOWED | dict.fromkeys(OTHERS, "FAILED")
    for hint in ("This machine seems to have it", "add --without=no-such-command",
                 "Install no_such_package", "was skipped: too slow"):  # fmt: skip
        assert hint in output


def test_packages_and_commands_that_may_be_missing(tmp_path):
    named = "--without=no_such_package,no-such-command"
    found, _ = outcomes(tmp_path, "--strict-skips", named)
    missing = {"command": "SKIPPED", "package": "SKIPPED"}
    assert found == ALLOWED | dict.fromkeys(OTHERS, "FAILED") | missing


@pytest.mark.parametrize(("without", "status"), [("", "1 error"), ("no_such_module", "1 skipped")])
def test_a_whole_file(tmp_path, without, status):
    found, output = outcomes(tmp_path, "--strict-skips", f"--without={without}", whole=True)
    assert not found
    assert status in output


@pytest.mark.parametrize("name", [*skip_list.MACHINE, *TARGETS])
def test_each_name_can_be_looked_up(name):
    assert isinstance(skip_list.has(name), bool)
