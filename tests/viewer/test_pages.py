"""krt.view: what the page says of a plan, and that it is one offline file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, JitError, PlanReleasedError, StateError
from kernelrt.viewer.collect import _busy
from kernelrt.viewer.peaks import Peaks, peaks

if TYPE_CHECKING:
    from kernelrt.viewer import PlanView

VOID = {"meta", "path", "rect", "circle", "br"}


class Page(HTMLParser):
    """The ids, links and text of a page; fails where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        assert tag not in {"script", "link", "img", "iframe"}
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):  # noqa: ARG002 - the name is the base class's
        assert not dict(attrs).get("href")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def check(view: PlanView) -> Page:
    """Check the form of a page and its numbers; return its content."""
    page = Page(view.html)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    for svg in re.findall(r"<svg.*?</svg>", view.html, re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 - written by the code under test
    outside = view.html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|nan|inf\b", re.sub(r"<pre>.*?</pre>", "", outside,
                                                                 flags=re.DOTALL))  # fmt: skip
    for record in view.records:
        lines = sum(row.seconds for row in record.sources)
        assert lines <= record.total * (1 + 1e-9)
        for row in record.ops:
            assert row.minimum <= row.seconds
            if row.kind == "kernel" and row.spans:
                assert sum(s.end - s.begin for s in row.spans) == row.chunks
    return page


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        hidden = self.first(x).relu()
        return self.last(hidden)  # the last line of forward


@pytest.fixture
def training():
    krt.manual_seed(0)
    net = Net()
    optimizer = nn.optim.Adam(nn.parameters(net), lr=0.1)

    @krt.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    batch = rng.random((32, 8), np.float32), rng.integers(0, 4, 32)
    return net, step, batch


def test_a_training_step_is_drawn_and_goes_on_where_it_was(training, tmp_path):
    net, step, batch = training
    step(*batch)
    before = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    view = krt.view(step, *batch, path=tmp_path / "step.html")
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    page = check(view)
    [record] = view.records
    assert record.name == "step"
    assert [row.id for row in record.ops] == [op.id for op in step.plan(*batch).prepared_ops]
    assert {f"op{row.id}" for row in record.ops} <= set(page.ids)
    assert (tmp_path / "step.html").read_text(encoding="utf-8") == view.html
    assert [path.name for path in tmp_path.iterdir()] == ["step.html"]


def test_kernels_belong_to_the_lines_of_forward(training):
    _, step, batch = training
    [record] = krt.view(step, *batch).records
    code = Net.forward.__code__
    lines = {row.line for row in record.sources if row.file == code.co_filename}
    assert {code.co_firstlineno + 1, code.co_firstlineno + 2} <= lines
    whole = sum(row.seconds for row in record.ops if row.lines)
    assert sum(row.seconds for row in record.sources) == pytest.approx(whole)
    assert {row.layer for row in record.ops} >= {"Net.first", "Net.last"}


def test_the_cost_of_making_a_plan_is_told(training):
    _, step, batch = training
    times = step.plan(*batch).build_times
    assert min(times.trace, times.schedule, times.compile, times.assemble) > 0
    assert "tracing" in "".join(check(krt.view(step, *batch)).words)
    assert krt.prepare(krt.ones(3) + krt.rand(3)).build_times.trace == 0


def test_the_plans_of_a_function_are_compared():
    f = krt.jit(lambda x: (x * 2).sum(), dynamic=False)
    f(krt.ones(10))
    f(krt.ones(1000))
    page = check(krt.view(f))
    words = "".join(page.words)
    assert "2 plans" in words
    assert {"p1plan", "p2plan"} <= set(page.ids)
    check(krt.view([f, *f.plans]))


