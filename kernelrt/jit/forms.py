"""Nested arguments, results and constants as JSON data, for model files."""

from __future__ import annotations

import enum
import json
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Final

from kernelrt import dtype as dt
from kernelrt.errors import ModelFileError, a_type
from kernelrt.jit.signature import Node, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RANDOM_STATE", "constant_of", "constant_text", "form_of", "plain", "template_of"]

#: Names of the state of the default generator in model files: its key, and how many numbers were
#: drawn.
RANDOM_STATE: Final = ("random.key", "random.counter")


def form_of(template: Template, name: str) -> list[Any]:
    """Return nested containers as JSON data: the kind, and the size or keys; None for a leaf."""
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
                "use lists, tuples, named tuples, and dicts whose keys are strings or ints"
            )
    return found


def template_of(form: Sequence[Any]) -> Template:
    """Return the containers that :func:`form_of` described."""
    return Template(tuple(None if node is None else _node(*node) for node in form))


def _node(kind: str, *described: Any) -> Node:
    if kind == "dict":
        [keys] = described
        return Node(dict, len(keys), tuple(keys))
    if kind == "named":
        name, fields = described
        named: Any = namedtuple(name, fields, rename=True)  # type: ignore[misc]  # noqa: PYI024
        return Node(named, len(fields))
    [size] = described
    return Node({"list": list, "tuple": tuple}[kind], size)


def plain(where: str, value: object) -> Any:
    """Return a constant as JSON data. `where` names it in the error."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dt.DType):
        return {"dtype": value.name}
    raise ModelFileError(
        f"{where} is {a_type(value)}; a model file holds tensors, floats, ints, bools, strings, "
        "None and dtypes. Pass the rest through the closure of the function"
    )


def constant_of(data: Any) -> Any:
    """Return the constant that :func:`plain` described."""
    return dt.parse(data["dtype"]) if isinstance(data, dict) else data


def constant_text(where: str, value: object) -> str:
    """Return a constant argument as JSON text. Equal texts stand for equal constants.

    The text of a member of an enumeration consists of its class and its value.
    """
    if isinstance(value, enum.Enum):
        return json.dumps({"enum": type(value).__qualname__, "value": plain(where, value.value)})
    return json.dumps(plain(where, value))
