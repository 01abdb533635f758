"""Random programs whose sizes, rows and branches change from pass to pass, compared with torch.

A case is plain data: ``{"lines": [...], "sizes": [3, 4, 5, 2], "grad": false, "jit": false}``. A
line is text in which `L` is the library, `n` the size of the pass, `i` a number below it and
`recurrent` a function; other names are tensors. Each pass starts with new data, and all its tensors
are compared. With "jit", a pass is a call of one function, and `i` is the same in all passes.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from support import view_programs
from support.view_programs import Refused

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["START", "Refused", "check", "generate", "inputs", "run", "shrink"]

Case = dict[str, Any]
Shape = tuple[str, ...]

#: Inputs of a pass.
START: dict[str, Shape] = {
    "a": ("n", "3"), "b": ("n",), "c": ("3", "n"), "d": ("n", "n"), "w": ("3", "4"),
    "p": ("40", "3"), "q": ("40",), "k": ("2", "3", "2"),
}  # fmt: skip
#: Tensors whose gradients are compared.
LEAVES = "abcwk"
SIZES = [
    [3, 4, 5, 6, 7, 8], [2, 5, 9, 4, 7, 33], [4, 3, 4, 2, 4, 1, 6], [1, 2, 3, 4, 5], [8, 16, 24, 9],
    [5, 5, 6, 6, 7, 7], [3, 6, 12, 24, 30], [10, 9, 8, 7, 6, 1], [2, 3, 39, 40, 4],
]  # fmt: skip


class Draw(view_programs.Draw):
    """A program that grows line by line; sizes are text."""

    shapes: dict[str, Any]

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.shapes = dict(START)

    def make(self, shape: Shape, text: str) -> None:
        name = f"t{len(self.lines)}"
        self.shapes[name] = shape
        self.lines.append(f"{name} = {text}")

    def line(self) -> None:
        x = self.one(list(self.shapes))
        shape = self.shapes[x]
        kinds = [self.elementwise, self.elementwise, self.reduced, self.part, self.joined]
        kinds += [self.ordered, self.running]
        kinds += [self.rows, self.recurrent, self.written] if shape in (("n",), ("n", "3")) else []
        kinds += [self.windows] if shape == ("3", "n") else []
        kinds += [self.product] if len(shape) == 2 else []
        if shape:
            self.one(kinds)(x, shape)
        else:
            self.elementwise(x, shape)

    def elementwise(self, x: str, shape: Shape) -> None:
        others = [y for y, s in self.shapes.items() if s == shape]
        y = self.one([*others, "0.5", "n", "i", "1.0 / n"])
        self.make(shape, self.one([
            f"{x} + {y}", f"{x} * {y} - 1", f"L.where({x} > 0, {x}, {x} * {y})", f"{x}.tanh()",
            f"({x} * 0.3).exp() + {y}", f"{x}.clamp(-1, 1) * 2", f"{x}.clone()", f"-{x}.abs()",
        ]))  # fmt: skip

    def reduced(self, x: str, shape: Shape) -> None:
        axis = self.below(len(shape))
        rest = (*shape[:axis], *shape[axis + 1 :])
        name = self.one(["sum", "mean", "amax", "softmax", "cumsum", "std", "all", "logsumexp"])
        if name in ("softmax", "cumsum"):
            self.make(shape, f"{x}.{name}({axis})")
        elif name == "std":
            self.make(rest, f"{x}.std({axis}, correction=0)")
        elif name == "all":
            self.make((), f"{x}.{self.one(['sum', 'mean'])}()")
        else:
            self.make(rest, f"{x}.{name}({axis})")

    def running(self, x: str, shape: Shape) -> None:
        name = self.one(["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
        values = "[0]" if name in ("cummax", "cummin") else ""
        self.make(shape, f"({x} * 0.5).{name}({self.below(len(shape))}){values}")

    def ordered(self, x: str, shape: Shape) -> None:
        axis = self.below(len(shape))
        rest = (*shape[:axis], *shape[axis + 1 :])
        down = bool(self.below(2))
        kept = f"{x}.sort(dim={axis}, descending={down}, stable=True)"
        choices: list[tuple[Shape, str]] = [
            (shape, f"{kept}[0]"), (shape, f"{kept}[1].double()"), (rest, f"{x}.median({axis})[0]"),
            ((*shape[:axis], "1", *shape[axis + 1 :]), f"{x}.topk(1, {axis})[0]"),
        ]  # fmt: skip
        if shape == ("n", "n"):
            which = f"sort(stable=True)[{self.below(2)}].double()"
            choices.append((("n * n",), f"{x}.reshape(-1).{which}"))
        if len(shape) == 1:
            choices.append((("40",), f"L.searchsorted({x}.sort()[0].detach(), q).double()"))
        self.make(*self.one(choices))

    def windows(self, x: str, _shape: Shape) -> None:
        stride, reach = 1 + self.below(3), self.below(2)
        count, f = f"(n + {2 * reach} - 2) // {stride} + 1", "L.nn.functional."
        taps = f"k, None, {stride}"
        self.make(*self.one([
            (("1", "2", count), f"{f}conv1d({x}[None], {taps}, {reach})"),
            (("1", "2", count), f"{f}conv1d({x}[None], {taps}, {reach}).tanh()"),
            (("3", count), f"{f}max_pool1d({x}, 2, {stride}, {reach})"),
            (("3", count), f"{f}avg_pool1d({x}, 2, {stride}, {reach})"),
            (("1", "3", f"(n - 1) * {stride} + 2"),
             f"{f}conv_transpose1d({x}[None, :2], {taps})"),
        ]))  # fmt: skip

    def recurrent(self, x: str, shape: Shape) -> None:
        self.make(shape, f"recurrent({x})")

    def written(self, x: str, shape: Shape) -> None:
        """Write a part of memory, with a different size in each pass."""
        k = len(self.lines)
        self.shapes[f"t{k}"] = ("40", *shape[1:])
        start = self.one(["0", "40 - n", "i"])
        stop = {"0": "n", "40 - n": "40", "i": "i + n"}[start]
        self.lines.append("\n".join([
            f"t{k} = L.zeros({', '.join(self.shapes[f't{k}'])}, dtype=L.float64) + 1",
            f"t{k}[{start}:{stop}] {self.one(['', '', '+', '*'])}= {x}" + self.one(["", " * 2"]),
        ]))  # fmt: skip

    def part(self, x: str, shape: Shape) -> None:
        axis = self.below(len(shape))
        before = ":, " * axis
        size, behind = shape[axis], shape[axis + 1 :]
        rest = shape[:axis]
        choices: list[tuple[Shape, str]] = [
            ((*rest, *behind), f"{x}[{before}{'i' if size in ('n', '40') else '1'}]"),
            (shape, f"{x}.flip({axis})"),
            (shape, f"{x}.roll(1, {axis})"),
            (shape[::-1], f"{x}.permute({', '.join(map(str, range(len(shape))[::-1]))})"),
            ((*rest, "1", *shape[axis:]), f"{x}.unsqueeze({axis})"),
        ]
        if size == "40":
            choices += [
                ((*rest, "n", *behind), f"{x}[{before}:n]"),
                ((*rest, "n", *behind), f"{x}[{before}40 - n:]"),
                ((*rest, "n", *behind), f"{x}[{before}i:i + n]" if axis else f"{x}[:n] * 1"),
            ]
        if size == "n":
            choices.append(((*rest, "n - i", *behind), f"{x}[{before}i:]"))
        if shape == ("n", "3"):
            choices.append((("3 * n",), f"{x}.reshape(-1)"))
            choices.append((("3", "n"), f"({x} * 1).reshape(3, n)"))
        self.make(*self.one(choices))

    def joined(self, x: str, shape: Shape) -> None:
        others = [y for y, s in self.shapes.items() if s[1:] == shape[1:] and len(s) == len(shape)]
        y = self.one(others)
        size = f"{shape[0]} + {self.shapes[y][0]}"
        self.make((size, *shape[1:]), f"L.cat([{x}, {y}], 0)")

    def product(self, x: str, shape: Shape) -> None:
        fits = [y for y, s in self.shapes.items() if len(s) == 2 and s[0] == shape[1]]
        if fits:
            y = self.one(fits)
            self.make((shape[0], self.shapes[y][1]), f"{x} @ {y} * 0.1")
        else:
            self.elementwise(x, shape)

    def rows(self, x: str, shape: Shape) -> None:
        """Add a loop that writes rows, each made of the previous one, with a branch."""
        k = len(self.lines)
        self.shapes[f"t{k}"] = shape
        self.lines.append("\n".join([
            f"t{k} = L.zeros_like({x}) + {self.one(['0', 'i'])}",
            f"h{k} = {x}[0] * 0",
            f"for j in {self.one(['range(n)', 'reversed(range(n))', 'range(0, n, 2)'])}:",
            f"    h{k} = h{k} * 0.5 + {x}[j]" + self.one(["", f" - t{k}[i]", " * j"]),
            *self.one([[], [f"    if j % 3 == i % 3: h{k} = h{k}.tanh()"]]),
            f"    t{k}[j] = h{k}" + self.one(["", " * 2", " + 1"]),
            *self.one([[], [f"    seen.append(float(h{k}.sum()))"]]),
        ]))  # fmt: skip


def generate(rng: np.random.Generator) -> Case:
    """Draw a case."""
    draw = Draw(rng)
    for _ in range(int(rng.integers(2, 8))):
        draw.line()
    grad = bool(rng.random() < 0.3) and not any(
        "]" in line.split("=")[0] or "for j" in line
        for text in draw.lines
        for line in text.split("\n")
    )
    jit = bool(rng.random() < 0.3) and not any("float(" in line for line in draw.lines)
    return {"lines": draw.lines, "sizes": draw.one(SIZES), "grad": grad, "jit": jit}


def check(case: Case) -> None:
    """Run a case in both libraries.

    Raises
    ------
    AssertionError
        A tensor of a pass differs.
    Refused
        torch does not run the case.
    """
    import torch

    jitted = krt.jit(functools.partial(_computed, krt, case)) if case["jit"] else None
    for turn, n in enumerate(case["sizes"]):
        data, i = inputs(turn, n)
        i = int(min(case["sizes"]) > 1) if jitted else i
        try:
            want = run(torch, case, {k: torch.tensor(v) for k, v in data.items()}, n, i)
        except Exception as error:
            raise Refused(str(error)) from error
        given = {k: krt.tensor(v) for k, v in data.items()}
        found = run(krt, case, given, n, i) if jitted is None else jitted(given, None, i)
        for name, value in want.items():
            np.testing.assert_allclose(
                np.asarray(found[name]), np.asarray(value), 1e-9, 1e-9,
                err_msg=f"{name} of pass {turn}, n = {n}, i = {i}",
            )  # fmt: skip


def inputs(turn: int, n: int) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """Draw the inputs of a pass, in float64, and a number below `n`."""
    rng = np.random.default_rng(turn)
    data = {name: rng.normal(size=[{"n": n}.get(d) or int(d) for d in shape])
            for name, shape in START.items()}  # fmt: skip
    return data, int(rng.integers(n))


def run(library: Any, case: Case, given: dict[str, Any], n: int, i: int) -> dict[str, Any]:
    """Run the lines as one pass; return the tensors that they make."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {k: v.numpy() for k, v in _computed(library, case, given, n, i).items()}