def test_loops_and_choices_show_their_bodies():
    @krt.jit
    def f(x):
        last, rows = krt.scan(lambda h, v: ((h * v).tanh(), h.sum()), krt.zeros(5), x)
        return krt.cond(last.sum() > 0, lambda: last * 2, last.exp), rows

    x = krt.rand(7, 5)
    view = krt.view(f, x)
    check(view)
    loop = next(row for row in view.records[0].ops if row.kind == "loop")
    assert loop.body
    assert {row.runs for row in loop.body if row.kind == "kernel"} <= {6, 7}
    choice = next(row for row in view.records[0].ops if row.kind == "choice")
    assert sum(row.runs for row in choice.body) <= len(choice.body)


def test_a_branch_that_did_not_run_has_no_operations():
    view = krt.view(krt.jit(lambda x: krt.cond(x.sum() > 0, lambda: x * 2, x.exp)), krt.ones(500))
    [choice] = [row for row in view.records[0].ops if row.kind == "choice"]
    assert [(row.runs, row.flops, row.bytes > 0, row.expected > 0) for row in choice.body] == [
        (0, 0, False, False), (1, 500, True, True),
    ]  # fmt: skip
    assert (choice.flops, choice.expected) == (500, choice.body[1].expected)
    assert "exp" in view.html
    assert ", not run" in "".join(check(view).words)


def test_threads_are_lanes():
    x = krt.tensor(np.ones(1 << 21, np.float32))
    view = krt.view(krt.prepare(x.exp(), x.sum(), threads=2))
    check(view)
    for row in view.records[0].ops:
        assert {s.worker for s in row.spans} <= {0, 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: krt.prepare(krt.rand(0, 3) + 1),
        lambda: krt.prepare(krt.ones(3)),
        lambda: krt.jit(lambda x: x).plan(krt.ones(4)),
        lambda: krt.jit(lambda x: x + 1, dynamic={"x": {0: krt.Variable("n", 1, 9)}}).plan(
            krt.ones(4)),
        lambda: krt.prepare(krt.rand(9, 9).sort(0).values, krt.linalg.inv(krt.eye(9) * 2)),
        lambda: krt.prepare(krt.call(lambda a: a + 1, krt.rand(3), out=krt.rand(3))),
    ],
    ids=["empty", "constant", "identity", "variable", "routines", "function"],
)  # fmt: skip
def test_other_plans_are_drawn(make):
    check(krt.view(make()))


def test_text_is_escaped():
    def f(x):
        return (x < 1) & (x > 0)  # <b>&amp;</b>

    f.__name__ = "<i>f</i>"
    view = krt.view(krt.jit(f), krt.rand(5))
    page = check(view)
    assert "<i>f</i>" in "".join(page.words)
    assert "# <b>&amp;</b>" in "".join(page.words)
    assert "<i>" not in view.html.replace("<i style", "")


def test_text_without_a_form_in_utf_8_is_escaped(tmp_path):
    def f(x):
        return x + 1

    f.__name__ = "f\udc80"
    view = krt.view(krt.jit(f), krt.rand(5), path=tmp_path / "page.html")
    assert "f\\udc80" in "".join(check(view).words)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == view.html


@pytest.mark.parametrize(
    ("path", "error", "expected"),
    [
        ("", StateError, "path: expected the name of a file, not ''"),
        ("/", StateError, "path: expected the name of a file, not '/'"),
        ("a\0b", StateError, "path: expected no null character"),
        (3, DTypeError, "path: expected a str or a path, not int"),
        (b"page.html", DTypeError, "path: expected a str or a path, not bytes"),
        (".", StateError, "path: expected the name of a file, not '.'"),
        ("/usr", IsADirectoryError, "path: expected the name of a file, but '/usr' is a folder"),
        ("/missing/a.html", FileNotFoundError, "path: the folder '/missing' does not exist"),
    ],
)
def test_a_wrong_path_is_named_before_anything_runs(path, error, expected):
    called = []
    f = krt.jit(lambda x: krt.call(lambda a: called.append(a) or a, x, out=x))
    plan = f.plan(krt.rand(3))
    view = krt.view(plan)
    called.clear()
    with pytest.raises(error, match=re.escape(expected)):
        krt.view(plan, path=path)
    assert not called
    with pytest.raises(error, match=re.escape(expected)):
        view.save(path)
    with pytest.raises(error, match=re.escape(expected)):
        plan.profile(2).save_trace(path)


