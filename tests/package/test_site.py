"""docs/check.py finds what it says it finds; the pages of public names need no Sphinx to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.documentation import load

import kernelrt as krt

if TYPE_CHECKING:
    from pathlib import Path

check = load("check")
docstrings = load("docstrings")
names = load("names")
pages = load("pages")


@pytest.fixture(autouse=True)
def read_anew():
    yield
    names.public.cache_clear()


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# O\n\n## The `x.y` of *it*\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[1](other.md) [2](other.md#the-xy-of-it) [3](#page) [4](https://x.invalid/)\n"
        "`[5](lost.md)` [6](lost.md) [7](other.md#no-heading)\n"
    )
    found = check.broken_links([page])
    assert [text.split(": ")[1] for text in found] == ["lost.md", "other.md#no-heading"]


def test_a_broken_link_of_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="a/b.html#here">1</a> <a href="a/b.html#there">2</a> <a class="x" href="c.html">3'
        '</a><script src="https://cdn.invalid/x.js"></script> <a href="https://x.invalid">4</a>'
    )
    (tmp_path / "a" / "b.html").write_text('<p id="here"><a href="../index.html">back</a>')
    (tmp_path / "a.css").write_text("a { background: url('https://cdn.invalid/x.png') }")
    found = check.broken_links_of_site(tmp_path)
    assert len(found) == 4
    for text in ("a/b.html#there", "c.html", "loads https://cdn.invalid/x.js", "invalid/x.png"):
        assert any(text in complaint for complaint in found)


def test_a_missing_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def arange(end: int) -> None: ...

    known = set(check.lacking(check.described())["docstring"])
    monkeypatch.setattr(krt, "arange", arange)
    names.public.cache_clear()
    lists = check.lacking(check.described())
    assert set(lists["docstring"]) - known == {"kernelrt.arange"}
    assert "kernelrt.arange" in lists["Parameters"]
    arange.__doc__ = "See :func:`linspace`, :func:`no_such_thing` and :func:`this`."
    found = check.described()
    assert set(check.lacking(found)["docstring"]) == known
    assert check.wrong_roles(found) == [
        f"kernelrt.arange: its docstring refers to {target}"
        for target in ("no_such_thing", "this")
    ]


def test_more_names_that_lack_something_than_before_are_a_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = check.lacking(check.described())
    monkeypatch.setattr(check, "LACKING", {key: len(paths) for key, paths in lists.items()})
    assert check.complaints_about_docstrings() == []
    monkeypatch.setitem(check.LACKING, "Parameters", len(lists["Parameters"]) - 1)
    (complaint,) = check.complaints_about_docstrings()
    assert complaint.startswith(f"Parameters: {len(lists['Parameters'])} public names have none")


def test_an_in_place_method_is_described_by_the_method_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Return it.\n\nParameters\n----------\nx : int\n    Its shape.\n\n>>> 1\n1"
    monkeypatch.setattr(krt.Tensor.copysign, "__doc__", text)
    names.public.cache_clear()
    lists = check.lacking(check.described())
    for key in ("docstring", "Parameters", "example", "shape"):
        assert "kernelrt.Tensor.copysign_" not in lists[key]


def test_links_of_the_pages_hold() -> None:
    assert check.broken_links(check.pages()) == []


def test_every_public_name_has_a_page(tmp_path: Path) -> None:
    pages.Reference(tmp_path).write()
    text = "\n".join(path.read_text("utf-8") for path in (tmp_path / "api").glob("*.rst"))
    shown = set()
    for line in text.splitlines():
        if line.lstrip().startswith(".. py:"):
            shown.add(line.split(":: ")[1].partition("(")[0])
    known = [name for name in names.public().values() if name.kind not in names.UNDESCRIBED]
    assert [name.path for name in known if name.path not in shown] == []


def test_docstrings_become_restructured_text() -> None:
    text = (
        "Return `x` like :func:`sin`; see `cos`.\n\nParameters\n----------\n*args : int or str\n"
        "    A *word*, (*, n), and ``code``::\n\n        a * b_\n\n    x_\n\n"
        "Examples\n--------\n>>> `x`\n"
    )
    lines = docstrings.to_rst(text, {"sin": "kernelrt.sin", "cos": "kernelrt.cos"}.get, ["x"])
    assert lines == [
        "Return ``x`` like :py:obj:`sin <kernelrt.sin>`; see :py:obj:`cos <kernelrt.cos>`.", "",
        ".. rubric:: Parameters", "",
        "**\\*args** : *int or str*", "    A *word*, (\\*, n), and ``code``::", "",
        "        a * b_", "", "    x\\_", "",
        ".. rubric:: Examples", "",
        ">>> `x`", "",
    ]  # fmt: skip
