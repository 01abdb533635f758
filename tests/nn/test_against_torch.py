"""Every layer against PyTorch's, with the same state: values, gradients, running statistics."""

from __future__ import annotations

import inspect
import zlib
from typing import Any

import numpy as np
import pytest
from support.skip_list import Package
from surface.layers import LAYERS
from surface.rows import In, Index, Row, draw

import kernelrt as krt
from kernelrt import nn

torch = Package("torch")

IDS = [f"{i}-{layer.text}" for i, layer in enumerate(LAYERS)]


def _made(library: Any, text: str) -> Any:
    """The layer, in float64, as its text makes it."""
    names = {"nn": library.nn, "k": library}
    return eval(text, names).double()  # noqa: S307 - the text is this repository's


def _twins(layer: Any) -> tuple[Any, Any]:
    torch.manual_seed(zlib.crc32(layer.text.encode()))
    theirs, ours = _made(torch, layer.text), _made(krt, layer.text)
    with torch.no_grad():
        for p in theirs.parameters():  # ones and zeros would hide mistakes
            p.add_(torch.randn_like(p) * 0.3)
    found = ours.load_state_dict(theirs.state_dict())
    assert not found.missing_keys
    assert not found.unexpected_keys
    return ours, theirs


def _inputs(layer: Any, library: Any) -> list[Any]:
    row = Row(layer.text, lambda *_: None, layer.inputs, grad=False)
    made = [library.tensor(a) for a in draw(row, {})]
    for x, spec in zip(made, row.specs, strict=True):
        if isinstance(spec, In) and spec.grad:
            x.requires_grad_()
    return made


def _call(layer: Any, library: Any, module: Any, inputs: list[Any]) -> Any:
    if layer.call is None:
        return module(*inputs)
    return layer.call(library, module, *inputs)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [y for part in result for y in _flat(part)]
    return [] if result is None else [result]


def _numpy(x: Any) -> Any:
    return x.detach().numpy()


def _close(ours: Any, theirs: Any, what: str) -> None:
    a, b = _numpy(ours), _numpy(theirs)
    assert a.shape == b.shape, what
    assert a.dtype == b.dtype, what
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9, err_msg=what)


def _backward(results: list[Any], library: Any) -> None:
    rng = np.random.default_rng(7)
    total = 0.0
    for y in results:
        if "float" in str(y.dtype):
            total = total + (y * library.tensor(rng.standard_normal(tuple(y.shape)))).sum()
    if getattr(total, "requires_grad", False):
        total.backward()


def _gradient(x: Any) -> Any:
    return np.zeros(tuple(x.shape)) if x.grad is None else _numpy(x.grad)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_layers_are_those_of_torch(layer: Any, training: bool) -> None:
    ours, theirs = _twins(layer)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ours.train(training)
    theirs.train(training)
    x, tx = _inputs(layer, krt), _inputs(layer, torch)
    y = _flat(_call(layer, krt, ours, x))
    ty = _flat(_call(layer, torch, theirs, tx))
    assert [tuple(a.shape) for a in y] == [tuple(b.shape) for b in ty]
    if layer.random and training:
        return
    for i, (a, b) in enumerate(zip(y, ty, strict=True)):
        _close(a, b, f"result {i}")
    for name, buffer in theirs.named_buffers():
        _close(dict(ours.named_buffers())[name], buffer, name)
    _backward(y, krt)
    _backward(ty, torch)
    for i, (a, b) in enumerate(zip(x, tx, strict=True)):
        np.testing.assert_allclose(
            _gradient(a), _gradient(b), rtol=1e-7, atol=1e-9, err_msg=f"gradient of input {i}"
        )
    expected = dict(theirs.named_parameters())
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(
            _gradient(p), _gradient(expected[name]), rtol=1e-7, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_jitted_layers_give_what_eager_ones_give(layer: Any) -> None:
    ours, _ = _twins(layer)
    ours.train(not layer.random)
    x = [a.detach() for a in _inputs(layer, krt)]
    before = {n: _numpy(t).copy() for n, t in ours.state_dict().items()}
    eager = [_numpy(y).copy() for y in _flat(_call(layer, krt, ours, x))]
    after = {n: _numpy(t).copy() for n, t in ours.state_dict().items()}
    ours.load_state_dict(before)
    jitted = krt.jit(lambda *args: _flat(_call(layer, krt, ours, list(args))))
    for a, b in zip(map(_numpy, jitted(*x)), eager, strict=True):
        if layer.same_bits:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    for name, t in ours.state_dict().items():
        np.testing.assert_allclose(_numpy(t), after[name], rtol=1e-12, atol=1e-14, err_msg=name)


def test_every_layer_is_in_the_table() -> None:
    text = "\n".join(layer.text for layer in LAYERS)
    layers = {
        name
        for name in nn.__all__
        if inspect.isclass(getattr(nn, name)) and issubclass(getattr(nn, name), nn.Module)
    }
    lazy = {name for name in layers if name.startswith("Lazy")}  # tests/nn/test_lazy.py has them
    apart = {"Module", "Population", *lazy}  # tests/nn/test_populations.py
    assert {name for name in layers - apart if f"nn.{name}(" not in text} == set()


def test_the_table_has_integers_as_integers() -> None:
    for layer in LAYERS:
        for spec, a in zip(layer.inputs, _inputs(layer, krt), strict=True):
            assert a.dtype.is_int == isinstance(spec, Index)
