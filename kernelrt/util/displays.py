"""The function that draws plans for notebooks.

Plans are below the code that draws them, so `kernelrt/__init__.py` connects the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plan_html"]

plan_html: Callable[[Any], str | None] = lambda plan: None  # noqa: ARG005, E731
