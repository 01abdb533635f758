"""Indices from data, in range and out of it, with canaries on both sides of every buffer.

An index is an expression over integers; each of its elements is a case. In range the values must be
NumPy's; with one index out of range there must be an IndexBoundsError. In either case nothing
outside may be read or written, and a failed call must not change state. An unused index, like the
first of ``T[i][1:]``, is not computed and so not checked (docs/architecture/ir.md): such a call
must return NumPy's values wherever that index points.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

Case = dict[str, Any]
SHARE = 0.8
Array = np.ndarray[Any, Any]
CANARY = 119
MARGIN = 64
IGNORED = -(2**61)  # losses ignore it; some products give it
TYPES = ("int64", "int64", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")

# An expression over a table T, an index i and values v of i's length; the same on arrays; the
# meaning of negative indices; whether the table is written.
FORMS: dict[str, tuple[str, str, bool]] = {
    "pick": ("T[i]", "T[i]", True),
    "pick_last": ("T[..., i]", "T[..., i]", True),
    "pick_part": ("T[i][1:]", "T[i[1:]]", True),
    "pick_twice": ("T[i] + T[i].flip(0)", "T[i] + T[i][::-1]", True),
    "pick_cut": ("T[i[1:]]", "T[i[1:]]", True),
    "pick_sum": ("T[i].sum(0)", "T[i].sum(0)", True),
    "pick_part_of_table": ("T[1:][i]", "T[1:][i]", True),
    "pick_flipped": ("T.flip(0)[i]", "T[::-1][i]", True),
    "pick_scaled": ("(T * 2 + 1)[i]", "(T * 2 + 1)[i]", True),
    "select": ("T.index_select(0, i)", "T[i]", False),
    "gather": ("T.flatten().gather(0, i)", "T.ravel()[i]", False),
    "along": ("T.flatten().take_along_dim(i, 0)", "T.ravel()[i]", True),
    "wide": ("T.flatten()[:1].expand(W)[i]", "np.broadcast_to(T.ravel()[:1], (W,))[i]", True),
    "embedding": ("i.embedding(T.reshape(T.shape[0], -1))", "T.reshape(T.shape[0], -1)[i]", False),
    "add": ("S.flatten().scatter_add(0, i, v)", "added(S.ravel(), i, v)", False),
    "add_twice": (
        "S.flatten().scatter_add(0, i, v).scatter_add(0, i, v * 2)",
        "added(added(S.ravel(), i, v), i, v * 2)", False,
    ),
    "add_one": (
        "S.flatten().scatter_add(0, i, v * 0 + v[0])",
        "added(S.ravel(), i, v * 0 + v[0])", False,
    ),
    "add_to_zeros": (
        "S.flatten() + (S.flatten() * 0).scatter_add(0, i, v)", "added(S.ravel(), i, v)", False,
    ),
    "one_hot": ("i.one_hot(W)", "np.eye(W, dtype=np.int64)[i]", False),
    "loss": (
        "T.flatten()[None].expand(len(i), -1).cross_entropy(i, None, K, 'sum')",
        "-(T.ravel() - T.max() - np.log(np.exp(T.ravel() - T.max()).sum()))[i[i != K]].sum()",
        False,
    ),
}  # fmt: skip
SHAPES = (
    (1,),
    (2,),
    (3,),
    (7,),
    (16,),
    (17,),
    (64,),
    (1, 1),
    (4, 3),
    (8, 1),
    (3, 16),
    (1, 5),
    (1000,),
)
WIDE = 4
LENGTHS = (1, 1, 2, 3, 8, 15, 17, 33)


def generate(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(TYPES))
    text = "x"
    for _ in range(rng.integers(0, 5)):
        c = int(rng.choice([1, 2, 3, 4, 7, 8, 16, 64, 100, 384]))
        big = int(rng.choice([2**7, 2**15, 2**31, 2**40, 2**53, 2**59, 2**62]))
        if big > np.iinfo(kind).max:
            big = 5
        c = min(c, int(np.iinfo(kind).max))
        steps = (
            f"({text} + {c})", f"({text} - {c})", f"({text} * {c})", f"({text} // {c})",
            f"({text} % {c})", f"({text} // {big})", f"({text} + {big})", f"({text} * {c} // {c})",
            f"({text} * {c} % {c})", f"(-{text})", f"({c} - {text})", f"({text} * x)",
            f"({text} + x)", f"({text} % {big})", f"({text} & {c})", f"({text} >> 2)",
            f"({text} << 3)",
        )  # fmt: skip
        text = steps[rng.integers(len(steps))]
    form = str(rng.choice(list(FORMS)))
    return {
        "form": form,
        "shape": list(SHAPES[rng.integers(len(SHAPES))]),
        "index": text,
        "kind": kind,
        "length": int(rng.choice(LENGTHS)) + (form == "pick_cut"),
        "calls": 60,
        "seed": int(rng.integers(1000)),
        "way": str(rng.choice(["jit", "jit", "eager", "dynamic"])),
    }


def guarded(array: Array) -> tuple[Array, Array]:
    """Return a copy of `array` between canaries, and the whole."""
    whole = np.full(array.size + 2 * MARGIN, CANARY, array.dtype)
    inner = whole[MARGIN : MARGIN + array.size].reshape(array.shape)
    inner[...] = array
    return inner, whole


def untouched(whole: Array) -> bool:
    return bool((whole[:MARGIN] == CANARY).all() and (whole[-MARGIN:] == CANARY).all())


def added(x: Array, i: Array, v: Array) -> Array:
    out = x.copy()
    np.add.at(out, i, v)
    return out


def pool(case: Case) -> tuple[Array, Array]:
    """Return many values of x: those whose index is in range, and those whose is not."""
    rng = np.random.default_rng(case["seed"])
    info = np.iinfo(case["kind"])
    near = rng.integers(-300, 300, 20000)
    shifts = rng.integers(0, info.bits, 20000)
    powers = (np.ones(20000, np.uint64) << shifts.astype(np.uint64)).astype(np.int64)
    powers = powers * rng.choice([-1, 1], 20000) + rng.integers(-9, 10, 20000)
    any_ = rng.integers(info.min, info.max, 20000, case["kind"], endpoint=True).astype(np.int64)
    x = np.concatenate([near, powers, any_, near * powers]).astype(case["kind"])
    bad = outside(case, x)
    return x[~bad], x[bad]


def extent(case: Case) -> int:
    """Return the size of the indexed axis."""
    form, shape = case["form"], case["shape"]
    if form in ("wide", "one_hot"):
        return WIDE
    if form == "pick_part_of_table":
        return int(shape[0]) - 1
    if form == "pick_last":
        return int(shape[-1])
    if form.startswith(("pick", "select", "embedding")):
        return int(shape[0])
    return int(np.prod(shape))


def host_index(case: Case, x: Array) -> Array:
    with np.errstate(all="ignore"):
        index = eval(case["index"], {"x": x})  # noqa: S307
    return np.asarray(index.astype(np.int64))


def looked_at(case: Case, x: Array) -> Array:
    """Return the elements of x whose indices are used; unused ones are not computed.

    Eager code reads all selected elements at once from shared memory, such as the table's.
    """
    form = case["form"]
    part = form == "pick_cut" or (form == "pick_part" and case["way"] != "eager")
    return x[1:] if part else x


def may_be_looked_at(case: Case, x: Array) -> Array:
    """Return the elements of x whose indices may be refused: PyTorch checks before it cuts."""
    return x if case["form"] == "pick_part" else looked_at(case, x)


def outside(case: Case, x: Array) -> Array:
    """Return which elements of x lead out of range."""
    index, limit = host_index(case, x), extent(case)
    far = (index < (-limit if FORMS[case["form"]][2] else 0)) | (index >= limit)
    return far & (index != IGNORED) if case["form"] == "loss" else far


def batches(case: Case) -> Iterator[Array]:
    """Yield values of x for each call; in every other call, one leads out of range."""
    if "x" in case:
        yield np.array(case["x"], case["kind"])
        return
    good, bad = pool(case)
    rng = np.random.default_rng(case["seed"])
    for call in range(case["calls"]):
        least = 2 if case["form"] == "pick_cut" else 1
        length = case["length"]
        if case["way"] == "dynamic":
            length = int(rng.integers(least, max(least, length) + 1))
        x = rng.choice(good if len(good) else bad, length)
        if len(bad) and call % 2:
            x[rng.integers(length)] = rng.choice(bad)
        yield x


def valid(case: Case) -> bool:
    if case["form"] == "pick_part_of_table" and case["shape"][0] < 2:
        return False
    if case["form"] == "embedding" and len(case["shape"]) > 2:
        return False
    return case["form"] != "pick_cut" or min(case["length"], len(case.get("x", "xx"))) > 1


class Trial:
    """A table and a state between canaries, and a case that uses them."""

    def __init__(self, case: Case) -> None:
        import kernelrt as krt

        self.case = case
        self.rng = np.random.default_rng(case["seed"])
        form = FORMS[case["form"]][0]
        self.writes = "S." in form
        self.table, self.table_memory = guarded(self.numbers(case["shape"]))
        self.state, self.state_memory = guarded(self.numbers(case["shape"]))
        tensors = {
            "T": krt.from_numpy(self.table), "S": krt.from_numpy(self.state), "W": WIDE,
            "K": IGNORED,
        }  # fmt: skip
        self.shared = shared = tensors["S"]
        writes, shape = self.writes, self.state.shape

        # It does not refer to this object, whose methods count compilations: a jitted function
        # is traced anew if a number that it can reach has changed.
        def program(x: Any, v: Any) -> Any:
            index = eval(case["index"], {"x": x})  # noqa: S307
            made = eval(form, {**tensors, "i": index.cast("int64"), "v": v})  # noqa: S307
            if writes:
                shared.assign(made.reshape(*shape))
            return made

        self.call = program
        if case["way"] == "jit":
            self.call = krt.jit(program)
        elif case["way"] == "dynamic":
            n = krt.Variable("n", 1, 64)
            self.call = krt.jit(program, dynamic={"x": {0: n}, "v": {0: n}})
        else:
            self.call = lambda x, v: program(krt.tensor(x), krt.tensor(v))

    def numbers(self, shape: Any) -> Array:
        return self.rng.integers(-9, 10, shape).astype(np.float32)

    def once(self, x: Array) -> str | None:
        from kernelrt.errors import IndexBoundsError

        wrong = bool(outside(self.case, looked_at(self.case, x)).any())
        xs, x_memory = guarded(x)
        v, v_memory = guarded(self.numbers(len(x)))
        before = self.state.copy()
        shown = f"x = {x.tolist()}, index {host_index(self.case, x).tolist()}"
        why = None
        try:
            got = self.call(xs, v).numpy()
            self.shared.realize()
        except IndexBoundsError:
            if not outside(self.case, may_be_looked_at(self.case, x)).any():
                why = f"refused: IndexBoundsError in range, {shown}"
            elif not np.array_equal(self.state, before):
                why = f"state: changed by a call that failed, {shown}"
        else:
            missed = f"missed: no IndexBoundsError, {shown}"
            why = missed if wrong else self.differs(x, v, before, got)
        record.note("indices amid canaries", len(x))
        memories = {
            "table": self.table_memory, "state": self.state_memory, "values": v_memory,
            "index": x_memory,
        }  # fmt: skip
        for name, memory in memories.items():
            if not untouched(memory):
                return f"overrun: beside the {name}, {shown}"
        if np.abs(self.state).max() > 1e5:
            self.state[...] = self.numbers(self.state.shape)
        return why

    def differs(self, x: Array, v: Array, before: Array, got: Array) -> str | None:
        names = {"T": self.table.astype(float), "S": before.astype(float), "v": v.astype(float)}
        names |= {"W": WIDE, "K": IGNORED, "np": np, "added": added, "i": host_index(self.case, x)}
        want = np.asarray(eval(FORMS[self.case["form"]][1], names))  # noqa: S307
        for kind, have in (("values", got), ("state", self.state if self.writes else got)):
            if have.size != want.size or not np.allclose(have.ravel(), want.ravel(), 1e-5, 1e-4):
                return f"{kind}: x = {x.tolist()}: {have.tolist()}, NumPy {want.tolist()}"[:400]
        return None


def run(case: Case) -> str | None:
    from kernelrt.errors import JitError, ShapeError

    if not valid(case):
        return None
    try:
        trial = Trial(case)
        for x in batches(case):
            why = trial.once(x)
            if why:
                return why
    except (JitError, ShapeError):
        if case["way"] != "dynamic":
            raise
    return None


def shrink(case: Case) -> Iterator[Case]:
    if "x" not in case:
        yield from ({**case, "x": x.tolist()} for x in batches(case))
        return
    x = case["x"]
    if len(x) > 1:
        yield from ({**case, "x": x[:k] + x[k + 1 :]} for k in range(len(x)))
    simple = "add" if case["form"].startswith("add") else "pick"
    for name, value in (("way", "eager"), ("way", "jit"), ("form", simple), ("kind", "int64")):
        if case[name] != value and not (value == "jit" and case["way"] == "eager"):
            yield {**case, name: value}
    for shape in ([1], [2], [3]):
        if np.prod(shape) < np.prod(case["shape"]):
            yield {**case, "shape": shape}
    yield from ({**case, "index": text} for text in shorter(case["index"]))
    for k, value in enumerate(x):
        for less in dict.fromkeys((0, 1, value // 2)):
            if abs(less) < abs(value):
                yield {**case, "x": [*x[:k], less, *x[k + 1 :]]}


def shorter(text: str) -> Iterator[str]:
    """Yield the expression with one of its innermost parts replaced by a part of that."""
    for found in re.finditer(r"\([^()]*\)", text):
        for part in (*re.split(r" [^ x\d]+ ", found[0][1:-1]), "x"):
            if part.strip() and text != part:
                yield text[: found.start()] + part + text[found.end() :]


def key(case: Case) -> str:
    return case["form"] + re.sub(r"\d+", "#", case["index"])


def source(case: Case) -> str:
    form, on_host, _ = FORMS[case["form"]]
    shape = tuple(case["shape"])
    xs = next(batches(case)).tolist()
    call = {
        "jit": "krt.jit(program)(x, v)",
        "eager": "program(krt.tensor(x), krt.tensor(v))",
        "dynamic": "krt.jit(program, dynamic={'x': {0: krt.Variable('n', 1, 64)}, "
        "'v': {0: krt.Variable('n', 1, 64)}})(x, v)",
    }[case["way"]]
    lines = [
        "import numpy as np, kernelrt as krt",
        f"mem = np.full({int(np.prod(shape))} + 128, 119, np.float32)",
        f"R, W, K = np.random.default_rng({case['seed']}), {WIDE}, {IGNORED}",
        f"host = mem[64:-64].reshape({shape}); host[...] = R.integers(-9, 10, {shape})",
        "before = host.copy(); T = S = krt.from_numpy(host)",
        f"x = np.array({xs}, '{case['kind']}'); v = R.integers(-9, 10, len(x)).astype('f4')",
        "def program(x, v):",
        f"    i = ({case['index']}).cast('int64')",
        f"    made = {form}",
    ]
    if "S." in form:
        lines.append("    S.assign(made.reshape(*S.shape))")
    lines += ["    return made"]
    lines += ["try:", f"    got = {call}.numpy(); S.numpy()", "except krt.IndexBoundsError:"]
    if outside(case, looked_at(case, np.array(xs, case["kind"]))).any():
        lines += ["    assert np.array_equal(host, before)", "else:",
                  "    raise AssertionError(f'no IndexBoundsError, but {got}')"]  # fmt: skip
    else:
        lines += ["    raise", f"i = ({case['index']}).astype('int64'); T = S = before"]
        if "added(" in on_host:
            lines.append("def added(x, i, v): out = x.copy(); np.add.at(out, i, v); return out")
        lines.append(f"np.testing.assert_allclose(got, {on_host}, 1e-5, 1e-4)")
    lines.append("assert (mem[:64] == 119).all() and (mem[-64:] == 119).all()")
    return "\n".join(lines)
