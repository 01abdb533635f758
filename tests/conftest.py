"""How the suite runs: sampled, on every core, with one kernel cache for the session.

`pytest` takes a part of the cases of each test function, drawn by the hash of the commit, and uses
every core. `pytest --all` takes every case, `pytest -m exhaustive` those that `pytest` leaves
out. A file or a test that is named runs whole, and in this process alone. CONTRIBUTING.md
describes the options.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
# tests/support is imported as `support`, from wherever pytest is started.
sys.path.insert(0, str(HERE))

from support import sample  # noqa: E402

#: What libraries that results are compared with would otherwise start one thread a core for.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernelrt", "which cases run")
    group.addoption("--all", action="store_true", help="run every case of every test")
    group.addoption(
        "--times", type=int, default=1, metavar="N", help="run N times the usual number of cases"
    )
    group.addoption(
        "--draw", metavar="TEXT", help="draw the cases by TEXT instead of the commit's hash"
    )


def named_files(config: pytest.Config) -> set[Path]:
    """The files that the command line names, itself or a test in it."""
    paths = (Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args)
    return {path.resolve() for path in paths if path.is_file()}


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use every core, unless the command line names files, a debugger or a number of workers."""
    option = config.option
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    if option.numprocesses is not None:
        return
    folders = len(config.args) > len(named_files(config))
    if folders and not (option.usepdb or option.collectonly or option.capture == "no"):
        option.numprocesses = cores()
        if option.dist == "no":
            option.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # the environment below is inherited
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    if "KERNELRT_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="kernelrt-tests-")
        os.environ["KERNELRT_CACHE_DIR"] = folder
        os.environ.setdefault("KERNELRT_CACHE_SIZE", "4G")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop("KERNELRT_CACHE_DIR"))


def draw(config: pytest.Config) -> str:
    """The text that cases are drawn by; workers get it from the first process."""
    given = config.getoption("draw")
    if given is None:
        given = config.option.draw = sample.commit()
    return str(given)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: object) -> None:
    """Tell a worker the draw: a commit made meanwhile must not give it another one."""
    node.workerinput["draw"] = draw(node.config)  # type: ignore[attr-defined]


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("all"):
        return "cases: all"
    return f"cases: a part, by --draw {draw(config) or repr('')}; --all runs every case"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that this run leaves out `exhaustive`, and drop them."""
    if config.getoption("all"):
        return
    named = named_files(config)
    given = getattr(config, "workerinput", {}).get("draw") or draw(config)
    left_out = sample.unchosen(
        items, sample.number(given), config.getoption("times"), lambda item: item.path in named
    )
    for item in left_out:
        item.add_marker("exhaustive")
    if "exhaustive" in config.option.markexpr:
        return
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
