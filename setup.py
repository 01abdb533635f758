"""Build the extension modules (.pyx files in kernelrt/ over csrc/*.c); pyproject.toml has the rest.

A build uses all cores and rebuilds only what changed: each file that it keeps in build/ has a key
beside it, the digest of all inputs of the file.

Equal sources make equal sdists, byte for byte.

Build switches, all environment variables:

SOURCE_DATE_EPOCH         modification time of the files of an sdist, in seconds; 1980 if not set
KERNELRT_BUILD_SANITIZE   sanitizers to compile and link with, as in ``address,undefined``
KERNELRT_BUILD_NO_THREADS 1 leaves the thread pool out; every plan then runs serially

CC, CFLAGS, CPPFLAGS, LDFLAGS and LDSHARED have their usual meaning.
"""

from __future__ import annotations

import fcntl
import filecmp
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError, PlatformError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HERE = Path(__file__).parent
EPOCH = 315532800
"""The first of January 1980, the earliest time that archives of all kinds can hold."""
CORE = [
    f"csrc/{name}.c"
    for name in (
        "plan", "build", "graph", "region", "choice", "pool", "thread", "platform", "signals",
        "model", "processor",
    )
]
ROUTINES = [
    f"csrc/{name}.c" for name in ("linalg", "running", "cumsum", "sort", "routines", "foreign")
]
MEMORY = [f"csrc/{name}.c" for name in ("blocks", "platform")]
HOT = (
    "_dispatch", "native.array_handle", "native.eager_plan", "native.evaluate",
    "native.fast_paths", "native.graph_key", "native.graph_templates", "native.multi_step",
    "native.name_guards", "native.node", "native.replay", "native.signature",
    "native.source_lines", "native.thread_modes", "native.write_barrier",
)  # fmt: skip
COLD = ("native.emit_object", "native.locks", "native.op_structs", "native.tile_cost")
"""Modules off the hot path: -O1 compiles a third faster."""
CYTHON = ("-3", "-I.", "-X", "auto_pickle=False")
VARIABLES = (
    "KERNELRT_BUILD_SANITIZE", "KERNELRT_BUILD_NO_THREADS", "CPATH", "C_INCLUDE_PATH",
    "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "ARCHFLAGS", "MACOSX_DEPLOYMENT_TARGET",
    "SDKROOT",
)  # fmt: skip
"""Build switches, and environment variables that compilers and linkers read."""
KEPT = 3
"""Toolchains and switches whose build products are kept for the next build."""
#: Files that a C file includes, itself or through the macro BODY of each_version.h.
INCLUDE = re.compile(r'^\s*#\s*(?:include|define\s+BODY)\s+"(\w+\.h)"', re.MULTILINE)
CIMPORT = re.compile(r"^.*\bcimport\b.*", re.MULTILINE)

TO_INSTALL = """
kernelrt compiles a small C extension and could not, because {what}.
Install a C compiler and the headers of Python {version}:

  Debian, Ubuntu   sudo apt-get install build-essential python3-dev
  Fedora, RHEL     sudo dnf install gcc python3-devel
  macOS            xcode-select --install

then run pip again. The compiler was called as: {command}
{detail}"""


def fail(what: str, command: list[str], detail: str = "") -> PlatformError:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return PlatformError(
        TO_INSTALL.format(what=what, version=version, command=" ".join(command), detail=detail)
    )


class Unit(NamedTuple):
    """A source file and the object that it becomes."""

    source: Path
    c: Path
    """The C file: the source itself, or Cython's translation of it."""
    object: Path
    settings: tuple[str, ...]


def closure(path: Path) -> list[Path]:
    """Return `path` and the files of this project that it includes or cimports, transitively."""
    found = [path]
    for file in found:  # grows
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".pyx", ".pxd"):
            words = sorted({*re.findall(r"[\w.]+", " ".join(CIMPORT.findall(text)))})
            modules = [Path(*word.split(".")) for word in words] + [file.with_suffix("")]
            beside = [file.parent / module.name for module in modules]
            read = [module.with_suffix(".pxd") for module in (*modules, *beside)]
        else:
            read = [Path("csrc", name) for name in INCLUDE.findall(text)]
        found += [other for other in read if other not in found and other.exists()]
    return found


