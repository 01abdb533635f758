"""Numbers that are none: what came, and what members of a population may have."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn


@pytest.fixture
def population():
    made = nn.stack_modules(lambda: nn.Linear(2, 1), 4)
    made(krt.ones(4, 3, 2)).sum().backward()
    return made


def test_a_norm_is_one_number_for_all(population) -> None:
    with pytest.raises(krt.DTypeError, match=r"max_norm: .*shape \(4,\); it is one number for all"):
        population.clip_grad_norm_(np.ones(4))
    with pytest.raises(krt.DTypeError, match=r"max_norm: .*shape \(\); pass its item"):
        population.clip_grad_norm_(np.array(1.0))
    with pytest.raises(krt.DTypeError, match="max_norm: expected a number, not str"):
        population.clip_grad_norm_("1")


@pytest.mark.parametrize("make", [np.ones, krt.ones])
@pytest.mark.parametrize("name", ["lr", "weight_decay"])
def test_rates_of_members_have_one_axis(population, make, name) -> None:
    wanted = rf"{name}: .*(\(4, 1\)|\(members,\))"
    with pytest.raises((krt.DTypeError, krt.ShapeError), match=wanted):
        nn.optim.AdamW(population.parameters(), **{name: make((4, 1))})
    nn.optim.AdamW(population.parameters(), **{name: make(4)})
