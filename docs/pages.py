"""The source of the site: the pages of docs/ and, of each public name, a page from its docstring.

`write` puts all of it into a folder that Sphinx reads. The folder mirrors the repository, so the
relative links of the pages hold.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kernelrt
from docs import docstrings, markdown, names
from docs.names import NAMESPACES, TENSOR, Name
from kernelrt.tensor.methods.in_place import InPlaceMethods

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[1]
#: Descriptions of dtypes and constants, which have no docstrings.
DATA: Final = {
    "kernelrt.default_generator": "The generator of all random numbers whose call names no other.",
    "kernelrt.e": "Euler's number.",
    "kernelrt.inf": "Infinity.",
    "kernelrt.nan": "Not a number.",
    "kernelrt.newaxis": "None: as an index, it makes an axis of size 1.",
    "kernelrt.pi": "The ratio of a circle's circumference to its diameter.",
}
#: Titles of the groups of methods of tensors that are not the name of the file.
GROUPS: Final = {
    "activation": "Activation functions", "arranging": "Diagonals, rotations and splits",
    "attributes": "Attributes and constructors", "comparison": "Comparison and logic",
    "cumulative": "Cumulative functions", "derived": "Histograms and distances of pairs",
    "einsum": "Einsum and its relatives", "elementwise_functions": "Functions of several tensors",
    "gated_activations": "Activation functions with parameters", "in_place": "In-place methods",
    "loss": "Normalization and losses", "margin_losses": "Margin and ranking losses",
    "movement": "Shapes and axes", "operators": "Arithmetic",
    "random_draws_in_place": "Random draws", "reduction": "Reductions",
    "resampling": "Resampling of images", "scattering": "Scatter",
    "sorting": "Sorting and searching", "statistics": "Statistics and norms",
    "tensor": "Values, memory and gradients", "unary": "Functions of one tensor",
    "window_pooling": "Pooling",
}  # fmt: skip


class Reference:
    """Writes the pages of public names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.public = names.public()
        self.aliases = names.aliases()
        self.resolver = names.Resolver()
        self.members: dict[str, list[Name]] = defaultdict(list)
        for name in self.public.values():
            if name.kind in {"method", "property"}:
                self.members[name.parent].append(name)

    def write(self) -> int:
        """Write all pages; return their number."""
        (self.folder / "api").mkdir(parents=True)
        count = 0
        for space in NAMESPACES:
            own = [name for name in self.public.values() if name.parent == space]
            own = [name for name in own if name.kind != "module"]
            self.put(space, self.namespace(space, own))
            for name in own:
                if name.has_description and name.path not in {TENSOR, *NAMESPACES}:
                    self.put(name.path, self.page(name))
                    count += 1
            count += 1
        count += self.tensor()
        spaces = ["kernelrt", TENSOR, *list(NAMESPACES)[1:]]
        toc = [f"   {path.removeprefix('kernelrt.')} <{path}>" for path in spaces]
        rows = [(f":doc:`{space} <{space}>`", self.text(NAMESPACES[space])) for space in NAMESPACES]
        rows.insert(1, (f":doc:`{TENSOR} <{TENSOR}>`", "Methods of tensors, by subject."))
        self.put("index", [
            *heading("API reference"),
            "Each public name has a page. Methods of tensors are grouped by subject.", "",
            *table(("Namespace", "Content"), rows),
            ".. toctree::", "   :hidden:", "", *toc,
        ])  # fmt: skip
        return count + 1

    def put(self, path: str, lines: Iterable[str]) -> None:
        """Write the page of a path."""
        (self.folder / "api" / f"{path}.rst").write_text("\n".join(lines) + "\n", "utf-8")

    def text(self, text: str, context: str = "kernelrt") -> str:
        """Return a line of text with its links."""
        found = docstrings.to_rst(text, lambda t: self.resolver.resolve(t, context))
        return " ".join(found).strip()

    def row(self, name: Name) -> tuple[str, str]:
        """Return the row of a name in a table."""
        full = names.docstring(name)
        about = self.data(name) if name.kind == "data" else docstrings.summary(full)
        return f":py:obj:`{name.short} <{name.home}>`", self.text(about, name.parent)

    def data(self, name: Name) -> str:
        """Return what a dtype or a constant is."""
        value = name.value
        if isinstance(value, kernelrt.DType):
            return f"The dtype {value.name}, of {value.itemsize} bytes an element."
        if name.path in DATA:
            return DATA[name.path]
        return f"See `{type(value).__name__}`."

    def namespace(self, space: str, own: list[Name]) -> list[str]:
        """Return the page of a namespace: tables of its names."""
        space_doc = inspect.getdoc(names.module(space)) or ""
        lines = heading(space)
        same = self.public.get(space)
        if same is not None and same.kind == "function":  # as `kernelrt.jit`
            lines += self.entry(same)
        else:
            lines += [f".. py:module:: {space}", ""]
        lines += docstrings.to_rst(space_doc, lambda t: self.resolver.resolve(t, space))
        parts = {
            "Functions": [
                n for n in own if n.kind == "function" and not n.home.startswith(f"{TENSOR}.")
            ],
            "Classes": [n for n in own if n.kind == "class"],
            "Errors and warnings": [n for n in own if n.kind == "exception"],
            "Dtypes and constants": [n for n in own if n.kind == "data"],
            "Methods of tensors, as functions": [
                n for n in own if n.kind == "function" and n.home.startswith(f"{TENSOR}.")
            ],
        }  # fmt: skip
        for title, found in parts.items():
            if not found:
                continue
            lines += heading(title, "-")
            if title.startswith("Methods"):
                lines += [f"``{names.spelled(space)}.name(x, ...)`` is ``x.name(...)``.", ""]
            lines += table(("Name", "Description"), [self.row(name) for name in found])
        for name in own:
            if name.kind == "data" and name.home == name.path:
                lines += [f".. py:data:: {name.short}", "   :no-typesetting:", ""]
        return lines

    def page(self, name: Name) -> list[str]:
        """Return the page of a function or of a class with its methods."""
        lines = [":orphan:", "", *heading(name.path)]
        lines += [f":doc:`API reference <index>` / :doc:`{name.parent} <{name.parent}>`", ""]
        lines += self.entry(name)
        return lines

    def entry(self, name: Name) -> list[str]:
        """Return a name's signature and description; of a class, with its methods."""
        others = self.aliases.get(name.path, [])
        kind = {"class": "class", "exception": "exception", "method": "method",
                "property": "property"}.get(name.kind, "function")  # fmt: skip
        lines = []
        for other in others:
            role = kind if kind in {"class", "exception"} else "function"
            lines += [f".. py:{role}:: {other}", "   :no-typesetting:", ""]
        lines += [f".. py:{kind}:: {name.path}{self.signature(name)}", ""]
        text = names.docstring(name)
        given = [p.name for p in names.parameters(name) or []]
        body = docstrings.to_rst(text, lambda t: self.resolver.resolve(t, name.path), given)
        if name.kind in {"class", "exception"}:
            bases = self.resolver.bases(name.path)[:1]
            links = [f":py:obj:`{b.removeprefix('kernelrt.')} <{b}>`" for b in bases]
            if links:
                body += [f"Base class: {', '.join(links)}.", ""]
        if others and name.parent == TENSOR:
            body += [f"As functions: {', '.join(self.spelled(o) for o in others)}.", ""]
        elif others:
            body += [f"Also: {', '.join(self.spelled(o) for o in others)}.", ""]
        for member in self.members.get(name.path, []) if name.path != TENSOR else []:
            body += self.entry(member)
        return [*lines, *(f"   {line}" if line else "" for line in body)]

    def spelled(self, path: str) -> str:
        """Return how users write a function: ``krt.exp(input)``."""
        name = self.public[path]
        given = self.signature(name) if name.kind == "function" else ""
        return f":code:`{names.spelled(path)}{given}`".replace("\\", "\\\\")

    def signature(self, name: Name) -> str:
        """Return the parameters of a name with their defaults."""
        if name.kind == "property":
            return ""
        found = names.parameters(name)
        if found is None:
            return "(...)" if name.kind in {"function", "method"} else ""
        if name.kind == "exception":
            return ""
        shown = [p.replace(annotation=p.empty, default=_default(p.default)) for p in found]
        text = str(inspect.Signature(shown, __validate_parameters__=False))
        try:
            ast.parse(f"def f{text}: ...")
        except SyntaxError:
            return "(...)"
        return text

    def tensor(self) -> int:
        """Write the pages of Tensor; return their number."""
        groups: dict[str, list[Name]] = defaultdict(list)
        for name in self.members[TENSOR]:
            groups[names.group(name)].append(name)
        titles = {g: GROUPS.get(g, g.replace("_", " ").capitalize()) for g in groups}
        order = ["tensor", *sorted(set(groups) - {"tensor"}, key=lambda g: titles[g])]
        lines = [*heading(TENSOR), *self.entry(self.public[TENSOR])]
        for group in order:
            title = titles[group]
            path = f"{TENSOR}.{group.replace('_', '-')}"
            rows = [self.row(name) for name in groups[group]]
            lines += [*heading(title, "-"), f"Details: :doc:`{title} <{path}>`.", ""]
            lines += table(("Name", "Description"), rows)
            page = [*heading(title), f":doc:`API reference <index>` / :doc:`Tensor <{TENSOR}>`", ""]
            if group == "in_place":
                text = inspect.getdoc(InPlaceMethods) or ""
                page += heading("InPlaceMethods", "-")
                page += docstrings.to_rst(text, lambda t: self.resolver.resolve(t, TENSOR))
            for name in groups[group]:
                page += [*heading(name.short, "-"), *self.entry(name)]
            self.put(path, page)
        lines += [".. toctree::", "   :hidden:", ""]
        lines += [f"   {TENSOR}.{group.replace('_', '-')}" for group in order]
        self.put(TENSOR, lines)
        return len(order) + 1


