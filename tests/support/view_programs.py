"""Random programs that change views in place, compared with torch.

A case is plain data: ``{"lines": [...], "way": "jit"}``. A line is text in which `L` is the
library; names are tensors. The lines run eagerly, in jit, in the body of a loop, under vmap, or
with gradients (`WAYS`), and every tensor is compared at the end.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["WAYS", "Refused", "check", "generate", "shrink"]

Case = dict[str, Any]
Shape = tuple[int, ...]

WAYS = ("eager", "state", "jit", "inside", "scan", "scan state", "vmap", "gradients",
        "gradients jit")  # fmt: skip
#: Shapes of the initial tensors of a program.
SHAPES: tuple[Shape, ...] = ((4,), (3, 4), (2, 3, 4), (4, 4), (1, 3))
TARGET = re.compile(r"^(\w+) = ")


class Refused(Exception):  # noqa: N818 - not an error of the program
    """torch does not run the program."""


# ---- drawing


class Draw:
    """A program that grows line by line."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.shapes: dict[str, Shape] = {}

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def one(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def make(self, shape: Shape, text: str) -> None:
        name = f"t{len(self.shapes)}"
        self.shapes[name] = shape
        self.lines.append(f"{name} = {text}")

    def start(self) -> None:
        for _ in range(1 + self.below(2)):
            shape = self.one(SHAPES)
            self.make(shape, f"given({shape!r}, {self.below(1000)})")

    def step(self) -> None:
        name = self.one(list(self.shapes))
        shape = self.shapes[name]
        kind = self.below(20)
        if kind < 10:
            view = getattr(self, f"view_{self.one(VIEWS)}")
            found = view(name, shape) if shape and 0 not in shape else self.view_unsqueeze(
                name, shape)  # fmt: skip
            if found is not None and len(found[0]) <= 4:
                self.make(*found)
        elif kind < 18:
            line = self.write(name, shape)
            if line is not None:
                self.lines.append(line)
        elif kind < 19:
            # torch keeps the operand's layout for a result; kernelrt uses row-major order.
            self.make(shape, f"({name} * 2 + 1).contiguous()")
        else:
            self.lines.append(f"look({name})")

    # views: a shape and a text

    def view_index(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s[1:], f"{t}[{self.below(s[0])}]"

    def view_last(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s[:-1], f"{t}[..., -1]"

    def view_tensor_index(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s[1:], f"{t}[L.tensor({self.below(s[0])})]"

    def view_second(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        if len(s) < 2:
            return None
        return (s[0], *s[2:]), f"{t}[:, L.tensor({self.below(s[1])})]"

    def view_slice(self, t: str, s: Shape) -> tuple[Shape, str]:
        first = self.below(s[0])
        last = first + self.below(s[0] - first + 1)
        return (last - first, *s[1:]), f"{t}[{first}:{last}]"

    def view_step(self, t: str, s: Shape) -> tuple[Shape, str]:
        return ((s[0] + 1) // 2, *s[1:]), f"{t}[::2]"

    def view_rest(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (*s[:-1], s[-1] - 1), f"{t}[..., 1:]"

    def view_new_axis(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (1, *s), f"{t}[None]"

    def view_unsqueeze(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (1, *s), f"{t}.unsqueeze(0)"

    def view_squeeze(self, t: str, s: Shape) -> tuple[Shape, str]:
        return tuple(n for n in s if n != 1), f"{t}.squeeze()"

    def view_matrix_transpose(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        return None if len(s) < 2 else ((*s[:-2], s[-1], s[-2]), f"{t}.mT")

    def view_transpose(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        return None if len(s) != 2 else (s[::-1], f"{t}.T")

    def view_permute(self, t: str, s: Shape) -> tuple[Shape, str]:
        order = [int(a) for a in self.rng.permutation(len(s))]
        return tuple(s[a] for a in order), f"{t}.permute({order})"

    def view_movedim(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (*s[1:], s[0]), f"{t}.movedim(0, -1)"

    def view_reshape(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (math.prod(s),), f"{t}.reshape(-1)"

    def view_flatten(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (math.prod(s),), f"{t}.flatten()"

    def view_split_axis(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        return None if s[-1] % 2 else ((*s[:-1], 2, s[-1] // 2), f"{t}.unflatten(-1, (2, -1))")

    def view_narrow(self, t: str, s: Shape) -> tuple[Shape, str]:
        axis = self.below(len(s))
        start = self.below(s[axis])
        return (
            (*s[:axis], s[axis] - start, *s[axis + 1 :]),
            f"{t}.narrow({axis}, {start}, {s[axis] - start})",
        )

    def view_select(self, t: str, s: Shape) -> tuple[Shape, str]:
        axis = self.below(len(s))
        return (*s[:axis], *s[axis + 1 :]), f"{t}.select({axis}, {self.below(s[axis])})"

    def view_diagonal(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        if len(s) != 2:
            return None
        offset = self.below(2)
        n = min(s[0], s[1] - offset)
        return None if n < 1 else ((n,), f"{t}.diagonal({offset})")

    def view_unfold(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        return None if s[-1] < 2 else ((*s[:-1], s[-1] // 2, 2), f"{t}.unfold(-1, 2, 2)")

    def view_split(self, t: str, s: Shape) -> tuple[Shape, str]:
        return (1, *s[1:]), f"{t}.split(1)[{self.below(s[0])}]"

    def view_chunk(self, t: str, s: Shape) -> tuple[Shape, str]:
        return ((s[0] + 1) // 2, *s[1:]), f"{t}.chunk(2)[0]"

    def view_unbind(self, t: str, s: Shape) -> tuple[Shape, str]:
        axis = self.below(len(s))
        return (*s[:axis], *s[axis + 1 :]), f"{t}.unbind({axis})[{self.below(s[axis])}]"

    def view_detach(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s, f"{t}.detach()"

    def view_data(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s, f"{t}.data"

    def view_contiguous(self, t: str, s: Shape) -> tuple[Shape, str]:
        return s, f"{t}.contiguous()"

    def view_strided(self, t: str, s: Shape) -> tuple[Shape, str] | None:
        # Only for tensors at the start of their memory, where both libraries count equally.
        packed = any(line.startswith((f"{t} = given", f"{t} = (")) for line in self.lines)
        n = math.prod(s)
        return None if not packed or n < 3 else (((n - 1) // 2,), f"{t}.as_strided(({(n - 1) // 2},), (2,), 1)")  # noqa: E501  # fmt: skip

    # writes

    def write(self, t: str, s: Shape) -> str | None:
        number = 1 + self.below(9)
        rows = bool(s) and s[0] > 0
        row = self.below(s[0]) if rows else 0
        alike = [o for o, other in self.shapes.items() if other == s and o != t]
        ways = [
            f"{t}.add_({number})", f"{t}.mul_(0.5)", f"{t} += {number}", f"{t} -= 1.5",
            f"{t} *= -1", f"{t}[...] = {number}", f"{t}.fill_({number})", f"{t}.zero_()",
            f"{t}.clamp_(-1, 3)", f"{t}.add_({t} * 0.5)", f"{t}.masked_fill_({t} > 2, 0.25)",
        ]  # fmt: skip
        if alike:
            other = self.one(alike)
            ways += [f"{t}.copy_({other}.clone())", f"{t} += {other} * 2"]
        if rows:
            ways += [
                f"{t}[{row}] = {number}", f"{t}[{row}] += {number}", f"{t}[1:] = -3",
                f"{t}[L.tensor({row})] *= 2", f"{t}[L.tensor([0, {row}])] = {number}",
                f"{t}[{t} > 1] = 0.25", f"{t}[{row}].add_({number})", f"{t}[-1:] -= {number}",
            ]  # fmt: skip
        return self.one(ways)


VIEWS = tuple(
    name.removeprefix("view_") for name in vars(Draw) if name.startswith("view_")
)


def generate(rng: np.random.Generator) -> Case:
    """Draw a case."""
    draw = Draw(rng)
    draw.start()
    for _ in range(int(rng.integers(3, 15))):
        draw.step()
    return {"lines": draw.lines, "way": WAYS[int(rng.integers(len(WAYS)))]}


def shrink(case: Case) -> Iterator[Case]:
    """Yield the case without one of its lines."""
    lines = case["lines"]
    for i in reversed(range(len(lines))):
        yield {**case, "lines": lines[:i] + lines[i + 1 :]}


# ---- running


def given(library: Any, shape: Shape, seed: int) -> Any:
    """Return small whole numbers."""
    values = np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)
    return library.tensor(values.tolist()).reshape(shape).clone()


class Program:
    """The lines of a case for one library.

    Attributes
    ----------
    starts : dict of str to tuple
        Shape and seed of each initial tensor.
    made : list of str
        Names of the other tensors.
    """

    def __init__(self, case: Case, library: Any) -> None:
        self.library = library
        self.starts: dict[str, tuple[Shape, int]] = {}
        rest = []
        for line in case["lines"]:
            name, _, text = line.partition(" = given")
            if text:
                self.starts[name] = eval(text)  # noqa: S307 - a tuple
            else:
                rest.append(line)
        self.made = [m[1] for line in rest if (m := TARGET.match(line))]
        self._code = compile("\n".join(rest), "<program>", "exec")
        self._looks = case["way"] in ("eager", "state")

    def fresh(self) -> list[Any]:
        """Return new initial tensors."""
        return [given(self.library, *start) for start in self.starts.values()]

    def run(self, starts: list[Any]) -> tuple[list[Any], list[Any]]:
        """Run the lines; return the values of `starts`, which it may change, and of the others."""
        look = (lambda t: t.detach().numpy().sum()) if self._looks else (lambda t: None)
        scope = {"L": self.library, "look": look, **dict(zip(self.starts, starts, strict=True))}
        exec(self._code, scope)  # noqa: S102 - drawn above
        return [scope[name] for name in self.starts], [scope[name] for name in self.made]


def _arrays(tensors: Any) -> list[np.ndarray[Any, Any]]:
    return [t.detach().numpy().copy() for t in tensors]


def _eager(p: Program, ours: bool) -> list[np.ndarray[Any, Any]]:
    del ours
    starts, made = p.run(p.fresh())
    return _arrays([*starts, *made])


def _called(wrap: Callable[[Any], Any], inside: bool, p: Program) -> list[np.ndarray[Any, Any]]:
    """Call a function three times. It changes state, or tensors that it makes itself."""
    state = p.fresh()
    if p.library is krt:
        krt.realize(*state)

    def step(x: Any) -> Any:
        starts = [given_inside(p.library, x, *s) for s in p.starts.values()] if inside else state
        starts, made = p.run(starts)
        return [t * 1 for t in (*starts, *made)]

    call = wrap(step)
    found = []
    for k in range(3):
        found += _arrays(call(p.library.tensor(float(k))))
    return found if inside else found + _arrays(state)


def given_inside(library: Any, x: Any, shape: Shape, seed: int) -> Any:
    """Return small whole numbers that a function computes."""
    n = library.arange(math.prod(shape))
    return (((n * 5 + seed) % 7 - 3).float() + x).reshape(shape).clone()


def _scanned(p: Program, ours: bool, *, state: bool) -> list[np.ndarray[Any, Any]]:
    """Run three iterations of a loop. It carries the tensors, or changes them as state."""
    starts = p.fresh()
    xs = p.library.arange(3).float()
    if not ours:
        rows = []
        for _ in range(3):
            starts, made = p.run(starts)
            rows.append([t.clone() for t in made])
        return _arrays([*starts, *(p.library.stack(column) for column in zip(*rows, strict=True))])

    def turn(carry: Any, _: Any) -> Any:
        after, made = p.run(starts if state else list(carry))
        return (carry if state else tuple(after)), tuple(t * 1 for t in made)

    krt.realize(*starts)
    first = (krt.zeros(()),) if state else tuple(t.clone() for t in starts)
    last, stacked = krt.scan(turn, first, xs)
    return _arrays([*(starts if state else last), *stacked])


def _mapped(p: Program, ours: bool) -> list[np.ndarray[Any, Any]]:
    """Run the program under vmap, on a batch of three."""
    batches = [p.library.stack([t, t * 2, t - 1]) for t in p.fresh()]

    def one(*members: Any) -> Any:
        starts, made = p.run([t.clone() for t in members])
        return tuple(t * 1 for t in (*starts, *made))

    if ours:
        return _arrays(krt.func.vmap(one)(*batches))
    rows = [one(*(batch[i] for batch in batches)) for i in range(3)]
    return _arrays(p.library.stack(column) for column in zip(*rows, strict=True))


def _differentiated(wrap: Callable[[Any], Any], p: Program) -> list[np.ndarray[Any, Any]]:
    """Return a loss of all tensors, and its gradients by the leaves that they are made of."""
    leaves = [t.requires_grad_() for t in p.fresh()]

    def step(c: Any) -> Any:
        starts, made = p.run([leaf * (1.5 + c) for leaf in leaves])
        loss = sum(leaf.sum() * 0.5 for leaf in leaves)
        for k, t in enumerate([*starts, *made]):
            loss = loss + (t * t * (k + 1)).sum()
        for leaf in leaves:
            leaf.grad = None
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves)]

    call = wrap(step)
    return [a for k in range(2) for a in _arrays(call(p.library.tensor(float(k))))]


def _values(case: Case, library: Any) -> list[np.ndarray[Any, Any]]:
    program, ours, way = Program(case, library), library is krt, case["way"]
    jit = krt.jit if ours else (lambda f: f)
    if way in ("state", "jit", "inside"):
        wrap = (lambda f: f) if way == "state" else jit
        return _called(wrap, way == "inside", program)
    if way in ("scan", "scan state"):
        return _scanned(program, ours, state=way == "scan state")
    if way == "vmap":
        return _mapped(program, ours)
    if way in ("gradients", "gradients jit"):
        return _differentiated(jit if way == "gradients jit" else lambda f: f, program)
    return _eager(program, ours)


#: Expected errors: a traced function has no masks, whose result sizes would depend on values; a
#: gradient that a write invalidated is refused.
REFUSED = re.compile(
    r"number of elements that a boolean mask|size of the result depends on values|data: the tensor"
    r"|write to y\.detach|assigned since|stored already|which records no history"
)


def check(case: Case) -> None:
    """Compare a case with torch.

    Raises
    ------
    Refused
        torch does not run the program, or kernelrt refuses it by design.
    AssertionError
        The values differ.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = _values(case, torch)
        except Exception as error:  # noqa: BLE001 - torch may raise anything
            raise Refused(str(error)) from None
        try:
            found = _values(case, krt)
        except krt.KernelrtError as error:
            if REFUSED.search(str(error)):
                raise Refused(str(error)) from None
            raise
    assert len(found) == len(wanted)
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_allclose(
            got, want, rtol=1e-3, atol=1e-3, err_msg=f"array {i} of {case!r}", strict=True
        )
