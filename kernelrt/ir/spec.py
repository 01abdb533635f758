"""What is legal at each stage, as tables of op -> rule.

A rule looks at one node and says what is wrong with it, or nothing. The verifiers run between
stages, so that a fault is found where it was made and not where it was noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import SpecError
from kernelrt.ir.local import LOCAL_BYTES, local_bytes
from kernelrt.ir.ops import COMPARE, FUNCTIONS, REDUCERS, Op
from kernelrt.ir.shape import same, window_count
from kernelrt.ir.span import span
from kernelrt.ir.uop import Dim, UOp, toposort

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["KERNEL", "TENSOR", "verify_kernel", "verify_tensor"]

#: Says what is wrong with a node; None when it is legal.
Check = Callable[[UOp], "str | None"]


def verify_tensor(roots: Iterable[UOp]) -> None:
    """Check a tensor-stage graph.

    Raises
    ------
    SpecError
        Naming the node and the rule that it breaks.
    """
    for node in toposort(roots):
        _apply(TENSOR, "tensor", node)


def verify_kernel(sink: UOp) -> None:
    """Check a kernel AST.

    Raises
    ------
    SpecError
        Naming the node and the rule that it breaks.
    """
    if sink.op is not Op.SINK:
        raise SpecError(f"kernel stage: {sink!r} is the root; it must be a SINK")
    nodes = list(toposort([sink]))
    for node in nodes:
        _apply(KERNEL, "kernel", node)
    _closed_ranges(nodes)
    _local_arrays(nodes)
    _distinct_numbers(nodes)


def _apply(table: Mapping[Op, tuple[Check, ...]], stage: str, node: UOp) -> None:
    checks = table.get(node.op)
    if checks is None:
        raise SpecError(f"{stage} stage: {node!r}: {node.op.name} does not occur at this stage")
    for check in checks:
        fault = check(node)
        if fault is not None:
            raise SpecError(f"{stage} stage: {node!r}: {fault}")


def _operands(*counts: int) -> Check:
    def check(u: UOp) -> str | None:
        if len(u.src) in counts:
            return None
        return f"takes {' or '.join(map(str, counts))} operands, has {len(u.src)}"

    return check


def _at_least(count: int) -> Check:
    def check(u: UOp) -> str | None:
        return None if len(u.src) >= count else f"takes {count} operands or more"

    return check


def _is(dtype: DType) -> Check:
    def check(u: UOp) -> str | None:
        return None if u.dtype is dtype else f"is {u.dtype.name}; it must be {dtype.name}"

    return check


def _not_bool(u: UOp) -> str | None:
    return f"{u.op.name} of bool is not defined; cast first" if u.src[0].dtype.is_bool else None


def _float(u: UOp) -> str | None:
    return None if u.dtype.is_float else f"{u.op.name} is for floats, not {u.dtype.name}"


def _no_float(u: UOp) -> str | None:
    return f"{u.op.name} is for integers and bool, not float" if u.dtype.is_float else None


def _integer(u: UOp) -> str | None:
    return None if u.dtype.is_int else f"{u.op.name} is for integers, not {u.dtype.name}"


def _one_type(u: UOp) -> str | None:
    """Operands and result have one type; a comparison gives bool."""
    types = {s.dtype for s in u.src}
    if len(types) > 1:
        return f"operands have types {', '.join(sorted(t.name for t in types))}; cast to one"
    expected = dt.bool_ if u.op in COMPARE else u.src[0].dtype
    return None if u.dtype is expected else f"is {u.dtype.name}; operands make {expected.name}"


def _where(u: UOp) -> str | None:
    condition, yes, no = u.src
    if not condition.dtype.is_bool:
        return f"its condition is {condition.dtype.name}; it must be bool"
    if yes.dtype is not no.dtype or u.dtype is not yes.dtype:
        return f"its branches are {yes.dtype.name} and {no.dtype.name}, itself {u.dtype.name}"
    return None


def _same_width(u: UOp) -> str | None:
    if u.dtype.bits == u.src[0].dtype.bits:
        return None
    return f"BITCAST from {u.src[0].dtype.bits} to {u.dtype.bits} bits; widths must be equal"


def _keeps_type(u: UOp) -> str | None:
    if u.dtype is u.src[0].dtype:
        return None
    return f"is {u.dtype.name} over {u.src[0].dtype.name}; {u.op.name} keeps the type"


def _constant(u: UOp) -> str | None:
    wanted = float if u.dtype.is_float else bool if u.dtype.is_bool else int
    return None if type(u.arg) is wanted else f"its value {u.arg!r} must be a {wanted.__name__}"


def _variable(u: UOp) -> str | None:
    ok = (
        isinstance(u.arg, tuple)
        and len(u.arg) == 3
        and isinstance(u.arg[0], str)
        and u.arg[1] <= u.arg[2]
    )
    return None if ok else f"its arg {u.arg!r} must be (name, min, max)"


def _fma(u: UOp) -> str | None:
    return _float(u) or _one_type(u)


_ELEMENTWISE: dict[Op, tuple[Check, ...]] = {
    **dict.fromkeys((Op.NEG, Op.ABS), (_operands(1), _keeps_type, _not_bool)),
    Op.NOT: (_operands(1), _keeps_type, _no_float),
    **dict.fromkeys(
        (Op.SQRT, *FUNCTIONS, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND),
        (_operands(1), _keeps_type, _float),
    ),
    Op.CAST: (_operands(1),),
    Op.BITCAST: (_operands(1), _same_width),
    **dict.fromkeys(
        (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN), (_operands(2), _one_type)
    ),
    **dict.fromkeys((Op.DIV, Op.POW, Op.ATAN2), (_operands(2), _one_type, _float)),
    **dict.fromkeys((Op.IDIV, Op.MOD), (_operands(2), _one_type, _not_bool)),
    **dict.fromkeys((Op.AND, Op.OR, Op.XOR), (_operands(2), _one_type, _no_float)),
    **dict.fromkeys((Op.SHL, Op.SHR), (_operands(2), _one_type, _integer)),
    **dict.fromkeys((Op.LT, Op.LE, Op.EQ, Op.NE), (_operands(2), _one_type)),
    Op.WHERE: (_operands(3), _where),
    Op.FMA: (_operands(3), _fma),
}  # fmt: skip


# The tensor stage


def _same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    return a == b or (len(a) == len(b) and all(map(same, a, b)))


def _shapes_agree(u: UOp) -> str | None:
    first = u.src[0].shape
    for s in u.src[1:]:
        if not _same_shape(first, s.shape):
            return f"operand shapes {first} and {s.shape} differ; broadcast explicitly"
    return None


def _index_shapes_agree(u: UOp) -> str | None:
    indices = u.src[1:] if u.op is Op.GATHER else u.src[2:]
    rank = len(u.src[0].shape)
    if len(indices) != rank:
        return f"has {len(indices)} index tensors for {rank} axes; it takes one per axis"
    reference = u.src[1].shape
    for s in indices:
        if s.dtype is not dt.int64:
            return f"an index is {s.dtype.name}; indices are int64"
        if not _same_shape(reference, s.shape):
            return f"index shapes {reference} and {s.shape} differ"
    return None


def _scatter_values(u: UOp) -> str | None:
    if u.src[1].dtype is u.dtype:
        return None
    return f"adds {u.src[1].dtype.name} to {u.dtype.name}; types must be equal"


def _holder(u: UOp) -> str | None:
    return None if hasattr(u.arg, "size") else f"its arg {u.arg!r} has no size"


def _reshape(u: UOp) -> str | None:
    from kernelrt.ir.shape import prod

    old, new = prod(u.src[0].shape), prod(u.arg)
    return None if same(old, new) else f"{u.src[0].shape} has other elements than {u.arg}"


def _expand(u: UOp) -> str | None:
    old = u.src[0].shape
    if len(old) != len(u.arg):
        return f"from rank {len(old)} to {len(u.arg)}; EXPAND keeps the rank"
    for axis, (a, b) in enumerate(zip(old, u.arg, strict=True)):
        if a != 1 and not same(a, b):
            return f"axis {axis} goes from {a} to {b}; only axes of size 1 grow"
    return None


def _permute(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    if sorted(u.arg) == list(range(rank)):
        return None
    return f"axes {u.arg} are no permutation of 0..{rank - 1}"


def _pairs(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    if len(u.arg) != rank or any(len(pair) != 2 for pair in u.arg):
        return f"its arg {u.arg} must hold a pair for each of {rank} axes"
    if u.op is Op.PAD and any(_negative(n) for pair in u.arg for n in pair):
        return f"pads by {u.arg}; widths must not be negative"
    if u.op is Op.SHRINK:
        for axis, ((lo, hi), size) in enumerate(zip(u.arg, u.src[0].shape, strict=True)):
            static = all(isinstance(n, int) for n in (lo, hi, size))
            if _negative(lo) or (static and not lo <= hi <= size):
                return f"axis {axis} of size {size} cannot be cut to {lo}..{hi}"
    return None


def _negative(n: Dim) -> bool:
    return n < 0 if isinstance(n, int) else n.vmin < 0 and span(n)[0] < 0


def _axes(axes: Any, rank: int) -> str | None:
    axes = tuple(axes)
    if len(set(axes)) == len(axes) and all(0 <= a < rank for a in axes):
        return None
    return f"axes {axes} must be distinct and lie in 0..{rank - 1}"


def _flip(u: UOp) -> str | None:
    return _axes(u.arg, len(u.src[0].shape))


def _window(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    return _window_args(u.arg) or _axes((w[0] for w in u.arg), rank)


def _window_args(windows: Any) -> str | None:
    for axis, kernel, stride, dilation in windows:
        if min(kernel, stride, dilation) < 1:
            return f"axis {axis}: kernel, stride and dilation must be positive"
    return None


def _unwindow(u: UOp) -> str | None:
    shape, windows = u.arg
    fault = _window_args(windows) or _axes((w[0] for w in windows), len(shape))
    if fault is not None:
        return fault
    dims = list(shape)
    for axis, kernel, stride, dilation in windows:
        dims[axis] = window_count(dims[axis], kernel, stride, dilation)
    expected = (*dims, *(w[1] for w in windows))
    if _same_shape(u.src[0].shape, expected):
        return None
    return f"operand has shape {u.src[0].shape}; windows of {shape} have {expected}"


def _reduce_axis(u: UOp) -> str | None:
    reducer, axes = u.arg
    if reducer not in REDUCERS:
        return f"{reducer!r} is no reducer; use ADD, MUL, MAX or MIN"
    return _axes(axes, len(u.src[0].shape))


def _cat(u: UOp) -> str | None:
    first = u.src[0].shape
    if not isinstance(u.arg, int) or not 0 <= u.arg < len(first):
        return f"axis {u.arg} must lie in 0..{len(first) - 1}"
    for s in u.src:
        if s.dtype is not u.dtype:
            return f"joins {s.dtype.name} into {u.dtype.name}; types must be equal"
        rest = [
            same(a, b)
            for k, (a, b) in enumerate(zip(first, s.shape, strict=False))
            if k != u.arg
        ]
        if len(s.shape) != len(first) or not all(rest):
            return f"shapes {first} and {s.shape} differ beside axis {u.arg}"
    return None


TENSOR: Mapping[Op, tuple[Check, ...]] = {
    **{op: (*checks, _shapes_agree) for op, checks in _ELEMENTWISE.items()},
    Op.CONST: (_operands(0), _constant),
    Op.VAR: (_operands(0), _is(dt.int64), _variable),
    Op.BUFFER: (_operands(0), _holder),
    Op.IOTA: (_operands(1), _integer),
    Op.BOUND: (_operands(2), _is(dt.int64), _keeps_type),
    Op.RESHAPE: (_operands(1), _keeps_type, _reshape),
    Op.EXPAND: (_operands(1), _keeps_type, _expand),
    Op.PERMUTE: (_operands(1), _keeps_type, _permute),
    Op.SHRINK: (_operands(1), _keeps_type, _pairs),
    Op.PAD: (_operands(1), _keeps_type, _pairs),
    Op.FLIP: (_operands(1), _keeps_type, _flip),
    Op.WINDOW: (_operands(1), _keeps_type, _window),
    Op.UNWINDOW: (_operands(1), _keeps_type, _unwindow),
    Op.REDUCE_AXIS: (_operands(1), _keeps_type, _reduce_axis),
    Op.GATHER: (_at_least(1), _keeps_type, _index_shapes_agree),
    Op.SCATTER_ADD: (_at_least(2), _keeps_type, _scatter_values, _index_shapes_agree),
    Op.CAT: (_at_least(1), _cat),
    Op.CONTIGUOUS: (_operands(1), _keeps_type),
    Op.DETACH: (_operands(1), _keeps_type),
}


# The kernel stage


def _param(u: UOp) -> str | None:
    slot, size = u.arg
    if isinstance(slot, int) and isinstance(size, int) and slot >= 0 and size >= 0:
        return None
    return f"its arg {u.arg!r} must be (slot, size), neither negative"


def _range(u: UOp) -> str | None:
    size = u.src[0]
    if size.dtype is not dt.int64 or not isinstance(u.arg, int) or u.arg < 0:
        return "takes an int64 size and a number from 0"
    return None


def _address(u: UOp) -> str | None:
    if u.src[0].op not in ((Op.PARAM,) if u.op is Op.STORE else (Op.PARAM, Op.LOCAL, Op.WORDS)):
        wanted = "a PARAM" if u.op is Op.STORE else "a PARAM, a LOCAL or WORDS"
        return f"{u.op.name} goes through {u.src[0]!r}; it must be {wanted}"
    if u.src[1].dtype is not dt.int64:
        return f"its index is {u.src[1].dtype.name}; it must be int64"
    return None


def _rare(u: UOp) -> str | None:
    condition, usual, *inputs = u.src
    if not condition.dtype.is_bool:
        return f"its condition is {condition.dtype.name}; it must be bool"
    body = u.arg
    if type(body) is not type(u):
        return f"its arg {body!r} must be the rare value, over VARs that stand for its inputs"
    if u.dtype is not usual.dtype or u.dtype is not body.dtype:
        return f"is {u.dtype.name} over {usual.dtype.name} and {body.dtype.name}; types must agree"
    for n in toposort([body]):
        if n.op is Op.VAR:
            name, *_ = n.arg
            if name not in range(len(inputs)) or inputs[name].dtype is not n.dtype:
                return f"the rare value reads {n!r}, which is none of its {len(inputs)} inputs"
        elif n.op not in _ELEMENTWISE and n.op is not Op.CONST:
            return f"the rare value holds {n!r}; it is arithmetic on its inputs alone"
    return None


def _dot(u: UOp) -> str | None:
    if u.dtype is dt.int32 and all(s.dtype is dt.int32 for s in u.src):
        return None if u.arg in (2, 4) else f"its arg {u.arg!r} must be 2 or 4, the parts of a word"
    return f"is {u.dtype.name}; it and the words that it takes apart are int32"


def _words(u: UOp) -> str | None:
    source = u.src[0]
    if source.op is Op.PARAM and source.dtype.is_int and source.dtype.itemsize in (1, 2):
        return None
    return f"reads {source!r}; it must be a PARAM of integers of 8 or 16 bits"


def _gate(u: UOp) -> str | None:
    if len(u.src) > 2 and not u.src[2].dtype.is_bool:
        return f"its gate is {u.src[2].dtype.name}; it must be bool"
    return None


def _stores_type(u: UOp) -> str | None:
    if u.src[0].dtype is u.src[2].dtype is u.dtype:
        return None
    return f"puts {u.src[2].dtype.name} into memory of {u.src[0].dtype.name}"


def _store_mode(u: UOp) -> str | None:
    if u.arg not in (None, Op.ADD):
        return f"its mode {u.arg!r} must be None or Op.ADD"
    if u.arg is None and len(u.src) > 3:
        return "names loops; repeating it changes nothing, so it is under those that it varies with"
    if any(r.op is not Op.RANGE for r in u.src[3:]):
        return "is repeated over something that is no RANGE"
    return None


def _reduce(u: UOp) -> str | None:
    if u.arg not in REDUCERS:
        return f"{u.arg!r} is no reducer; use ADD, MUL, MAX or MIN"
    return _closes(u)


def _closes(u: UOp) -> str | None:
    if any(r.op is not Op.RANGE for r in u.src[1:]):
        return "closes over something that is no RANGE"
    if len(set(u.src[1:])) < len(u.src[1:]):
        return "closes over a RANGE twice"
    return None


def _bound(u: UOp) -> str | None:
    if u.src[0].dtype is not dt.int64 or u.src[1].dtype is not dt.int64:
        return "index and size must be int64"
    status = u.src[2]
    if status.op is not Op.PARAM or status.dtype is not dt.int64:
        return "its status word must be an int64 PARAM"
    if not (isinstance(u.arg, tuple) and list(map(type, u.arg)) == [int, bool]):
        return f"its arg {u.arg!r} must be its number and whether -1 is the last element"
    if u.dtype is not (u.src[3] if len(u.src) > 3 else u.src[0]).dtype:
        return f"is {u.dtype.name}; it has the type of the value that is checked"
    return None


def _sink(u: UOp) -> str | None:
    if all(s.op is Op.STORE for s in u.src):
        return None
    return "holds something that is no STORE"


KERNEL: Mapping[Op, tuple[Check, ...]] = {
    **_ELEMENTWISE,
    Op.CONST: (_operands(0), _constant),
    Op.VAR: (_operands(0), _is(dt.int64), _variable),
    Op.PARAM: (_operands(0), _param),
    Op.RANGE: (_operands(1), _is(dt.int64), _range),
    Op.RARE: (_at_least(2), _rare),
    Op.DOT: (_operands(2), _dot),
    Op.WORDS: (_operands(1), _is(dt.int32), _words),
    Op.LOAD: (_operands(2, 3), _keeps_type, _address, _gate),
    Op.REDUCE: (_at_least(2), _keeps_type, _reduce),
    Op.LOCAL: (_at_least(2), _keeps_type, _closes),
    Op.BOUND: (_operands(3, 4), _bound),
    Op.STORE: (_at_least(3), _address, _stores_type, _store_mode),
    Op.SINK: (_at_least(1), _sink),
}


_CLOSING = (Op.REDUCE, Op.LOCAL)


def _closed_ranges(nodes: list[UOp]) -> None:
    """Ranges of a REDUCE or LOCAL occur nowhere outside it, and no two of these share one.

    A STORE that adds names every other range below it.
    """
    owner: dict[UOp, UOp] = {}
    for node in nodes:
        for r in node.src[1:] if node.op in _CLOSING else ():
            if r in owner:
                raise SpecError(
                    f"kernel stage: {node!r}: RANGE {r.arg} also belongs to {owner[r]!r}; each "
                    f"{node.op.name} closes over ranges of its own"
                )
            owner[r] = node
    open_ranges: dict[UOp, frozenset[UOp]] = {}
    nothing: frozenset[UOp] = frozenset()
    for node in nodes:
        inner = nothing.union(*(open_ranges[s] for s in node.src)) if node.src else nothing
        if node in owner:
            inner = frozenset({node})
        elif node.op in _CLOSING:
            inner -= frozenset(node.src[1:])
        elif node.op is Op.STORE and inner:
            loop = next(iter(inner))
            raise SpecError(
                f"kernel stage: {node!r}: RANGE {loop.arg} is used outside its {owner[loop]!r}"
            )
        open_ranges[node] = inner
    for node in nodes:
        if node.op is Op.STORE and node.arg is Op.ADD:
            _names_its_loops(node, owner)


def _local_arrays(nodes: list[UOp]) -> None:
    """LOCALs are read by LOADs alone, and fit the memory that there is for them."""
    for node in nodes:
        for number, operand in enumerate(node.src):
            if operand.op is Op.LOCAL and (node.op is not Op.LOAD or number):
                raise SpecError(
                    f"kernel stage: {node!r}: uses {operand!r} as a number; LOAD an element of it"
                )
    taken = sum(local_bytes(n.dtype, n.src[1:]) for n in nodes if n.op is Op.LOCAL)
    if taken > LOCAL_BYTES:
        raise SpecError(
            f"kernel stage: its LOCALs take up to {taken} bytes; at most {LOCAL_BYTES} fit"
        )


def _names_its_loops(store: UOp, owner: Mapping[UOp, UOp]) -> None:
    named = set(store.src[3:])
    for n in toposort(store.src[:3]):
        if n.op is Op.RANGE and n not in owner and n not in named:
            raise SpecError(
                f"kernel stage: {store!r}: adds under RANGE {n.arg} and does not name it; name "
                "every loop that it is repeated under"
            )


def _distinct_numbers(nodes: list[UOp]) -> None:
    for op, kind in ((Op.RANGE, "RANGE number"), (Op.PARAM, "slot")):
        seen: dict[Any, UOp] = {}
        for node in nodes:
            if node.op is op:
                number = node.arg if op is Op.RANGE else node.arg[0]
                if number in seen:
                    raise SpecError(f"kernel stage: {node!r}: {kind} {number} is used twice")
                seen[number] = node
