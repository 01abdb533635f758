"""Progress bars: tqdm's, and the line of text without it."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.util.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def no_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


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
    with Progress(None, 8, stream) as bar:
        bar.show(2, "epoch 1")
        bar.show(99, "epoch 2")
    assert "[######..................] epoch 1, step 2 of 8\r" in stream.getvalue()
    assert "[########################] epoch 2, step 99 of 8\r" in stream.getvalue()


def test_tqdm_draws_where_it_is_installed():
    pytest.importorskip("tqdm")
    stream = Terminal()
    with Progress(None, 8, stream) as bar:
        bar.show(2, "epoch 1")
    assert "epoch 1" in stream.getvalue()
    assert "2/8" in stream.getvalue()
    stream = Terminal()
    with Progress(None, stream=stream) as bar:
        bar.show(0.25, "timing")
    assert "25%" in stream.getvalue()
    assert "timing" in stream.getvalue()


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_only_terminals_and_long_work_show_a_bar(delay):
    for stream in (io.StringIO(), Terminal()):
        with Progress(None, 4, stream, delay) as bar:
            bar.show(1, "")
        drawn = bool(stream.getvalue())
        assert drawn == (stream.isatty() and not delay)
    with Progress(False, 4, Terminal()) as bar:
        bar.show(1, "")
    assert not bar.shown


def test_a_process_without_standard_error_has_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    for shown in (None, True):
        with Progress(shown, 4) as bar:
            bar.show(1, "")


def test_a_long_compilation_shows_a_bar(monkeypatch):
    from kernelrt.runtime import kernel_cache

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(kernel_cache, "BAR_DELAY", 0.0)
    x = krt.tensor(np.arange(5.0))
    assert krt.jit(lambda x: (x * 1.0625 + 7.75).sum())(x).item() == 49.375
    assert "compiling, kernel 1 of 1" in stream.getvalue()
    assert stream.getvalue().endswith(" \r")


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
