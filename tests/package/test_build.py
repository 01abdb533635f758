"""A build makes again what changed, and nothing else; it heeds every switch."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.skip_list import lack, require_command

pytestmark = pytest.mark.cases(1 / 8)  # they start pytest or compilers

ROOT = Path(__file__).parents[2]
if not (ROOT / "setup.py").exists():
    pytest.skip("needs the source tree", allow_module_level=True)
pytest.importorskip("Cython")
pytest.importorskip("setuptools", minversion="77")

from setuptools import Distribution  # noqa: E402
from setuptools.errors import CompileError, PlatformError  # noqa: E402
from support.setup_script import load_setup  # noqa: E402

FILES = {
    "tiny/__init__.py": "",
    "tiny/other.py": "",
    "tiny/one.pyx": (
        "from tiny.two cimport twice\n"
        'cdef extern from "part.h":\n    int part()\n    enum: PART\n'
        "VALUE = twice(part() + PART)\n"
    ),
    "tiny/two.pyx": "cdef int twice(int x) except -1:\n    return x * FACTOR\n",
    "tiny/two.pxd": "cdef enum:\n    FACTOR = 2\ncdef int twice(int x) except -1\n",
    "csrc/part.h": "#define PART 10\nint part(void);\n",
    "csrc/part.c": (
        '#include "part.h"\n#ifndef GIVEN\n#define GIVEN 1\n#endif\n'
        "#ifdef KRT_NO_THREADS\n#define ALONE 100\n#else\n#define ALONE 0\n#endif\n"
        "int part(void) { return GIVEN + ALONE; }\n"
    ),
}
ALL = {"Cython: one.pyx", "Cython: two.pyx", "C: csrc/part.c", "C: tiny/one.pyx", "C: tiny/two.pyx"}


script = load_setup()


class Project:
    """Two small modules, built by the commands of setup.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = ["one", "two"]
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="ascii")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text(encoding="ascii")
        assert old in text
        self.write(name, text.replace(old, new))

    def build(self, editable: bool = False) -> set[str]:
        """What the build says it has translated and compiled."""
        sources = {"one": ["csrc/part.c"], "two": []}
        modules = [script.extension(f"tiny.{name}", *sources[name]) for name in self.modules]
        known = {"name": "tiny", "packages": ["tiny"], "script_name": "setup.py"}
        commands = dict(script.COMMANDS)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            build = Distribution({**known, "ext_modules": modules, "cmdclass": commands})
            if editable:  # as setuptools sets it
                command = build.get_command_obj("build_ext")
                command.editable_mode = True
                command.build_lib, command.build_temp = "lib-for-now", "temp-for-now"
            build.run_command("build_ext" if editable else "build")
        text = output.getvalue()
        assert f"{len(self.modules)} modules are built" in text
        lines = re.findall(r"^(Cython|C): (.*) \([\d.]+ s\)$", text, re.MULTILINE)
        return {f"{kind}: {name}" for kind, names in lines for name in names.split(", ")}

    @property
    def library(self) -> Path:
        (found,) = (self.folder / "build").glob("lib*")
        return found

    def value(self, folder: Path | None = None) -> int:
        command = [sys.executable, "-c", "import tiny.one; print(tiny.one.VALUE)"]
        done = subprocess.run(
            command, cwd=folder or self.library, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The modules and what a first build of them keeps, to copy."""
    require_command("cc")
    folder = tmp_path_factory.mktemp("built")
    project = Project(folder)
    with pytest.MonkeyPatch.context() as changed:
        changed.chdir(folder)
        forget_switches(changed)
        project.build()
    return folder


def forget_switches(changed: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", *script.VARIABLES):
        changed.delenv(name, raising=False)


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(built, folder)
    monkeypatch.chdir(folder)
    forget_switches(monkeypatch)
    return Project(folder)


def test_what_changed_is_built_again_and_nothing_else(project, monkeypatch):
    assert project.build() == set()
    assert project.value() == 22
    for path in project.folder.rglob("*.[cp]*"):  # as a new checkout of the same commit has them
        os.utime(path)
    headers = project.folder / "headers"  # as pip installs NumPy anew for each build
    headers.symlink_to(np.get_include())
    monkeypatch.setattr(np, "get_include", lambda: str(headers))
    assert project.build() == set()
    project.edit("csrc/part.c", "GIVEN 1", "GIVEN 2")
    assert project.build() == {"C: csrc/part.c"}
    assert project.value() == 24
    project.edit("csrc/part.h", "10", "20")
    assert project.build() == {"C: csrc/part.c", "C: tiny/one.pyx"}
    assert project.value() == 44
    project.edit("tiny/two.pxd", "2", "3")
    assert project.build() == ALL - {"C: csrc/part.c"}
    assert project.value() == 66
    project.edit("tiny/one.pyx", "twice(", "-twice(")
    assert project.build() == {"Cython: one.pyx", "C: tiny/one.pyx"}
    assert project.value() == -66


def test_an_editable_install_builds_in_place_what_changed(project):
    project.edit("csrc/part.c", "GIVEN 1", "GIVEN 3")
    assert project.build(editable=True) == {"C: csrc/part.c"}
    assert project.value(project.folder) == 26
    assert project.build(editable=True) == project.build() == set()


def test_an_older_build_that_is_wanted_again_takes_the_place_of_a_newer_one(project, monkeypatch):
    for flags, value in [("", 22), ("-DGIVEN=5", 30), ("", 22)]:
        monkeypatch.setenv("CFLAGS", flags)
        project.build(editable=True)
        assert project.value(project.folder) == value


def test_an_edit_while_cython_runs_is_built_next(project, monkeypatch):
    def call(command):
        run(command)
        if "cython" in command:
            project.edit("tiny/one.pyx", "twice(", "-twice(")

    run = script.call
    project.edit("tiny/one.pyx", "VALUE", "OTHER = 1\nVALUE")
    with monkeypatch.context() as changed:
        changed.setattr(script, "call", call)
        project.build()
    assert project.build() == {"Cython: one.pyx", "C: tiny/one.pyx"}
    assert project.value() == -22


@pytest.mark.parametrize("name", ["*.o", "*.so", "one.c"])
def test_a_damaged_product_is_built_again(project, name):
    (folder,) = {path.parents[1] for path in project.folder.glob("build/temp*/*/tiny/*.o")}
    paths = list(folder.rglob(name))
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes()[:100])
    for key in folder.rglob("part.o.key"):
        key.write_bytes(b"\xff")
    project.build()
    assert project.value() == 22
    assert project.build() == set()


@pytest.mark.exhaustive
def test_build_products_of_a_few_toolchains_are_kept(project, monkeypatch):
    project.modules.remove("one")
    kept = project.folder / "build"
    for n in range(script.KEPT + 2):
        monkeypatch.setenv("CFLAGS", f"-DGIVEN={n}")
        project.build()
    assert len(list(kept.glob("temp*/*/lock"))) == script.KEPT
    assert project.build() == set()


@pytest.mark.exhaustive
def test_switches_are_heeded_and_the_usual_build_is_kept(project, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("CFLAGS", "-DGIVEN=5")
        changed.setenv("KERNELRT_BUILD_NO_THREADS", "1")
        assert project.build() == ALL
        assert project.value() == (5 + 100 + 10) * 2
    assert project.build() == set()
    assert project.value() == 22


@pytest.mark.exhaustive
def test_sanitizers_are_not_taken_for_the_usual_build(project, monkeypatch):
    (module,) = project.modules = ["two"]
    built = f"tiny/{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    project.build()
    assert b"__asan" not in (project.library / built).read_bytes()
    with monkeypatch.context() as changed:
        changed.setenv("KERNELRT_BUILD_SANITIZE", "address")
        try:
            assert project.build() == {"Cython: two.pyx", "C: tiny/two.pyx"}
        except CompileError:
            lack("gcc's sanitizers")
        assert b"__asan" in (project.library / built).read_bytes()
    project.build()
    assert b"__asan" not in (project.library / built).read_bytes()


def test_what_was_deleted_is_not_shipped(project):
    shipped = {path.name.partition(".")[0] for path in (project.library / "tiny").iterdir()}
    assert shipped == {"__init__", "other", "one", "two"}
    (project.folder / "tiny" / "other.py").unlink()
    project.modules.remove("one")
    assert project.build() == set()
    shipped = {path.name.partition(".")[0] for path in (project.library / "tiny").iterdir()}
    assert shipped == {"__init__", "two"}


@pytest.mark.cases(1)
@pytest.mark.parametrize(("name", "old"), [("csrc/part.c", "int part"), ("tiny/one.pyx", "VALUE")])
def test_an_error_names_the_file_and_is_met_again_until_it_is_mended(project, name, old):
    project.edit(name, old, "mistake +" + old)
    for _ in range(2):
        with pytest.raises(CompileError, match=rf"{name}[\s\S]*mistake"):
            project.build()
    project.edit(name, "mistake +" + old, old)
    assert f"{'Cython' if name.endswith('x') else 'C'}: {Path(name).name}" in {
        line.replace("csrc/", "") for line in project.build()
    }
    assert project.value() == 22


def test_files_depend_on_what_the_compilers_say(monkeypatch):
    from Cython.Build.Dependencies import create_dependency_tree

    monkeypatch.chdir(ROOT)
    tree = create_dependency_tree()
    pyx = sorted(Path("kernelrt").rglob("*.pyx"))
    for path in pyx:
        known = {Path(os.path.relpath(name)) for name in tree.all_dependencies(str(path))}
        ours = {other for other in known if other.parts[0] == "kernelrt"}
        assert set(script.closure(path)) == ours, path
    compiler = require_command("cc")
    sources = sorted(Path("csrc").glob("*.c"))
    done = subprocess.run([compiler, "-MM", *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rules = [rule.split()[1:] for rule in done.stdout.replace("\\\n", "").splitlines()]
    assert [set(map(Path, rule)) for rule in rules] == [set(script.closure(c)) for c in sources]


def test_every_module_is_built(monkeypatch):
    monkeypatch.chdir(ROOT)
    sources = [Path(name) for module in script.extensions() for name in module.sources]
    assert {*Path("kernelrt").rglob("*.pyx"), *Path("csrc").glob("*.c")} == set(sources)


FAKE_COMPILER = """#!/bin/sh
for argument; do
    case $argument in
    *.c) grep -q Python.h "$argument" && {
        echo "$argument:1: fatal error: Python.h: No such file or directory" >&2; exit 1; } ;;
    esac
