"""The only reasons for skipping a test, and options that make any other skip fail.

A test that needs a property of the machine names it by a key of MACHINE. One that needs a machine
that can run the code of a target names the target:

    @needs("Linux")                       # or, in a fixture or a test: require("Linux")
    @needs("x86-64-v3")

A test that needs a package calls pytest.importorskip; one that needs a command calls
require_command. A run can insist that nothing else is skipped:

    pytest --strict-skips                         every package and command is there
    pytest --strict-skips --without torch,clang   these may be missing

tests/conftest.py passes pytest's hooks on to the functions here.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]


def _threads() -> bool:
    from kernelrt.native.core import pool_limit

    return pool_limit() >= 2


def _bfloat16_products(of: str) -> bool:
    from kernelrt.device import spec
    from kernelrt.dtype import bfloat16

    target: spec.DeviceSpec = getattr(spec, of)()
    return target.dot(bfloat16) is not None


def _wide_long_double() -> bool:
    from support.math_truth import HAS_WIDE

    return HAS_WIDE


def _failing_allocator() -> bool:
    try:
        import _testcapi
    except ImportError:
        return False
    return hasattr(_testcapi, "set_nomemory")


#: Properties that not every machine has, and checks for them.
MACHINE: dict[str, Callable[[], bool]] = {
    # macOS has no /proc, no LD_PRELOAD, and neither gcc nor its sanitizers.
    "Linux": lambda: sys.platform == "linux",
    "glibc": lambda: platform.libc_ver()[0] == "glibc",
    "gcc's sanitizers": lambda: sys.platform == "linux",
    "addresses that ThreadSanitizer can use": lambda: sys.platform == "linux",
    "huge pages": Path("/sys/kernel/mm/transparent_hugepage").exists,
    # A machine or a container with one processor.
    "two threads": _threads,
    # A user who may not give files away.
    "root": lambda: os.geteuid() == 0,
    # Elsewhere nothing that user programs may read tells all that LLVM knows of the processor.
    "CPUID": lambda: platform.machine() in ("x86_64", "AMD64"),
    "products of bfloat16": lambda: _bfloat16_products("machine"),
    # Of this process, which KERNELRT_TARGET may hold to less than the machine has.
    "a target with products of bfloat16": lambda: _bfloat16_products("host"),
    "a long double wider than float64": _wide_long_double,
    # Pythons that come without their own tests.
    "an allocator that can fail": _failing_allocator,
    # The tests run against an installed package, or from an sdist.
    "the source tree": (ROOT / "kernelrt" / "native/core.pyx").exists,
    "the benchmarks": (ROOT / "bench").exists,
}


def is_target(name: str) -> bool:
    """Return whether `name` is a target of KERNELRT_TARGET."""
    from kernelrt.device.spec import TARGETS

    return name in TARGETS


@functools.cache
def has(name: str) -> bool:
    """Return whether this machine has the property `name` of MACHINE, or runs the target `name`.

    The target of this process, which tests call `host()`, may be another one.
    """
    if not is_target(name):
        return MACHINE[name]()
    from kernelrt.device.spec import machine, runnable

    return name in runnable(machine())


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test to be skipped if the machine lacks `name`."""
    return pytest.mark.skipif(not has(name), reason=f"needs {name}")


def require(name: str) -> None:
    """Skip the running test if the machine lacks `name`."""
    if not has(name):
        lack(name)


def lack(name: str) -> NoReturn:
    """Skip the running test, which found that `name` of MACHINE does not work here."""
    pytest.skip(f"needs {name}")


def require_command(*names: str) -> str:
    """Return the path of the first command that exists; skip the test if none does."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"needs the command {names[0]}")


def require_sanitizers(compiler: str, flags: Iterable[str]) -> None:
    """Skip the running test if `flags` name sanitizers whose programs do not run here."""
    names = [flag for flag in flags if flag.startswith("-fsanitize=")]
    if names and not _sanitizer_works(compiler, *names):
        lack("gcc's sanitizers")


@functools.cache
def _sanitizer_works(compiler: str, *flags: str) -> bool:
    """A sanitizer needs its run-time library, and ThreadSanitizer an address space it likes."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.c"), Path(folder, "probe")
        source.write_text("int main(void) { return 0; }\n", encoding="ascii")
        command = [compiler, *flags, str(source), "-o", str(program)]
        return not (
            subprocess.run(command, capture_output=True, check=False).returncode
            or subprocess.run([str(program)], capture_output=True, check=False).returncode
        )


class Package:
    """A package that is imported when a test first uses it; if it is missing, the test is skipped.

    A module all of whose tests need a package calls pytest.importorskip instead.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("_"):  # pytest inspects the attributes of modules
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


# For tests/conftest.py ----------------------------------------------------------------------------


def add_options(parser: pytest.Parser) -> None:
    """Add the options described above."""
    group = parser.getgroup("skips")
    group.addoption(
        "--strict-skips", action="store_true",
        help="fail every skip that MACHINE in tests/support/skip_list.py does not explain",
    )  # fmt: skip
    group.addoption(
        "--without", default="", metavar="NAMES",
        help="packages and commands, separated by commas, that --strict-skips lets be missing",
    )  # fmt: skip


def reasons(reports: Iterable[pytest.TestReport]) -> dict[str, int]:
    """Count skips by the missing requirement, the most frequent first."""
    found: Counter[str] = Counter()
    for report in reports:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
        package = re.match(r"could not import '([\w.]+)'", reason)
        found[f"need the package {package[1].partition('.')[0]}" if package else reason] += 1
    return dict(found.most_common())


def judge(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not allowed into a failure, if the run is strict."""
    if not config.getoption("strict_skips") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
    if complaint := _complaint(reason, config.getoption("without").split(",")):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped: {reason}\n{complaint}"


def _complaint(reason: str, without: list[str]) -> str | None:
    """Return why a test may not be skipped for `reason`; None if it may."""
    if name := re.match(r"could not import '(\w+)|needs the command ([\w+-]+)", reason):
        if (missing := name[1] or name[2]) in without:
            return None
        return f"Install {missing}, or add --without={missing}."
    needed = reason.removeprefix("needs ")
    if needed not in MACHINE and not is_target(needed):
        return f"Only {', '.join(MACHINE)} or a target may be lacking; see MACHINE in {__file__}."
    return f"This machine seems to have it; see MACHINE in {__file__}." if has(needed) else None
