"""Eager programs that run on kernelrt and on PyTorch: their actions and the comparison.

An action refers to values by numbers, modulo the number of values there are, and to positions by
numbers, modulo the size of the axis. So a program is still valid if any part of it is left out.
Views are copied on both sides; tests/support/view_programs.py tests views.
"""

from __future__ import annotations

import copy
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from support.package import is_in_package

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable

Action = list[Any]
LARGEST = 1e6
MOST = 30
ELEMENTS = 100_000
FLOATS = torch.float32, torch.float64
#: Types in which kernelrt rounds like torch, step by step.
WIDE = (*FLOATS, torch.int64, torch.int32, torch.bool)

BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, *_: x + y,
    "sub": lambda x, y, *_: x - y,
    "mul": lambda x, y, *_: x * y,
    "div": lambda x, y, *_: x / y,
    "rsub": lambda x, y, *_: y - x,
    "rdiv": lambda x, y, *_: y / x,
    "floordiv": lambda x, y, *_: x // y,
    "mod": lambda x, y, *_: x % y,
    "pow": lambda x, y, *_: x.abs() ** y,
    "lt": lambda x, y, *_: x < y,
    "le": lambda x, y, *_: x <= y,
    "eq": lambda x, y, *_: x == y,
    "ne": lambda x, y, *_: x != y,
    "and": lambda x, y, *_: x & y,
    "or": lambda x, y, *_: x | y,
    "xor": lambda x, y, *_: x ^ y,
    "clamp_min": lambda x, y, *_: x.clamp(min=y),
    "clamp_max": lambda x, y, *_: x.clamp(max=y),
    "maximum": lambda x, y, *_: x.maximum(y),
    "minimum": lambda x, y, *_: x.minimum(y),
    "where": lambda x, y, t: t.where(x > 0, x, y),
    "masked": lambda x, y, t: t.where(x > 1, y, x),
    "cat": lambda x, y, t: t.cat([x, y]),
    "stack": lambda x, y, t: t.stack([x, y, x]),
}
#: Ops on two tensors; ops with jumps; ops that differ for 0 or nonfinite numbers.
TENSORS = {"maximum", "minimum", "where", "cat", "stack"}
JUMPS = {"lt", "le", "eq", "ne", "floordiv", "mod", "where", "masked"}
PARTIAL = {"floordiv", "mod", "pow"}

UNARY: dict[str, Callable[..., Any]] = {
    "neg": lambda x, *_: -x,
    "abs": lambda x, *_: x.abs(),
    "relu": lambda x, *_: x.relu() + 0,  # torch keeps the sign of a zero
    "sign": lambda x, *_: x.sign(),
    "exp": lambda x, *_: x.clamp(max=5).exp(),
    "tanh": lambda x, *_: x.tanh(),
    "float": lambda x, *_: x.float(),
    "double": lambda x, *_: x.double(),
    "long": lambda x, *_: x.long(),
    "int": lambda x, *_: x.int(),
    "bool": lambda x, *_: x.bool(),
    "not": lambda x, *_: ~x,
    "sum": lambda x, *_: x.sum(),
    "mean": lambda x, *_: x.mean(),
    "prod": lambda x, *_: x.prod(),
    "amax": lambda x, *_: x.amax(),
    "sum of columns": lambda x, *_: x.sum(0),
    "sum of rows": lambda x, *_: x.sum(-1, keepdim=True),
    "argmax": lambda x, *_: x.argmax(0),
    "cumsum": lambda x, *_: x.cumsum(0),
    "softmax": lambda x, *_: x.softmax(-1),
    "turn": lambda x, *_: x.permute(*reversed(range(x.ndim))),
    "turned": lambda x, *_: x.permute(*reversed(range(x.ndim))).contiguous(),
    "flat": lambda x, *_: x.reshape(-1),
    "flip": lambda x, *_: x.flip(0),
    "roll": lambda x, n, *_: x.roll(n, 0),
    "expand": lambda x, n, *_: x.unsqueeze(0).expand(n, *x.shape),
    "unsqueeze": lambda x, *_: x.unsqueeze(-1),
    "clone": lambda x, *_: x.clone(),
    "detach": lambda x, *_: x.detach(),
    "diff": lambda x, *_: x[1:] - x[:-1],
    "like": lambda x, n, t: t.zeros_like(x) + n,
    "arange": lambda _, n, t: t.arange(n),
    "full": lambda _, n, t: t.full((n, 2), n * 0.5),
    "split": lambda x, n, *_: x.split(n + 1, 0)[-1],
}
ROUNDS = {"long", "int", "bool", "sign"}
#: torch starts these sums with 0, so a sum of only -0 is 0; here, as in NumPy, it is -0.
SUMS = {"sum", "mean", "sum of columns", "sum of rows", "cumsum"}

