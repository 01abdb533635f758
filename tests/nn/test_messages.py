"""Arguments that are none: numbers, members of a population, models of PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn

torch = Package("torch")


@pytest.fixture
def population():
    made = nn.stack_modules(lambda: nn.Linear(2, 1), 4)
    made(krt.ones(4, 3, 2)).sum().backward()
    return made


def test_a_norm_is_one_number_for_all(population) -> None:
    with pytest.raises(krt.DTypeError, match=r"max_norm: .*shape \(4,\); the same number"):
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


@pytest.mark.parametrize(("name", "use"), [
    ("layer 0", nn.Sequential),
    ("layer 1", lambda m: nn.Sequential(nn.Tanh()).append(m)),
    ("modules", lambda m: nn.ModuleList([m])),
    ("a", lambda m: nn.ModuleDict({"a": m})),
    ("model", nn.optim.swa_utils.AveragedModel),
    ("fn", krt.jit),
    ("fn", lambda m: krt.jit(m.forward)),
])  # fmt: skip
def test_modules_of_torch_are_none_of_kernelrt(name, use) -> None:
    class Own(torch.nn.Linear):
        pass

    for model in (torch.nn.Linear(2, 2), Own(2, 2)):
        text = f"{name}: {type(model).__name__} is a PyTorch module.*load_state_dict"
        with pytest.raises(krt.DTypeError, match=text):
            use(model)


def test_a_jitted_function_says_whose_function_it_calls() -> None:
    model = torch.nn.Linear(2, 2)
    for call in (model, torch.relu, lambda x: torch.stack([x, x])):
        text = "a PyTorch function or module was called with a kernelrt Tensor"
        with pytest.raises(krt.DTypeError, match=text):
            krt.jit(lambda x, call=call: call(x))(krt.ones(2, 2))

    def wrong(x):
        raise TypeError("x: not this one")

    with pytest.raises(TypeError, match=r"^x: not this one$"):
        krt.jit(wrong)(krt.ones(2))