done
exec cc "$@"
"""


@pytest.mark.parametrize(
    ("compiler", "text"),
    [("", "a C compiler was not found or does not work"), (FAKE_COMPILER, "Python.h was not")],
    ids=["no compiler", "no headers"],
)
def test_what_to_install_is_said(project, monkeypatch, compiler, text):
    path = project.folder / "compiler"
    if compiler:
        path.write_text(compiler, encoding="ascii")
        path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    with pytest.raises(PlatformError) as caught:
        project.build()
    for part in (text, "build-essential python3-dev", "gcc python3-devel", "xcode-select"):
        assert part in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.exhaustive
def test_a_second_install_builds_nothing_and_ships_nothing_deleted(tmp_path):
    """As pip does it: Cython and NumPy are installed elsewhere each time."""
    folder = tmp_path / "kernelrt"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "build", "*.so", "tests"))
    deleted = folder / "kernelrt" / "deleted.py"
    deleted.touch()

    def install() -> tuple[set[str], set[str]]:
        """What is translated or compiled, and what the wheel has."""
        command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "-w", tmp_path, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = tmp_path.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
        text = done.stdout + done.stderr
        return {*re.findall(r"^ *(?:Cython|C): (.*) \(", text, re.MULTILINE)}, names

    made, names = install()
    assert {"csrc/linalg.c", "kernelrt/native/core.pyx"} <= made
    assert "kernelrt/deleted.py" in names
    deleted.unlink()
    made, fewer = install()
    assert made == set()
    assert fewer == names - {"kernelrt/deleted.py"}
