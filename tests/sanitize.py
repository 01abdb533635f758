"""Build the C core and every compiled module with sanitizers, and run the tests of the core.

    python -m tests.sanitize address            AddressSanitizer and UndefinedBehaviorSanitizer
    python -m tests.sanitize thread             ThreadSanitizer
    python -m tests.sanitize address tests/jit  these tests instead, with any options of pytest

The build happens in a copy of the sources, so that the modules in the checkout stay as they are;
build/sanitize keeps the objects for the next one. Exits with pytest's status.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "csrc", "kernelrt", "tests", "docs", "examples", "setup.py", "pyproject.toml", "README.md",
    "LICENSE",
)  # fmt: skip
USUAL = (
    "tests/csrc/test_core.py", "tests/csrc/test_memory.py", "tests/csrc/test_plan_core.py",
    "tests/csrc/test_overlap.py", "tests/csrc/test_replay.py", "tests/unit/test_device_buffer.py",
    "tests/unit/test_device_allocator.py", "tests/plan/test_threads.py",
    "tests/plan/test_model.py", "tests/reliability",
)  # fmt: skip
# Python is not instrumented: what it still holds at the end is no leak of ours, and an exception
# of C++ in LLVM crosses no frame of ours.
OPTIONS = {
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    },
    "thread": {
        "TSAN_OPTIONS": "second_deadlock_stack=1:allocator_may_return_null=1"
    },
}
# ThreadSanitizer sees no lock of code that was built without it, so it takes each of these for a
# race. A pattern hides whatever has a matching function or library in either of its two stacks.
NO_RACES = (
    # The C library frees the thread-local variables of a thread that has ended, under its own lock.
    "race:_dl_deallocate_tls",
    # LLVM makes what it counts with when two threads first compile, under its own lock.
    "race:libllvmlite.so",
    # JAX compiles and runs in a pool of its own.
    "race:libjax_common.so",
)
FLAGS = {"address": "address,undefined", "thread": "thread"}
# greenlet copies stacks, with the guards that AddressSanitizer keeps between variables.
DESELECTED = {
    "address": ["tests/csrc/test_plan_core.py::test_coroutines_interleave_turns"],
    "thread": [],
}
HANGS = 60
"""Seconds after which a test that is still running shows where its threads are."""
LIBRARIES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}


def main(arguments: list[str]) -> int:
    """Build, test, and give the status to exit with."""
    if not arguments or arguments[0] not in FLAGS:
        print(__doc__, file=sys.stderr)
        return 2
    kind, *rest = arguments
    with tempfile.TemporaryDirectory(prefix="kernelrt-sanitize-") as folder:
        copy(Path(folder))
        build(Path(folder), kind)
        return test(Path(folder), kind, rest or ["--all", *USUAL])


def copy(folder: Path) -> None:
    """Copy the sources, and nothing that was built from them."""
    leave = shutil.ignore_patterns("*.so", "*.pyc", "__pycache__", "build")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=leave)
        elif source.exists():
            shutil.copy(source, folder / name)


def build(folder: Path, kind: str) -> None:
    """Compile and link every module with the sanitizers of `kind`."""
    environment = {**os.environ, "KERNELRT_BUILD_SANITIZE": FLAGS[kind]}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    command += ["--build-temp", str(ROOT / "build" / "sanitize")]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def libraries(kind: str) -> list[str]:
    """Where the compiler has the run-time libraries, which must come before all others."""
    found = []
    for name in LIBRARIES[kind]:
        command = ["cc", f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            raise SystemExit(f"this compiler has no {name}; install gcc's sanitizer libraries")
        found.append(str(Path(path).resolve()))
    return found


def environment(folder: Path, kind: str, *, go_on: bool = False) -> dict[str, str]:
    """Variables for a Python that runs instrumented modules in `folder`.

    The first report ends it; with `go_on` ThreadSanitizer reports all races, and the status at the
    end tells that there were some.
    """
    known = folder / "no-races"
    known.write_text("\n".join(NO_RACES) + "\n", encoding="ascii")
    options = dict(OPTIONS[kind])
    if kind == "thread":
        options["TSAN_OPTIONS"] += f":suppressions={known}:halt_on_error={int(not go_on)}"
    return {
        **os.environ,
        **options,
        "LD_PRELOAD": " ".join(libraries(kind)),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder),
        "OPENBLAS_NUM_THREADS": "1",
    }


def test(folder: Path, kind: str, arguments: list[str]) -> int:
    """Run pytest on the instrumented modules.

    A sanitizer writes its report and ends the process at once, so pytest must leave the output of
    the process alone: what it has captured by then is lost. A test that hangs shows its stacks.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys"]
    command += ["-o", f"faulthandler_timeout={HANGS}", *arguments]
    command += [f"--deselect={name}" for name in DESELECTED[kind]]
    return subprocess.run(
        command, cwd=folder, env=environment(folder, kind), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
