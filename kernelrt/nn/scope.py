"""The module that is being called: the path that kernels, profiles and errors show."""

from __future__ import annotations

import weakref

from kernelrt.nn import tree

__all__ = ["Scope"]


class Scope:
    """The call of a module within the call of another.

    Its text is the path from the outermost module, which its class names: ``"Net.layers.2"``.

    Parameters
    ----------
    outer : object
        The surrounding call, a Scope, or None.
    module : object
        What is called; it is not kept alive.
    """

    __slots__ = ("kind", "module", "outer", "text")

    def __init__(self, outer: object, module: object) -> None:
        self.outer = outer
        self.module = weakref.ref(module)
        self.kind = type(module).__name__
        self.text: str | None = None

    def __str__(self) -> str:
        """Write the path; a module that is not found in the one that calls it shows its class."""
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
