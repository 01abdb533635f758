"""Products of bytes on arm64 use its dot-product instructions, in registers alone."""

from __future__ import annotations

import re

import pytest
from support.assembly import assembly, inner_loop

from kernelrt.device.spec import DeviceSpec
from tests.codegen.test_words import LAYOUTS, product

TARGETS = {"dot": DeviceSpec.neon_dot(), "i8mm": DeviceSpec.neon_i8mm()}
DOT = r"\b(?:us|s|u)dot\b"
#: The instructions for each pair of types. Without i8mm, one operand is flipped.
USED = {
    ("int8", "int8"): ["sdot"], ("uint8", "uint8"): ["udot"],
    ("uint8", "int8"): ["sdot", "udot"], ("int8", "uint8"): ["sdot", "udot"],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(64, 64, 64), (128, 128, 128), (512, 512, 512)], ids=str)
@pytest.mark.parametrize("kinds", USED, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_the_inner_loop(target, kinds, sizes, layout, build):
    text = assembly(product(build, sizes, layout, kinds), TARGETS[target])
    inner = "\n".join(inner_loop(text, DOT))
    dots = re.findall(DOT, inner)
    assert len(dots) >= 16
    [used] = set(dots)
    assert used in (["usdot"] if target == "i8mm" and kinds[0] != kinds[1] else USED[kinds])
    assert "[sp" not in inner
    assert not re.search(r"\b[su]?mull?2?\b|\bmla\b", inner)
