"""Names that PyTorch has and kernelrt has not: errors say so, and what to use in their place."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.util import unsupported_names as lacking

X = krt.ones(3)


@pytest.mark.parametrize(("look", "text"), [
    (lambda: X.cuda, "a Tensor of kernelrt has no 'cuda', unlike PyTorch's; use x itself"),
    (lambda: X.apply_(abs), r"no 'apply_', .*kernelrt\.call"),
    (lambda: X.set_, r"no 'set_', .*; use another tensor"),
    (lambda: X.istft, r"no 'istft', .*; .* the closest is numpy\.fft"),
    (lambda: setattr(X, "storage", X), r"no 'storage', .*x\.data_ptr"),
    (lambda: nn.Linear(2, 2).cuda(), "a Module of kernelrt has no 'cuda'"),
    (lambda: krt.zeroes(3), "'zeroes'; similar names: zeros"),
    (lambda: krt.lobpcg, "no attribute 'lobpcg'; .* the closest is kernelrt.linalg.eigh"),
    (lambda: krt.backends.cudnn, "'backends'; leave it out: kernelrt has no such settings"),
    (lambda: krt.set_default_device("cpu"), "'set_default_device'; leave it out: kernelrt"),
    (lambda: krt.FloatTensor([1.0]), r"'FloatTensor'; use kernelrt\.tensor and"),
    (lambda: krt.nothing_like_it, "has no attribute 'nothing_like_it'$"),
    (lambda: nn.SyncBatchNorm(3), r"'SyncBatchNorm'; .* the closest is nn\.BatchNorm2d"),
    (lambda: nn.softmax(X), r"'softmax'; use x\.softmax"),
    (lambda: nn.Linaer, "similar names: Linear"),
    (lambda: nn.Relu, "similar names: ReLU"),
    (lambda: krt.optim.adamw, "similar names: AdamW"),
    (lambda: krt.sofmax, "similar names: softmax"),
    (lambda: nn.functional.crossentropy, "similar names: cross_entropy"),
    (lambda: nn.optim.SGD([krt.ones(1, requires_grad=True)]).register_step_post_hook(print),
     "an Optimizer of kernelrt has no 'register_step_post_hook', .*; use plain Python"),
    (lambda: [krt.cuda.is_available()], r"'cuda'; leave it out, and write False for is_av"),
    (lambda: krt.quantization, "'quantization'; .* no quantized tensors"),
    (lambda: krt.onnx, r"'onnx'; .* the closest is kernelrt\.nn\.save"),
    (lambda: nn.DataParallel, "'DataParallel'; .* the closest is kernelrt.set_num_threads"),
    (lambda: krt.linalg.eig(X), r"'eig'; .* the closest is kernelrt\.linalg\.eigh"),
    (lambda: krt.linalg.slv, "has no attribute 'slv'"),
    (lambda: krt.hubs, "has no attribute 'hubs'$"),
    (lambda: krt.pca_lowrank(X), r"'pca_lowrank'; .* the closest is kernelrt\.linalg\.svd"),
    (lambda: nn.optim.SparseAdam, "'SparseAdam'; no exact equivalent, the closest is Adam"),
])  # fmt: skip
def test_errors_say_what_to_use(look, text):
    with pytest.raises(AttributeError, match=text):
        look()


def test_a_device_is_made_as_torch_makes_one():
    device = krt.device("cpu")
    assert device == X.device
    assert X.to(device) is X
    assert krt.zeros(2, device=device).to(device=krt.device("cpu", 0)).tolist() == [0, 0]
    assert nn.Linear(2, 1).to(device)(krt.ones(1, 2)).shape == (1, 1)
    for given in (X.device, "cpu:0", device):
        assert X.to(given) is X.to(given, krt.float32) is X
        layer = nn.Linear(2, 1)
        assert layer.to(given) is layer
    assert nn.Linear(2, 1).to(X.double()).weight.dtype is krt.float64
    with pytest.raises(krt.DeviceError, match="'meta' is"):
        X.to("meta")
    with pytest.raises(krt.DeviceError, match="'cuda' is unknown; expected 'cpu'"):
        krt.device("cuda")


def test_a_device_of_torch_is_taken():
    torch = pytest.importorskip("torch")
    assert X.to(torch.device("cpu")) is X
    layer = nn.Linear(2, 1)
    assert layer.to(torch.device("cpu")) is layer
    with pytest.raises(krt.DeviceError, match="'cuda' is unknown"):
        layer.to(torch.device("cuda"))


def test_python_suggests_names_of_tensors():
    """It does so for objects of at most 750 names."""
    program = "import kernelrt as krt; krt.ones(3).squeezee"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "Did you mean: 'squeeze'?" in done.stderr
    assert len(dir(X)) <= 750


def test_names_that_are_lacking_are_not_there():
    for name in ("cuda", "storage", "istft"):
        assert not hasattr(X, name)
        assert not hasattr(krt.Tensor, name)
        assert name not in dir(X)
    assert "relu" in dir(X)
    assert getattr(krt, "lobpcg", None) is None
    assert not hasattr(nn, "__path_of_nothing__")


def test_looking_up_what_is_there_costs_nothing():
    """Neither a Tensor nor a Module asks a function of Python for its attributes."""
    for kind in (krt.Tensor, nn.Module):
        assert not any("__getattr__" in vars(base) for base in kind.__mro__)
    assert all("__getattribute__" not in vars(base) for base in krt.Tensor.__mro__[:-1])


def names(text: str) -> set[str]:
    """Methods of `x` that a text speaks of."""
    return set(re.findall(r"\bx\.(\w+)", text))


def test_what_is_to_be_used_is_there():
    for table in (lacking.TENSOR, lacking.NN, lacking.TOP, lacking.OPTIM, lacking.INIT):
        for name, text in table.items():
            assert all(hasattr(krt.Tensor, n) for n in names(text)), (name, text)
            for path in re.findall(r"\bkernelrt\.(\w+)", text):
                assert hasattr(krt, path) or path == "data", (name, text)
            for path in re.findall(r"\bnn\.([A-Z]\w+)", text):
                assert hasattr(nn, path), (name, text)


def test_nothing_in_the_tables_is_there_itself():
    """What was added since must leave the table."""
    own = {n for n in dir(krt.Tensor) if hasattr(krt.Tensor, n)}
    assert not own & {*lacking.TENSOR, *lacking.OTHERS}
    assert not {n for n in lacking.MODULE if hasattr(nn.Module, n)}
    for module, table in ((nn, lacking.NN), (krt, lacking.TOP), (nn.optim, lacking.OPTIM),
                          (nn.init, lacking.INIT)):  # fmt: skip
        assert not set(table) & set(module.__all__)


def test_names_of_torch():
    torch = pytest.importorskip("torch")
    for table in (lacking.TENSOR, lacking.OTHERS):
        extra = {n for n in table if not hasattr(torch.Tensor, n)}
        functional = {n for n in extra if hasattr(torch.nn.functional, n)}
        assert len(extra - functional) <= 3, extra - functional
    lost = {n for n in dir(torch.nn.Module) if not n.startswith("_")}
    assert set(lacking.MODULE) <= lost


def test_errors_of_calls_name_the_public_class():
    for call, text in (
        (lambda: X.sum(foo=1), r"Tensor\.sum\(\) got an unexpected keyword argument 'foo'"),
        (lambda: X.batch_norm(foo=1), r"Tensor\.batch_norm\(\) got"),
        (lambda: X.softmax(1, 2, 3, 4), r"Tensor\.softmax\(\) takes from 1 to 3 positional"),
        (lambda: X.tolist(3), r"Tensor\.tolist\(\) takes 1 positional argument"),
        (X.conv2d, r"Tensor\.conv2d\(\) missing 1 required"),
        (lambda: X.backward(foo=1), r"Tensor\.backward\(\) got"),
    ):
        with pytest.raises(TypeError, match=f"^{text}"):
            call()
    wrong = [
        name for name in dir(krt.Tensor)
        if callable(value := getattr(krt.Tensor, name, None)) and hasattr(value, "__code__")
        and not value.__qualname__.startswith("Tensor.")
    ]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("name", ["sum", "batch_norm", "tolist", "view", "backward"])
def test_methods_are_pickled_by_name(name):
    method = getattr(krt.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) is method  # noqa: S301 - our own