COPIES: list[Callable[[Any], Any]] = [
    copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)),  # noqa: S301
    lambda x: krt.tensor(x.numpy()), lambda x: krt.tensor(x.tolist(), dtype=x.dtype),
]  # fmt: skip


class SkippedError(Exception):
    """The action makes no sense for the values that the program has at this point."""


class WrongError(Exception):
    """The two libraries gave different results."""


def array(shape: list[int], dtype: str, layout: str, seed: int) -> np.ndarray:
    """Return small numbers in a layout that a user's array may have."""
    rng = np.random.default_rng(seed)

    def data(size: list[int]) -> np.ndarray:
        return np.asarray(rng.integers(-4, 5, size)).astype(dtype)

    if layout == "turned":
        return data(shape[::-1]).T
    if layout == "wide":
        return np.broadcast_to(data([1 if a % 2 == 0 else d for a, d in enumerate(shape)]), shape)
    if layout == "odd":
        plain = data(shape)
        raw = np.zeros(plain.nbytes + 1, np.uint8)
        raw[1:] = np.frombuffer(plain.tobytes(), np.uint8)
        return raw[1:].view(dtype).reshape(shape)
    if layout == "strided":
        return data([2 * d for d in shape])[tuple(slice(0, 2 * d, 2) for d in shape)]
    if layout == "backward":
        return data(shape)[tuple(slice(None, None, -1) for _ in shape)]
    return data(shape)


