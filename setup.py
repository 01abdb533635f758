"""Builds the compiled boundary (kernelrt/_*.pyx over csrc/*.c); pyproject.toml has the rest.

Equal sources make equal sdists, byte for byte.

Build switches, all environment variables:

SOURCE_DATE_EPOCH         the time that files of an sdist carry, in seconds; 1980 if not set
KERNELRT_BUILD_SANITIZE   sanitizers to compile and link with, as in ``address,undefined``
KERNELRT_BUILD_NO_THREADS 1 leaves the thread pool out; every plan then runs serially
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError, PlatformError

HERE = Path(__file__).parent
EPOCH = 315532800
"""The first of January 1980, the earliest time that archives of all kinds can hold."""
CORE = [
    f"csrc/{name}.c"
    for name in ("plan", "build", "graph", "region", "choice", "pool", "thread", "platform")
]
ROUTINES = ["csrc/sort.c", "csrc/linalg.c", "csrc/foreign.c"]
MEMORY = [f"csrc/{name}.c" for name in ("blocks", "platform")]

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


class BuildExt(build_ext):
    """build_ext that says what to install where a compiler or a header is missing."""

    def run(self) -> None:
        super().run()
        # In this folder Python finds the sources before the installed package, as in
        # `python -m kernelrt`; so the modules are left beside them, too.
        if not self.inplace and os.access(HERE / "kernelrt", os.W_OK):
            self.copy_extensions_to_source()

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "unix":
            self.require("a C compiler was not found or does not work", "int unused;")
            self.require("Python.h was not found", "#include <Python.h>")
        super().build_extensions()

    def require(self, what: str, source: str) -> None:
        """Compile `source` alone; raise with instructions where that fails."""
        command = [*self.compiler.compiler_so, f"-I{sysconfig.get_path('include')}"]
        command += [f"-I{folder}" for folder in self.compiler.include_dirs]
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text(source + "\n", encoding="ascii")
            command += ["-c", str(probe), "-o", str(probe.with_suffix(".o"))]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise fail(what, command, str(error)) from error
        if done.returncode:
            raise fail(what, command, done.stderr)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except CompileError as error:
            raise CompileError(f"{ext.name}: {error}") from error


class Sdist(sdist):
    """sdist whose bytes depend on nothing but the sources: neither on clock, user nor order."""

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
                # A checkout's permissions follow its umask; what can be run stays so.
                entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
                entry.type = tarfile.REGTYPE if entry.islnk() else entry.type
                if entry.isdir():
                    archive.addfile(entry)
                else:
                    entry.size = path.stat().st_size
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
        return str(target)


def extensions() -> list[Extension]:
    import numpy  # noqa: ICN001 - only the path of its headers is wanted
    from Cython.Build import cythonize

    macros = [("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
    # Without contraction doubles come to the same on all processors.
    compile_args = ["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-ffp-contract=off"]
    link_args: list[str] = []
    if sys.platform != "darwin":
        compile_args.append("-pthread")
        link_args.append("-pthread")
    if os.environ.get("KERNELRT_BUILD_NO_THREADS") == "1":
        macros.append(("KRT_NO_THREADS", "1"))
    if sanitize := os.environ.get("KERNELRT_BUILD_SANITIZE"):
        compile_args += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g"]
        link_args.append(f"-fsanitize={sanitize}")
    settings = {
        "include_dirs": ["csrc", numpy.get_include()],
        "depends": [str(path.relative_to(HERE)) for path in sorted(HERE.glob("csrc/*.h"))],
        "define_macros": macros,
        "extra_compile_args": compile_args,
        "extra_link_args": link_args,
    }
    # Loops over rows, which are worth vectors and, as kernels are, what each processor can do.
    fast = ["-O3", "-ffp-contract=fast", "-fno-math-errno"]
    routines = settings | {
        "extra_compile_args": [*compile_args, *fast],
        "libraries": ["m"],
    }
    modules = [
        Extension("kernelrt._core", ["kernelrt/_core.pyx", *CORE], **settings),
        Extension("kernelrt._dispatch", ["kernelrt/_dispatch.pyx"], **settings),
        Extension("kernelrt._emit", ["kernelrt/_emit.pyx"], **settings),
        Extension("kernelrt._locks", ["kernelrt/_locks.pyx"], **settings),
        Extension("kernelrt._memory", ["kernelrt/_memory.pyx", *MEMORY], **settings),
        Extension("kernelrt._ops", ["kernelrt/_ops.pyx"], **settings),
        Extension("kernelrt._running", ["kernelrt/_running.pyx"], **settings),
        Extension("kernelrt._status", ["kernelrt/_status.pyx"], **settings),
        Extension("kernelrt._origin", ["kernelrt/_origin.pyx"], **settings),
        Extension("kernelrt._node", ["kernelrt/_node.pyx"], **settings),
        Extension("kernelrt._survey", ["kernelrt/_survey.pyx"], **settings),
        Extension("kernelrt._routines", ["kernelrt/_routines.pyx", *ROUTINES], **routines),
        Extension("kernelrt._tally", ["kernelrt/_tally.pyx"], **settings),
        Extension("kernelrt._modes", ["kernelrt/_modes.pyx"], **settings),
        Extension("kernelrt._names", ["kernelrt/_names.pyx"], **settings),
        Extension("kernelrt._handle", ["kernelrt/_handle.pyx"], **settings),
        Extension("kernelrt._eager", ["kernelrt/_eager.pyx"], **settings),
        Extension("kernelrt._specs", ["kernelrt/_specs.pyx"], **settings),
        Extension("kernelrt._replay", ["kernelrt/_replay.pyx"], **settings),
        Extension("kernelrt._jitcore", ["kernelrt/_jitcore.pyx"], **settings),
        Extension("kernelrt._steps", ["kernelrt/_steps.pyx"], **settings),
    ]
    return cythonize(modules, language_level=3, include_path=["."])


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt, "sdist": Sdist})
