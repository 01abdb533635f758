"""Printer of loop nests, as pseudocode."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kernelrt.ir.local import flat_index, most_elements
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.reducers import empty_result
from kernelrt.ir.uop import UOp, toposort
from kernelrt.loops.loop_ir import Axis, Fetch, Loop, Pass
from kernelrt.loops.passes.prefetch_streams import AHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrt.loops.loop_ir import Item, LoopNest, Step

__all__ = ["outline"]

_LETTERS: Final = "ijkmnuvwxyz"
_RESULTS: Final = {Op.ADD: "sum", Op.MUL: "product", Op.MAX: "max", Op.MIN: "min"}
_UPDATES: Final = {Op.ADD: "{0} += {1}", Op.MUL: "{0} *= {1}"}
#: Operator -> (sign, precedence), as in Python. Calls and names have the highest precedence.
_SIGNS: Final = {
    Op.OR: ("|", 3), Op.XOR: ("^", 4), Op.AND: ("&", 5), Op.SHL: ("<<", 6), Op.SHR: (">>", 6),
    Op.ADD: ("+", 7), Op.SUB: ("-", 7), Op.MUL: ("*", 8), Op.DIV: ("/", 8), Op.IDIV: ("//", 8),
    Op.MOD: ("%", 8), Op.LT: ("<", 2), Op.LE: ("<=", 2), Op.EQ: ("==", 2), Op.NE: ("!=", 2),
}  # fmt: skip
_CHOICE, _CALL = 1, 10
#: Expressions of more characters get a name.
_LONG: Final = 60


def outline(nest: LoopNest, written: Mapping[UOp, UOp]) -> str:
    """Return `nest` as text, one line for each loop, reduction, array element, or store.

    Parameters
    ----------
    nest : LoopNest
        The nest to print.
    written : mapping of UOp to UOp
        Maps the nodes before transcendental functions were lowered to the nodes of the kernel of
        `nest`.
    """
    return "\n".join(_Outline(written, nest.scratch_outputs).lines(nest.body, ()))


class _Outline:
    def __init__(
        self, written: Mapping[UOp, UOp], scratch_outputs: Mapping[UOp, tuple[UOp, UOp]]
    ) -> None:
        self.nodes = written
        self.scratch_outputs = scratch_outputs
        self.before = {new: old for old, new in written.items()}
        #: Names of RANGEs, results and arrays.
        self.names: dict[UOp, str] = {}
        self.values = 0

    def lines(self, items: Sequence[Item], around: tuple[Loop, ...]) -> list[str]:
        out: list[str] = []
        for item in items:
            if isinstance(item, Loop):
                out += self._loop(item, around)
            elif isinstance(item, Pass):
                out += [*self._start(item, around), *self._pass(item, around)]
            elif isinstance(item, Fetch):
                names = sorted({f"p{u.src[0].arg[0]}" for u in item.accesses})
                out.append(f"fetch {', '.join(names)}{' for later' if item.later else ''}")
            else:
                out += self._step(item)
        return out

    def _pass(self, each: Pass, around: tuple[Loop, ...]) -> list[str]:
        """Return the lines of a pass. If it has a predicate, they are under this predicate."""
        loop = self._loop(each.loop, around, each)
        if each.predicate is None:
            return loop
        condition = self._expression(each.predicate.condition, {})[0]
        head = f"if any {condition}:" if each.predicate.holds else f"unless all {condition}:"
        return [head, *("    " + line for line in loop)]

    def _loop(
        self, loop: Loop, around: tuple[Loop, ...], each: Pass | None = None
    ) -> list[str]:
        name = self._new(loop.range)
        text = f"for {name} in {self._expression(loop.range.src[0], {})[0]}"
        if loop.tile.factor > 1:
            text += f" by {loop.tile.factor}"
        notes = {
            Axis.CHUNK: f"chunks of {loop.share}", Axis.UNROLLED: "unrolled", Axis.REDUCE: "reduce",
        }  # fmt: skip
        said = [notes[loop.axis]] if loop.axis in notes else []
        rows = sorted({f"p{x.src[0].arg[0]}" for x in loop.ahead})
        said += [f"{', '.join(rows)} fetched {AHEAD} ahead"] * bool(rows)
        if loop.block:
            said.append(f"added up in blocks of {loop.block}")
        if loop.tile.lanes > 1:
            said.append(f"vectors of {loop.tile.lanes}")
        if each is not None:
            said += self._tests(each)
            said += ["row by row"] * each.in_rows
        text += f": {', '.join(said)}" if said else ":"
        return [text, *("    " + line for line in self.lines(loop.body, (*around, loop)))]

    def _tests(self, each: Pass) -> Iterator[str]:
        """Yield what the tests of whole tiles of a pass find."""
        if each.zeros is not None and each.zeros.src[0] in self.names:
            yield f"one row where {self.names[each.zeros.src[0]]} is 0"
        if each.masked is not None:
            load, value = each.masked
            yield f"once a row where {self.names[load.src[0]]} is {value.arg}"

    def _start(self, each: Pass, around: tuple[Loop, ...]) -> Iterator[str]:
        """Yield the declarations of a pass: its arrays and accumulators."""
        for u in each.fills:
            self.names[u] = f"local{sum(n.op is Op.LOCAL for n in self.names)}"
            empty = f" of {empty_result(u.src[0].arg, u.dtype)}" if each.kept else ""
            kind = f"{u.dtype.name}[{most_elements(u.src[1:])}]"
            if u in self.scratch_outputs:
                param, start = self.scratch_outputs[u]
                kind += f" at p{param.arg[0]}[{self._expression(start, {})[0]}]"
            yield f"{self.names[u]} = {kind}{empty}"
        if each.kept:
            return
        tiles = [loop.tile for loop in around if loop.range in each.outer]
        points = math.prod(t.factor if each.vector else len(t.positions()) for t in tiles)
        copies = each.copies(points * len(each.folds))
        for u in each.folds:
            number = sum(n.op is Op.REDUCE for n in self.names)
            self.names[u] = f"{_RESULTS[u.arg]}{number}"
            first = empty_result(u.arg, u.dtype)
            yield f"{self.names[u]} = {first}" + (f", {copies} times" if copies > 1 else "")

    def _step(self, step: Step) -> list[str]:
        kept = {u.src[0] for u in step.nodes if u.op is Op.LOCAL} & set(step.nodes)
        step = replace(step, nodes=tuple(u for u in step.nodes if u not in kept))
        nodes = [self.before.get(u, u) for u in step.nodes]
        values = [u.src[2] if u.op is Op.STORE else u.src[0] for u in nodes]
        values = [u.src[0] if kept else u for u in values]
        local = self._shared([*values, *(u.src[1] for u in nodes if u.op is Op.STORE)])
        out: list[str] = []
        texts: dict[UOp, tuple[str, int]] = {}
        for u in toposort(values, stop=self._is_leaf):
            text, binds = self._expression(u, texts)
            if u in local or (len(text) > _LONG and u not in values):
                out.append(f"{self._value()} = {text}")
                text, binds = f"v{self.values}", _CALL
            texts[u] = text, binds
        for u, new, value in zip(nodes, step.nodes, values, strict=True):
            text = texts[value][0]
            if u.op is Op.STORE:
                target = f"p{u.src[0].arg[0]}[{self._expression(u.src[1], texts)[0]}]"
                out.append(f"{target} = {text}" if u.arg is None else _update(u.arg, target, text))
            elif u.op is Op.LOCAL:
                index = self._expression(flat_index(new.src[1:]), {})[0]
                name = f"{self.names[new]}[{index}]"
                out.append(_update(u.src[0].arg, name, text) if kept else f"{name} = {text}")
            else:
                out.append(_update(u.arg, self.names[new], text))
        return out

    def _is_leaf(self, u: UOp) -> bool:
        return u.op in (Op.RANGE, Op.REDUCE, Op.LOCAL, Op.PARAM)

    def _shared(self, roots: Sequence[UOp]) -> set[UOp]:
        """Return the values of `roots` that are used more than once and get a name."""
        uses: dict[UOp, int] = {}
        inside = toposort(roots, stop=self._is_leaf)
        for s in (*roots, *(s for u in inside if not self._is_leaf(u) for s in u.src)):
            uses[s] = uses.get(s, 0) + 1
        return {u for u, n in uses.items() if n > 1 and u.op in ALU and not _is_index(u)}

    def _value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def _new(self, r: UOp) -> str:
        """Return the name of the RANGE `r`; all loops over one RANGE have the same name."""
        if r not in self.names:
            number = sum(n.op is Op.RANGE for n in self.names)
            self.names[r] = _LETTERS[number] if number < len(_LETTERS) else f"r{r.arg}"
        return self.names[r]

    def _expression(self, u: UOp, texts: Mapping[UOp, tuple[str, int]]) -> tuple[str, int]:
        """Return the text of `u` and its precedence."""
        done = dict(texts)
        for node in toposort([u], stop=lambda n: n in done or self._is_leaf(n)):
            if node not in done:
                done[node] = self._text(node, done)
        return done[u]

    def _text(self, u: UOp, done: Mapping[UOp, tuple[str, int]]) -> tuple[str, int]:
        def part(s: UOp, least: int = 0) -> str:
            text, binds = done[s]
            return text if binds >= least else f"({text})"

        if u.op is Op.CONST:
            text = str(u.arg)
            return text, _CALL if not text.startswith("-") else 9
        if u.op is Op.VAR:
            return str(u.arg[0]), _CALL
        if u.op is Op.PARAM:
            return f"p{u.arg[0]}", _CALL
        if self._is_leaf(u):
            return self.names[self.nodes.get(u, u)], _CALL
        if u.op is Op.LOAD:
            text = f"{part(u.src[0])}[{part(u.src[1])}]"
            if len(u.src) < 3:
                return text, _CALL
            return f"{text} if {part(u.src[2], 2)} else 0", _CHOICE
        if u.op is Op.WHERE:
            condition, yes, no = u.src
            return f"{part(yes, 2)} if {part(condition, 2)} else {part(no, 1)}", _CHOICE
        if u.op in _SIGNS:
            sign, binds = _SIGNS[u.op]
            return f"{part(u.src[0], binds)} {sign} {part(u.src[1], binds + 1)}", binds
        if u.op is Op.NEG:
            return f"-{part(u.src[0], 9)}", 9
        if u.op is Op.BOUND:
            checked = (s for s in u.src if s.op is not Op.PARAM)
            return f"checked({', '.join(part(s) for s in checked)})", _CALL
        name = u.dtype.name if u.op is Op.CAST else u.op.name.lower()
        return f"{name}({', '.join(part(s) for s in u.src)})", _CALL


def _update(reducer: Op, name: str, text: str) -> str:
    update = _UPDATES.get(reducer, f"{{0}} = {_RESULTS.get(reducer)}({{0}}, {{1}})")
    return update.format(name, text)


def _is_index(u: UOp) -> bool:
    """Return whether `u` contains only loop indices and numbers, so that it gets no name."""
    return all(n.op in (Op.RANGE, Op.CONST, Op.VAR) or n.op in ALU for n in toposort([u]))
