"""docs/torch_names.md is what its script gives, and what it calls the same is there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from support import torch_names  # noqa: E402 - it looks PyTorch's names up

NAMES = list(torch_names.common())


def test_the_page_is_what_the_script_writes() -> None:
    """Otherwise: ``python -m tests.support.torch_names`` in the project's root."""
    assert torch_names.PAGE.read_text(encoding="utf-8") == torch_names.written()


def test_common_names_are_those_of_torch() -> None:
    wrong = [(p, n) for p, n in NAMES if not hasattr(torch_names._at(p), n)]
    assert not wrong


def test_what_is_the_same_is_there() -> None:
    for (place, name), kind in torch_names.common().items():
        ours = torch_names._at(torch_names.PLACES[place][0])
        theirs = getattr(torch_names._at(place), name)
        if kind == "same" and callable(theirs):
            assert callable(getattr(ours, name)), (place, name)


def test_nothing_is_the_same_that_is_lacking_or_of_another_kind() -> None:
    assert torch_names.standing("torch.Tensor", "cuda")[0] == "near"
    assert torch_names.standing("torch.Tensor", "geqrf")[0] == "no"
    assert torch_names.standing("torch", "dtype")[0] != "same"
    for name in ("cond", "while_loop", "Size", "device"):  # of one name, and called otherwise
        assert torch_names.standing("torch", name)[0] == "near"
    assert torch_names.standing("torch", "exp") == ("same", "")
