"""The sdist and the wheel hold what they must, and the wheel works when installed elsewhere."""

from __future__ import annotations

import email
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from support.skip_list import needs

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
PACKAGE = ROOT / "kernelrt"
EXTENSIONS = sorted(str(file.relative_to(ROOT).with_suffix("")) for file in PACKAGE.rglob("*.pyx"))

pytestmark = [pytest.mark.exhaustive, needs("the source tree")]


def can_build_here() -> bool:
    """Whether the build requirements are installed; if not, the build fetches them itself."""
    if importlib.util.find_spec("Cython") is None:
        return False
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        return False


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    # Python's own folders alone: where PYTHONPATH names a checkout, that would be what is tried.
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        **{"capture_output": True, "text": True, "env": environment, **options},
    )


def build(folder: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    isolation = ["--no-isolation"] if can_build_here() else []
    return run(
        *(sys.executable, "-m", "build", *isolation, "--outdir", out, folder),
        env={**os.environ, **environment},
        cwd=out.parent,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """The source tree without anything built."""
    folder = tmp_path_factory.mktemp("checkout") / "kernelrt"
    ignored = shutil.ignore_patterns(
        ".*", "build", "dist", "*.so", "*.egg-info", "__pycache__", "venv",
    )  # fmt: skip
    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def dist(checkout, once) -> Path:
    def make(folder: Path) -> None:
        done = build(checkout, folder)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    return once("dist", make)


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (path,) = dist.glob("*.whl")
    return path


def test_sdist_holds_the_sources(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"setup.py", "pyproject.toml", "LICENSE", "kernelrt/py.typed"}
    expected |= {f"csrc/{file.name}" for file in (ROOT / "csrc").glob("*.[ch]")}
    for pattern in ("**/*.pyx", "**/*.pxd", "**/*.pyi", "**/*.py", "data/*"):
        found = [file for file in (ROOT / "kernelrt").glob(pattern) if file.is_file()]
        expected |= {str(file.relative_to(ROOT)) for file in found if "__" not in file.parent.name}
    assert expected - names == set()
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert not [name for name in names if name.startswith("kernelrt/") and name.endswith(".c")]


def test_wheel_holds_the_package_and_no_more(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"{name}{SUFFIX}" for name in EXTENSIONS}
    expected |= {str(stub.relative_to(ROOT)) for stub in PACKAGE.rglob("*.pyi")}
    expected |= {str(file.relative_to(ROOT)) for file in PACKAGE.rglob("*.pxd")}
    expected |= {"kernelrt/py.typed"}
    expected |= {str(file.relative_to(ROOT)) for file in (ROOT / "kernelrt/data").glob("*.*")}
    expected |= {f"kernelrt/{file.relative_to(ROOT)}" for file in (ROOT / "docs").rglob("*.md")}
    assert expected - names == set()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kernelrt"}
    # `kernelrt export --c` writes the sources of the core; generated ones stay out.
    sources = {f"kernelrt/csrc/{file.name}" for file in (ROOT / "csrc").glob("*.c")}
    assert {name for name in names if name.endswith(".c")} == sources
    licences = {name.partition("licenses/")[2] for name in names if "licenses/" in name}
    assert licences == {"LICENSE", "kernelrt/data/digits.LICENSE.txt"}


def test_the_metadata_name_licences_authors_and_versions(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        text = archive.read(name).decode()
    fields = email.message_from_string(text)
    assert fields["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    assert fields["Author"] == "kernelrt developers"
    classifiers = fields.get_all("Classifier")
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers


def sdist(folder: Path, out: Path, **environment: str) -> bytes:
    out.mkdir()
    isolation = ["--no-isolation"] if can_build_here() else []
    done = run(
        *(sys.executable, "-m", "build", "--sdist", *isolation, "--outdir", out, folder),
        env={**os.environ, **environment},
        cwd=out,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (path,) = out.glob("*.tar.gz")
    return path.read_bytes()


def test_equal_sources_make_equal_sdists(checkout, dist, tmp_path):
    """Another folder, other times and permissions, and what a build leaves: the same bytes."""
    (first,) = dist.glob("*.tar.gz")
    other = tmp_path / "elsewhere"
    shutil.copytree(checkout, other)
    for path in other.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode | stat.S_IWGRP)
    (other / "kernelrt" / "_dispatch.cpython-30-some.so").touch()
    (other / "kernelrt" / "__pycache__").mkdir(exist_ok=True)
    (other / "kernelrt" / "__pycache__" / "dtype.cpython-30.pyc").touch()
    assert sdist(other, tmp_path / "second") == first.read_bytes()
    dated = sdist(other, tmp_path / "dated", SOURCE_DATE_EPOCH="1700000000")
    assert dated != first.read_bytes()
    assert dated == sdist(checkout, tmp_path / "again", SOURCE_DATE_EPOCH="1700000000")
    with tarfile.open(tmp_path / "dated" / first.name) as archive:
        assert {entry.mtime for entry in archive} == {1700000000}
        assert {(entry.uid, entry.gid, entry.uname) for entry in archive} == {(0, 0, "")}


def test_sources_built_for_another_python_say_so(tmp_path):
    """A checkout comes before the installed package where Python starts in it."""
    shutil.copytree(
        ROOT / "kernelrt", tmp_path / "kernelrt", ignore=shutil.ignore_patterns("*.so")
    )
    (tmp_path / "kernelrt" / "_dispatch.cpython-30-some.so").touch()
    done = run(sys.executable, "-c", "import kernelrt", cwd=tmp_path)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    found = "_dispatch.cpython-30-some.so"
    for text in ("ImportError", f"_dispatch{SUFFIX}", found, "pip install"):
        assert text in last


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A virtual environment elsewhere with the wheel, and with the dependencies of this one."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("platlib"), encoding="utf-8")
    return folder


def test_the_installed_wheel_runs(installed):
    script = """
import importlib.metadata, pathlib, sys
import numpy, kernelrt
from kernelrt import Tensor
assert pathlib.Path(kernelrt.__file__).is_relative_to(sys.prefix), kernelrt.__file__
assert kernelrt.__version__ == importlib.metadata.version("kernelrt")
a = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
numpy.testing.assert_array_equal((Tensor(a) * 2 + 1).numpy(), a * 2 + 1)
"""
    done = run(installed / "bin" / "python", "-c", script, cwd=installed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_of_the_documentation_are_installed(installed):
    done = run(installed / "bin" / "kernelrt", "docs", "docs/threads.md", cwd=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (ROOT / "docs" / "threads.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [("bin/kernelrt",), ("bin/python", "-m", "kernelrt")])
def test_the_command_line_is_installed(installed, command):
    program, *arguments = command
    done = run(installed / program, *arguments, "--help", cwd=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digits" in done.stdout
