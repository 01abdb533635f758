"""Elements that data choose from a block: the next member's block is asked for meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

RNG = np.random.default_rng(3)


def picked(table: krt.Tensor, at: krt.Tensor) -> krt.Tensor:
    found: krt.Tensor = krt.vmap(lambda t, i: t[i] * 2)(table, at)
    return found


def loops_of(table: krt.Tensor, at: krt.Tensor) -> str:
    return "\n".join(k.kernel.loops() for k in krt.jit(picked).profile(table, at))


@pytest.mark.parametrize("width", [(), (4,), (3,)])
@pytest.mark.parametrize("taken", [1, 64, 500, 512])
@pytest.mark.parametrize("members", [1, 5, 64])
def test_members_take_rows_of_their_own(members: int, taken: int, width: tuple[int, ...]) -> None:
    table = RNG.standard_normal((members, 2048, *width)).astype(np.float32)
    at = RNG.integers(-2048, 2048, (members, taken))
    found = krt.jit(picked)(krt.tensor(table), krt.tensor(at)).numpy()
    np.testing.assert_array_equal(found, np.stack([table[m, at[m]] * 2 for m in range(members)]))


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float64"])
def test_of_other_types(dtype: str) -> None:
    table = krt.tensor(RNG.integers(0, 2, (64, 4096))).to(dtype)
    at = RNG.integers(0, 4096, (64, 512))
    chosen = krt.jit(krt.vmap(lambda t, i: t[i]))(table, krt.tensor(at))
    want = np.take_along_axis(table.to("float64").numpy(), at, 1)
    np.testing.assert_array_equal(chosen.to("float64").numpy(), want)


def test_the_next_block_is_asked_for_where_most_of_it_is_read() -> None:
    table = krt.rand(64, 4096)
    assert "fetch" in loops_of(table, krt.tensor(RNG.integers(0, 4096, (64, 512))))
    assert "fetch" not in loops_of(table, krt.tensor(RNG.integers(0, 4096, (64, 32))))


def test_not_where_a_first_cache_holds_all() -> None:
    table = krt.rand(8, 64)
    assert "fetch" not in loops_of(table, krt.tensor(RNG.integers(0, 64, (8, 64))))
