"""What a first program gets wrong: errors say what came, what was expected and the way out."""

from __future__ import annotations

import re

import pytest

import kernelrt as krt
import kernelrt.nn.functional as F  # noqa: N812 - as everybody calls it
from kernelrt import nn

X = krt.ones(3, 4)
LAYER = nn.Linear(4, 4)


def _jitted(call):
    return krt.jit(lambda x: (call(x), x)[1])(krt.ones(2))


def _counted(call):
    return krt.jit(lambda n: (call(n), n)[1])(krt.tensor(2))


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: krt.optim.Adam(LAYER.parameters(), learning_rate=1e-3), krt.UnknownNameError,
     "Adam: unknown option 'learning_rate', expected one of lr, betas, .*; did you mean lr\\?"),
    (lambda: krt.optim.AdamW(LAYER.parameters(), weightdecay=0.1), krt.UnknownNameError,
     "'weightdecay', .*; did you mean weight_decay\\?"),
    (lambda: krt.optim.AdamW([{"param": list(LAYER.parameters())}]), krt.DTypeError,
     r"params\[0\]: expected a dict with the key 'params', but the keys are 'param'"),
    (lambda: krt.jit(LAYER).parameters(), AttributeError,
     "'JitFunction' object has no attribute 'parameters', but the wrapped Linear has it: "),
    (lambda: krt.jit(LAYER).nothing_like_it, AttributeError, "no attribute 'nothing_like_it'$"),
    (lambda: _jitted(lambda x: f"{x.sum():.3f}"), krt.JitError, r"^format\(\) reads a value"),
    (lambda: _jitted(lambda x: f"{x:.3f}"), krt.JitError, r"^format\(\) reads a value"),
    (lambda: _counted(lambda n: X[:n]), krt.JitError,
     r"^index: using a tensor as the start or end of a slice .*x\[:, i\].*index_copy_.*arange"),
    (lambda: _counted(lambda n: X[::n]), krt.JitError, "tensor as the step of a slice reads"),
    (lambda: _counted(lambda n: X.clone()[:, n : n + 1].zero_()), krt.JitError,
     r"tensor as the start or end of a slice .*x\[:, i\] = value"),
    (lambda: _counted(lambda n: krt.zeros(3, n)), krt.JitError,
     r"^shape: using a tensor as a size or a position .*x\.shape\[0\].*a Python int"),
    (lambda: _counted(lambda n: X.narrow(0, n, 1)), krt.JitError,
     "^start, length: using a tensor as a size or a position .*index_select"),
    (lambda: _counted(krt.arange), krt.JitError, "^end: using a tensor as a size or a position"),
    (lambda: _counted(X.tensor_split), krt.JitError, "^indices_or_sections: using a tensor as an"),
    (lambda: _counted(X.topk), krt.JitError,
     "^k: using a tensor as an int reads a value .*yet; pass a Python int, which makes a new plan"),
    (lambda: _counted(range), krt.JitError, r"^index\(\) .*where\(\)"),
    (lambda: krt.vmap(lambda n: X[:n])(krt.arange(2)), krt.JitError,
     "start or end of a slice reads a value in a function that vmap .*arange"),
    (lambda: f"{X:.3f}", krt.ScalarError, r"format: '\.3f' .*shape \(3, 4\); .*tolist"),
    (lambda: X.masked_fill(X, 0), krt.DTypeError, "masked_fill: mask: expected bools, not float32"),
    (lambda: F.mse_loss(X, None), krt.DTypeError,
     r"mse_loss: target: .*not NoneType; did a function return nothing\?"),
    (lambda: F.cross_entropy(X, None), krt.DTypeError,
     "cross_entropy: target: .*NoneType; did a function return"),
    (lambda: F.nll_loss(X, None), krt.DTypeError, "nll_loss: target: .*NoneType"),
    (lambda: krt.add(X, None), krt.DTypeError, "other: .*NoneType; did a function return"),
    (lambda: F.l1_loss(X, X[0]), krt.ShapeError,
     r"l1_loss: target: expected the shape \(3, 4\) .*not \(4,\); .*target\.expand_as\(input\)"),
    (lambda: nn.BatchNorm1d(4)(X[:1]), krt.ShapeError,
     r"batch_norm: training .*not shape \(1, 4\); .*eval\(\)"),
    (lambda: _jitted(lambda _: krt.optim.SGD(LAYER.parameters(), lr=0.1)), krt.JitError,
     "SGD: an optimizer cannot be created inside a traced function.* create it outside"),
    (lambda: krt.where(X > 0, X), TypeError, "missing 1 required positional argument: 'other'"),
    (lambda: krt.where([True, False]), krt.DTypeError, "where: condition: expected a Tensor"),
])  # fmt: skip
def test_errors_say_what_to_do(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_names_with_a_prefix_are_said_to_have_it():
    state = LAYER.state_dict()
    with pytest.raises(krt.KernelrtError, match=re.escape("removeprefix('module.')")):
        LAYER.load_state_dict({"module." + k: v for k, v in state.items()})
    with pytest.raises(krt.KernelrtError) as caught:
        LAYER.load_state_dict({"module.weight": state["weight"], "bias": state["bias"]})
    assert "removeprefix" not in str(caught.value)


def test_what_is_torchs_is_called_so(tmp_path):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    with pytest.raises(krt.DTypeError, match=r"not torch\.Parameter; .*load_state_dict"):
        krt.optim.SGD(layer.parameters())
    torch.save(layer.state_dict(), tmp_path / "model.pt")
    with pytest.raises(krt.KernelrtError, match=r"load_state_dict\(torch\.load\(path\)\)"):
        nn.load(tmp_path / "model.pt")


def test_where_of_a_condition_alone_gives_positions():
    x = krt.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert [i.tolist() for i in krt.where(x > 0)] == [[0, 1], [1, 0]]
    assert [i.tolist() for i in krt.where(x)] == [[0, 1], [1, 0]]


def test_lengths_of_packed_sequences_are_checked():
    x = krt.ones(5, 3, 2)
    pack = nn.utils.rnn.pack_padded_sequence
    for made in (list, krt.tensor):
        for lengths in ([5, 1, 0], [6, 3, 1]):
            with pytest.raises(krt.ShapeError, match="lengths: expected numbers from 1 to 5"):
                pack(x, made(lengths))
        with pytest.raises(krt.ShapeError, match=r"descending lengths, not \[3, 5, 1\]"):
            pack(x, made([3, 5, 1]))
        assert pack(x, made([3, 5, 1]), enforce_sorted=False).data.shape == (5, 3, 2)
