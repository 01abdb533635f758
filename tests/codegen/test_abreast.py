"""Chains of several vectors are written step by step; rare values of them share a branch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.assembly import assembly

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, rewrite
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.math.decompositions import decompositions
from kernelrt.loops.passes.interleave import abreast

SIZE = 256
TARGETS = ["avx512", "avx2", "generic", "neon"]


def function(build: type, op: Op, size: int = SIZE) -> UOp:
    r = build.range(size, 0)
    given = tuple(build.load(build.param(1 + k, size), r) for k in range(1 + (op is Op.POW)))
    return build.sink(build.store(build.param(0, size), r, UOp(op, dt.float32, given)))


def beside(ast: UOp, target: DeviceSpec) -> int:
    info = Analysis(rewrite([ast], decompositions(target))[0])
    return abreast(info, [s.src[2] for s in info.sink.src], target)


def steps(source: str) -> str:
    """Loads, stores and rare branches of the main loop, in the order of the text."""
    loop = source.split("loop1:")[1].split("done", maxsplit=1)[0]
    kinds = {" load <": "l", " store <": "s", "!prof !1": "b"}
    lines = ((k for word, k in kinds.items() if word in line) for line in loop.splitlines())
    return "".join(k for found in lines for k in found)


@pytest.mark.parametrize("target", TARGETS)
def test_vectors_of_a_chain_go_side_by_side(build: type, target: str) -> None:
    spec: DeviceSpec = getattr(DeviceSpec, target)()
    assert steps(LLVMRenderer(spec).render(function(build, Op.EXP)).src) == "llllssss"


def test_short_chains_go_one_after_the_other(build: type) -> None:
    ast = function(build, Op.SQRT)
    assert steps(LLVMRenderer(DeviceSpec.avx512()).render(ast).src) == "lsls" * 2
    assert beside(ast, DeviceSpec.avx512()) == 1


def test_rare_values_of_all_of_them_share_a_branch(build: type) -> None:
    ast = function(build, Op.SIN)
    assert steps(LLVMRenderer(DeviceSpec.avx512()).render(ast).src) == "llllbssss"


def test_as_many_as_registers_are_for(build: type) -> None:
    ast = function(build, Op.POW)
    assert 1 < beside(ast, DeviceSpec.avx2()) < beside(ast, DeviceSpec.avx512())


@pytest.mark.parametrize("op", [Op.SIN, Op.TAN, Op.POW], ids=lambda op: op.name)
def test_a_rare_element_leaves_its_neighbours_alone(run, build: type, op: Op) -> None:
    size = 67
    usual = np.linspace(0.5, 2, size, dtype=np.float32)
    rare = np.float32(1e-40 if op is Op.POW else 1e20)
    rest = [np.full(size, 0.7, np.float32)] if op is Op.POW else []
    ast = function(build, op, size)

    def apply(x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        run(ast, [out, x, *rest])
        return out

    base, there = apply(usual), apply(np.full(size, rare))
    for k in range(size):
        mixed = usual.copy()
        mixed[k] = rare
        expected = base.copy()
        expected[k] = there[k]
        np.testing.assert_array_equal(apply(mixed), expected)


@pytest.mark.parametrize("kind", ["two", "adds", "in place"])
@pytest.mark.parametrize("op", [Op.EXP, Op.SIN], ids=lambda op: op.name)
def test_stores_of_all_kinds(run, build: type, op: Op, kind: str) -> None:
    """Two that share a value, one that adds, and one that writes where it reads."""
    size = 3 * SIZE + 5
    r = build.range(size, 0)
    out, source, second = (build.param(slot, size) for slot in range(3))
    given = build.load(out if kind == "in place" else source, r)
    value = UOp(op, dt.float32, (given,))
    stores = [build.store(out, r, value, *([r] if kind == "adds" else []))]
    if kind == "two":
        stores.append(build.store(second, r, value * given))
    ast = build.sink(*stores)
    assert beside(ast, DeviceSpec.avx512()) > 1

    x = np.linspace(-3, 3, size, dtype=np.float32)
    expected = np.empty_like(x)
    for k in range(size):
        one = np.empty(1, np.float32)
        run(function(build, op, 1), [one, x[k : k + 1].copy()])
        expected[k] = one[0]
    first = x.copy() if kind == "in place" else np.full(size, 0.25, np.float32)
    other = np.full(size, np.nan, np.float32)
    run(ast, [first, x, other])
    added = np.float32(0.25) if kind == "adds" else np.float32(0)
    np.testing.assert_array_equal(first, expected + added)
    if kind == "two":
        np.testing.assert_array_equal(other, expected * x)


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("op", [Op.TAN, Op.POW, Op.ERFC], ids=lambda op: op.name)
def test_registers_are_put_aside_at_whole_vectors(build: type, op: Op, target: str) -> None:
    """What crosses two pages takes ten times as long, at one address of the stack in fifty."""
    spec: DeviceSpec = getattr(DeviceSpec, target)()
    text = assembly(function(build, op), spec)
    wide = "zmm" if target == "avx512" else "ymm"
    moves = [line for line in text.splitlines() if f"%{wide}" in line and "(%rsp)" in line]
    assert any("vmova" in line for line in moves)
    assert not [line for line in moves if re.search(r"vmovu|vmovdqu", line)]
