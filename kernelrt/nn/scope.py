"""Scope: the path of the module that is being called, for kernels, profiles and errors."""

from __future__ import annotations

import weakref

from kernelrt.nn import tree

__all__ = ["Scope"]


class Scope:
    """The call of a module inside the call of another module.

    ``str`` gives the path from the outermost module, which is named by its class:
    ``"Net.layers.2"``.

    Parameters
    ----------
    outer : object
        The Scope of the surrounding call, or None.
    module : object
        The called module, held by a weak reference.
    """

    __slots__ = ("kind", "module", "outer", "text")

    def __init__(self, outer: object, module: object) -> None:
        self.outer = outer
        self.module = weakref.ref(module)
        self.kind = type(module).__name__
        self.text: str | None = None

    def __str__(self) -> str:
        """Return the path; a module that its caller does not contain is named by its class."""
        chain: list[Scope] = []
        scope: object = self
        while isinstance(scope, Scope) and scope.text is None:
            chain.append(scope)
            scope = scope.outer
        for link in reversed(chain):
            outer, module, found = link.outer, link.module(), None
            if not isinstance(outer, Scope):
                link.text = link.kind
                continue
            above = outer.module()
            if above is not None and module is not None:
                found = _name_in(above, module)
            link.text = f"{outer.text}.{found or link.kind}"
        return self.text or self.kind


def _name_in(parent: object, module: object) -> str | None:
    found = (name for name, value in tree.named_objects(parent) if value is module and name)
    return next(found, None)
