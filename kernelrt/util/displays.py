"""The function that draws plans, tensors and modules for notebooks.

They are below the code that draws them, so `kernelrt/__init__.py` connects the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["html_of"]

html_of: Callable[[Any], str | None] = lambda value: None  # noqa: ARG005, E731
