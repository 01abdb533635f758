"""Terms, factors, sort order and text of integer expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp, toposort
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = Module("hashlib")  # slow to import, and only large graphs need it

__all__ = ["Linear", "exact_linear", "factors", "fits", "label", "linear", "order", "ranges_of",
           "render"]

# A linear form: node -> coefficient, and the constant term.
Linear = tuple[dict[UOp, int], int]

_LEAST, _MOST = int(dt.int64.min), int(dt.int64.max)
#: Number of steps through a sum after which `linear` stops following each path, and visits each
#: node once.
_PATHS = 64
#: Maximum number of factors of a product that :func:`factors` splits.
_FACTORS = 16
#: Maximum length of a label, and of a text for users. A hash replaces a longer label.
_LABEL = 96
_TEXT = 2000


def linear(u: UOp) -> Linear:
    """Return `u` as coefficients of nodes that are not sums, and a constant.

    Arithmetic wraps, so the linear form equals `u` modulo ``2 ** width``, where width is that of
    the type of `u`.
    """
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(u, 1)]
    steps = 0
    while stack:
        steps += 1
        if steps > _PATHS:
            return _linear_of_graph(u)
        node, factor = stack.pop()
        inner = _inner(node)
        if inner is None:
            terms[node] = terms.get(node, 0) + factor
        elif not inner:
            constant += factor * int(node.arg)
        else:
            stack.extend((part, factor * scale) for part, scale in inner)
    return {n: c for n, c in terms.items() if c}, constant


def _inner(node: UOp) -> tuple[tuple[UOp, int], ...] | None:
    """Return the parts of a sum with coefficients; () for a constant; None for other nodes."""
    op = node.op
    if op is Op.CONST:
        return ()
    if op is Op.ADD:
        return (node.src[0], 1), (node.src[1], 1)
    if op is Op.SUB:
        return (node.src[0], 1), (node.src[1], -1)
    if op is Op.NEG:
        return ((node.src[0], -1),)
    if op is Op.MUL:
        a, b = node.src
        if b.op is Op.CONST:
            return ((a, int(b.arg)),)
        if a.op is Op.CONST:
            return ((b, int(a.arg)),)
    return None


def _linear_of_graph(u: UOp) -> Linear:
    """Compute :func:`linear` of a sum with shared parts; visit each node once."""
    factors = {u: 1}
    terms: dict[UOp, int] = {}
    constant = 0
    for node in reversed(list(toposort([u], stop=lambda n: not _inner(n)))):
        factor = factors.pop(node, 0)
        inner = _inner(node)
        if inner is None:
            terms[node] = factor
        elif not inner:
            constant += factor * int(node.arg)
        else:
            for part, scale in inner:
                factors[part] = factors.get(part, 0) + factor * scale
    return {n: c for n, c in terms.items() if c}, constant


def exact_linear(u: UOp) -> Linear:
    """Return the linear form over unbounded integers. If `u` may wrap, the only term is `u`."""
    if u.exact:
        terms, constant = linear(u)
        if fits(constant, *terms.values()):
            return terms, constant
    return {u: 1}, 0


def fits(*numbers: int) -> bool:
    """Return whether all `numbers` fit 64-bit integers."""
    return all(_LEAST <= n <= _MOST for n in numbers)


def ranges_of(u: UOp) -> set[UOp]:
    """Return the RANGEs in the graph of `u`."""
    return {n for n in toposort([u]) if n.op is Op.RANGE}


def factors(u: UOp) -> list[UOp]:
    """Return the factors of a product; only `u` if there are too many."""
    out: list[UOp] = []
    stack = [u]
    while stack:
        node = stack.pop()
        if node.op is Op.MUL:
            stack.extend(node.src)
        else:
            out.append(node)
        if len(stack) + len(out) > _FACTORS:
            return [u]
    return out


def render(u: UOp) -> str:
    """Return an integer expression as text; very long parts are abbreviated."""
    text: dict[UOp, str] = {}
    signs = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.IDIV: "//", Op.MOD: "%"}
    for node in toposort([u]):
        if node.op is Op.CONST:
            text[node] = str(node.arg)
        elif node.op is Op.VAR:
            text[node] = node.arg[0]
        elif node.op is Op.RANGE:
            text[node] = f"r{node.arg}"
        elif node.op in signs:
            a, b = (text[s] for s in node.src)
            text[node] = _short(f"({a} {signs[node.op]} {b})")
        else:
            text[node] = _short(
                f"{node.op.name.lower()}({', '.join(text[s] for s in node.src)})"
            )
    out = text[u]
    return out[1:-1] if out.startswith("(") and u.op in signs else out


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else "(...)"


def order(u: UOp) -> tuple[object, ...]:
    """Return a sort key that depends only on content, so canonical forms are stable across runs."""
    if u.op is Op.RANGE:
        return (0, u.arg)
    if u.op is Op.VAR:
        return (1, u.arg)
    return (2, int(u.op), label(u))


def label(u: UOp) -> str:
    """Return a text that depends only on content: the expression, or a hash of a long one."""
    if u.cached_label is None:
        for node in toposort([u], stop=lambda n: n.cached_label is not None):
            if node.cached_label is None:
                node.cached_label = _label(node)
    assert u.cached_label is not None
    return u.cached_label


def _label(node: UOp) -> str:
    # The content of a BUFFER or ELEMENT is known by identity only.
    arg = "" if node.arg is None or node.op in (Op.BUFFER, Op.ELEMENT) else repr(node.arg)
    inner = ",".join(s.cached_label or "" for s in node.src)
    text = f"{node.op.name.lower()}:{node.dtype.name}{arg}({inner})"
    if len(text) <= _LABEL:
        return text
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
