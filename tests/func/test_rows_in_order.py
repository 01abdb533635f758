"""What turns of a loop read at places that data tell, laid out before the first of them."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

TIMES, MEMBERS, WIDTH = 8, 3, 16
ROWS = TIMES * WIDTH
RNG = np.random.default_rng(7)
TABLE = RNG.standard_normal((TIMES, MEMBERS, WIDTH)).astype(np.float32)
IN_ORDER = TABLE.transpose(1, 0, 2).reshape(MEMBERS, ROWS)


def places(turns: int, taken: int) -> np.ndarray:
    return RNG.integers(-ROWS, ROWS, (turns, MEMBERS, taken))


def taken(rows: krt.Tensor, at: krt.Tensor) -> krt.Tensor:
    found: krt.Tensor = krt.vmap(lambda row, i: row[i])(rows, at)
    return found


def total(table: krt.Tensor, at: krt.Tensor) -> krt.Tensor:
    """Sums of members, of rows that lie apart in the table."""
    rows = table.transpose(0, 1).reshape(MEMBERS, ROWS)
    out: krt.Tensor = krt.scan(
        lambda c, i: (c + taken(rows, i).sum(-1), None), krt.zeros(MEMBERS), at
    )[0]
    return out


def expected(at: np.ndarray) -> np.ndarray:
    return np.stack([IN_ORDER[m][at[:, m]].sum() for m in range(MEMBERS)])


def bodies(function: krt.JitFunction, *args: object) -> list[str]:
    """The loops of kernels that run more than once."""
    return [k.kernel.loops() for k in function.profile(*args) if k.runs > 1]


def test_many_reads_have_their_rows_side_by_side() -> None:
    at = places(10, 20)
    function, args = krt.jit(total), (krt.tensor(TABLE), krt.tensor(at))
    np.testing.assert_allclose(function(*args).numpy(), expected(at), rtol=1e-5, atol=1e-5)
    # A place would have to be taken apart where a member's rows lie among others'.
    assert not any(f"// {WIDTH}" in text for text in bodies(function, *args))


def test_few_reads_copy_nothing() -> None:
    at = places(2, 1)
    function, args = krt.jit(total), (krt.tensor(TABLE), krt.tensor(at))
    np.testing.assert_allclose(function(*args).numpy(), expected(at), rtol=1e-5, atol=1e-5)
    assert any(f"// {WIDTH}" in text for text in bodies(function, *args))


def test_once_for_loops_within_each_other() -> None:
    at = places(12, 40).reshape(3, 4, MEMBERS, 40)

    @krt.jit
    def nested(table: krt.Tensor, at: krt.Tensor) -> krt.Tensor:
        rows = table.transpose(0, 1).reshape(MEMBERS, ROWS)

        def turn(c: krt.Tensor, i: krt.Tensor) -> tuple[krt.Tensor, None]:
            return c + taken(rows, i).sum(-1), None

        out: krt.Tensor = krt.scan(
            lambda c, part: (krt.scan(turn, c, part)[0], None), krt.zeros(MEMBERS), at
        )[0]
        return out

    args = krt.tensor(TABLE), krt.tensor(at)
    found = expected(at.reshape(12, MEMBERS, 40))
    np.testing.assert_allclose(nested(*args).numpy(), found, rtol=1e-5, atol=1e-5)
    copies = [k for k in nested.profile(*args) if "transpose" in {o.op for o in k.origins}]
    assert [k.runs for k in copies] == [1]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("reads", [1, 40])
def test_gradients_flow_to_what_was_laid_out(jit: bool, reads: int) -> None:
    at = places(6, reads)
    slope = krt.func.grad(lambda table, at: (total(table, at) * krt.tensor([1.0, 2.0, 3.0])).sum())
    found = (krt.jit(slope) if jit else slope)(krt.tensor(TABLE), krt.tensor(at)).numpy()
    want = np.zeros((MEMBERS, ROWS), np.float32)
    for m in range(MEMBERS):
        np.add.at(want[m], at[:, m].ravel(), m + 1.0)
    want = want.reshape(MEMBERS, TIMES, WIDTH).transpose(1, 0, 2)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_place_out_of_range_is_told() -> None:
    at = places(10, 20)
    at[4, 1, 3] = ROWS
    with pytest.raises(krt.IndexBoundsError) as caught:
        krt.jit(total)(krt.tensor(TABLE), krt.tensor(at)).numpy()
    assert caught.value.iteration == 4


def test_without_a_gather_nothing_is_copied() -> None:
    @krt.jit
    def sums(table: krt.Tensor, xs: krt.Tensor) -> krt.Tensor:
        rows = table.transpose(0, 1).reshape(MEMBERS, ROWS)
        begin = krt.zeros(MEMBERS, ROWS)
        out: krt.Tensor = krt.scan(lambda c, x: (c + rows * x, None), begin, xs)[0]
        return out

    xs = RNG.standard_normal(5).astype(np.float32)
    args = krt.tensor(TABLE), krt.tensor(xs)
    np.testing.assert_allclose(sums(*args).numpy(), IN_ORDER * xs.sum(), rtol=1e-4, atol=1e-4)
