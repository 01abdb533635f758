"""Every public operation has a row, and methods in place compute what the others do."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import kernelrt as krt

pytest.importorskip("torch")

from surface import recording, rows
from surface.recording import PLACES, Calls, Use
from surface.rows import In, Row

#: Why names have no row, and the names; those of methods as they are, others with their place.
WITHOUT = {
    "makes a tensor of what Python or an array has": """
        new_empty new_full new_ones new_tensor new_zeros krt.as_tensor krt.asarray krt.empty
        krt.empty_like krt.from_dlpack krt.from_numpy krt.full krt.full_like krt.linspace
        krt.logspace krt.ones krt.ones_like krt.scalar_tensor krt.zeros krt.zeros_like
    """,
    "makes Python's numbers or an array of a tensor": """
        __bool__ __complex__ __float__ __index__ __int__ __len__ is_nonzero item numpy tolist
    """,
    "says what a tensor is and computes nothing": """
        __array_namespace__ data_ptr device dims get_device grad_fn is_complex is_conj
        is_contiguous is_cpu is_cuda is_floating_point is_inference is_leaf is_meta is_mps is_neg
        is_pinned is_quantized is_realized is_same_size is_signed is_sparse is_xla is_xpu itemsize
        nbytes ndim ndimension nelement requires_grad retains_grad storage_offset stride uop
    """,
    "differentiates, computes or keeps values, whatever they are": """
        assign backward copy_ detach_ fill_ grad prepare realize register_hook requires_grad_
        retain_grad to_device zero_ zero_grad
        krt.autotune krt.grad krt.jit krt.prepare krt.realize krt.summary krt.view krt.vmap
    """,
    "calls functions that become loops and choices: tests/func/test_loops.py": """
        krt.cond krt.fori_loop krt.scan krt.switch krt.while_loop
    """,
    "calls what it is given: tests/ops/test_call*.py and tests/jit/test_call*.py": """
        krt.call
    """,
    "draws numbers: tests/ops/test_drawing.py and test_random.py look at their distributions": """
        bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_
        krt.binomial krt.poisson
        krt.kaiming_normal krt.kaiming_uniform krt.normal krt.rand krt.rand_like krt.randint
        krt.randint_like krt.randn krt.randn_like krt.randperm krt.uniform krt.xavier_normal
        krt.xavier_uniform
    """,
    "writes and opens model files: tests/saved/": """
        krt.load krt.save
        """,
    "finds mistakes: tests/ops/test_nonfinite.py, tests/jit/test_stepwise.py": """
        krt.debug_nans krt.detect_anomaly krt.disable_jit
    """,
    "is about types, shapes and settings": """
        krt.Variable krt.broadcast_shapes krt.can_cast krt.enable_grad krt.finfo
        krt.get_default_dtype krt.get_num_threads krt.get_rng_state krt.iinfo krt.inference_mode
        krt.initial_seed krt.is_grad_enabled krt.is_tensor krt.manual_seed krt.no_grad
        krt.num_threads krt.promote krt.promote_types krt.result_type krt.seed
        krt.set_grad_enabled krt.set_num_threads krt.set_rng_state
    """,
    "is tested with torch in tests/ops/test_augmented.py": "fill_diagonal_",
    "is tested with torch in tests/ops/test_derived.py": """
        krt.bartlett_window krt.blackman_window krt.hamming_window krt.hann_window krt.kaiser_window
    """,
}  # fmt: skip


@pytest.fixture(scope="module")
def calls() -> Calls:
    found = Calls()
    for _, row in rows.tables():
        recording.used(row, found)
    return found


def _key(text: str) -> tuple[str, str]:
    place, _, name = text.rpartition(".")
    return place or "Tensor", name


def _excused() -> set[tuple[str, str]]:
    return {_key(word) for text in WITHOUT.values() for word in text.split()}


def _twin(name: str) -> str | None:
    """The method whose result a method assigns."""
    code = getattr(getattr(krt.Tensor, name), "__code__", None)
    made = getattr(code, "co_qualname", "") == "_assigning.<locals>.method"
    return name[:-1] if made else None


def _lacking(calls: Calls) -> list[str]:
    excused = {recording.same(*key) for key in _excused()}
    found = {recording.same(*key) for key in calls.names}
    lacking = []
    for place in PLACES:
        for name in recording.public(place):
            known = recording.same(place, name)
            if recording.is_method(place, name) and (twin := _twin(name)):
                known = recording.same("Tensor", twin)
            if known not in found | excused:
                lacking.append(f"{place}.{name}")
    return lacking


@pytest.mark.cases(1 / 4)
def test_every_operation_has_a_row(calls: Calls) -> None:
    """A new one needs one, in tests/surface/tables, or a reason above."""
    assert _lacking(calls) == []


def test_reasons_are_of_names_that_have_no_row(calls: Calls) -> None:
    known = {(place, name) for place in PLACES for name in recording.public(place)}
    assert _excused() <= known
    assert not _excused() & calls.names


def test_an_operation_without_a_row_is_found(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krt.Tensor, "doubled", lambda x: x + x, raising=False)
    monkeypatch.setattr(krt.Tensor, "doubled_", lambda x: x, raising=False)
    monkeypatch.setattr(krt.linalg, "halved", lambda x: x / 2, raising=False)
    monkeypatch.setattr(krt.linalg, "__all__", [*krt.linalg.__all__, "halved"])
    assert _lacking(calls) == ["Tensor.doubled", "Tensor.doubled_", "linalg.halved"]


def test_what_is_called_within_is_not_noted() -> None:
    found = Calls()
    recording.used(Row("r", lambda k, x: (x.softmax(1), k.linalg.cond(x[:2])), ("2 a",)), found)
    assert found.names == {("Tensor", "softmax"), ("linalg", "cond"), ("Tensor", "__getitem__")}
    recording.used(Row("r", lambda k, x: [k.relu(y) for y in x], (In("3"),)), found)
    assert {("krt", "relu"), ("Tensor", "__iter__")} <= found.names
    assert recording.same("krt", "relu") is recording.same("Tensor", "relu")
    assert recording.same("nn.functional", "relu") is recording.same("Tensor", "relu")
    assert recording.same("linalg", "norm") is not recording.same("Tensor", "norm")


def _in_place(name: str, uses: list[Use]) -> tuple[krt.Tensor, krt.Tensor] | None:
    """What a method assigns and what it shall, with the first arguments whose result fits."""
    twin = _twin(name)
    assert twin is not None
    for use in uses:
        expected = getattr(use.tensor, twin)(*use.args, **use.options)
        kind = use.tensor.dtype
        if expected.shape == use.tensor.shape and expected.dtype.kind <= kind.kind:
            x = use.tensor.clone()
            assert getattr(x, name)(*use.args, **use.options) is x
            return x, expected.cast(kind)
    return None


@pytest.mark.cases(1 / 4)
def test_methods_in_place_assign_what_the_others_give(calls: Calls) -> None:
    uses = defaultdict(list)
    for method, found in calls.methods.items():
        uses[recording.same("Tensor", method)] += found
    names = [n for n in recording.public("Tensor") if _twin(n)]
    with krt.no_grad():
        pairs = [_in_place(n, uses[recording.same("Tensor", _twin(n))]) for n in names]
    assert [n for n, pair in zip(names, pairs, strict=True) if pair is None] == []
    krt.realize(*(t for pair in pairs for t in pair))
    for name, (x, expected) in zip(names, pairs, strict=True):
        np.testing.assert_array_equal(x.numpy(), expected.numpy(), err_msg=name)
