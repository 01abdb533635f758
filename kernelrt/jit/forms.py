"""Nested arguments and results as JSON data, for model files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.errors import ModelFileError

if TYPE_CHECKING:
    from kernelrt.jit.signature import Template

__all__ = ["form_of"]


def form_of(template: Template, name: str) -> list[Any]:
    """Return nested containers as JSON data: kind and size or keys of each, None for a leaf."""
    found: list[Any] = []
    for node in template.nodes:
        if node is None:
            found.append(None)
        elif node.kind in (list, tuple):
            found.append([node.kind.__name__, node.size])
        elif node.kind is dict and all(type(key) in (str, int) for key in node.keys):
            found.append(["dict", [*node.keys]])
        elif hasattr(node.kind, "_fields"):
            found.append(["named", node.kind.__name__, [*node.kind._fields]])
        else:
            raise ModelFileError(
                f"{name}: a {node.kind.__name__} among the arguments or results cannot be saved; "
                "expected lists, tuples, named tuples, and dicts whose keys are strings or ints"
            )
    return found
