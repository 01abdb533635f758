"""Writes Tensor's methods as typed functions: from_methods.pyi and nn/_functions.pyi.

Run ``python -m tests.support.function_stub`` in the project's root after adding or removing a
method.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernelrt
from kernelrt import Tensor
from kernelrt.nn import functional
from kernelrt.tensor.free_functions.from_methods import _FIRST, _SECOND, names, signature

if TYPE_CHECKING:
    from collections.abc import Container

PACKAGE = Path(kernelrt.__file__).parent
STUB = PACKAGE / "tensor/free_functions/from_methods.pyi"
STUB_OF_LAYERS = PACKAGE / "nn/_functions.pyi"
HEAD = '''"""Types of Tensor's methods as functions; written by tests/support/function_stub.py."""
'''
NOQA = "# ruff: noqa: I001, E501, A001, A002, F401, F811, N803, RUF022, RUF100"
ALWAYS = (
    "from collections.abc import Callable, Iterable, Mapping", "from typing import Any",
    "from kernelrt.tensor import Tensor", "from kernelrt.tensor.base import Operand",
)  # fmt: skip
#: Functions of the module that the rest of the package imports.
OWN = '''
def names(kind: type) -> frozenset[str]:
    """Return the names of the methods of `kind` that are also functions."""

def function(kind: type, name: str, module: str) -> Callable[..., Any]:
    """Return the method `name` of `kind` as a function with a first parameter ``input``."""

def provide(
    module: str, kind: type, public: Iterable[str] | None, otherwise: Callable[[str], Any],
    values: Mapping[str, object] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module with methods of `kind` as functions."""
'''


def imports_of(module: Any) -> dict[str, str]:
    """Return name -> import line, for each name that a module imports, also if only for types."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                text = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                found[name] = f"from {node.module} import {text}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = f"import {alias.name}" + (
                    f" as {alias.asname}" if alias.asname else ""
                )
    for name in vars(module):
        if not name.startswith("__"):
            found.setdefault(name, f"from {module.__name__} import {name}")
    return found


def written() -> str:
    """Return the text of kernelrt's stub."""
    return _written(sorted(names(Tensor) - set(kernelrt.__all__)), OWN, _SECOND, ())


def written_of_layers() -> str:
    """Return the text of kernelrt.nn's stub."""
    both = functional._METHODS.split(), functional._ACTIVATIONS.split()
    public = sorted({*both[0], *both[1]} - set(functional.__all__))
    return _written(public, "", (), both[1])


def _written(
    public: list[str], own: str, before: Container[str], in_place: Container[str]
) -> str:
    """Return the stub of `public` functions.

    Functions in `before` take the tensor as their second argument. Those in `in_place` have the
    parameter ``inplace``.
    """
    lines = set(ALWAYS)
    body = []
    for name in public:
        method = inspect.unwrap(getattr(Tensor, name))
        known = imports_of(sys.modules[method.__globals__["__name__"]])
        taken = signature(method, name, before=name in before)
        text: list[str] = []
        seen_star = False
        for parameter in taken.parameters.values():
            if parameter.name == _FIRST.get(name, "input"):
                text.append(f"{parameter.name}: Operand")
                continue
            if parameter.kind is parameter.KEYWORD_ONLY and not seen_star:
                text.append("*")
                seen_star = True
            star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(
                parameter.kind, ""
            )
            seen_star |= parameter.kind is parameter.VAR_POSITIONAL
            default = "" if parameter.default is parameter.empty else " = ..."
            text.append(f"{star}{parameter.name}: {_plain(parameter.annotation)}{default}")
        if name in in_place:
            text += [*([] if seen_star else ["*"]), "inplace: bool = ..."]
        result = _plain(taken.return_annotation)
        joined = f"def {name}({', '.join(text)}) -> {result}: ..."
        body.append(joined)
        for word in re.findall(r"[A-Za-z_]\w*", " ".join([*text, result])):
            if word in known and word not in vars(builtins) and word not in ("Self", "Tensor"):
                lines.add(known[word])
    listed = "__all__ = [" + ", ".join(f'"{n}"' for n in public) + "]"
    return "\n".join([HEAD, NOQA, *sorted(lines), "", listed, own, *body, ""])


def _plain(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
    return re.sub(r"\bSelf\b|\bTensorBase\b", "Tensor", text)


if __name__ == "__main__":
    STUB.write_text(written())
    STUB_OF_LAYERS.write_text(written_of_layers())
