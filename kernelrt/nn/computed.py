"""Module attributes that are computed when they are read."""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any, Protocol

from kernelrt.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.nn.module import Module
    from kernelrt.tensor import Tensor

__all__ = ["Computed", "computed_by", "let_compute", "let_hold"]

#: Where a class that was made for a module keeps the one it had before.
_KIND = "_kind_before"
#: And what computes its attributes, by their names.
_TABLE = "_computed_by"


class Computed(Protocol):
    """What computes an attribute of modules. It holds no tensors: those are the module's."""

    def read(self, module: Any, name: str) -> Tensor:
        """Give the attribute."""

    def write(self, module: Any, name: str, value: object) -> None:
        """Do what assigning to the attribute means, or refuse it."""


def computed_by(module: Module, name: str) -> Computed | None:
    """What computes the attribute `name`, if something does."""
    return _table(module).get(name)


def let_compute(module: Module, name: str, computed: Computed) -> None:
    """Let an attribute, which the module does not have any more, be computed."""
    module.__class__ = _class_of(_kind(module), {**_table(module), name: computed})


def let_hold(module: Module, name: str) -> None:
    """Let an attribute be one that the module has; it is to be set."""
    left = {other: c for other, c in _table(module).items() if other != name}
    module.__class__ = _class_of(_kind(module), left)


def _kind(module: Module) -> type[Module]:
    kind: type[Module] = vars(type(module)).get(_KIND, type(module))
    return kind


def _table(module: Module) -> Mapping[str, Computed]:
    found: Mapping[str, Computed] = vars(type(module)).get(_TABLE, {})
    return found


def _class_of(kind: type[Module], table: Mapping[str, Computed]) -> type[Module]:
    """`kind` with these attributes computed; the class itself where there are none."""
    if not table:
        return kind
    body: dict[str, Any] = {
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__,
        "__reduce_ex__": _reduced, _KIND: kind, _TABLE: table,
    }  # fmt: skip
    body |= {name: _attribute(name, computed) for name, computed in table.items()}
    return type(kind.__name__, (kind,), body)


def _attribute(name: str, computed: Computed) -> property:
    def read(module: Any) -> Tensor:
        return computed.read(module, name)

    def write(module: Any, value: object) -> None:
        computed.write(module, name, value)

    return property(read, write)


def _reduced(module: Any, protocol: Any) -> tuple[Any, ...]:
    """For copies and pickles: their class is made anew, of the one that has a name."""
    kind = _kind(module)
    make, given, *rest = super(type(module), module).__reduce_ex__(max(int(protocol), 2))
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        raise StateError(
            f"{kind.__name__} says itself how it is copied, which is not known to hold where "
            f"{', '.join(_table(module))} is computed; take that back first, or keep state_dict()"
        )
    return _made, (kind, _table(module), *given[1:]), *rest


def _made(kind: type[Module], table: Mapping[str, Computed], *given: Any) -> Module:
    found = _class_of(kind, table)
    return found.__new__(found, *given)
