"""Weights laid out as their products read them: equal results, and changes that are seen."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from support.graphs import Memory, add, matmul, permute
from support.work import lines_run

import kernelrt as krt
from kernelrt import nn
from kernelrt.device.spec import host
from kernelrt.ir import toposort
from kernelrt.schedule.rewrite import hoist_invariants
from kernelrt.schedule.rewrite.prepack import lay_out

RNG = np.random.default_rng(5)
LANES = host().lanes(4)
MEM = Memory(3)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def same(found: krt.Tensor, expected: np.ndarray, depth: int) -> None:
    assert found.shape == expected.shape
    rtol = 1e-12 if found.dtype is krt.float64 else 1e-5
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=rtol * depth**0.5 * 4)


def panels_of(fn: krt.jit) -> list:
    """The buffers that what is laid out lies in."""
    preparation = fn.plans[-1].preparation
    return [] if preparation is None else list(preparation.state)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33])
@pytest.mark.parametrize(
    ("depth", "columns"),
    [
        (8, LANES),
        (64, 64),
        (7, 64),
        (17, 3 * LANES),
        (300, 2 * LANES),
        (64, LANES + 1),
        (64, 1),
        (1, 32),
    ],
)
def test_products_of_many_sizes(dtype, rows, depth, columns):
    w, x = normal(columns, depth, dtype=dtype), normal(rows, depth, dtype=dtype)
    weight, turned = krt.tensor(w), krt.tensor(np.ascontiguousarray(w.T))
    wide = x.astype("float64") @ w.T.astype("float64")
    same(krt.jit(lambda x: x @ weight.T, freeze=True)(x), wide, depth)
    same(krt.jit(lambda x: x @ turned, freeze=True)(x), wide, depth)
    same(krt.jit(lambda x: weight @ x.T, freeze=True)(x), wide.T, depth)
    same(
        krt.jit(lambda x: (x @ weight.T + 1).relu(), freeze=True)(x), np.maximum(wide + 1, 0), depth
    )


def test_a_weight_is_kept_in_panels_and_read_from_there():
    weight = krt.tensor(normal(4 * LANES, 40))
    fn = krt.jit(lambda x: x @ weight.T, freeze=True)
    x = normal(6, 40)
    same(fn(x), x.astype("float64") @ weight.numpy().T, 40)
    (panels,) = panels_of(fn)
    expected = weight.numpy().reshape(4, LANES, 40).transpose(0, 2, 1)
    np.testing.assert_array_equal(panels.content(), expected.reshape(-1))
    panels.content()[...] = 0
    assert not fn(x).numpy().any()  # the product reads nothing else
    usual = krt.jit(lambda x: x @ weight.T)
    usual(x)
    assert not panels_of(usual)


def test_layers_one_after_the_other():
    model = nn.Sequential(
        nn.Linear(20, 64),
        nn.ReLU(),
        nn.Linear(64, 48),
        nn.Tanh(),
        nn.Linear(48, 16),
        nn.Linear(16, 3),
    )
    fn = krt.jit(model, freeze=True)
    for rows in (1, 3, 64):
        x = normal(rows, 20)
        same(fn(x), model(krt.tensor(x)).numpy().astype("float64"), 64)
    assert len(panels_of(fn)) == 3  # three columns make no vector


@pytest.mark.cases(1 / 4)
def test_attention_and_norms_in_between():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).eval()
    fn = krt.jit(layer, freeze=True)
    for shape in ((1, 5, 64), (2, 32, 64)):
        x = normal(*shape)
        same(fn(x), layer(krt.tensor(x)).numpy().astype("float64"), 256)
    assert len(panels_of(fn)) == 4


def test_convolutions_and_what_is_behind_them():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 1), nn.Flatten(), nn.Linear(32 * 36, 16)
    )
    fn = krt.jit(model, freeze=True)
    x = normal(4, 3, 8, 8)
    same(fn(x), model(krt.tensor(x)).numpy().astype("float64"), 32 * 36)


def test_matrices_of_a_population():
    w, x = normal(5, 24, 2 * LANES), normal(5, 7, 24)
    weights = krt.tensor(w)
    fn = krt.jit(lambda x: x @ weights, freeze=True)
    same(fn(x), x.astype("float64") @ w, 24)
    (panels,) = panels_of(fn)
    expected = w.reshape(5, 24, 2, LANES).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(panels.content(), expected.reshape(-1))
    shared = krt.jit(lambda x: krt.einsum("bij,jk->bik", x, weights[0]), freeze=True)
    same(shared(x), x.astype("float64") @ w[0], 24)


def test_one_matrix_in_two_products_each_its_own_way():
    w = normal(32, 32)
    weight = krt.tensor(w)
    fn = krt.jit(lambda x: (x @ weight) @ weight.T + weight.sum(), freeze=True)
    x = normal(9, 32)
    wide = w.astype("float64")
    same(fn(x), x @ wide @ wide.T + wide.sum(), 32 * 32)


def test_matrices_that_are_computed_once():
    w = normal(32, 24)
    weight = krt.tensor(w)
    fn = krt.jit(
        lambda x: x @ (weight / weight.square().sum(1, keepdim=True).sqrt()).T, freeze=True
    )
    x = normal(8, 24)
    same(
        fn(x),
        x @ (w.astype("float64") / np.linalg.norm(w.astype("float64"), axis=1, keepdims=True)).T,
        24,
    )


@pytest.mark.parametrize("narrow", ["bfloat16", "float16", "int8"])
def test_narrow_weights_stay_narrow(narrow):
    """Wider panels would take longer to read than they spare."""
    weight = krt.tensor(normal(64, 64) * 3).cast(narrow).realize()
    fn = krt.jit(lambda x: x @ weight.float().T, freeze=True)
    x = normal(4, 64)
    same(fn(x), x.astype("float64") @ weight.float().numpy().T, 64)
    assert not panels_of(fn)


def test_matrices_of_no_elements():
    for shape in ((64, 0), (0, 64), (0, 0)):
        weight = krt.tensor(np.zeros(shape, np.float32))
        fn = krt.jit(lambda x, w=weight: x @ w, freeze=True)
        assert fn(normal(16, shape[0])).shape == (16, shape[1])


def test_panels_that_find_no_room_are_not_copied_in_every_call(monkeypatch):
    monkeypatch.setattr(hoist_invariants, "_MOST_BYTES", 1)  # no more than the program reads
    weight = krt.tensor(normal(64, 64))
    fn = krt.jit(lambda x: (x @ weight).relu() @ weight.T, freeze=True)
    x = normal(8, 64)
    w = weight.numpy().astype("float64")
    same(fn(x), np.maximum(x @ w, 0) @ w.T, 64)
    assert len(panels_of(fn)) == 1
    assert all("contract" in k.entry_point for k in fn.plans[-1].kernels)


def test_a_batch_of_any_size():
    weight = krt.tensor(normal(32, 24))
    fn = krt.jit(
        lambda x: x @ weight.T, freeze=True, dynamic={"x": {0: krt.Variable("rows", 1, 50)}}
    )
    for rows in (1, 2, 17, 50):
        x = normal(rows, 24)
        same(fn(x), x.astype("float64") @ weight.numpy().T, 24)
    assert len(fn.plans) == 1
    assert len(panels_of(fn)) == 1


def test_changes_are_seen_by_the_next_call():
    model = nn.Linear(24, 32)
    fn = krt.jit(model, freeze=True)
    opt = nn.optim.Adam(model.parameters(), lr=0.1)

    @krt.jit
    def step(x):
        opt.zero_grad()
        model(x).square().sum().backward()
        opt.step()

    x = normal(8, 24)

    def check() -> None:
        w, b = (p.numpy().astype("float64") for p in (model.weight, model.bias))
        same(fn(x), x @ w.T + b, 24)

    check()
    step(x)
    check()
    with krt.no_grad():
        model.weight[3] = 2.0
    check()
    model.load_state_dict(nn.Linear(24, 32).state_dict())
    check()
    model.weight = nn.Parameter(krt.tensor(normal(32, 24)))
    check()
    shared = model.weight.detach().numpy()
    shared[1] = 7.0
    check()


def test_a_step_that_writes_its_weights_is_as_without():
    losses = []
    for freeze in (False, True):
        krt.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        opt = nn.optim.SGD(model.parameters(), lr=0.05)

        def step(x, model=model, opt=opt):
            opt.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            opt.step()
            return loss

        fn = krt.jit(step, freeze=freeze)
        x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
        losses.append([fn(x).item() for _ in range(5)])
    assert losses[0] == losses[1]


def test_gradients_of_what_a_frozen_model_is_given():
    weight = krt.tensor(normal(32, 24))

    @krt.jit(freeze=True)
    def slope(x):
        return krt.func.grad(lambda x: (x @ weight.T).square().sum())(x)

    x = normal(6, 24)
    w = weight.numpy().astype("float64")
    same(slope(x), 2 * x @ w.T @ w, 24 * 32)


def test_infinite_and_missing_numbers_stay_in_their_columns():
    w = normal(32, 24)
    w[3, 4], w[9, 0] = np.inf, np.nan
    weight = krt.tensor(w)
    x = np.abs(normal(6, 24)) + 0.1
    found = krt.jit(lambda x: x @ weight.T, freeze=True)(x).numpy()
    assert np.isposinf(found[:, 3]).all()
    assert np.isnan(found[:, 9]).all()
    assert np.isfinite(np.delete(found, [3, 9], axis=1)).all()


def test_bits_do_not_depend_on_threads():
    model = nn.Sequential(nn.Linear(300, 256), nn.ReLU(), nn.Linear(256, 128))
    x, found = normal(130, 300), []
    before = krt.get_num_threads()
    try:
        for threads in (1, 2):
            krt.set_num_threads(threads)
            found.append(krt.jit(model, freeze=True)(x).numpy())
    finally:
        krt.set_num_threads(before)
    np.testing.assert_array_equal(*found)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)

    @krt.jit(freeze=True)
    def act(self, x):
        return self.layer(x)


def test_methods_and_pickles_keep_the_option():
    policy = Policy()
    x = normal(4, 16)
    expected = x @ policy.layer.weight.numpy().T.astype("float64") + policy.layer.bias.numpy()
    same(policy.act(x), expected, 16)
    assert len(panels_of(policy.act)) == 1
    again = pickle.loads(pickle.dumps(policy))  # noqa: S301
    same(again.act(x), expected, 16)
    assert len(panels_of(again.act)) == 1


def test_work_grows_with_the_layers():
    def work(layers: int) -> int:
        value = MEM.random(4, 16)
        steady = set()
        for _ in range(layers):
            w = MEM.random(16, 16)
            steady.update(toposort([w]))
            value = matmul(value, permute(w, 1, 0))
        found: list = []
        lines = lines_run(lambda: found.append(lay_out([value], steady, host(), math.inf)))
        [(roots, panels)] = found
        assert len(panels) == layers * (16 % LANES == 0)
        assert not panels - set(toposort(roots))
        return lines

    def beside(products: int) -> int:
        """The same, for products that all read one long chain."""
        chain, steady = MEM.random(4, 16), set()
        for _ in range(products):
            chain = add(chain, 1.0)
        values = []
        for _ in range(products):
            w = MEM.random(16, 16)
            steady.update(toposort([w]))
            values.append(matmul(chain, w))
        return lines_run(lambda: lay_out(values, steady, host(), math.inf))

    for each in (work, beside):
        each(10)
        assert each(160) < 9 * each(20)


def test_the_option_is_a_bool():
    with pytest.raises(krt.errors.DTypeError, match="freeze: expected a bool, not str"):
        krt.jit(lambda x: x, freeze="yes")


@pytest.mark.parametrize("rows", [5, 10, 14, 18, 50, 101])
def test_each_part_of_the_matrix_is_read_by_one_chunk(rows):
    """Or it would come from memory for every few rows again."""
    weight = krt.tensor(normal(1024, 512))
    fn = krt.jit(lambda x: x @ weight.T, freeze=True)
    x = normal(rows, 512)
    same(fn(x), x.astype("float64") @ weight.numpy().T, 512)
    (kernel,) = fn.plans[-1].kernels
    nest = [line.strip() for line in kernel.loops().splitlines() if line.strip().startswith("for")]
    chunked = [line for line in nest if "chunks" in line]
    assert len(chunked) == 1
    assert f"in {1024 // LANES} by" in chunked[0] or f"in {1024 // LANES}:" in chunked[0]
