"""The public names of kernelrt, read from the package: what has a page, and what is checked.

``python -m docs.names`` prints them, one a line.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import kernelrt
from kernelrt.tensor.free_functions.from_methods import names as function_names

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

#: Namespaces, and what the API reference says of them. Where a name stands in several, its page
#: belongs to the first.
NAMESPACES: Final = {
    "kernelrt": "Making tensors, random numbers, jit, dtypes and settings.",
    "kernelrt.nn": "Layers, containers, losses, and files of weights.",
    "kernelrt.nn.functional": "Layers and losses as functions.",
    "kernelrt.nn.init": "Initializers of parameters.",
    "kernelrt.nn.utils": "Gradient clipping, and parameters as one vector.",
    "kernelrt.nn.utils.rnn": "Sequences of different lengths.",
    "kernelrt.nn.utils.parametrize": "Parameters that are functions of other tensors.",
    "kernelrt.nn.utils.parametrizations": "Ready-made parametrizations.",
    "kernelrt.optim": "Optimizers; `kernelrt.nn.optim` is the same.",
    "kernelrt.optim.lr_scheduler": "Schedules of the learning rate.",
    "kernelrt.optim.swa_utils": "Averages of weights.",
    "kernelrt.func": "Derivatives, vmap, loops and branches.",
    "kernelrt.linalg": "Linear algebra of small matrices.",
    "kernelrt.data": "Data sets, batches and metrics.",
    "kernelrt.distributions": "Probability distributions and their divergences.",
    "kernelrt.distributions.transforms": "Invertible functions of random variables.",
    "kernelrt.distributions.constraints": "Sets of valid parameters and values.",
    "kernelrt.array_api": "The functions of the array API standard.",
    "kernelrt.array_api.linalg": "The standard's extension for linear algebra.",
    "kernelrt.errors": "Errors and warnings.",
    "kernelrt.jit": "What `kernelrt.jit` returns.",
    "kernelrt.runtime": "Plans, kernels and their measurements.",
    "kernelrt.tune": "Reports of `kernelrt.autotune`.",
    "kernelrt.viewer": "Pages of `kernelrt.view`.",
    "kernelrt.threads": "The number of threads.",
}
TENSOR: Final = "kernelrt.Tensor"
#: Abbreviations of namespaces in code, such as ``krt``, and their full names.
SPELLINGS: Final = {
    "krt": "kernelrt", "kernelrt": "kernelrt", "Tensor": TENSOR, "nn": "kernelrt.nn",
    "optim": "kernelrt.optim", "F": "kernelrt.nn.functional", "func": "kernelrt.func",
    "linalg": "kernelrt.linalg",
}  # fmt: skip
#: A namespace that is another one too, whose pages describe its names.
ALIAS: Final = ("kernelrt.nn.optim", "kernelrt.optim")
#: Kinds of names that have no docstring, or none of their own.
UNDESCRIBED: Final = frozenset({"data", "module"})


class Name(NamedTuple):
    """A public name.

    Attributes
    ----------
    path : str
        Path in users' code, with ``kernelrt`` in full.
    kind : str
        "function", "class", "exception", "data", "module", "method" or "property".
    value : object
        The object of this name; for a property, the property itself.
    home : str
        Path of the name whose page describes the value: `path`, unless the value has several.
    """

    path: str
    kind: str
    value: Any
    home: str

    @property
    def has_description(self) -> bool:
        """Whether the name has a docstring, and a page under this path."""
        return self.kind not in UNDESCRIBED and self.home == self.path

    @property
    def parent(self) -> str:
        """The namespace or class."""
        return self.path.rpartition(".")[0]

    @property
    def short(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


def full(path: str) -> str:
    """Return the path that `path`, as users write it, means: ``kernelrt.exp`` for ``krt.exp``."""
    start, dot, rest = path.partition(".")
    path = f"{SPELLINGS.get(start, start)}.{rest}" if dot else path
    return re.sub(rf"^{ALIAS[0]}\b", ALIAS[1], path)


def spelled(path: str) -> str:
    """Return how users write a path: ``krt.exp`` for ``kernelrt.exp``."""
    return path.replace(SPELLINGS["F"], "F").replace(SPELLINGS["krt"], "krt")


def module(path: str) -> ModuleType:
    """Return a module, even if a function hides it, as `kernelrt.jit` does."""
    return importlib.import_module(path)


def names_in(path: str) -> list[str]:
    """Return the public names of a namespace, sorted."""
    space = module(path)
    found = set(space.__all__)
    if "__dir__" in vars(space):  # functions made of the methods of tensors
        found |= {name for name in dir(space) if not name.startswith("_")}
    return sorted(found - {"__version__"}, key=lambda name: (name.lower(), name))


def _kind(value: object) -> str:
    if isinstance(value, ModuleType):
        return "module"
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    is_data = isinstance(value, kernelrt.DType | kernelrt.Generator) or not callable(value)
    return "data" if is_data else "function"


@functools.cache
def public() -> dict[str, Name]:
    """Return every public name, by path: of the namespaces, of Tensor, and of other classes."""
    found: dict[str, Name] = {}
    homes: dict[int, str] = {}
    methods = function_names(kernelrt.Tensor)
    for space in NAMESPACES:
        own = set(module(space).__all__)
        for short in names_in(space):
            value = getattr(module(space), short)
            path, kind = f"{space}.{short}", _kind(value)
            home = path
            if kind not in UNDESCRIBED:
                home = homes.setdefault(id(value), path)
            if kind == "function" and short in methods and short not in own:
                home = f"{TENSOR}.{short}"
                homes[id(value)] = home
            found[path] = Name(path, kind, value, home)
    classes = {name.value for name in found.values() if name.kind in {"class", "exception"}}
    for name in list(found.values()):
        if name.kind == "class" and name.home == name.path:
            found |= {member.path: member for member in members(name.value, name.path, classes)}
    return found


def members(kind: type, path: str, classes: Container[type]) -> list[Name]:
    """Return the public methods and properties of a class that a base class does not show.

    `classes` are the public ones. An override that has no docstring of its own is described by the
    method of the base class.
    """
    above: set[str] = set()
    for base in kind.__mro__[1:]:
        if base is object or base in classes or not base.__module__.startswith("kernelrt"):
            above |= set(dir(base))
    found = []
    for short in dir(kind):
        static = inspect.getattr_static(kind, short)
        own = vars(kind).get(short)
        if short.startswith("_") or (short in above and not getattr(own, "__doc__", None)):
            continue
        if inspect.isclass(static) or not hasattr(kind, short):  # PyTorch's name, with an error
            continue
        shown = f"{path}.{short}"
        if isinstance(static, property | functools.cached_property):
            found.append(Name(shown, "property", static, shown))
        elif callable(value := getattr(kind, short)):
            found.append(Name(shown, "method", value, shown))
        elif inspect.isgetsetdescriptor(static) and static.__doc__:
            found.append(Name(shown, "property", static, shown))
    return found


class Resolver:
    """Finds what texts in docstrings mean."""

    def __init__(self) -> None:
        self._public = public()
        self._classes = {
            name.value: name.home
            for name in self._public.values()
            if name.kind in {"class", "exception"}
        }

    def resolve(self, text: str, context: str) -> str | None:
        """Return the path that has the description of what `text` means on the page `context`."""
        if not re.fullmatch(r"[A-Za-z_][\w.]*", text):
            return None
        if (path := full(text)) in NAMESPACES:
            return path
        for scope in self._scopes(context):
            if (name := self._public.get(full(f"{scope}{text}"))) is not None:
                return name.home
        return None

    def _scopes(self, context: str) -> Iterator[str]:
        """Yield the starts of the paths that a name may mean, the nearest first."""
        while context:
            yield from (f"{scope}." for scope in (context, *self.bases(context)))
            context = context.rpartition(".")[0]
        yield from ("", "kernelrt.nn.", "kernelrt.runtime.", "kernelrt.jit.", "kernelrt.errors.")

    def bases(self, path: str) -> list[str]:
        """Return the paths of the public base classes of a class; none of anything else."""
        name = self._public.get(path)
        if name is None or name.kind not in {"class", "exception"}:
            return []
        found = (self._classes.get(base) for base in name.value.__mro__[1:])
        return [base for base in found if base is not None]


def aliases() -> dict[str, list[str]]:
    """Return the other paths of each path that has a page."""
    found: dict[str, list[str]] = {}
    for name in public().values():
        if name.home != name.path:
            found.setdefault(name.home, []).append(name.path)
    return found


def docstring(name: Name) -> str:
    """Return the docstring of a name; "" if it has none.

    A method without one has that of the method that it overrides. A class has its own; those that
    Python makes of a dataclass or a named tuple are none.
    """
    if name.kind in {"class", "exception"}:
        own = vars(name.value).get("__doc__") or ""
        return "" if own.startswith(f"{name.short}(") else inspect.cleandoc(own)
    if name.kind == "data":
        return ""
    stub = _stub(name)
    own = inspect.getdoc(name.value) or ""
    return own or ((ast.get_docstring(stub) or "") if stub else "")


def assigns(name: Name) -> Name | None:
    """Return the method whose result an in-place method assigns, such as `relu` for `relu_`."""
    if name.parent != TENSOR or not docstring(name).startswith("Assign the result of :meth:"):
        return None
    return public()[name.path.removesuffix("_")]


def parameters(name: Name) -> list[inspect.Parameter] | None:
    """Return the parameters of a function, a method or a class; None if Python cannot tell."""
    if name.kind in {"data", "property", "module"}:
        return []
    if (other := assigns(name)) is not None:
        return parameters(other)
    value = name.value
    if stub := _stub(name):
        arguments = ast.unparse(stub.args)
        value = eval(f"lambda {_untyped(arguments)}: 0", {})  # noqa: S307 - from a stub of ours
    try:
        found = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    if name.kind == "method" and found and found[0].name in {"self", "cls"}:
        del found[0]
    return found


def _stub(name: Name) -> ast.FunctionDef | None:
    """Return the stub of a function of a binary module, which has neither docstring nor types."""
    owner = getattr(name.value, "__objclass__", name.value)
    path = _stubs(str(getattr(owner, "__module__", "")))
    return path.get(getattr(name.value, "__qualname__", ""))


@functools.cache
def _stubs(module_path: str) -> dict[str, ast.FunctionDef]:
    """Return the functions and methods in the stub file of a binary module, by qualified name."""
    source = Path(getattr(sys.modules.get(module_path), "__file__", None) or "")
    file = source.parent / f"{module_path.rpartition('.')[2]}.pyi"
    if source.suffix != ".so" or not file.exists():
        return {}
    found = {}
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}": method for method in methods}
    return found


def _untyped(arguments: str) -> str:
    """Return parameters without their annotations."""
    parsed = ast.parse(f"def f({arguments}): ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    for node in ast.walk(parsed.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(parsed.args)


def group(name: Name) -> str:
    """Return the file of kernelrt/tensor/methods that defines a method of Tensor, else "tensor"."""
    for kind in kernelrt.Tensor.__mro__:
        if name.short in vars(kind):
            head, _, last = kind.__module__.rpartition(".")
            return last if head == "kernelrt.tensor.methods" else "tensor"
    return "tensor"


def main() -> int:
    """Print the public names."""
    for name in public().values():
        print(name.path if name.home == name.path else f"{name.path} = {name.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