def digest(parts: Iterable[object], files: Iterable[Path] = ()) -> str:
    found = hashlib.sha256(repr(list(parts)).encode())
    for file in files:
        found.update(repr((str(file), file.read_bytes())).encode())
    return found.hexdigest()


def key_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.key")


def stamp(output: Path, key: str) -> bytes:
    """Return the content of a key file: the digest of the inputs, and the size of `output`."""
    return f"{key} {output.stat().st_size}".encode()


def call(command: Sequence[str]) -> None:
    """Run a compiler; raise CompileError with its messages if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    if done.returncode:
        raise CompileError(f"status {done.returncode} of {' '.join(command)}\n{text}")
    print(text, end="", flush=True)


def settings(ext: Extension) -> tuple[str, ...]:
    return (*(f"-D{name}={value}" for name, value in ext.define_macros), *ext.extra_compile_args)


def units_of(ext: Extension, folder: Path) -> list[Unit]:
    found = []
    for source in map(Path, ext.sources):
        output = folder / source
        c = output.with_suffix(".c") if source.suffix == ".pyx" else source
        found.append(Unit(source, c, output.with_suffix(".o"), settings(ext)))
    return found


def shares(units: list[Unit], n: int) -> list[list[Unit]]:
    """Split the `units` of each folder into at most `n` lists of about equal work."""
    units = sorted(units, key=lambda unit: unit.source.stat().st_size, reverse=True)
    folders = dict.fromkeys(unit.c.parent for unit in units)
    several = [[unit for unit in units if unit.c.parent == folder] for folder in folders]
    return [some[i::n] for some in several for i in range(min(n, len(some)))]


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def say(what: str, began: float) -> None:
    """Print a step of the build, for `pip install -v`."""
    print(f"{what} ({time.monotonic() - began:.1f} s)\n", end="", flush=True)


class Build(build):
    """build that ships no leftovers of earlier builds."""

    def run(self) -> None:
        library = Path(self.build_lib)
        if Path(self.build_base) in library.parents:
            for path in library.rglob("*"):
                if not path.is_dir():
                    path.unlink()
        super().run()


class BuildFiles(build_py):
    """build_py that adds docs/ and csrc/ to the package.

    Error messages cite the pages of docs/; ``kernelrt export --c`` writes the sources of csrc/.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the commands read the files of the checkout
            return
        for file in [*sorted(Path("docs").rglob("*.md")), *sorted(Path("csrc").glob("*.[ch]"))]:
            target = Path(self.build_lib, "kernelrt", file)
            self.mkpath(str(target.parent))
            self.copy_file(str(file), str(target))


