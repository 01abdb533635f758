"""Check the documentation: ``python -m docs.check [--no-examples] [--site FOLDER] [--list WHAT]``.

These fail the check:

- a link of a page in Markdown, or of a built site, that leads nowhere; anchors included;
- a public name without a docstring, or a role in a docstring, such as :func:`x`, of no public name;
- an example in a docstring that does not run;
- more names that lack something than LACKING allows.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import doctest
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np

import kernelrt
from docs import docstrings, markdown, names
from docs.names import TENSOR, Name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).parents[1]
#: How many public names may lack a docstring, or a part of it. Lower a number when it shrinks.
LACKING: Final = {"docstring": 0, "Parameters": 0, "example": 0, "shape": 0}
#: Names that the examples in docstrings use without an import.
GLOBALS: Final[Mapping[str, Any]] = {"krt": kernelrt, "np": np}
#: Namespaces whose functions, if they take or return tensors, should speak of shapes.
SHAPED: Final = ("kernelrt", TENSOR, "kernelrt.nn", "kernelrt.nn.functional", "kernelrt.linalg")
#: Namespaces of classes whose instances functions return.
RESULTS: Final = ("kernelrt.jit", "kernelrt.runtime", "kernelrt.tune", "kernelrt.viewer")
_TENSOR: Final = re.compile(r"\b(Tensor|Operand|Self)\b")
#: Words about shapes, and shapes themselves, as in (batch, channels) or (n,).
_SHAPE: Final = re.compile(
    r"\b(shapes?|ax[ie]s|broadcast\w*|vectors?|matrix|matrices|elementwise|0-d)\b"
    r"|\([\w.…*]+(, [\w.…*+/-]+)+,?\)|\(\w+,\)",
    re.IGNORECASE,
)
#: A result that is the tensor itself: its shape needs no words.
_ITSELF: Final = re.compile(
    r"^Return this tensor[.,;:]|^Returns\n-+\nTensor\n    This tensor[.,]", re.MULTILINE
)


# Examples -----------------------------------------------------------------------------------------


def modules() -> list[str]:
    """Return the modules with examples: all of the package that can be imported alone."""
    return sorted(
        info.name
        for info in pkgutil.walk_packages(kernelrt.__path__, "kernelrt.")
        if not info.name.endswith("__main__") and not info.name.startswith("kernelrt._")
    )


def failed_examples(name: str) -> int:
    """Run the examples of a module; print those that fail, and return their number."""
    found = doctest.testmod(
        importlib.import_module(name), extraglobs=dict(GLOBALS), optionflags=doctest.ELLIPSIS
    )
    return found.failed


def other_examples() -> list[doctest.DocTest]:
    """Return the examples of public names that no module shows to doctest as its own."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in modules() for test in finder.find(importlib.import_module(name))]
    seen = {inspect.cleandoc(test.docstring) for test in found if test.docstring}
    parser = doctest.DocTestParser()
    return [
        parser.get_doctest(text, dict(GLOBALS), name.path, name.path, 0)
        for name in described()
        if ">>> " in (text := names.docstring(name)) and inspect.cleandoc(text) not in seen
    ]


# Docstrings ---------------------------------------------------------------------------------------


def described() -> list[Name]:
    """Return the public names that have a docstring of their own."""
    return [name for name in names.public().values() if name.has_description]


def lacking(found: Iterable[Name]) -> dict[str, list[str]]:
    """Return the paths of the names that lack each of the keys of LACKING."""
    lists: dict[str, list[str]] = {key: [] for key in LACKING}
    for name in found:
        texts = _texts(name)
        if not any(texts):
            lists["docstring"].append(name.path)
        if name.kind in {"property", "exception"}:
            continue
        if names.parameters(name) and not _has_parameters(name, texts):
            lists["Parameters"].append(name.path)
        if name.kind == "method" and name.parent != TENSOR:
            continue  # the example of its class shows it
        if not any(">>> " in text for text in texts):
            lists["example"].append(name.path)
        if _is_about_tensors(name) and not any(_speaks_of_shapes(text) for text in texts):
            lists["shape"].append(name.path)
    return lists


def _texts(name: Name) -> list[str]:
    """Return the docstrings that describe a name: its own, and those that it refers to.

    ``relu_`` refers to ``relu``, a method that overrides another one to that one, and an object
    that users call, such as ``biject_to``, to the method ``__call__`` of its class.
    """
    texts = [names.docstring(name)]
    public = names.public()
    if (other := names.assigns(name)) is not None:
        texts.append(names.docstring(other))
    elif name.kind == "function":
        call = type(name.value).__call__
        texts += [inspect.getdoc(call) or ""] if inspect.isfunction(call) else []
    elif name.kind == "method" and name.parent in public:
        kind = public[name.parent].value
        over = [vars(base).get(name.short) for base in kind.__mro__[1:] if base is not object]
        texts += [inspect.getdoc(value) or "" for value in over if value is not None]
    return texts


def _has_parameters(name: Name, texts: list[str]) -> bool:
    """Return whether docstrings describe parameters.

    A class may inherit its parameters and their description. Results of functions, and records
    such as named tuples, have attributes instead, as users do not construct them.
    """
    kind = name.value
    if name.kind == "class":
        bases = itertools.takewhile(lambda base: "__init__" not in vars(base), kind.__mro__)
        count = sum(1 for _ in bases) + 1
        texts = [*texts, *(vars(base).get("__doc__") or "" for base in kind.__mro__[1:count])]
    titles = {section.title for t in texts for section in docstrings.sections(inspect.cleandoc(t))}
    if name.kind == "class" and "Attributes" in titles:
        is_record = dataclasses.is_dataclass(kind) or issubclass(kind, tuple)
        if is_record or name.parent in RESULTS:
            return True
    return "Parameters" in titles


