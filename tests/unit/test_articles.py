"""Names of classes in errors have the right article."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

import kernelrt as krt
from kernelrt.errors import a_type, with_article

BAD = re.compile(r"\ba \{type\(")


@pytest.mark.parametrize(
    "text",
    ["an ExecutionPlan", "an int", "an OrderedDict", "an LSTM", "an SGD", "an ndarray", "an Adam",
     "a dict", "a Tensor", "a UOp", "a GRU", "a ReLU", "a uint8", "a NoneType", "a Linear"],
)  # fmt: skip
def test_articles(text: str) -> None:
    assert with_article(text.split()[1]) == text


def test_errors_use_them() -> None:
    assert a_type({}.items()) == "a dict_items"
    with pytest.raises(krt.CopyError, match=r"^an ExecutionPlan refers to memory of this process"):
        copy.deepcopy(krt.zeros(2).prepare())


def test_no_text_has_a_before_any_name() -> None:
    root = Path(krt.__file__).parent
    files = [p for end in ("py", "pyx") for p in root.rglob(f"*.{end}")]
    assert [str(p) for p in files if BAD.search(p.read_text(encoding="utf-8"))] == []
