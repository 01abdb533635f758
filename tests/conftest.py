"""How the suite runs: a part of the cases, on every core, with one kernel cache for the session.

`pytest` takes a part of the cases of each test function, drawn by the hash of the commit, and uses
every core. `pytest --all` takes every case, `pytest -m exhaustive` those that `pytest` leaves
out. A file or a test that is named runs whole, and in this process alone. CONTRIBUTING.md
describes the options.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

HERE = Path(__file__).parent
# tests/support is imported as `support`, from wherever pytest is started.
sys.path.insert(0, str(HERE))
# Most tests compute a graph once. Interpreted, they would say nothing about compiled code.
os.environ.setdefault("KERNELRT_INTERPRET", "off")

from support import sample, skip_list, tested  # noqa: E402
from support.once import Once  # noqa: E402

#: Libraries that results are compared with start a thread a core otherwise, in every worker.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LEFT_OUT = pytest.StashKey[dict[str, tuple[int, int]]]()
#: The folders that the changes since `--since` touch.
TOUCHED = pytest.StashKey[set[str]]()
#: When `--minutes` are over, in seconds of `time.time()`.
END = pytest.StashKey[float | None]()
#: Cases that `--minutes` left no time for, by folder.
LATE = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernelrt", "which cases run")
    group.addoption("--all", action="store_true", help="run every case of every test")
    group.addoption(
        "--draw", metavar="TEXT", help="draw the cases by TEXT instead of the commit's hash"
    )
    group.addoption(
        "--times", type=int, default=1, metavar="N", help="take N times the usual number of cases"
    )
    group.addoption(
        "--one-in", type=int, default=1, metavar="N",
        help="take cases of one in N test functions, drawn as cases are",
    )  # fmt: skip
    group.addoption(
        "--since", metavar="COMMIT", help="take every case that the changes since COMMIT can touch"
    )
    group.addoption(
        "--minutes", type=float, metavar="N",
        help="start no case after N minutes; cases that few runs take come last",
    )
    group.addoption(
        "--first", default="", metavar="WORDS",
        help="run tests whose paths contain these words, separated by commas, before the others",
    )  # fmt: skip
    group.addoption(
        "--files-in-turn", action="store_true",
        help="run the first test of each file, then the second of each, and so on",
    )  # fmt: skip
    skip_list.add_options(parser)


def named(config: pytest.Config) -> set[Path]:
    """The folders and files that the command line names, itself or a test in it."""
    paths = (Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args)
    return {path.resolve() for path in paths}


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use every core, unless the command line names files, a debugger or a number of workers."""
    option = config.option
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    if option.numprocesses is not None:
        return
    alone = ("usepdb", "trace", "stepwise", "collectonly")
    in_one = option.capture == "no" or any(getattr(option, name, False) for name in alone)
    if not in_one and any(path.is_dir() for path in named(config)):
        option.numprocesses = "logical"
        if option.dist == "no":
            # "worksteal" gives a worker the second half of the cases, "load" the next of them.
            option.dist = "worksteal" if option.minutes is None else "load"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.option.draw = config.workerinput["draw"]
        config.stash[TOUCHED] = set(config.workerinput["touched"])
        config.stash[END] = config.workerinput["end"]
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
            del os.environ[name]  # a pytest that a test starts is no worker of this run
        return  # the environment below is inherited
    tested.check_import()
    if config.option.draw is None:
        config.option.draw = sample.commit()
    for name in ("times", "one_in"):
        if (value := getattr(config.option, name)) < 1:
            option = f"--{name.replace('_', '-')}"
            raise pytest.UsageError(f"{option}: expected at least 1, not {value}")
    minutes = config.option.minutes
    if minutes is not None and not minutes >= 0:
        raise pytest.UsageError(f"--minutes: expected at least 0, not {minutes:g}")
    since = config.option.since
    config.stash[TOUCHED] = set() if since is None else sample.touched(since)
    config.stash[END] = None if minutes is None else time.time() + 60 * minutes
    config.pluginmanager.register(Failures(config), "failures as they come")
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("KERNELRT_THREADS", "1024")  # else one thread would hold for plans, too
    if not os.environ.get("KERNELRT_CACHE_SIZE"):
        os.environ["KERNELRT_CACHE_SIZE"] = "4G"
    if not os.environ.get("KERNELRT_CACHE_DIR"):
        folder = tempfile.mkdtemp(prefix="kernelrt-tests-")
        os.environ["KERNELRT_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop("KERNELRT_CACHE_DIR"))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    node.workerinput["draw"] = node.config.option.draw
    node.workerinput["touched"] = sorted(node.config.stash[TOUCHED])
    node.workerinput["end"] = node.config.stash[END]


class Failures:
    """Names a failure when it comes, not only at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)  # behind the letter that stands for the test
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None and reporter.verbosity <= 0:
            reporter.write_line(f"\nFAILED {report.nodeid}", red=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [*tested.header(), f"cases: {which_cases(config)}"]


def which_cases(config: pytest.Config) -> str:
    """Say which cases a run takes."""
    option = config.option
    if option.all:
        return "all"
    if option.keyword:
        return f"all that -k {option.keyword!r} names"
    if getattr(option, "lf", False):
        return "those that failed last time"
    if not any(path.is_dir() for path in named(config)):
        return "all that the command line names"
    if "exhaustive" in option.markexpr:
        return f"those that `pytest` leaves out with --draw {option.draw!r}"
    part = f"a part, by --draw {option.draw!r}"
    if folders := config.stash[TOUCHED]:
        return f"all of {', '.join(sorted(folders))}, and of the other folders {part}"
    return f"{part}; --all runs every case"


def names_failed(config: pytest.Config, items: list[pytest.Item]) -> bool:
    """Whether --lf repeats some of these items."""
    if not getattr(config.option, "lf", False):
        return False
    failed: dict[str, bool] = config.cache.get("cache/lastfailed", {})
    return any(item.nodeid in failed for item in items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases outside the usual part `exhaustive`, and drop those that this run omits."""
    option = config.option
    words = [word for word in option.first.split(",") if word]

    @functools.cache
    def rank(path: Path) -> int:
        return next((n for n, word in enumerate(words) if word in str(path)), len(words))

    items.sort(key=lambda item: rank(item.path))
    files, folders = named(config), config.stash[TOUCHED]
    draw = sample.number(option.draw)

    @functools.cache
    def is_named(path: Path) -> bool:
        # Sampling is for tests/: benches that are named beside it run whole.
        return path.resolve() in files or not path.is_relative_to(HERE)

    drawn = sample.chosen(
        items, draw, one_in=option.one_in, whole=lambda item: is_named(item.path)
    )
    if option.minutes is not None or option.files_in_turn:
        items.sort(key=lambda item: drawn.get(item, sys.maxsize))
    if option.files_in_turn:
        numbers: defaultdict[Path, Iterator[int]] = defaultdict(itertools.count)
        places = {item: next(numbers[item.path]) for item in items}
        items.sort(key=places.__getitem__)
    if option.all:
        return
    usual = taken = {item for item, rank in drawn.items() if rank == 0}
    if names_failed(config, items):
        # pytest collects those alone, so their functions cannot be split as before.
        usual, taken = set(), set(items)
    elif option.keyword:
        taken = set(items)
    elif folders or option.times > 1:
        taken = {item for item in items if folder(item) in folders}
        taken |= {item for item, rank in drawn.items() if rank < option.times}
    elif "exhaustive" in option.markexpr:
        taken = set(items)
    for item in items:
        if item not in usual:
            item.add_marker("exhaustive")
    dropped = [item for item in items if item not in taken]
    every, omitted = count(items), count(dropped)
    config.stash[LEFT_OUT] = {name: (n, every[name]) for name, n in omitted.items()}
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item in taken]

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Pass over a case that `--minutes` leaves no time for."""
    end = item.config.stash[END]
    if end is None or time.time() < end:
        return None
    item.config.stash.setdefault(LATE, Counter())[folder(item)] += 1
    return True


@pytest.fixture(scope="session")
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Make folders that all worker processes share."""
    root = tmp_path_factory.getbasetemp()
    # Each worker has a base folder of its own in that of the session.
    return Once(root.parent if hasattr(request.config, "workerinput") else root)