def test_notebooks_show_plans_and_views(training):
    _, step, batch = training
    plan = step.plan(*batch)
    shown = plan._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<h1" not in shown
    assert "KB" in repr(krt.view(plan))
    plan.release()
    assert plan._repr_html_() is None


def test_wrong_targets():
    f = krt.jit(lambda x: x * 2)
    plan = f.plan(krt.ones(3))
    with pytest.raises(DTypeError, match="target: expected an ExecutionPlan or a jitted function"):
        krt.view(lambda x: x)
    with pytest.raises(DTypeError, match="target: expected at least one"):
        krt.view([])
    with pytest.raises(DTypeError, match="args: expected none"):
        krt.view(plan, krt.ones(3))
    with pytest.raises(JitError, match="has no plan yet"):
        krt.view(krt.jit(lambda x: x))
    with pytest.raises(JitError, match=r"view\(\)"):
        krt.jit(lambda x: krt.view(plan))(krt.ones(3))
    plan.release()
    with pytest.raises(PlanReleasedError, match="was released"):
        krt.view(plan)
    with pytest.raises(PlanReleasedError, match="all plans of <lambda> were released"):
        krt.view(f)


def test_a_released_plan_of_a_function_is_left_out():
    f = krt.jit(lambda x: x * 2, dynamic=False)
    f(krt.ones(3))
    f(krt.ones(4))
    f.plans[0].release()
    assert [record.text for record in krt.view(f).records] == [repr(f.plans[1]).strip("<>")]


def test_the_peaks_of_the_machine_are_positive():
    found = peaks(1)
    assert min(found.flops, found.memory, found.cache) > 1e6
    assert peaks(1) is found
    limits = Peaks(flops=100.0, memory=1.0, cache=10.0, threads=1)
    assert limits.least(flops=200, nbytes=5) == 2
    assert limits.least(flops=1, nbytes=50) == 5


def test_a_long_plan_has_a_short_page():
    def many(x):
        for _ in range(150):
            x = (x @ x).tanh().sort(0).values
        return x

    view = krt.view(krt.jit(many), krt.rand(4, 4))
    page = check(view)
    [record] = view.records
    assert len(record.ops) > 200
    assert record.total == sum(row.seconds for row in record.ops)
    slowest = max(row.seconds for row in record.ops)
    shares = [float(share) for share in re.findall(r"<td>([\d.]+)%</td><td>\d", view.html)]
    assert shares[0] == pytest.approx(100 * slowest / record.total, abs=0.06)
    [graph, *_] = re.findall(r'<svg[^>]* width="(\d+)".*?</svg>', view.html, re.DOTALL)
    boxes = re.findall(r'<rect x="(\d+)" y="\d+" width="168"', view.html)
    assert len(boxes) == 200
    assert max(map(int, boxes)) + 168 <= int(graph)
    assert "the page has the 200 slowest" in "".join(page.words)
    assert sum(name.startswith("op") for name in page.ids) == 200
    assert len(view.html) < 400_000


@pytest.mark.parametrize(
    ("samples", "busy"),
    [
        ([], 0),
        ([(0, 5, 0, 1, 1, None)], 5),
        ([(0, 5, 0, 1, 1, None), (7, 2, 0, 1, 1, None)], 7),  # one after the other
        ([(3, 4, 0, 1, 1, None), (0, 5, 1, 1, 1, None)], 7),  # at the same time
        ([(0, 9, 0, 1, 1, None), (2, 3, 1, 1, 1, None), (8, 4, 1, 1, 1, None)], 12),
    ],
)
def test_time_in_which_ops_overlap_counts_once(samples, busy):
    assert _busy(samples) == pytest.approx(busy / 1e9)