class BuildExt(build_ext):
    """build_ext on all cores, of changed sources; an error says what to install."""

    def run(self) -> None:
        super().run()
        # In the source folder Python imports the sources, not the installed package; so the
        # modules are copied beside them, too.
        if not self.inplace and os.access(HERE / "kernelrt", os.W_OK):
            self.copy_extensions_to_source()

    def build_extensions(self) -> None:
        began = time.monotonic()
        self.require("a C compiler was not found or does not work", "int unused;")
        self.require("Python.h was not found", "#include <Python.h>")
        self.tools = self.find_tools()
        folder = self.kept() / digest([self.tools])[:16]
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)  # first: a build with other tools that ends meanwhile keeps it
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second build waits, and finds everything built
            units = {ext.name: units_of(ext, folder) for ext in self.extensions}
            self.make_objects([*dict.fromkeys(unit for some in units.values() for unit in some)])
            for ext in self.extensions:
                self.link(ext, folder, [str(unit.object) for unit in units[ext.name]])
        others = sorted(folder.parent.glob("[0-9a-f]" * 16), key=lambda path: path.stat().st_mtime)
        for old in others[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        say(f"{len(self.extensions)} modules are built", began)

    def require(self, what: str, source: str) -> None:
        """Compile `source` alone; raise an error with instructions if that fails."""
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text(source + "\n", encoding="ascii")
            command = self.command(probe, probe.with_suffix(".o"))
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise fail(what, command, str(error)) from error
        if done.returncode:
            raise fail(what, command, done.stderr)

    def command(self, source: Path, output: Path) -> list[str]:
        """Return the command that compiles one C file."""
        import numpy  # noqa: ICN001 - for the path of its headers

        folders = ["csrc", numpy.get_include(), *self.compiler.include_dirs]
        return [
            *self.compiler_so(),
            *(f"-D{'='.join(filter(None, macro))}" for macro in self.compiler.macros),
            *(f"-I{folder}" for folder in folders),
            *("-c", str(source), "-o", str(output)),
        ]

    def compiler_so(self) -> list[str]:
        """Return the C compiler with its flags; on macOS ARCHFLAGS selects architectures."""
        command = list(self.compiler.compiler_so)
        if sys.platform == "darwin":
            from _osx_support import compiler_fixup

            return list(compiler_fixup(command, []))
        return command

    def kept(self) -> Path:
        """Return the folder of build products that the next build reuses."""
        if not self.editable_mode:
            return Path(self.build_temp)
        usual = build(self.distribution)  # self.build_temp is a folder that setuptools deletes
        usual.ensure_finalized()
        return Path(usual.build_temp)

    def find_tools(self) -> str:
        """Describe the toolchain: everything but sources and flags that changes objects.

        Folders of headers are left out: pip installs NumPy and Cython in a new one for every build.
        """
        compiler = self.compiler.compiler_so
        version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
        return repr((
            compiler, version, self.compiler.linker_so, self.compiler.macros, CYTHON, sys.version,
            sysconfig.get_config_var("EXT_SUFFIX"), metadata.version("numpy"),
            metadata.version("cython"), [os.environ.get(name) for name in VARIABLES],
        ))  # fmt: skip

    def make_objects(self, units: list[Unit]) -> None:
        """Translate and compile the units that are out of date.

        Cython takes long to start, so each core gives it many files at once.
        """
        assert len({unit.object for unit in units}) == len(units), "two units make one object"
        jobs = max(1, self.parallel) if type(self.parallel) is int else cores()
        cython = [unit for unit in units if unit.source.suffix == ".pyx"]
        stale = [unit for unit in cython if not self.is_made(unit.c, self.translation_key(unit))]
        with ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(self.compile, unit) for unit in units if unit not in stale}
            waiting |= {pool.submit(self.translate, some) for some in shares(stale, jobs)}
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for task in done:
                        waiting |= {pool.submit(self.compile, unit) for unit in task.result()}
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def is_made(self, output: Path, key: str) -> bool:
        """Return whether `output` exists and was made from the inputs of the digest `key`."""
        known = key_of(output)
        there = not self.force and output.exists() and known.exists()
        return there and known.read_bytes() == stamp(output, key)

    def translation_key(self, unit: Unit) -> str:
        return digest([self.tools], closure(unit.source))

    def translate(self, units: list[Unit]) -> list[Unit]:
        """Translate `units` of one folder; return them, as they have to be compiled now."""
        began = time.monotonic()
        folder = units[0].c.parent
        folder.mkdir(parents=True, exist_ok=True)
        for unit in units:
            key_of(unit.c).unlink(missing_ok=True)
        sources = [str(unit.source) for unit in units]
        keys = [self.translation_key(unit) for unit in units]  # an edit from here on is built next
        call([sys.executable, "-m", "cython", "-f", *CYTHON, "-o", str(folder), *sources])
        for unit, key in zip(units, keys, strict=True):
            key_of(unit.c).write_bytes(stamp(unit.c, key))
        say(f"Cython: {', '.join(unit.source.name for unit in units)}", began)
        return units

    def compile(self, unit: Unit) -> list[Unit]:
        """Compile a C file if it is out of date; return no further work."""
        began = time.monotonic()
        key = digest([self.tools, unit.settings], closure(unit.c))
        if not self.is_made(unit.object, key):
            unit.object.parent.mkdir(parents=True, exist_ok=True)
            key_of(unit.object).unlink(missing_ok=True)
            call([*self.command(unit.c, unit.object), *unit.settings])
            key_of(unit.object).write_bytes(stamp(unit.object, key))
            say(f"C: {unit.source}", began)
        return []

    def link(self, ext: Extension, folder: Path, objects: list[str]) -> None:
        """Link a module if one of its objects is new, and copy it to the package."""
        output = folder / self.get_ext_filename(ext.name)
        keys = [key_of(Path(name)).read_bytes() for name in objects]
        key = digest([self.tools, ext.libraries, ext.extra_link_args, *keys])
        if not self.is_made(output, key):
            key_of(output).unlink(missing_ok=True)
            output.unlink(missing_ok=True)
            self.compiler.link_shared_object(
                objects, str(output), libraries=self.get_libraries(ext),
                extra_postargs=ext.extra_link_args, debug=self.debug,
            )  # fmt: skip
            key_of(output).write_bytes(stamp(output, key))
        target = self.get_ext_fullpath(ext.name)
        self.mkpath(str(Path(target).parent))
        self.copy_file(str(output), target)

    def copy_file(
        self, infile: str, outfile: str, *arguments: object, **options: object
    ) -> tuple[str, bool]:
        """Copy a file whose content differs, even if it is older than the target.

        It is older where a toolchain or switch is used again. Either way the target is newer than
        all sources afterwards, which is how the tests tell whether a build is missing.
        """
        target = Path(outfile)
        if target.is_file():
            if filecmp.cmp(infile, target, shallow=False):
                os.utime(target)
                return outfile, False
            target.unlink()
        copied: tuple[str, bool] = super().copy_file(infile, outfile, *arguments, **options)
        os.utime(target)
        return copied