def pytest_collection_finish() -> None:
    """Freeze the heap: many tests call gc.collect()."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    # Plans for many sizes differ from others in last bits, so no test takes those of another one.
    cache = sys.modules.get("kernelrt.tensor.eager.plan_cache")
    if cache is not None:
        cache.plans.forget_sizes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skip_list.judge(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    skip_list.judge(collector.config, report)
    return report


def folder(item: pytest.Item) -> str:
    """The folder of tests/ that an item is in; for a test elsewhere, as in bench/, that one's."""
    return folder_of(item.path)


@functools.cache
def folder_of(path: Path) -> str:
    root = HERE if path.is_relative_to(HERE) else HERE.parent
    return path.relative_to(root).parts[0]


def count(items: Iterable[pytest.Item]) -> Counter[str]:
    """How many of the items are in each folder."""
    return Counter(map(folder, items))


# Workers collect and drop cases; the first process tells the user.
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})
        session.config.workeroutput["late"] = dict(session.config.stash.get(LATE, {}))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    if hasattr(node, "workeroutput"):  # not where a worker crashed
        node.config.stash[LEFT_OUT] = node.workeroutput["left_out"]
        node.config.stash.setdefault(LATE, Counter()).update(node.workeroutput["late"])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if skips := skip_list.reasons(terminalreporter.stats.get("skipped", ())):
        terminalreporter.section("tests skipped")
        for reason, n in skips.items():
            terminalreporter.line(f"{n:>6,}  {reason}")
    if source := tested.stale_modules():
        terminalreporter.line(f"{source} is newer than the compiled modules that were tested")
    if late := config.stash.get(LATE, None):
        terminalreporter.section(f"no time left after {config.option.minutes:g} minutes")
        for name, n in sorted(late.items()):
            terminalreporter.line(f"{name:<14} {n:>6,}")
        terminalreporter.line(f"{late.total():,} cases did not run", red=True)
    left_out = config.stash.get(LEFT_OUT, {})
    if not left_out:
        return
    terminalreporter.section("cases left out")
    for name, (n, every) in sorted(left_out.items()):
        terminalreporter.line(f"{name:<14} {n:>6,} of {every:>6,}")
    terminalreporter.line(f"drawn by --draw {config.option.draw!r}; --all runs every case")
