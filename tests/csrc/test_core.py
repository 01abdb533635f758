"""The C core alone, built with and without sanitizers, with and without threads."""

from __future__ import annotations

import os
import subprocess

import pytest

from .conftest import CSRC, HERE, compile_c

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


def sanitizer_works(flags: list[str], folder) -> bool:
    """A sanitizer needs its run-time library, and ThreadSanitizer an address space it likes."""
    source = folder / "probe.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    try:
        return subprocess.run([compile_c([source], folder / "probe", flags)]).returncode == 0
    except AssertionError:
        return False


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "program",
    [
        "test_blocks",
        "test_locks",
        "test_pool",
        "test_graph",
        "test_chains",
        "test_choice",
        "test_faults",
        "test_stack",
        "test_region",
    ],
)
def test_core(program: str, build: str, tmp_path) -> None:
    flags = [*BUILDS[build], "-g", "-pthread"]
    if "-fsanitize" in " ".join(flags) and not sanitizer_works(flags, tmp_path):
        pytest.skip(f"this compiler or machine cannot do {build}")
    if build == "no-threads" and program in ("test_faults", "test_stack"):
        pytest.skip("without threads none can fail to start")
    binary = compile_c(
        [HERE / f"{program}.c", *sorted(CSRC.glob("*.c"))],
        tmp_path / program,
        [*flags, *WARNINGS, "-DKRT_TEST_HOOKS"],
    )
    environment = dict(os.environ)
    if build == "plain" and (soak := os.environ.get("KERNELRT_SOAK")):
        environment["KRT_ROUNDS"] = soak
    elif build != "plain":
        environment["KRT_ROUNDS"] = "20"
    done = subprocess.run([binary], capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("define", ["-DNDEBUG", "-DKRT_NO_THREADS", "-DKRT_TEST_HOOKS"])
def test_no_warnings(compiler: str, define: str, tmp_path) -> None:
    try:
        subprocess.run([compiler, "--version"], capture_output=True)
    except OSError:
        pytest.skip(f"no {compiler}")
    for source in sorted(CSRC.glob("*.c")):
        done = subprocess.run(
            [compiler, "-std=c11", "-O2", *WARNINGS, define, "-c", source, "-o", "/dev/null"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