class _Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: object) -> object:
    """Return a default whose repr is Python; ``...`` for objects that have none."""
    if value is inspect.Parameter.empty:
        return value
    if isinstance(value, kernelrt.DType):
        return _Shown(f"krt.{value.name}")
    if inspect.isclass(value) or inspect.isroutine(value):
        return _Shown(getattr(value, "__name__", "..."))
    text = repr(value)
    return _Shown("..." if text.startswith("<") or len(text) > 60 else text)


def heading(text: str, mark: str = "=") -> list[str]:
    """Return a heading."""
    text = re.sub(r"_$", r"\\_", text)
    return [text, mark * len(text), ""]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a table."""
    lines = [".. list-table::", "   :header-rows: 1", "   :class: names", ""]
    for row in (head, *rows):
        for k, cell in enumerate(row):
            lines.append(f"   {'* -' if k == 0 else '  -'} {cell}".rstrip())
    return [*lines, ""]


# The pages of docs/ -------------------------------------------------------------------------------


def write(folder: Path) -> int:
    """Write the source of the whole site to a folder; return the number of pages."""
    count = Reference(folder).write()
    pages = {"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
    pages |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    for page in sorted(pages):
        text = (ROOT / page).read_text("utf-8")
        put_markdown(folder, page, text)
    home = (ROOT / "README.md").read_text("utf-8")
    put_markdown(folder, "index.md", home + contents())
    examples = sorted((ROOT / "examples").glob("*.py"))
    rows = []
    for path in examples:
        text = path.read_text("utf-8")
        about = docstrings.summary(ast.get_docstring(ast.parse(text)) or "")
        rows.append(f"| [{path.name}]({path.stem}.md) | {about} |")
        body = f"# examples/{path.name}\n\n{about}\n\n`````python\n{text}`````\n"
        put_markdown(folder, f"examples/{path.stem}.md", f"---\norphan: true\n---\n{body}")
    listed = "\n".join(["| program | what it shows |", "|---|---|", *rows])
    put_markdown(folder, "examples/index.md", f"# Examples\n\n{listed}\n")
    shutil.copytree(ROOT / "docs" / "images", folder / "docs" / "images", dirs_exist_ok=True)
    return count + len(pages) + len(examples) + 2


def put_markdown(folder: Path, page: str, text: str) -> None:
    """Write a page; its links to files that are no pages lead to copies of these.

    A link whose text is the file name of a page gets the title of the page as its text.
    """
    here = (ROOT / page).parent

    def mended(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if match["fence"]:  # doctest needs an empty line at the end, readers do not
            return re.sub(r"\n\n( *`+)$", r"\n\1", match[0])
        if not target or re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_, anchor = target.partition("#")
        file = (here / path).resolve()
        if not file.exists() or not file.is_relative_to(ROOT):
            return match[0]
        if text == f"[{path}]" and file.suffix == ".md":
            text = f"[{markdown.title(file.read_text('utf-8'))}]"
        relative = file.relative_to(ROOT)
        up = "../" * (len(Path(page).parts) - 1)
        if relative == Path("README.md"):
            target = f"{up}index.md{hash_}{anchor}"
        elif relative.parts[0] == "examples":
            target = f"{up}examples/{'index' if file.is_dir() else file.stem}.md"
        elif file.is_file() and file.suffix != ".md":
            copy = folder / relative
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        return f"{text}({target})"

    output = folder / page
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(markdown.PATTERN.sub(mended, text), "utf-8")


def contents() -> str:
    """Return the tables of contents of the sidebar; pages that they do not name are in "More"."""
    parts = {
        "Start": [
            "docs/install", "docs/tutorial", "docs/tutorial_rl", "docs/tutorial_streaming",
            "examples/index",
        ],
        "How-to guides": [
            "docs/jit", "docs/eager", "docs/loops", "docs/func", "docs/data", "docs/threads",
            "docs/populations", "docs/call", "docs/saving", "docs/debugging", "docs/profiling",
            "docs/environment", "docs/linalg", "docs/distributions", "docs/array_api",
            "docs/torch_names", "docs/porting",
        ],
        "Reference": ["API reference <api/index>", "docs/conformance"],
        "More": [
            "docs/faq", "docs/performance", "docs/measurements", "docs/architecture",
            "docs/runtime", "CONTRIBUTING", "SECURITY", "CHANGELOG",
        ],
    }  # fmt: skip
    listed = {entry for part in parts.values() for entry in part}
    every = sorted(f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md"))
    parts["More"] += [entry for entry in every if entry not in listed]
    below = sorted(path.stem for path in (ROOT / "docs" / "architecture").glob("*.md"))
    parts["Architecture"] = [f"docs/architecture/{name}" for name in below]
    return "\n" + "".join(toctree(title, entries) for title, entries in parts.items())


def toctree(title: str, entries: list[str]) -> str:
    """Return a part of the sidebar, in Markdown."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *entries, "```\n"])
