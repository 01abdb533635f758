"""Indexing against NumPy, for reading, writing and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DTypeError, IndexBoundsError, JitError, ShapeError

A = np.arange(120, dtype=np.float64).reshape(4, 5, 6)
BASIC = [
    np.s_[:], np.s_[...], np.s_[2], np.s_[-1], np.s_[1, 2], np.s_[1, 2, 3], np.s_[..., 0],
    np.s_[1:3], np.s_[:2, 3:], np.s_[::2], np.s_[::-1], np.s_[3:0:-2, ::3], np.s_[:, -2:],
    np.s_[None], np.s_[:, None, 1], np.s_[..., None, 2:4], np.s_[2:1], np.s_[10:], np.s_[-10:2],
    np.s_[1, ..., 2], np.s_[None, ..., None], np.s_[np.int64(2)],
]  # fmt: skip
ADVANCED = [
    np.s_[[0, 2]], np.s_[[[0, 2], [3, 3]]], np.s_[:, [1, 1, 4]], np.s_[[0, 1], [2, 3]],
    np.s_[[0, 1], :, [2, 3]], np.s_[1, [0, 2]], np.s_[[0, 1], 2], np.s_[:, :, [-1, 0]],
    np.s_[[[0], [1]], [2, 3]], np.s_[..., [0, 5]], np.s_[[3], [4], [5]], np.s_[1:3, [0, 4], ::2],
    np.s_[None, [1, 2]],
]  # fmt: skip


@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=str)
def test_reading(index):
    x = krt.tensor(A, requires_grad=True)
    got = x[index]
    expected = A[index]
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.numpy(), expected)
    if expected.size:
        weights = np.random.default_rng(0).standard_normal(expected.shape)
        (got * krt.tensor(weights)).sum().backward()
        truth = np.zeros_like(A)
        np.add.at(truth, index, weights)
        np.testing.assert_allclose(x.grad.numpy(), truth, rtol=1e-14)


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_writing(index):
    x, a = krt.tensor(A), A.copy()
    value = np.random.default_rng(0).standard_normal(a[index].shape)
    x[index] = krt.tensor(value)
    a[index] = value
    np.testing.assert_array_equal(x.numpy(), a)


def test_writing_numbers_rows_and_masks():
    x, a = krt.tensor(A), A.copy()
    x[1] = 0
    x[:, 2] = np.arange(6.0)
    x[x > 100] = -1
    a[1] = 0
    a[:, 2] = np.arange(6.0)
    a[a > 100] = -1
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize("value", [True, False, "mask"])
@pytest.mark.parametrize(("there", "mask"), [
    (np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:]), (np.s_[::-1], np.s_[:]),
    (np.s_[...], np.s_[:]),
])  # fmt: skip
def test_masks_that_are_written_are_read_before(there, mask, value):
    data = np.array([True, False, False, True, False, True])
    x, want = krt.tensor(data), data.copy()
    x.numpy()
    chosen = data[mask].copy()
    x[there][x[mask]] = ~x[mask][x[mask]] if value == "mask" else value
    want[there][chosen] = ~chosen[chosen] if value == "mask" else value
    np.testing.assert_array_equal(x.numpy(), want)


def test_positions_that_are_written_are_read_before():
    data = np.array([1, 2, 0, 3])
    x, want = krt.tensor(data), data.copy()
    x.numpy()
    x[x] = krt.tensor([9, 8, 7, 6])
    want[data] = [9, 8, 7, 6]
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("index", [
    lambda x: x[:, 0].argmax(), lambda _: krt.tensor(-1), lambda _: np.array(2),
    lambda _: krt.ones(()).long() * 2,
])  # fmt: skip
def test_one_position_without_axes(index):
    x, want = krt.tensor(A[0]), A[0].copy()
    x.numpy()
    for value in (1.0, krt.ones(6) * 3, 2):
        at = int(np.asarray(index(x)))
        x[index(x)] = value
        want[at] = np.asarray(value)
        np.testing.assert_array_equal(x.numpy(), want)


def test_lists_of_bools_in_arrays_are_no_masks():
    x = krt.zeros(2).realize()
    for act in (lambda: x[[np.array(True), np.array(False)]],
                lambda: x.__setitem__([np.array(True), np.array(False)], 1)):  # fmt: skip
        with pytest.raises(DTypeError, match="expected integers, not bool"):
            act()


def test_writing_keeps_the_storage():
    x = krt.tensor(A)
    address = x.data_ptr()
    x[0] = 7
    assert x.data_ptr() == address
    assert x[0, 0, 0].item() == 7


def test_an_index_tensor_is_data():
    x = krt.tensor(A)
    for dtype in ("int64", "int32", "uint8", "int16"):
        index = krt.tensor([3, 0, 1], dtype=dtype)
        np.testing.assert_array_equal(x[index].numpy(), A[[3, 0, 1]])
    np.testing.assert_array_equal(x[krt.tensor(2)].numpy(), A[2])


@pytest.mark.parametrize("index", [[0, 4], [-5, 0], [2**40, 0]])
def test_an_index_out_of_range_is_found_at_run_time(index):
    with pytest.raises(IndexBoundsError):
        krt.tensor(A)[krt.tensor(index)].numpy()


def test_out_of_range_for_gather_embedding_one_hot_and_labels():
    x = krt.tensor(A[0])
    bad = krt.tensor([[0, -1]])
    for make in (
        lambda: x.gather(1, bad), lambda: x.scatter_add(1, bad, krt.ones(1, 2).double()),
        lambda: bad.embedding(x), lambda: bad.one_hot(3), lambda: x.index_select(0, bad[0]),
        lambda: x[:2].cross_entropy(krt.tensor([0, 6])),
        lambda: x[:2].cross_entropy(krt.tensor([0, -99])),
    ):  # fmt: skip
        with pytest.raises(IndexBoundsError):
            make().numpy()
    assert x[0, 0].item() == A[0, 0, 0]


@pytest.mark.parametrize("index", [4, -5, (0, 5), (0, 0, -7)], ids=str)
def test_a_number_out_of_range_is_found_at_once(index):
    with pytest.raises(IndexBoundsError, match=r"out of range for axis"):
        krt.tensor(A)[index]


def test_bad_indices_say_what_to_do():
    x = krt.tensor(A)
    with pytest.raises(JitError, match=r"size=n"):
        krt.jit(lambda x: x[x > 3])(A)
    with pytest.raises(ShapeError, match="mask of shape"):
        x[krt.tensor([True, False, True])]
    with pytest.raises(ShapeError, match="at most 3 indices"):
        x[0, 0, 0, 0]
    with pytest.raises(DTypeError, match="integers"):
        x[krt.tensor([1.0])]
    with pytest.raises(DTypeError, match="str"):
        x["a"]
    with pytest.raises(ShapeError, match="Ellipsis"):
        x[..., 0, ...]
    with pytest.raises(ShapeError, match="only axes of size 1"):
        x[[0, 1]] = krt.ones(7)
    with pytest.raises(ShapeError, match="expand"):
        x[0] = krt.ones(7)


def test_one_hot():
    assert krt.tensor([2, 0]).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert krt.tensor([2, 0]).one_hot(3).dtype is krt.int64


def test_one_hot_finds_how_many_classes_there_are():
    torch = pytest.importorskip("torch")
    for labels in ([2, 0], [[0, 1], [4, 1]], [0]):
        for given in ((), (-1,)):
            wanted = torch.nn.functional.one_hot(torch.tensor(labels), *given).tolist()
            assert krt.one_hot(krt.tensor(labels), *given).tolist() == wanted
            assert krt.nn.functional.one_hot(krt.tensor(labels), *given).tolist() == wanted
    for labels in ([-1], [-1, 2]):
        with pytest.raises(RuntimeError):
            torch.nn.functional.one_hot(torch.tensor(labels))
        with pytest.raises(krt.IndexBoundsError):
            krt.tensor(labels).one_hot().numpy()
    for traced in (krt.jit(lambda x: x.one_hot()), krt.vmap(lambda x: x.one_hot())):
        with pytest.raises(krt.JitError, match=r"one_hot: .*pass num_classes="):
            traced(krt.tensor([[0, 1]]))


def test_split_chunk_unbind_cat_stack():
    x = krt.tensor(A)
    parts = x.split([1, 4], 1)
    np.testing.assert_array_equal(krt.cat(parts, 1).numpy(), A)
    assert [p.shape for p in x.chunk(3)] == [(2, 5, 6), (2, 5, 6)]
    np.testing.assert_array_equal(krt.stack(x.unbind(1), -1).numpy(), np.moveaxis(A, 1, -1))
    assert krt.cat([krt.tensor([1]), krt.tensor([0.5])]).dtype is krt.float32
    assert [r.tolist() for r in krt.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


def test_cat_and_stack_gradients():
    x, y = krt.tensor([[1.0, 2.0]], requires_grad=True), krt.tensor([[3.0]], requires_grad=True)
    (krt.cat([x, y, x], 1) * krt.tensor([1.0, 2, 3, 4, 5])).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([[5, 7]], [[3]])


LINES = {
    "diagonal of two axes": lambda k: (k, k),
    "diagonal of all axes": lambda k: (k, k, k),
    "diagonal behind an axis": lambda k: (slice(None), k, k),
    "diagonal across": lambda k: (k, k.flip(0)),
    "one column": lambda k: (k, 0 * k),
    "every element twice": lambda k: (k // 2, k),
    "next diagonal": lambda k: (k[:-1], k[:-1] + 1),
}


@pytest.mark.cases(len(LINES))
@pytest.mark.parametrize("line", LINES)
def test_a_result_that_is_also_read_along_a_line_is_stored_whole(line):
    """One kernel could store both, but it must not store the line alone."""

    @krt.jit
    def both(x):
        y = x.exp()
        return y, y[LINES[line](krt.arange(5))] * 2

    x = np.random.default_rng(0).standard_normal((5, 5, 5))
    whole, part = both(x)
    k = krt.arange(5)
    index = tuple(i.numpy() if isinstance(i, krt.Tensor) else i for i in LINES[line](k))
    np.testing.assert_allclose(whole.numpy(), np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(part.numpy(), 2 * np.exp(x)[index], rtol=1e-14)


def test_an_index_into_equal_elements_is_checked_too():
    with pytest.raises(krt.IndexBoundsError):
        krt.ones(3)[krt.tensor([0, 9])].numpy()
    np.testing.assert_array_equal(krt.ones(3)[krt.tensor([0, 2])].numpy(), [1, 1])


# ---- masks that are known while a function is traced

MASK = np.array([True, False, True])


def changed(x, mask, value):
    x = x * 1
    x[mask] += value
    return x


KNOWN = {
    "array": lambda x: x[MASK],
    "list": lambda x: x[MASK.tolist()],
    "tuple": lambda x: x[(MASK, 1)],
    "computed of data": lambda x: x[~(krt.tensor(MASK) & krt.tensor([True, True, False]))],
    "changed before": lambda x: x[changed(krt.tensor([1, 2, 3]), [False, True, True], 2) > 4],
    "nonzero": lambda x: x[(krt.arange(3) < 2).nonzero()],
    "argwhere": lambda x: x[krt.tensor(MASK).argwhere()],
    "masked_select": lambda x: x.T.masked_select(krt.arange(3) < 2),
    "repeats": lambda x: x.repeat_interleave(krt.tensor([2, 0, 3]), 0),
    "repeats of halves": lambda x: x.repeat_interleave(krt.arange(3).to(krt.uint8), 0),
    "unique": lambda x: x[(krt.tensor([2, 0, 2]) // 2).unique()],
    "unique_consecutive": lambda x: x[krt.tensor([1, 1, 2]).unique_consecutive()],
    "bincount": lambda x: x[krt.tensor([0, 1, 0]).bincount()],
    "one_hot": lambda x: x * krt.arange(4).one_hot()[1],
    "end of a slice": lambda x: x[: krt.tensor(2)],
    "ends": lambda x: x[krt.tensor([0, 1])[1] : krt.arange(3).max() + 1 : krt.tensor(2)],
    "size": lambda x: x.reshape(krt.tensor(6), 2),
    "bfloat16": lambda x: x[krt.tensor([1.0, 0, 2], dtype=krt.bfloat16).nonzero()[:, 0]],
    "tensor of data": lambda x: x[krt.tensor(MASK)],
    "numbers": lambda x: x[krt.arange(3) < 2],
    "constants": lambda x: x[~krt.zeros(3, dtype=krt.bool)],
    "beside a slice": lambda x: x.T[:, MASK],
    "whole": lambda x: x[np.outer(MASK, [True, True, False, False])],
    "none": lambda x: x[np.zeros(3, bool)],
    "no axes": lambda x: x[np.array(True)],
    "changed": lambda x: changed(x, MASK, 2.0),
    "changed by rows": lambda x: changed(x, MASK, krt.ones(2, 4)),
}


@pytest.mark.parametrize("how", ["jit", "vmap", "scan", "cond", "grad"])
@pytest.mark.parametrize("name", KNOWN)
def test_known_masks_in_traced_functions(name, how):
    f = KNOWN[name]
    x = krt.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    want = f(x).numpy()
    if how == "grad":
        loss = lambda x: (f(x) ** 2).sum()  # noqa: E731
        found, want = krt.jit(krt.func.grad(loss))(x), krt.func.grad(loss)(x).numpy()
    elif how == "vmap":
        found, want = krt.vmap(f)(krt.stack([x, x * 2]))[1], f(x * 2).numpy()
    elif how == "scan":
        found = krt.scan(lambda c, q: (c, f(q)), 0.0, krt.stack([x, x]))[1][1]
    elif how == "cond":
        found = krt.cond(x.sum() > 0, f, lambda x: f(x) * 0, x)
    else:
        found = krt.jit(f)(x)
    np.testing.assert_array_equal(found.numpy(), want)


def test_masks_of_data_are_refused_in_traced_functions():
    outside = krt.tensor(MASK)

    def written(x):
        mask = krt.tensor(MASK)
        mask[1] = x.sum() > 0
        return x[mask]

    for f in (
        lambda x: x[x > 0], lambda x: x[outside], lambda x: x[~outside], written,
        lambda x: x[krt.rand(3) > 0.5],
    ):  # fmt: skip
        with pytest.raises(krt.JitError, match=r"before the call: mask = mask\.numpy\(\)"):
            krt.jit(f)(krt.ones(3))
    with pytest.raises(krt.ShapeError, match=r"a mask of shape \(2,\)"):
        krt.jit(lambda x: x[MASK[:2]])(krt.ones(3))


# ---- masks that are known only at run time: parts are changed and written back

DIGITS = np.array([[1.5, -2.0, 0.0], [4.0, 0.5, -1.0], [3.0, 2.0, 1.0]])


def added(s, mask, v):
    s[mask] += v


def scaled(s, mask, v):
    s[mask] *= 2.5
    s[mask] -= v


def divided(s, mask, v):
    s[mask] /= v


def root(s, mask, v):
    s[mask] **= 0.5


def inverse(s, mask, v):
    s[mask] = 1 / (s[mask] - v) + s[mask] ** 2


def of_another(s, mask, v):
    other = s * 3
    s[mask] = -(other[mask]) / 2 + abs(v * other)[mask]


def by_two_names(s, mask, v):
    part = s[mask]
    same = part
    part += v
    s[mask] = 3.0
    s[mask] *= same


def a_view(s, mask, v):
    s.T[mask] += v


def assigned(s, mask, v):
    s[mask] = v


CHANGES = (added, scaled, divided, root, inverse, of_another, by_two_names, a_view, assigned)
# The mask of axes, and the shape of v.
UNDER = {
    "rows": (1, "number"), "rows, scalar": (1, ()), "rows, row": (1, (3,)),
    "rows, column": (1, (1, 1)), "elements": (2, "number"), "elements, scalar": (2, ()),
    "no axes": (0, (3,)),
}  # fmt: skip


@pytest.mark.cases(9)
@pytest.mark.parametrize("held", ["some", "none", "all"])
@pytest.mark.parametrize("under", UNDER)
@pytest.mark.parametrize("change", CHANGES)
def test_parts_under_masks_of_data_are_changed_as_in_pytorch(change, under, held):
    """Outside of the mask the elements have no finite derivative; it must not come through."""
    torch = pytest.importorskip("torch")
    rank, shape = UNDER[under]
    mask = {"some": np.eye(3, dtype=bool), "none": np.zeros((3, 3), bool), "all": DIGITS < 9}[held]
    mask = mask if rank == 2 else mask[1] if rank else mask[0, 0]
    wide = mask.reshape(mask.shape + (1,) * (2 - rank))
    wide = wide.T if change is a_view else wide
    base = np.where(wide, np.abs(DIGITS) + 2, 0.0)
    v = 0.75 if shape == "number" else np.resize([0.75, 0.5, 1.25], shape)

    def run(lib, jit):
        x = lib.tensor(base, dtype=lib.float64, requires_grad=True)
        w = v if shape == "number" else lib.tensor(v, dtype=lib.float64, requires_grad=True)

        def step(mask, number):
            s = x * 1
            change(s, mask, number if shape == "number" else w)
            (s * lib.tensor(DIGITS + 0.25, dtype=lib.float64)).sum().backward()
            return s.detach()

        out = jit(step)(lib.tensor(mask), 0.75)
        grad = None if shape == "number" or w.grad is None else w.grad.numpy()
        return out.numpy(), x.grad.numpy(), grad

    for got, want in zip(run(krt, krt.jit), run(torch, lambda f: f), strict=True):
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_values_for_each_place_that_a_mask_of_data_selects():
    @krt.jit
    def f(s, mask, v):
        s = s * 1
        s[mask] *= v
        return s

    x, mask = krt.ones(3, 2), krt.tensor(MASK)
    assert f(x, mask, krt.tensor([[2, 3], [4, 5]])).tolist() == [[2, 3], [1, 1], [4, 5]]
    assert f(x, ~krt.ones(3, dtype=krt.bool), krt.ones(0, 2)).tolist() == x.tolist()
    assert f(krt.ones(3, 0), mask, krt.ones(2, 0)).shape == (3, 0)
    assert f(krt.ones(0, 2), mask[:0], krt.ones(2)).shape == (0, 2)
    for rows in (0, 3):
        with pytest.raises(krt.IndexBoundsError):
            f(x, mask, krt.ones(rows, 2)).numpy()
    with pytest.raises(krt.ShapeError, match="does not fit the selected elements"):
        f(x, mask, krt.ones(2, 3))
    with pytest.raises(krt.DTypeError, match="cannot be assigned to int32"):
        f(x.int(), mask, 1.5)
    assert f(x.int(), mask, 3).dtype is krt.int32
    assert f(x.half(), mask, 2.5).dtype is krt.float16


@pytest.mark.parametrize("rows", [0, 3])
def test_a_mask_of_data_selects_another_number_than_is_assigned(rows):
    def f(s, mask, v):
        s = s * 1
        s[mask] = v
        return s

    with pytest.raises(krt.IndexBoundsError):
        krt.jit(f)(krt.ones(3, 2), krt.tensor(MASK), krt.ones(rows, 2)).numpy()


def test_parts_under_masks_of_data_in_state_views_and_members():
    kept, mask = krt.zeros(3), krt.tensor(MASK)

    @krt.jit
    def count(mask):
        kept[mask] += 1
        kept[mask & ~mask] *= 5

    count(mask)
    count(~mask)
    count(mask)
    assert kept.tolist() == [2, 1, 2]

    def f(x, mask):
        x = x * 1
        x[0][mask] -= 3
        x[:, 1][~mask[:2]] *= 2
        return x

    x = krt.arange(6.0).reshape(2, 3)
    want = [f(x, krt.tensor(m)).tolist() for m in (MASK, ~MASK)]
    assert krt.vmap(f, in_dims=(None, 0))(x, krt.stack([mask, ~mask])).tolist() == want
    turn = lambda c, m: (f(c, m), c.sum())  # noqa: E731
    assert krt.scan(turn, x, krt.stack([mask]))[0].tolist() == want[0]
    assert krt.cond(mask.any(), f, lambda x, m: x, x, mask).tolist() == want[0]


USES = {
    "returned": lambda x, m: x[m], "sum": lambda x, m: x[m].sum(), "beside": lambda x, m: x + x[m],
    "function": lambda x, m: krt.exp(x[m]), "joined": lambda x, m: krt.cat([x[m], x]),
    "length": lambda x, m: len(x[m]), "loop": lambda x, m: list(x[m]),
    "compared": lambda x, m: x[m] == 1, "indexed": lambda x, m: x[m][0],
    "array": lambda x, m: np.asarray(x[m]), "tensor": lambda x, m: krt.tensor(x[m]),
    "loss": lambda x, m: krt.nn.functional.mse_loss(x[m], x[m]),
    "other mask": lambda x, m: x.__setitem__(~m, x[m]),
    "no mask": lambda x, m: x.__setitem__(0, x[m]),
    "other axes": lambda x, m: x.__setitem__(m, x.reshape(3, 1)[m]),
    "two masks": lambda x, m: x[m] + x[~m], "beside a slice": lambda x, m: x[m, ...],
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_other_uses_of_parts_under_masks_of_data_are_refused(use):
    f = lambda x, m: USES[use](x * 1, m)  # noqa: E731
    for call in (krt.jit(f), lambda x, m: krt.vmap(f)(x[None], m[None])):
        with pytest.raises(krt.JitError, match=r"x\[mask\] = y, x\[mask\] \+= y"):
            call(krt.ones(3), krt.tensor(MASK))
