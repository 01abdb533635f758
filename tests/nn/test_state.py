"""State dicts: strict, atomic, in place; and files of them."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import StateError


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def values(model: object) -> dict[str, np.ndarray]:
    return {k: v.numpy() for k, v in nn.state_dict(model).items()}


def same(a: dict, b: dict) -> bool:
    return list(a) == list(b) and all(np.array_equal(a[k], b[k]) for k in a)


def test_round_trip_between_models() -> None:
    a, b = make(), make()
    assert not same(values(a), values(b))
    address = b[0].weight.data_ptr()
    result = b.load_state_dict(a.state_dict())
    assert result == ([], [])
    assert same(values(a), values(b))
    assert b[0].weight.data_ptr() == address
    assert b[0].weight.requires_grad
    a[0].weight.assign(0.0)
    assert b[0].weight.numpy().any()


def test_state_of_torch_loads() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    ours = make()
    ours.load_state_dict(theirs.state_dict())
    ours.load_state_dict(dict(theirs.named_parameters()))
    x = np.ones((5, 3), np.float32)
    np.testing.assert_allclose(
        ours(krt.tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_every_fault_is_listed_and_nothing_is_loaded() -> None:
    model = make()
    before = values(model)
    wrong = {
        "0.weight": np.zeros((3, 4), np.float32),
        "0.bias": np.zeros(4, np.float32),
        "2.weight": "text",
        "3.bias": np.zeros(2, np.float32),
    }
    with pytest.raises(StateError) as caught:
        model.load_state_dict(wrong)
    text = str(caught.value)
    assert "missing: '2.bias' (float32 of shape (2,))" in text
    assert "unexpected: '3.bias'" in text
    assert "'0.weight' has shape (3, 4), expected (4, 3)" in text
    assert "'2.weight': " in text
    assert same(values(model), before)
    assert isinstance(caught.value, ValueError)


def test_not_strict_loads_what_fits_by_name_only() -> None:
    model = make()
    before = values(model)
    missing, unexpected = model.load_state_dict(
        {"0.bias": np.full(4, 7.0), "more": np.zeros(1)}, strict=False
    )
    assert missing == ["0.weight", "2.weight", "2.bias"]
    assert unexpected == ["more"]
    assert model[0].bias.tolist() == [7] * 4
    assert np.array_equal(model[2].weight.numpy(), before["2.weight"])
    with pytest.raises(StateError, match="shape"):
        model.load_state_dict({"0.bias": np.zeros(5)}, strict=False)


def test_floats_of_other_widths_are_converted() -> None:
    layer = nn.Linear(2, 1, dtype="bfloat16")
    layer.load_state_dict({"weight": np.array([[1.5, 2.0]]), "bias": krt.ones(1, dtype="float16")})
    assert layer.weight.cast("float32").tolist() == [[1.5, 2]]
    assert layer.weight.dtype is krt.bfloat16


def test_integers_may_become_floats_but_floats_no_integers() -> None:
    state = {"count": krt.tensor([1, 2]), "scale": krt.ones(2)}
    nn.load_state_dict(state, {"count": np.array([3, 4], np.int8), "scale": np.array([5, 6])})
    assert state["count"].tolist() == [3, 4]
    assert state["scale"].tolist() == [5, 6]
    with pytest.raises(StateError, match="'count' holds float64, expected int64"):
        nn.load_state_dict(state, {"count": np.ones(2), "scale": np.ones(2)})


def test_what_is_no_mapping_or_array_is_refused() -> None:
    with pytest.raises(krt.DTypeError, match="mapping"):
        make().load_state_dict([1])
    with pytest.raises(StateError, match=r"'0.bias'.*object"):
        make().load_state_dict({"0.bias": object()}, strict=False)


def test_files_keep_every_dtype(tmp_path) -> None:
    tensors = {
        "file": krt.tensor([1.5, -0.0]),
        "a.b": krt.tensor([[1, 2]], dtype="int8"),
        "half": krt.tensor([0.5], dtype="float16"),
        "brain": krt.tensor([3.0, -2.5], dtype="bfloat16"),
        "flag": krt.tensor(True),
        "empty": krt.zeros(0, 3),
    }
    path = tmp_path / "state.npz"
    nn.save(tensors, path)
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]
    back = nn.load(path)
    assert list(back) == list(tensors)
    for name, t in tensors.items():
        assert back[name].dtype is t.dtype, name
        assert back[name].shape == t.shape, name
        assert back[name].cast("float64").tolist() == t.cast("float64").tolist(), name


def test_files_of_models_and_optimizers(tmp_path) -> None:
    model = make()
    opt = nn.optim.Adam(model.parameters(), lr=0.5)
    model(krt.ones(1, 3)).sum().backward()
    opt.step()
    nn.save({"model": model, "opt": opt}, tmp_path / "run.npz")
    other = make()
    other_opt = nn.optim.Adam(other.parameters())
    nn.load_state_dict({"model": other, "opt": other_opt}, nn.load(tmp_path / "run.npz"))
    assert same(values(other), values(model))
    assert other_opt.lr == 0.5
    assert same(values(other_opt), values(opt))


def test_broken_files_are_named(tmp_path) -> None:
    path = tmp_path / "bad.npz"
    with pytest.raises(FileNotFoundError):
        nn.load(path)
    nn.save(make(), path)
    whole = path.read_bytes()
    for data in (b"", b"not a zip", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(StateError, match=r"bad\.npz"):
            nn.load(path)
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(StateError):
        nn.load(tmp_path / "one.npy")


def test_a_failed_save_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "state.npz"
    nn.save({"a": krt.ones(2)}, path)
    before = path.read_bytes()
    bad = krt.tensor([0, 9])
    lazy = krt.tensor([1.0, 2.0, 3.0])[bad]
    with pytest.raises(krt.IndexBoundsError):
        nn.save({"a": lazy}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


def test_state_dicts_are_views_that_can_be_changed() -> None:
    model = nn.Linear(2, 3)
    state = model.state_dict()
    for value in state.values():
        assert not value.requires_grad
        value.copy_(krt.ones(value.shape))
    state["bias"][1] = 5
    assert model.weight.tolist() == [[1, 1]] * 3
    assert model.bias.tolist() == [1, 5, 1]
    assert state["weight"].data_ptr() == model.weight.data_ptr()
    assert all(value.requires_grad for value in model.state_dict(keep_vars=True).values())
