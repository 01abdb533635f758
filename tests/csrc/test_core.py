"""The C core alone, built with and without sanitizers, with and without threads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.setup_script import load_setup
from support.skip_list import require_command, require_sanitizers

from .conftest import CSRC, HERE, compile_c

if TYPE_CHECKING:
    from support.once import Once

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
BUILDS = {
    "plain": ["-O2"],
    "address-undefined": [
        "-O1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ],
    "thread": ["-O1", "-fsanitize=thread", "-fno-omit-frame-pointer"],
    "no-threads": ["-O2", "-DKRT_NO_THREADS"],
}
PROGRAMS = (
    "test_blocks", "test_locks", "test_pool", "test_graph", "test_chains", "test_choice",
    "test_faults", "test_stack", "test_region",
)  # fmt: skip
CASES = [(program, build) for build in BUILDS for program in PROGRAMS
         # These are about threads that fail to start.
         if (build, program) not in {("no-threads", "test_faults"), ("no-threads", "test_stack")}]
#: No program calls these; sanitized, linalg.c alone compiles for longer than all the others.
ROUTINES = {Path(name).name for name in load_setup().ROUTINES}
#: Seconds after which a program is taken to hang; the slowest needs about 5 on an idle machine.
HANGS = 600


@pytest.fixture
def core(build: str, once: Once) -> tuple[list[str], list[Path]]:
    """The flags of a build, and the core's objects compiled with them once a session."""
    flags = [*BUILDS[build], "-g", "-pthread", *WARNINGS, "-DKRT_TEST_HOOKS"]

    def compile_core(folder: Path) -> None:
        require_sanitizers(require_command("cc", "gcc"), flags)
        for source in sorted(CSRC.glob("*.c")):
            if source.name not in ROUTINES:
                compile_c([source], folder / f"{source.stem}.o", [*flags, "-c"])

    return flags, sorted(once(f"core-{build}", compile_core).glob("*.o"))


@pytest.mark.parametrize(("program", "build"), CASES)
@pytest.mark.cases(1)
def test_core(program: str, build: str, core: tuple[list[str], list[Path]], tmp_path: Path) -> None:
    flags, objects = core
    binary = compile_c([HERE / f"{program}.c", *objects], tmp_path / program, flags)
    environment = dict(os.environ)
    if build == "plain" and (soak := os.environ.get("KERNELRT_SOAK")):
        environment["KRT_ROUNDS"] = soak
    elif build != "plain":
        environment["KRT_ROUNDS"] = "20"
    done = subprocess.run([binary], capture_output=True, text=True, timeout=HANGS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("define", ["-DNDEBUG", "-DKRT_NO_THREADS", "-DKRT_TEST_HOOKS"])
@pytest.mark.parametrize(
    "output", ["-fsyntax-only", pytest.param("-c -o /dev/null", marks=pytest.mark.exhaustive)]
)
def test_no_warnings(compiler: str, define: str, output: str) -> None:
    """Some warnings need the code to be optimized, which takes a hundred times longer."""
    require_command(compiler)
    for source in sorted(CSRC.glob("*.c")):
        if source.name in ROUTINES and "-c" in output and define != "-DNDEBUG":
            continue  # they know none of the others, and linalg.c takes seconds
        done = subprocess.run(
            [compiler, "-std=c11", "-O2", *WARNINGS, define, *output.split(), source],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
