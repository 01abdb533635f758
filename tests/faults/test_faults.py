"""Every fault can be planted: whoever changes its line changes the fault, too."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from .planting import ROOT, PlantingError, planted
from .table import FAULTS, PARTS, Fault

pytestmark = pytest.mark.cases(len(FAULTS))  # each change of a line is told at once
CASES = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def test_each_part_of_the_package_has_eight():
    assert Counter(fault.part for fault in FAULTS) == dict.fromkeys(PARTS, 8)


def test_names_differ():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 40


@CASES
def test_one_line_changes(fault: Fault):
    before = (ROOT / fault.file).read_text(encoding="utf-8")
    after = planted(fault, before)
    lines = zip(before.splitlines(), after.splitlines(), strict=True)
    assert sum(a != b for a, b in lines) == 1
    if fault.file.endswith(".py"):
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))


@CASES
def test_a_line_that_is_gone_is_told(fault: Fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    with pytest.raises(PlantingError, match=f"{fault.name}: .* 0 times"):
        planted(fault, planted(fault, text))


def test_a_line_that_is_there_twice_is_told():
    fault = FAULTS[0]._replace(near="")
    with pytest.raises(PlantingError, match="2 times"):
        planted(fault, f"{fault.line}\n{fault.line}\n")
