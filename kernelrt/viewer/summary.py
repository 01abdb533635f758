"""A table of a module's layers: output shapes, parameters and share of the time."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt.errors import DTypeError
from kernelrt.nn import Module
from kernelrt.tensor import Tensor
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.viewer.charts import seconds
from kernelrt.viewer.collect import collect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernelrt.viewer.collect import OpRow

__all__ = ["LayerRow", "ModelSummary", "count", "indented", "summary"]


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A module in a :class:`ModelSummary`.

    Attributes
    ----------
    name : str
        Dotted name; empty for the model itself.
    kind : str
        Name of its class.
    shapes : tuple of tuple of int
        Shapes of the tensors that the module returned in its last call; empty if there were none.
    called : bool or None
        Whether the module was called. None for a module without ``forward``, such as a ModuleList.
    parameters : int
        Number of elements of its parameters, those of its submodules included.
    seconds : float
        Time of its kernels, those of its submodules included.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    called: bool | None
    parameters: int
    seconds: float

    @property
    def output(self) -> str:
        """The shapes that the module returned, as text."""
        if self.called:
            return ", ".join(map(str, self.shapes)) or "no tensor"
        return "" if self.called is None else "not called"


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """Result of :func:`summary`. ``print`` and notebooks show it as a table.

    Attributes
    ----------
    layers : tuple of LayerRow
        The model and all its submodules, in order of registration.
    parameters, trainable : int
        Number of elements of all parameters, and of those that require a gradient.
    seconds : float
        Median time of one inference.
    """

    layers: tuple[LayerRow, ...]
    parameters: int
    trainable: int
    seconds: float

    def _cells(self) -> Iterator[tuple[str, ...]]:
        whole = self.layers[0].seconds or 1.0
        titles = indented((row.name, row.kind) for row in self.layers)
        for row, title in zip(self.layers, titles, strict=True):
            yield (
                title, row.output, f"{row.parameters:,}", seconds(row.seconds),
                f"{row.seconds / whole:.0%}",
            )  # fmt: skip

    def _total(self) -> str:
        return (
            f"{self.parameters:,} parameters, {self.trainable:,} of them trainable; "
            f"{seconds(self.seconds)} for one inference"
        )

    def __str__(self) -> str:
        cells = [("layer", "output shape", "parameters", "time", "share"), *self._cells()]
        widths = [max(len(row[i]) for row in cells) for i in range(5)]
        lines = [
            "  ".join(
                text.ljust(width) if i < 2 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, self._total()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{name}</th>" for name in ("layer", "output shape", "parameters", "time", "share")
        )
        body = "".join(
            "<tr>"
             f'<td style="text-align:left;white-space:pre">{html.escape(first)}</td>'
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in self._cells()
        )
        return f"<table><tr>{head}</tr>{body}</table><p>{self._total()}</p>"


def summary(model: Module, *inputs: Any) -> ModelSummary:
    """Describe the layers of a model: output shapes, parameters and time of an inference.

    The model is traced, and a copy of its plan is measured. Parameters, buffers and random state do
    not change. The time of a kernel that computes several layers is divided equally among them.

    Parameters
    ----------
    model : Module
        Model to describe.
    *inputs
        Arguments of one call: tensors, arrays, or other values that a jitted function takes.

    Returns
    -------
    ModelSummary
        The rows of the table; ``print`` shows it.

    Raises
    ------
    DTypeError
        `model` is not a Module.
    JitError
        A function is being traced, or the model cannot be traced.
    StateError
        A lazy module has no parameters yet. Call the model once first.

    Examples
    --------
    >>> import kernelrt as krt
    >>> from kernelrt import nn
    >>> net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> print(krt.summary(net, krt.rand(32, 64)))  # doctest: +ELLIPSIS
    layer        output shape  parameters ...
    Sequential   (32, 10)           9,610 ...
      0: Linear  (32, 128)          8,320 ...
      1: ReLU    (32, 128)              0 ...
      2: Linear  (32, 10)           1,290 ...
    9,610 parameters, 9,610 of them trainable; ...
    """
    forbid("summary()")
    if not isinstance(model, Module):
        raise DTypeError(f"model: expected a Module, not {type(model).__name__}")
    trainable = count(p for p in model.parameters() if p.requires_grad)
    modules = [*model.named_modules()]
    shapes: dict[int, tuple[tuple[int, ...], ...]] = {}

    def note(module: Module, _: Any, result: Any) -> None:
        shapes[id(module)] = tuple(tuple(map(int, t.shape)) for t in _tensors(result))

    run = krt.jit(model, dynamic=False)
    hooks = [module.register_forward_hook(note) for _, module in modules]
    try:
        with krt.no_grad():
            plan = run.plan(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    record = collect(plan, text=False)
    times = _times(record.ops, type(model).__name__)
    rows = []
    for name, module in modules:
        inside = f"{name}." if name else ""
        took = sum(s for path, s in times.items() if path == name or path.startswith(inside))
        own, called = count(module.parameters()), id(module) in shapes
        has_forward = getattr(module.forward, "__func__", None) is not Module.forward
        rows.append(
            LayerRow(name, type(module).__name__, shapes.get(id(module), ()),
                     called if called or has_forward else None, own, took)
        )  # fmt: skip
    return ModelSummary(
        layers=tuple(rows),
        parameters=rows[0].parameters,
        trainable=trainable,
        seconds=record.run,
    )


def count(parameters: Iterable[Tensor]) -> int:
    """Return the number of elements of some parameters."""
    return sum(p.nbytes // p.dtype.itemsize for p in parameters)


def indented(modules: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a title for each (dotted name, class) of :meth:`Module.named_modules`, in its order.

    The name in a title is relative to the innermost module that contains it: "0: Linear" in a
    Sequential, but "blocks.0: Linear" in a plain list called ``blocks``, because a list is no
    module.
    """
    above: list[str] = []
    for name, kind in modules:
        while above and not name.startswith(above[-1]):
            above.pop()
        own = name[len(above[-1]) :] if above else name
        yield "  " * len(above) + (f"{own}: {kind}" if own else kind)
        above.append(f"{name}." if name else "")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def _times(ops: list[OpRow], root: str) -> dict[str, float]:
    """Return the seconds of each layer by its name, without those of its submodules."""
    found: dict[str, float] = {}
    for top in ops:
        inner = [row for row in top.flat() if not row.body]
        whole = sum(row.seconds for row in inner) or 1.0
        for row in inner:
            layers = row.layers or (root,)
            for layer in layers:
                path = layer[len(root) + 1 :] if layer.startswith(f"{root}.") else ""
                share = top.seconds * row.seconds / whole / len(layers)
                found[path] = found.get(path, 0.0) + share
    return found