def _is_about_tensors(name: Name) -> bool:
    """Return whether a description should speak of shapes."""
    if name.kind == "class":
        return name.parent in {"kernelrt.nn", "kernelrt.distributions"}
    if name.parent not in SHAPED:
        return False
    try:
        found = inspect.signature(name.value)
    except (TypeError, ValueError):  # a function of a binary module
        return False
    kinds = [found.return_annotation, *(p.annotation for p in found.parameters.values())]
    return any(_TENSOR.search(str(kind)) for kind in kinds)


def _speaks_of_shapes(text: str) -> bool:
    """Return whether a docstring says which shapes there are, or need not say it."""
    return bool(_SHAPE.search(text) or _ITSELF.search(text))


def wrong_roles(found: Iterable[Name]) -> list[str]:
    """Return complaints about roles in docstrings that name what does not exist."""
    resolver = names.Resolver()
    complaints = []
    for name in found:
        complaints += [
            f"{name.path}: its docstring refers to {target}"
            for target in docstrings.roles(names.docstring(name))
            if resolver.resolve(target, name.path) is None and not _exists(target, name)
        ]
    return complaints


def _exists(target: str, name: Name) -> bool:
    """Return whether `target` is a path of the package, or a name where `name` is defined."""
    where = inspect.unwrap(name.value) if callable(name.value) else name.value
    home = getattr(where, "__module__", None)
    paths = [f"{home}:{target}"] if home else []
    if target.startswith("kernelrt."):
        paths.append(target)
    for path in paths:
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            pkgutil.resolve_name(path)
            return True
    return False


# Links --------------------------------------------------------------------------------------------


def broken_links(pages: Iterable[Path]) -> list[str]:
    """Return complaints about links of pages in Markdown to files or anchors that do not exist."""
    complaints = []
    for page in pages:
        for target in markdown.links(page.read_text("utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            if not file.exists():
                complaints.append(f"{page}: {target}: there is no such file")
            elif (
                anchor and file.suffix == ".md"
                and anchor not in markdown.anchors(file.read_text("utf-8"))
            ):  # fmt: skip
                complaints.append(f"{page}: {target}: the page has no such heading")
    return complaints


_ATTRIBUTE: Final = re.compile(r"<(\w+)\b[^>]*?\s(?:href|src)=\"([^\"]*)\"")
_URL: Final = re.compile(r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^\"')\s]+)")
_ID: Final = re.compile(r"\s(?:id|name)=\"([^\"]*)\"")


def broken_links_of_site(folder: Path) -> list[str]:
    """Return complaints about links of a built site, and about what its pages load elsewhere."""
    texts = {path: path.read_text("utf-8") for path in folder.rglob("*.html")}
    known = {path: set(_ID.findall(text)) for path, text in texts.items()}
    complaints = set()
    there: dict[Path, bool] = {}
    for page, text in texts.items():
        for tag, target in _ATTRIBUTE.findall(text):
            if re.match(r"[a-z]+:|//", target):
                if tag != "a" and not target.startswith("data:"):
                    complaints.add(f"{page.relative_to(folder)}: loads {target}")
                continue
            path, _, anchor = unquote(target.replace("&amp;", "&")).partition("#")
            path = path.partition("?")[0]
            file = Path(page.parent, path) if path else page
            if file not in known:
                file = file.resolve()
            if file not in there:
                there[file] = file.exists()
            if not there[file] or (anchor and file in known and anchor not in known[file]):
                complaints.add(f"{page.relative_to(folder)}: {target}: no such page or anchor")
    for style in folder.rglob("*.css"):
        complaints |= {
            f"{style.relative_to(folder)}: loads {target}"
            for target in _URL.findall(style.read_text("utf-8"))
        }
    return sorted(complaints)


# All of it ----------------------------------------------------------------------------------------


def pages() -> list[Path]:
    """Return the pages in Markdown that users read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def complaints_about_docstrings() -> list[str]:
    """Return complaints about the docstrings of public names; print what they lack."""
    found = described()
    lists = lacking(found)
    without = ", ".join(f"{key} {len(paths)}" for key, paths in lists.items())
    print(f"{len(found)} public names with a description of their own; without: {without}")
    complaints = wrong_roles(found)
    for key, paths in lists.items():
        if len(paths) > LACKING[key]:
            some = ", ".join(paths[:20])
            complaints.append(
                f"{key}: {len(paths)} public names have none, and {LACKING[key]} may have none "
                f"(LACKING in docs/check.py); --list {key} lists them: {some}"
            )
        elif len(paths) < LACKING[key]:
            print(f"lower LACKING[{key!r}] in docs/check.py to {len(paths)}")
    return complaints


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--no-examples", action="store_true", help="do not run the examples")
    parser.add_argument("--site", type=Path, help="a built site, whose links are checked too")
    parser.add_argument("--list", choices=LACKING, help="only list the names that lack this")
    options = parser.parse_args()
    if options.list:
        print("\n".join(lacking(described())[options.list]))
        return 0
    return check(options.site, examples=not options.no_examples)


def check(site: Path | None = None, *, examples: bool = True) -> int:
    """Check everything, print complaints, and return the status of the command."""
    complaints = broken_links(pages()) + complaints_about_docstrings()
    if site is not None:
        complaints += broken_links_of_site(site.resolve())
    if examples:
        failed = {name: failed_examples(name) for name in modules()}
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        failed |= {test.name: runner.run(test).failed for test in other_examples()}
        complaints += [f"{name}: {n} examples fail; see above" for name, n in failed.items() if n]
    for text in complaints:
        print(text, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
