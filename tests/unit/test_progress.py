"""Progress bars: tqdm's, and the line of text without it."""

from __future__ import annotations

import builtins
import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.interrupts import count_steps, interrupted_at

import kernelrt as krt
from kernelrt.jit.multi_step import _Pace
from kernelrt.util import progress
from kernelrt.util.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def no_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


@pytest.fixture(autouse=True)
def no_delays(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


@pytest.mark.usefixtures("no_tqdm")
def test_a_line_of_text_is_redrawn_and_erased():
    stream = Terminal()
    with Progress(None, stream=stream) as bar:
        bar.show(0.5, "timing")
        first = stream.getvalue()
        bar.show(0.5, "timing")  # equal: nothing is written
        assert stream.getvalue() == first
    assert first == "[############............] timing\r"
    assert stream.getvalue() == first + " " * (len(first) - 1) + "\r"


@pytest.mark.usefixtures("no_tqdm")
def test_steps_are_counted():
    stream = Terminal()
    with Progress(None, 8, stream=stream) as bar:
        bar.show(2, "epoch 1")
        bar.show(99, "epoch 2")
    assert "[######..................] epoch 1, step 2 of 8\r" in stream.getvalue()
    assert "[########################] epoch 2, step 99 of 8\r" in stream.getvalue()


def test_tqdm_draws_where_it_is_installed():
    pytest.importorskip("tqdm")
    stream = Terminal()
    with Progress(None, 8, stream=stream) as bar:
        bar.show(2, "epoch 1")
    assert "epoch 1" in stream.getvalue()
    assert "2/8" in stream.getvalue()
    stream = Terminal()
    with Progress(None, stream=stream) as bar:
        bar.show(0.25, "timing")
    assert "25%" in stream.getvalue()
    assert "timing" in stream.getvalue()


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_only_terminals_and_long_work_show_a_bar(delay, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", delay)
    for stream in (io.StringIO(), Terminal()):
        with Progress(None, 4, stream=stream) as bar:
            bar.show(1, "")
        drawn = bool(stream.getvalue())
        assert drawn == (stream.isatty() and not delay)
    with Progress(True, 4, stream=(stream := io.StringIO())) as bar:
        bar.show(1, "")
    assert stream.getvalue()
    with Progress(False, 4, stream=Terminal()) as bar:
        bar.show(1, "")
    assert not bar.shown


def test_a_bar_hides_the_bars_of_work_within_it():
    for outer in (True, False):
        stream = Terminal()
        with Progress(outer, 4, stream=Terminal()):
            with Progress(None, 4, stream=stream) as inner:
                inner.show(1, "")
            with Progress(True, 4, stream=stream) as inner:
                inner.show(1, "")
        assert not stream.getvalue()
    with Progress(None, 4, stream=stream) as bar:
        bar.show(1, "")
    assert stream.getvalue()


def test_a_bar_that_an_interrupt_leaves_behind_hides_no_later_one():
    def work():  # without tqdm: an interrupt within its import would leave the import lock held
        with Progress(True, 4, stream=io.StringIO(), plain=True) as bar:
            bar.show(1, "")

    steps = count_steps(work)
    assert steps > 10
    for step in range(steps):
        interrupted_at(step, work)
        stream = Terminal()
        with Progress(None, 4, stream=stream) as bar:
            bar.show(1, "")
        assert stream.getvalue()


class WriteOnly:
    def write(self, _):
        raise OSError("the terminal is gone")


def closed():
    stream = Terminal()
    stream.close()
    return stream


@pytest.mark.parametrize("shown", [None, True])
@pytest.mark.parametrize("stream", [None, WriteOnly(), closed()], ids=["none", "gone", "closed"])
def test_standard_error_that_cannot_be_written_to_stops_no_work(shown, stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(shown, 4) as bar:
        bar.show(1, "")
        bar.show(2, "")
    n = np.random.default_rng().integers(1 << 40)
    assert krt.jit(lambda x: x + int(n))(krt.tensor([1])).tolist() == [1 + n]


@pytest.mark.parametrize("broken", ["import", "options", "redraw"])
def test_a_broken_tqdm_stops_no_work(broken, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError(broken)

    class Bar:
        total, start_t = 8, 0.0
        refresh = close = fail

        def set_description_str(self, *_args, **_options):
            pass

    made = SimpleNamespace(tqdm=fail if broken == "options" else lambda **_: Bar())
    if broken == "import":
        monkeypatch.setattr(builtins, "__import__", fail_to_import(fail))
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", made)
    stream = Terminal()
    with Progress(None, 8, stream=stream) as bar:
        bar.show(2, "epoch 1")
    assert bar.shown == (broken != "redraw")
    assert ("step 2 of 8" in stream.getvalue()) == (broken != "redraw")


def fail_to_import(fail):
    real = builtins.__import__

    def load(name, *rest, **options):
        return fail() if name.startswith("tqdm") else real(name, *rest, **options)

    return load


def test_the_time_before_the_bar_counts():
    pytest.importorskip("tqdm")
    stream = Terminal()
    with Progress(None, 8, stream=stream) as bar:
        bar._began -= 100.0
        bar.show(2, "epoch 1")
        rate = bar._bar.format_dict["n"] / bar._bar.format_dict["elapsed"]
    assert 0.015 < rate < 0.021


def test_a_forked_child_draws_text(monkeypatch):
    monkeypatch.setattr(progress, "_PROCESS", 0)
    stream = Terminal()
    with Progress(None, 8, stream=stream) as bar:
        bar.show(2, "epoch 1")
    assert "epoch 1, step 2 of 8" in stream.getvalue()


def test_a_long_compilation_shows_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    x = krt.tensor(np.arange(5.0))
    assert krt.jit(lambda x: (x * 1.0625 + 7.75).sum())(x).item() == 49.375
    assert "compiling, kernel 1 of 1" in stream.getvalue()
    assert stream.getvalue().endswith(" \r")


def test_the_epoch_counts_from_the_first(capsys):
    f = krt.jit(lambda x: x.sum())
    f.over(np.zeros(3), batch_size=1, first_epoch=5, epochs=2, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 6" in shown
    assert "epoch 7" in shown
    assert "epoch 1" not in shown


def test_parts_do_not_grow_beyond_what_is_run():
    pace = _Pace(Progress(True, stream=io.StringIO()), 10, 0)
    for done in range(1, 400):
        assert pace.most(1) == 1
        pace.show(done)
    assert pace.most(1 << 60) <= 4


@pytest.mark.parametrize("tqdm", [True, False])
def test_over_with_a_bar_gives_the_same_results(tqdm, monkeypatch, capsys):
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    data = np.arange(37, dtype=np.float32)
    total = krt.zeros(())

    @krt.jit
    def add(x):
        total.assign(total * 0.5 + x.sum())
        return total

    def run(**options):
        total.assign(krt.zeros(()))
        return add.over(data, batch_size=4, epochs=5, shuffle=True, seed=3, **options).tolist()

    plain = run()
    assert capsys.readouterr().err == ""
    assert run(progress=True) == plain
    assert "epoch" in capsys.readouterr().err
    seen = []
    assert run(progress=True, every=7, callback=lambda k, _: seen.append(k)) == plain
    assert seen == list(range(7, 51, 7))
    with krt.disable_jit():
        assert run(progress=True) == plain
    with pytest.raises(krt.DTypeError, match="progress: expected True, False or None, not 1"):
        run(progress=1)
