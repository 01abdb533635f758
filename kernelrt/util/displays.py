"""The function that draws plans, tensors and modules for notebooks.

The code of plans, tensors and modules must not import the viewer, which is on a higher floor. So
this code calls `html_of`, and `kernelrt/__init__.py` sets `html_of` to the function of the viewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["html_of"]

html_of: Callable[[Any], str | None] = lambda value: None  # noqa: ARG005, E731