class Sdist(sdist):
    """sdist whose bytes depend on the sources alone, not on time, user or order of files."""

    def make_archive(
        self, base_name: str, format: str, *arguments: object, **options: object  # noqa: A002
    ) -> str:
        if format != "gztar":
            return str(super().make_archive(base_name, format, *arguments, **options))
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
        target = Path(f"{base_name}.tar.gz")
        target.parent.mkdir(parents=True, exist_ok=True)
        root = Path(self.distribution.get_fullname())
        with (
            target.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in [root, *sorted(root.rglob("*"))]:
                entry = archive.gettarinfo(path)
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
                # A checkout's permissions follow its umask; executable files stay executable.
                entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
                entry.type = tarfile.REGTYPE if entry.islnk() else entry.type
                if entry.isdir():
                    archive.addfile(entry)
                else:
                    entry.size = path.stat().st_size
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
        return str(target)


def extension(name: str, *sources: str, options: Sequence[str] = ()) -> Extension:
    """Describe the module of the .pyx file of its name and of C `sources`."""
    macros = [("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
    # Contraction would make results of doubles differ between processors.
    compile_args = [
        "-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-ffp-contract=off",
        "-Werror=implicit-function-declaration",
    ]  # fmt: skip
    link_args: list[str] = []
    if sys.platform != "darwin":
        compile_args.append("-pthread")
        link_args.append("-pthread")
    if os.environ.get("KERNELRT_BUILD_NO_THREADS") == "1":
        macros.append(("KRT_NO_THREADS", "1"))
    if sanitize := os.environ.get("KERNELRT_BUILD_SANITIZE"):
        compile_args += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g"]
        link_args.append(f"-fsanitize={sanitize}")
    return Extension(
        name, [f"{name.replace('.', '/')}.pyx", *sources],
        define_macros=macros, extra_compile_args=[*compile_args, *options],
        extra_link_args=link_args, libraries=["m"],
    )  # fmt: skip


def extensions() -> list[Extension]:
    # Row loops: vectorized, with contraction, as kernels are.
    fast = ["-O3", "-ffp-contract=fast", "-fno-math-errno"]
    # Loops whose elements have the bits of kernels: vectorized, without contraction.
    loops = ["-O3", "-fno-math-errno"]
    return [
        extension("kernelrt.native.interpreter", "csrc/interpret.c", options=loops),
        # First, as linalg.c takes longest.
        extension("kernelrt.native.routines", *ROUTINES, options=fast),
        extension("kernelrt.native.core", *CORE),
        extension("kernelrt.native.memory", *MEMORY),
        *(extension(f"kernelrt.{name}") for name in HOT),
        *(extension(f"kernelrt.{name}", options=["-O1"]) for name in COLD),
    ]


COMMANDS = {"build": Build, "build_ext": BuildExt, "build_py": BuildFiles, "sdist": Sdist}

if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass=COMMANDS)
