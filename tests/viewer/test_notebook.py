"""HTML of tensors and modules for notebooks; test_pages.py tests that of plans."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn


def words(html: str) -> list[str]:
    root = ET.fromstring(html)  # noqa: S314 - written by the code under test
    return [text.strip() for text in root.itertext() if text.strip()]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "uint8", "bool"])
def test_small_tensors_are_tables_of_all_their_elements(dtype: str) -> None:
    values = [[0, 1, 2], [3, 0, 5]]
    found = words(krt.tensor(values).cast(dtype)._repr_html_())
    expected = [[bool(v) for v in row] if dtype == "bool" else row for row in values]
    assert found[:-1] == [str(v) for row in expected for v in row]
    assert found[-1].startswith(f"{dtype} (2, 3), ")


def test_large_tensors_show_their_corners() -> None:
    x = krt.arange(10000).reshape(100, 100)
    found = words(x._repr_html_())
    assert len(found) == 9 * 9 + 1
    assert {"0", "3", "99", "9900", "9999"} <= set(found)
    assert "50" not in found


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 2, 2)])
def test_other_shapes_are_text(shape: tuple[int, ...]) -> None:
    html = krt.zeros(shape)._repr_html_()
    assert "<pre>" in html
    assert f"float32 {str(shape).replace(',)', ',)')}" in html


def test_nan_infinities_and_gradients() -> None:
    x = krt.tensor([np.nan, np.inf, -np.inf, -1.0]).requires_grad_()
    html = x._repr_html_()
    assert words(html)[:4] == ["nan", "inf", "-inf", "-1"]
    assert "requires_grad=True" in html


def test_a_traced_tensor_is_left_to_repr() -> None:
    shown = []

    @krt.jit
    def f(x):
        shown.append(x._repr_html_())
        return x + 1

    f(krt.ones(3))
    assert shown == [None]


def test_modules_are_tables() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.25))
    found = words(model._repr_html_())
    assert found[:3] == ["module", "options", "parameters"]
    assert "0: Linear" in found
    assert found.count("8") == 2
    assert any("0.25" in text for text in found)


def test_modules_in_a_list_are_no_children_of_the_module_before_it() -> None:
    model = nn.Module()
    model.first, model.blocks = nn.Sequential(nn.ReLU()), [nn.Linear(3, 2)]
    rows = ET.fromstring(model._repr_html_()).iter("tr")  # noqa: S314 - as above
    assert [row[0].text for row in rows] == [
        "module", "Module", "  first: Sequential", "    0: ReLU", "  blocks.0: Linear",
    ]  # fmt: skip


def test_lazy_modules_have_no_number_of_parameters() -> None:
    found = words(nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(4))._repr_html_())
    assert found.count("not known yet") == 2
    assert found.count("8") == 1
    assert "not known yet" in words(nn.LazyLinear(4)._repr_html_())