class World:
    """The same state in both libraries: values, parameters, losses, shared memory, jitted steps."""

    def __init__(self, start: list[Any], memory: int) -> None:
        self.values: list[tuple[Any, Any]] = []
        self.memory = np.arange(float(memory)) % 7, np.arange(float(memory)) % 7
        self.losses: list[tuple[Any, Any]] = []
        self.steps: dict[int, tuple[Any, Any]] = {}
        self.number: Any = 0
        self.compared = 0
        for each in start:
            data = array(*each)
            self.values.append((krt.tensor(data), torch.tensor(data.copy())))
        self.params = [
            (krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True))
            for shape, _, layout, seed in start[:2]
            for data in [array(shape, "float64", layout, seed).copy()]
        ]

    # ---- operands of actions

    def add(self, ours: Any, theirs: Any) -> None:
        if any(ours is known for known, _ in self.values):
            raise SkippedError  # as x.float() of floats is x
        small(theirs.numel())
        if len(self.values) >= MOST:
            self.values.pop(0)
        self.values.append((ours if ours._link is None else ours.clone(), theirs))

    def pair(self, number: int) -> tuple[Any, Any]:
        return self.values[number % len(self.values)]

    def whole(self, item: Any) -> Any:
        if item != "i":
            return item
        number = plain(self.number)
        return int(number) if abs(number) < 100 else 0

    def index(self, places: list[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
        found: list[Any] = []
        for place, size in zip(places, shape, strict=False):
            if isinstance(place, list):
                found.append(slice(self.whole(place[0]), self.whole(place[1]), place[2]))
            elif place is None:
                found.append(slice(None))
            elif size == 0:
                raise SkippedError
            else:
                item = self.whole(place)
                found.append(item % size - (size if item < 0 else 0))
        return tuple(found)

    def part(self, pair: tuple[Any, Any], places: list[Any]) -> tuple[Any, Any]:
        index = self.index(places, tuple(pair[1].shape))
        return pair[0][index], theirs_at(pair[1], index)

    def operand(self, what: dict[str, Any]) -> tuple[Any, Any]:
        if "number" in what:
            number = plain(self.number if what["number"] == "i" else what["number"])
            return number, number
        pair = self.pair(what["value"])
        return self.part(pair, what["at"]) if "at" in what else pair

    def count(self, what: dict[str, Any]) -> int:
        number = self.operand(what)[0]
        return int(number) % 9 if isinstance(number, int) else 3

    # ---- comparison

    def compare(self, ours: Any, theirs: Any, what: str) -> None:
        self.compared += 1
        got, want = ours.numpy(), theirs.detach().numpy()
        if got.dtype != want.dtype or got.shape != want.shape:
            raise WrongError(
                f"type: {what}: {got.dtype}{got.shape}, torch has {want.dtype}{want.shape}"
            )
        if want.dtype.kind != "f":
            same = np.array_equal(got, want)
        else:
            scale = float(np.abs(want[np.isfinite(want)]).max(initial=1.0))
            close = {2: 2e-2, 4: 2e-4, 8: 1e-6}[want.dtype.itemsize]  # float64 from float32
            same = np.allclose(got, want, rtol=close, atol=close * scale, equal_nan=True)
        if not same:
            raise WrongError(
                f"values: {what}: {got.reshape(-1)[:9]}, torch has {want.reshape(-1)[:9]}"
            )

    # ---- actions

    def act(self, action: Action) -> None:
        """Run `action` in both libraries, unless torch refuses it or it has no meaning."""
        if action[0] == "loop":
            for number in action[1]:
                self.number = number
                for each in action[2]:
                    self.act(each)
            return
        try:
            getattr(self, f"do_{action[0]}")(*action[1:])
        except SkippedError:
            pass
        except krt.KernelrtError:
            raise
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            if of_kernelrt(error):
                raise

    def do_at(self, a: int, places: list[Any]) -> None:
        self.add(*self.part(self.pair(a), places))

    def do_binary(self, name: str, a: int, what: dict[str, Any]) -> None:
        (ours, theirs), (new, their_new) = self.pair(a), self.operand(what)
        tensor = isinstance(their_new, torch.Tensor)
        second = their_new if tensor else torch.tensor(their_new)
        if not tensor and (not belongs(new, theirs) or isinstance(new, bool) or name in TENSORS):
            raise SkippedError
        if theirs.dtype not in WIDE or second.dtype not in WIDE:
            raise SkippedError
        if name != "cat":
            small(math.prod(torch.broadcast_shapes(theirs.shape, second.shape)))
        elif theirs.ndim != second.ndim:
            raise SkippedError  # torch joins an empty vector with anything
        if name in JUMPS:
            clear(theirs, 1 if name == "masked" else 0 if name == "where" else second)
        if name in PARTIAL and not (
            moderate(theirs) and moderate(second) and bool((second != 0).all())
            and (name != "pow" or (theirs.is_floating_point() and second.is_floating_point()))
        ):  # fmt: skip
            raise SkippedError
        want = BINARY[name](theirs, their_new, torch).clone()
        if name == "mod" and want.is_floating_point():
            # A zero remainder has the divisor's sign, as in NumPy; torch uses the dividend's.
            want = torch.where(want == 0, torch.copysign(torch.zeros_like(want), second), want)
        bounded(want)
        self.add(BINARY[name](ours, new, krt), want)

    def do_unary(self, name: str, a: int, what: dict[str, Any]) -> None:
        (ours, theirs), n = self.pair(a), self.count(what)
        if theirs.dtype not in WIDE or (name == "softmax" and theirs.dtype not in FLOATS):
            raise SkippedError  # torch refuses integers, too, unless they are empty
        if name in ROUNDS:
            clear(theirs, theirs.round())
            if not moderate(theirs):
                raise SkippedError
        if name == "prod" and float(theirs.double().abs().clamp(min=1).log().sum()) > 14:
            raise SkippedError  # an intermediate part may be too large
        if name in SUMS and theirs.is_floating_point() and (1 / theirs == -math.inf).any():
            raise SkippedError
        want = UNARY[name](theirs, n, torch).clone()
        bounded(want)
        self.add(UNARY[name](ours, n, krt), want)

    def new_value(self, target: Any, index: tuple[Any, ...], new: Any) -> Any:
        """Return a copy of `target` with `new` written into it."""
        if isinstance(new, torch.Tensor):
            if target.dtype != new.dtype and (
                rank(target) < rank(new) or target.dtype not in (*FLOATS, torch.int64)
            ):
                raise SkippedError
        elif not belongs(new, target):
            raise SkippedError
        made = target.detach().clone(memory_format=torch.contiguous_format)
        places = theirs_at(torch.arange(made.numel()).reshape(made.shape), index)
        if not isinstance(new, torch.Tensor):
            new = torch.tensor(new, dtype=made.dtype)
        value = new.detach().to(made.dtype)
        made.view(-1)[places.reshape(-1)] = torch.broadcast_to(value, places.shape).reshape(-1)
        return made

    def do_set(self, a: int, places: list[Any], what: dict[str, Any]) -> None:
        (ours, theirs), (new, their_new) = self.pair(a), self.operand(what)
        index = self.index(places, tuple(theirs.shape))
        want = self.new_value(theirs, index, their_new)
        ours[index] = new
        theirs.copy_(want)

    def do_assign(self, a: int, what: dict[str, Any]) -> None:
        (ours, theirs), (new, their_new) = self.pair(a), self.operand(what)
        want = self.new_value(theirs, (), their_new)
        ours.assign(new)
        theirs.copy_(want)

    def do_mask(self, a: int, what: dict[str, Any]) -> None:
        (ours, theirs), (new, _) = self.pair(a), self.operand(what)
        if isinstance(new, krt.Tensor) or not belongs(new, theirs):
            raise SkippedError
        clear(theirs, 1)
        theirs[theirs > 1] = new
        ours[ours > 1] = new

    def do_increase(self, a: int, what: dict[str, Any]) -> None:
        (ours, theirs), (new, their_new) = self.pair(a), self.operand(what)
        if isinstance(new, bool) or theirs.dtype not in (*FLOATS, torch.int64):
            raise SkippedError
        want = theirs + their_new
        bounded(want)
        if want.shape != theirs.shape or want.dtype != theirs.dtype:
            raise SkippedError
        before = ours
        ours += new
        if ours is not before:  # gradients flow, and what is stored keeps no history
            self.add(ours, want)
        elif want.requires_grad:
            self.values[a % len(self.values)] = ours, want
        else:
            theirs.copy_(want)

    def do_take(self, a: int, b: int, what: dict[str, Any]) -> None:
        (ours, theirs), (index, their_index), n = self.pair(a), self.pair(b), self.count(what)
        if theirs.ndim == 0 or not len(theirs) or their_index.dtype != torch.int64:
            raise SkippedError
        small(their_index.numel() * (theirs.numel() // len(theirs)))
        want = theirs[(their_index + n) % len(theirs)].clone()  # torch's is a view for one index
        self.add(ours[(index + n) % len(theirs)], want)

    def do_share(self, a: int, b: int) -> None:
        """Add a part of one memory, which other parts may overlap."""
        start, stop = sorted(x % (len(self.memory[0]) + 1) for x in (a, b))
        if start < stop:
            ours, theirs = (m[start:stop] for m in self.memory)
            self.values.append((krt.from_numpy(ours), torch.from_numpy(theirs)))

    def do_jit(self, a: int, what: dict[str, Any]) -> None:
        """Call a function that writes a value, with an argument that may alias it."""
        (ours, theirs), (x, their_x) = self.pair(a), self.operand(what)
        first = self.memory[1].ctypes.data
        shared = first <= theirs.data_ptr() < first + self.memory[1].nbytes
        if shared or not ours.is_realized or theirs.dtype not in FLOATS:
            raise SkippedError
        if not isinstance(their_x, torch.Tensor) or their_x.dtype != theirs.dtype:
            raise SkippedError
        want, new = their_x * 2 - theirs.sum(), theirs * 0.5 + their_x.sum() + 1
        bounded(want)
        bounded(new)
        if id(ours) not in self.steps:

            def step(x: Any) -> Any:
                out = x * 2 - ours.sum()
                ours.assign(ours * 0.5 + x.sum() + 1)
                return out

            self.steps[id(ours)] = krt.jit(step), ours
        got = self.steps[id(ours)][0](x)
        theirs.copy_(new)
        self.add(got, want)

    def do_check(self, a: int, _: int) -> None:
        self.compare(*self.pair(a), f"value {a % len(self.values)}")

    def do_realize(self, a: int, b: int) -> None:
        krt.realize(self.pair(a)[0], self.pair(b)[0])

    def do_drop(self, a: int, _: int) -> None:
        if len(self.values) > 2:
            self.values.pop(a % len(self.values))

    def do_copy(self, a: int, how: int) -> None:
        ours, theirs = self.pair(a)
        if theirs.numel() or how % len(COPIES) < 4:  # [] has no number of columns
            self.add(COPIES[how % len(COPIES)](ours), theirs.clone())

    # ---- gradients

    def do_loss(
        self, w: int, at: list[Any], a: int, places: list[Any], what: dict[str, Any]
    ) -> None:
        x, their_x = self.part(self.pair(a), places)
        if their_x.dtype not in FLOATS:
            raise SkippedError
        number = self.operand(what)[0]
        if not isinstance(number, int | float) or not abs(number) < 100:
            number = 3
        p, q = self.params[w % len(self.params)]
        part, their_part = self.part((p, q), at)

        def loss(part: Any, x: Any, p: Any) -> Any:
            return ((part * x - number).square() * 0.1).sum() + (p * number).sum()

        want = loss(their_part, their_x.detach(), q)
        bounded(want)
        if bool(want.isfinite()):
            self.losses.append((loss(part, x, p), want))

    def do_back(self, k: int, _: Any) -> None:
        if not self.losses:
            raise SkippedError
        ours, theirs = self.losses.pop(k % len(self.losses))
        try:
            ours.backward()
        except krt.GradientError as error:
            if "has been assigned since" not in str(error):
                raise
            return
        theirs.backward()
        for n, (p, q) in enumerate(self.params):
            if (p.grad is None) != (q.grad is None):
                raise WrongError(f"gradient: of parameter {n}: {p.grad}, torch has {q.grad}")
            if q.grad is not None:
                self.compare(p.grad, q.grad, f"gradient of parameter {n}")

    def do_step(self, w: int, what: dict[str, Any]) -> None:
        p, q = self.params[w % len(self.params)]
        if q.grad is None or self.losses:
            raise SkippedError
        rate = 0.01 * self.count(what)
        with krt.no_grad(), torch.no_grad():
            p -= rate * p.grad
            q -= rate * q.grad
        if w % 2:
            p.grad = q.grad = None
        self.compare(p, q, "a parameter")


def plain(number: Any) -> Any:
    """Convert a number from JSON."""
    return float(number) if isinstance(number, str) else number


def theirs_at(theirs: Any, index: tuple[Any, ...]) -> Any:
    """Return a copy of a part of a torch tensor, also for slices with negative steps."""
    for axis, item in reversed(list(enumerate(index))):
        if isinstance(item, slice):
            places = torch.tensor(range(theirs.shape[axis])[item], dtype=torch.int64)
            theirs = theirs.index_select(axis, places)
        else:
            theirs = theirs.select(axis, item)
    return theirs.clone()


def rank(tensor: Any) -> int:
    return 2 if tensor.is_floating_point() else int(tensor.dtype != torch.bool)


def belongs(number: Any, target: Any) -> bool:
    """Return whether a number may be written to `target` without an error or another type."""
    if target.is_floating_point():
        return True
    if target.dtype == torch.bool:
        return isinstance(number, bool)
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 128


def small(elements: int) -> None:
    """Skip the action if its result has too many elements, as from repeated concatenation."""
    if elements > ELEMENTS:
        raise SkippedError


def bounded(tensor: Any) -> None:
    """Skip the action if its result has large numbers, whose rounding errors are large, too."""
    if tensor.is_floating_point():
        known = tensor.detach()[tensor.detach().isfinite()]
        if known.numel() and float(known.abs().max()) > LARGEST:
            raise SkippedError


def clear(a: Any, b: Any) -> None:
    """Skip the action if it compares numbers that may differ only by rounding."""
    off = (a.double() - b).abs()
    if bool(((off > 0) & (off < 1e-3)).any()):
        raise SkippedError


def moderate(tensor: Any) -> bool:
    """Return whether a tensor has no large, infinite or NaN floats."""
    return not tensor.is_floating_point() or bool((tensor.abs() < LARGEST).all())


def of_kernelrt(error: BaseException) -> bool:
    """Return whether an error was raised below a call of kernelrt."""
    trace = error.__traceback__
    while trace is not None:
        if is_in_package(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False
