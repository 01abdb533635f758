"""krt.summary: the layers of a model with shapes, parameters and times."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, JitError, StateError


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.lin = nn.Linear(n, n)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(n)

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        return self.norm(self.drop(self.lin(x).relu()))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.rnn = nn.GRU(8, 5, batch_first=True)
        self.unused = nn.Linear(2, 3)

    def forward(self, x: krt.Tensor) -> dict[str, krt.Tensor]:
        for block in self.blocks:
            x = block(x)
        out, last = self.rnn(x.unsqueeze(1))
        return {"out": out.squeeze(1), "last": last}


@pytest.fixture
def net() -> Net:
    krt.manual_seed(0)
    return Net()


def test_each_module_has_a_row(net: Net) -> None:
    found = krt.summary(net, krt.rand(4, 8))
    rows = {row.name: row for row in found.layers}
    assert list(rows) == [name for name, _ in net.named_modules()]
    assert rows[""].shapes == ((4, 5), (1, 4, 5))
    assert rows["blocks.0.lin"].shapes == ((4, 8),)
    assert rows["unused"].shapes == ()
    assert rows["blocks.0.lin"].parameters == 8 * 8 + 8
    assert found.parameters == sum(int(np.prod(p.shape)) for p in net.parameters())
    net.unused.weight.requires_grad_(False)
    assert krt.summary(net, krt.rand(4, 8)).trainable == found.trainable - 6


def test_the_time_of_a_module_has_that_of_its_submodules(net: Net) -> None:
    rows = {row.name: row.seconds for row in krt.summary(net, krt.rand(4, 8)).layers}
    for name, took in rows.items():
        inner = [s for other, s in rows.items() if other.rpartition(".")[0] == name and other]
        assert took >= sum(inner) * (1 - 1e-9)
    assert rows[""] > 0
    assert rows["unused"] == 0


def test_nothing_changes(net: Net) -> None:
    step = krt.jit(lambda x: net(x)["out"])
    step(krt.rand(4, 8))
    before = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    drawn = krt.get_rng_state().numpy().copy()
    x = krt.tensor(np.ones((4, 8), np.float32))
    krt.summary(net, x)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    np.testing.assert_array_equal(krt.get_rng_state().numpy(), drawn)
    step(x)
    assert step.retraces == 0


def test_it_is_a_table_in_a_terminal_and_a_notebook() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Flatten())
    found = krt.summary(model, krt.rand(5, 3))
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "output", "shape", "parameters", "time", "share"]
    assert lines[1].startswith("Sequential")
    assert lines[2].split()[:5] == ["0:", "Linear", "(5,", "2)", "8"]
    assert lines[-1].startswith("8 parameters, 8 of them trainable; ")
    assert found._repr_html_().count("<tr>") == 4


class Parts(nn.Module):
    """Has modules in lists and dicts, and modules that return no tensor."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 3)
        self.blocks = [nn.Linear(3, 3), nn.Sequential(nn.ReLU())]
        self.parts = {"a": {"b": nn.ReLU()}}
        self.seen = Returns(None)
        self.factor = Returns(2.0)
        self.more = nn.ModuleList([nn.ReLU()])
        self.unused = nn.ReLU()

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        for layer in (self.first, *self.blocks, self.parts["a"]["b"], *self.more):
            x = layer(x)
        self.seen(x)
        return x * self.factor(x)


class Returns(nn.Module):
    def __init__(self, result: object) -> None:
        self.result = result

    def forward(self, x: krt.Tensor) -> object:  # noqa: ARG002 - as of all layers here
        return self.result


def test_the_table_tells_which_modules_were_called() -> None:
    found = {row.name: row.output for row in krt.summary(Parts(), krt.rand(2, 3)).layers}
    assert found["first"] == "(2, 3)"
    assert found["seen"] == found["factor"] == "no tensor"
    assert found["more"] == ""
    assert found["more.0"] == "(2, 3)"
    assert found["unused"] == "not called"


def test_modules_in_lists_and_dicts_have_their_whole_path() -> None:
    rows = str(krt.summary(Parts(), krt.rand(2, 3))).splitlines()
    assert [re.match(r" *\S+( \S+)?", row)[0] for row in rows[1:8]] == [
        "Parts",
        "  first: Linear",
        "  blocks.0: Linear",
        "  blocks.1: Sequential",
        "    0: ReLU",
        "  parts.a.b: ReLU",
        "  seen: Returns",
    ]


def test_a_lazy_model_is_called_first() -> None:
    model, x = nn.Sequential(nn.LazyLinear(4)), krt.rand(2, 3)
    with pytest.raises(StateError, match="0: LazyLinear has no parameters yet"):
        krt.summary(model, x)
    model(x)
    assert krt.summary(model, x).parameters == 16


def test_modules_that_are_equal_are_told_apart() -> None:
    class Equal(nn.ReLU):  # noqa: PLW1641 - the lack of a hash is the point
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    found = krt.summary(nn.Sequential(Equal(), Equal()), krt.rand(2, 3))
    assert [(row.name, row.shapes) for row in found.layers[1:]] == [
        ("0", ((2, 3),)), ("1", ((2, 3),)),
    ]  # fmt: skip


def test_wrong_arguments() -> None:
    with pytest.raises(DTypeError, match="model: expected a Module, not function"):
        krt.summary(lambda x: x, krt.rand(3))
    model = nn.Linear(3, 2)
    with pytest.raises(krt.ShapeError):
        krt.summary(model, krt.rand(5, 4))
    assert "_hooks" not in " ".join(vars(model))
    with pytest.raises(JitError, match=r"summary\(\)"):
        krt.jit(lambda x: krt.summary(model, x))(krt.rand(3))
