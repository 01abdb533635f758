"""Docstrings in NumPy's format: their sections, and their text as reStructuredText."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Sections whose text is a list of items: a line each, with an indented description.
ITEMS: Final = (
    "Parameters", "Other Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns",
    "See Also",
)  # fmt: skip
SECTIONS: Final = (*ITEMS, "Examples", "Notes", "References", "Warnings", "Methods")
_MARKUP: Final = re.compile(r"(:(?:py:)?(\w+):)?(`{1,2})(?!`)(.+?)(?<!`)\3(?!`)(_?)", re.DOTALL)


class Section(NamedTuple):
    """A part of a docstring; the text before the first section has the title ""."""

    title: str
    lines: list[str]


class Item(NamedTuple):
    """A parameter, a result or an error, with its type ("" if not given) and its description."""

    name: str
    type: str
    lines: list[str]


def sections(text: str) -> list[Section]:
    """Return the sections of a docstring that `inspect.cleandoc` has cleaned."""
    found = [Section("", [])]
    lines = text.splitlines()
    k = 0
    while k < len(lines):
        line = lines[k].strip()
        under = lines[k + 1].strip() if k + 1 < len(lines) else ""
        if line in SECTIONS and len(under) >= 3 and set(under) <= {"-", "="}:
            found.append(Section(line, []))
            k += 2
            continue
        found[-1].lines.append(lines[k])
        k += 1
    return found


def items(lines: Iterable[str]) -> list[Item]:
    """Return the items of a section such as Parameters."""
    found: list[Item] = []
    for line in lines:
        if line[:1].strip():
            name, _, kind = line.partition(" : ")
            found.append(Item(name.strip(), kind.strip(), []))
        elif found:
            found[-1].lines.append(line)
    return found


def summary(text: str) -> str:
    """Return the first sentence or line."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    sentence = re.match(r"(.+?[.:])(\s+[A-Z(`]|$)", first)
    return (sentence[1] if sentence else first).rstrip(":")


def roles(text: str) -> list[str]:
    """Return the targets of the roles in a docstring, as in :func:`name`."""
    return [_shown_and_target(match[4])[1] for match in _MARKUP.finditer(text) if match[1]]


def _shown_and_target(text: str) -> tuple[str, str]:
    """Return the two parts of the text of a role: ``shown <target>``, or both in one."""
    given = re.fullmatch(r"(.+?)\s*<(.+)>", text, re.DOTALL)
    shown, target = (given[1], given[2]) if given else (text, text)
    return shown, target.lstrip("~.").removesuffix("()")


def to_rst(
    text: str, resolve: Callable[[str], str | None], parameters: Iterable[str] = ()
) -> list[str]:
    """Return a docstring as lines of reStructuredText.

    Parameters
    ----------
    text : str
        The docstring.
    resolve : callable
        Function that returns the path of the public name that a text means, or None.
    parameters : iterable of str
        Names in backticks that mean parameters, and so are no links.
    """
    plain = {*parameters}
    found: list[str] = []
    for section in sections(text):
        if section.title:
            found += [f".. rubric:: {section.title}", ""]
        if section.title in ITEMS:
            for item in items(section.lines):
                found += _item(section.title, item, resolve, plain)
            found.append("")
        else:
            found += [*_inline(section.lines, resolve, plain), ""]
    return found


def _item(
    title: str, item: Item, resolve: Callable[[str], str | None], plain: set[str]
) -> list[str]:
    name, kind = item.name, item.type
    if title in {"Raises", "Warns", "See Also"}:
        parts = [_link(part.strip(), resolve, set()) for part in name.split(",")]
        head = ", ".join(parts)
    elif title in {"Returns", "Yields"} and not kind:
        head = f"*{_escaped(name)}*"
    else:
        head = f"**{_escaped(name)}**"
    if kind:
        head += f" : *{_escaped(kind)}*"
    body = _inline(_dedented(item.lines), resolve, plain)
    return [head, *(f"    {line}" if line else "" for line in body or ["\\ "])]


def _dedented(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[depth:] for line in lines]


def _escaped(text: str) -> str:
    return re.sub(r"([*\\|])", r"\\\1", text.replace("`", ""))


def _plain(text: str) -> str:
    """Escape stars that emphasize nothing, and underscores that would make names links."""
    text = re.sub(r"(?<=\w)_(?=[^\w`]|$)", r"\\_", text)
    return re.sub(r"(?<![\w*])\*(?!\w[^*\n]*\w?\*(?!\w))(?!\*)", r"\\*", text)


def _inline(
    lines: list[str], resolve: Callable[[str], str | None], plain: set[str]
) -> list[str]:
    """Resolve names in backticks, except in examples and literal blocks."""
    found: list[str] = []
    text: list[str] = []

    def flush() -> None:
        if not text:
            return
        joined, end, parts = "\n".join(text), 0, []
        for match in _MARKUP.finditer(joined):
            parts += [_plain(joined[end : match.start()]), replaced(match)]
            end = match.end()
        found.extend("".join([*parts, _plain(joined[end:])]).split("\n"))
        text.clear()

    def replaced(match: re.Match[str]) -> str:
        role, marks, inner, tail = match[2], match[3], match[4], match[5]
        if role in {"math", "ref", "doc", "sub", "sup"} or (tail and not role):
            return match[0]
        if marks == "``":
            return match[0]
        return _link(inner, resolve, set() if role else plain) + tail

    example = False
    depth: int | None = None  # of the paragraph before a literal block
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if depth is not None:
            if indent > depth or not line.strip():
                found.append(line)
                continue
            depth = None
        if line.lstrip().startswith(">>> ") and not example:
            flush()
            if found and found[-1].strip():
                found.append("")
            example = True
        if example:
            found.append(line)
            example = bool(line.strip())
        else:
            text.append(line)
            if line.rstrip().endswith("::"):
                flush()
                depth = indent
    flush()
    while found and not found[-1].strip():
        found.pop()
    return found


def _link(text: str, resolve: Callable[[str], str | None], plain: set[str]) -> str:
    shown, target = _shown_and_target(text)
    short = shown.startswith("~")
    shown = shown.lstrip("~.")
    path = None if shown in plain else resolve(target)
    if short:
        shown = shown.rpartition(".")[2]
    if path is None:
        return f"``{shown}``"
    return f":py:obj:`{shown} <{path}>`"
