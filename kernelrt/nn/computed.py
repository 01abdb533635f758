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

#: Computed attributes are properties of a class that is made for one module. Attribute of this
#: class that holds the original class of the module.
_KIND = "_kind_before"
#: Attribute of such a class that holds a mapping: name of each computed attribute -> the object
#: that computes it.
_TABLE = "_computed_by"


class Computed(Protocol):
    """An object that computes a module attribute from tensors that the module holds."""

    def read(self, module: Any, name: str) -> Tensor:
        """Return the value of the attribute."""

    def write(self, module: Any, name: str, value: object) -> None:
        """Assign `value` to the attribute, or raise an error if it cannot be assigned to."""


def computed_by(module: Module, name: str) -> Computed | None:
    """Return the object that computes the attribute `name`, or None."""
    return _table(module).get(name)


def let_compute(module: Module, name: str, computed: Computed) -> None:
    """Make `name` a computed attribute; the module must not have an attribute of that name."""
    module.__class__ = _class_of(_kind(module), {**_table(module), name: computed})


def let_hold(module: Module, name: str) -> None:
    """Make `name` a plain attribute again. It has no value until the caller sets one."""
    left = {other: c for other, c in _table(module).items() if other != name}
    module.__class__ = _class_of(_kind(module), left)


def _kind(module: Module) -> type[Module]:
    kind: type[Module] = vars(type(module)).get(_KIND, type(module))
    return kind


def _table(module: Module) -> Mapping[str, Computed]:
    found: Mapping[str, Computed] = vars(type(module)).get(_TABLE, {})
    return found


def _class_of(kind: type[Module], table: Mapping[str, Computed]) -> type[Module]:
    """Return a subclass of `kind` with computed attributes; `kind` itself if there are none."""
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
    """Return what ``copy`` and ``pickle`` need to recreate a module with computed attributes.

    ``copy`` and ``pickle`` cannot find the class of such a module by name, so :func:`_made` makes
    the class again from its base class.
    """
    kind = _kind(module)
    make, given, *rest = super(type(module), module).__reduce_ex__(max(int(protocol), 2))
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        raise StateError(
            f"{kind.__name__}: the module cannot be copied or pickled while a parametrization or "
            f"normalization computes {', '.join(_table(module))}, because the class defines its "
            "own copying; remove the parametrization first, or copy its state_dict() instead"
        )
    return _made, (kind, _table(module), *given[1:]), *rest


def _made(kind: type[Module], table: Mapping[str, Computed], *given: Any) -> Module:
    found = _class_of(kind, table)
    return found.__new__(found, *given)
