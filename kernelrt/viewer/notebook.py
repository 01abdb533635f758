"""HTML of plans, tensors and modules for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt.ir.shape import format_shape
from kernelrt.nn import Module, tree
from kernelrt.runtime import ExecutionPlan
from kernelrt.tensor import Tensor
from kernelrt.viewer import view
from kernelrt.viewer.summary import count, indented

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["html_of"]

#: Rows and columns of a tensor that are shown at each end of an axis.
_SHOWN: Final = 4
#: Colors of positive and of negative elements; smaller magnitudes are paler.
_WARM, _COLD = "213, 94, 0", "0, 114, 178"


def html_of(value: object) -> str | None:
    """Return HTML for a plan, tensor or module; None if a notebook should show repr() instead."""
    if isinstance(value, ExecutionPlan):
        return view(value)._repr_html_()
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, Module):
        return _module(value)
    return None


# ---- tensors


def _tensor(tensor: Tensor) -> str | None:
    """Return a table of the elements of a vector or matrix, colored by value, and a caption."""
    values = tensor._shown_values()  # noqa: SLF001 - what repr() shows
    if values is None:
        return None
    caption = f"{tensor.dtype.name} {format_shape(tensor.dims)}, {tensor.nbytes:,} bytes"
    if tensor.requires_grad:
        caption += ", requires_grad=True"
    body = _matrix(np.atleast_2d(values)) if values.ndim in (1, 2) and values.size else (
        f"<pre>{html.escape(np.array2string(values, separator=', '))}</pre>"
    )  # fmt: skip
    return f"<div>{body}<small>{html.escape(caption)}</small></div>"


def _matrix(values: np.ndarray[Any, Any]) -> str:
    rows, columns = (_ends(n) for n in values.shape)
    shown = values[np.ix_([i for i in rows if i >= 0], [j for j in columns if j >= 0])]
    finite = np.abs(shown[np.isfinite(shown)].astype(np.float64))
    most = float(finite.max(initial=0.0)) or 1.0
    out = ["<table style='font-family:monospace'>"]
    for i in rows:
        cells = [
            "<td>…</td>" if i < 0 or j < 0 else _cell(values[i, j], most) for j in columns
        ]
        out.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*out, "</table>"])


def _cell(value: Any, most: float) -> str:
    text = f"{value:.4g}" if isinstance(value, np.floating) else str(value)
    number = float(value)
    strength = 0.5 * abs(number) / most if np.isfinite(number) else 0.8
    color = _COLD if number < 0 else _WARM
    return f"<td style='background:rgba({color},{strength:.2f})'>{text}</td>"


def _ends(n: int) -> list[int]:
    """Return the positions of an axis to show; -1 marks a gap."""
    if n <= 2 * _SHOWN + 1:
        return list(range(n))
    return [*range(_SHOWN), -1, *range(n - _SHOWN, n)]


# ---- modules


def _module(module: Module) -> str:
    """Return a table of a module and its submodules with their parameters."""
    modules = [*module.named_modules()]
    titles = indented((name, type(each).__name__) for name, each in modules)
    rows = [
        (title, each.extra_repr(), _count(each))
        for title, (_, each) in zip(titles, modules, strict=True)
    ]
    return _table([("module", "options", "parameters"), *rows])


def _count(module: Module) -> str:
    if any(tree.UNMADE in vars(each) for each in module.modules()):
        return "not known yet"  # a lazy module creates its parameters in its first call
    return f"{count(module.parameters()):,}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *body = (
        "".join(
            f"<td style='text-align:{'right' if n == len(row) - 1 else 'left'};white-space:pre'>"
            f"{html.escape(cell)}</td>"
            for n, cell in enumerate(row)
        )
        for row in rows
    )
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    return f"<table><thead><tr>{head}</tr></thead>{lines}</table>"