def _computed(
    library: Any, case: Case, given: dict[str, Any], n: int | None, i: int
) -> dict[str, Any]:
    """Run the lines. Without `n`, the size of `b` is used, and arguments are not written to."""
    if n is None:
        given = {k: v * 1 for k, v in given.items()}
    if case["grad"]:
        given = {**given, **{k: given[k].detach().requires_grad_() for k in LEAVES}}
    seen: list[float] = []
    names: dict[str, Any] = {**given, "L": library, "i": i, "seen": seen}
    names["recurrent"] = _loop if library is krt else _turns
    names["n"] = given["b"].shape[0] if n is None else n
    exec("\n".join(case["lines"]), names)  # noqa: S102 - the text is drawn above
    made = {k: v for k, v in names.items() if re.fullmatch(r"[th]\d+", k)}
    if case["grad"]:
        total = sum((v * v).sum() for v in made.values())
        if getattr(total, "requires_grad", False):
            total.backward()
        for k in LEAVES:
            leaf = given[k]
            made[f"gradient of {k}"] = leaf.grad if leaf.grad is not None else leaf * 0
    if seen:
        made["seen"] = library.tensor(seen)
    return {k: v.detach() for k, v in made.items()}


def _turn(h: Any, x: Any) -> Any:
    return (h * 0.5 + x).tanh()


def _loop(x: krt.Tensor) -> krt.Tensor:
    def body(h: krt.Tensor, each: krt.Tensor) -> tuple[krt.Tensor, krt.Tensor]:
        h = _turn(h, each)
        return h, h

    return krt.scan(body, x[0] * 0, x)[1]


def _turns(x: Any) -> Any:
    import torch

    h, found = x[0] * 0, []
    for each in x:
        h = _turn(h, each)
        found.append(h)
    return torch.stack(found)


def shrink(case: Case) -> Iterator[Case]:
    """Yield smaller cases."""
    lines, sizes = case["lines"], case["sizes"]
    for k in range(len(lines) - 1, -1, -1):
        yield {**case, "lines": lines[:k] + lines[k + 1 :]}
    for k in range(len(sizes)):
        if len(sizes) > 1:
            yield {**case, "sizes": sizes[:k] + sizes[k + 1 :]}
    for flag in ("grad", "jit"):
        if case[flag]:
            yield {**case, flag: False}
