"""Programs on disk: what a process finds is what it would have written."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING

import pytest

import kernelrt as krt
import kernelrt.backend.llvm
from kernelrt import dtype as dt
from kernelrt.backend.cpu import ObjectCache, rendered
from kernelrt.backend.cpu.rendered import StoredRenderer, decoded, encoded, package_stamp
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.program import ProgramSpec
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.runtime.kernel_cache import kernels

if TYPE_CHECKING:
    from pathlib import Path

SPEC = DeviceSpec.avx2()
FIELDS = [f.name for f in dataclasses.fields(ProgramSpec)]


def scaled(size: int | UOp = 96, factor: float = 2.0, most: int = 96) -> UOp:
    """A kernel AST."""
    extent = size if isinstance(size, UOp) else const(size, dt.int64)
    i = UOp(Op.RANGE, dt.int64, (extent,), 0)
    x, y = (UOp(Op.PARAM, dt.float32, (), (slot, most)) for slot in (1, 0))
    value = UOp(Op.LOAD, dt.float32, (x, i)) * factor
    return UOp(Op.SINK, dt.float32, (UOp(Op.STORE, dt.float32, (y, i, value)),))


def fields_of(program: ProgramSpec) -> dict[str, object]:
    return {name: getattr(program, name) for name in FIELDS}


@pytest.fixture
def cache(tmp_path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


@pytest.mark.parametrize(
    "ast",
    [scaled(), scaled(Variable("n", 1, 1 << 20), most=1 << 20), scaled(factor=0.1),
     scaled(1 << 22, most=1 << 22)],
    ids=["fixed", "symbolic", "rounded", "in chunks"],
)  # fmt: skip
def test_a_program_comes_back_as_it_was(ast):
    program = LLVMRenderer(SPEC).render(ast)
    found = decoded(encoded(program), SPEC, ast)
    assert found is not None
    assert fields_of(found) == fields_of(program)
    assert all(type(getattr(found, n)) is type(getattr(program, n)) for n in FIELDS)


def test_every_kernel_of_a_training_step_comes_back_as_it_was():
    """With chunks, variables, checks of indices, local arrays and symbolic costs."""
    before = list(kernels._alive.values())
    layer, table = krt.nn.Linear(300, 64), krt.nn.Embedding(50, 300)

    @krt.jit(dynamic={"words": {0: Variable("rows", 1, 512)}})
    def step(words):
        loss = krt.nn.functional.cross_entropy(layer(table(words)), words)
        loss.backward()
        return loss

    step(krt.tensor([1, 2, 3] * 50))
    made = [k for k in kernels._alive.values() if k not in before and k.variant]
    assert made
    for kernel in made:
        program = LLVMRenderer(kernel.target).render(kernel.ast, kernel.variant)
        found = decoded(encoded(program), kernel.target, kernel.ast)
        assert found is not None
        assert fields_of(found) == fields_of(program)


def test_the_next_process_does_not_write_it_again(cache, monkeypatch):
    program = StoredRenderer(SPEC, cache).render(scaled())
    monkeypatch.setattr(StoredRenderer, "_renderer", None)
    found = StoredRenderer(SPEC, ObjectCache(cache.folder)).render(scaled())
    assert fields_of(found) == fields_of(program)


@pytest.mark.parametrize(
    ("spec", "ast", "variant"),
    [
        (DeviceSpec.avx512(), scaled(), None),
        (dataclasses.replace(SPEC, l2_bytes=1 << 20), scaled(), None),
        (SPEC, scaled(factor=3.0), None),
        (SPEC, scaled(97), None),
        (SPEC, scaled(), "other"),
    ],
)
def test_what_differs_in_anything_is_written_anew(cache, spec, ast, variant):
    if variant is not None:
        choices = [v.text for v in LLVMRenderer(spec).variants(ast)]
        variant = choices[-1]
    StoredRenderer(SPEC, cache).render(scaled())
    assert cache.hits == 0
    found = StoredRenderer(spec, cache).render(ast, variant)
    assert cache.hits == 0
    assert fields_of(found) == fields_of(LLVMRenderer(spec).render(ast, variant))


def test_machines_that_differ_in_their_cores_share_programs(cache):
    StoredRenderer(SPEC, cache).render(scaled())
    StoredRenderer(dataclasses.replace(SPEC, cores=64), cache).render(scaled())
    assert cache.hits == 1


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder that stands for that of the package."""
    folder = tmp_path / "kernelrt" / "backend" / "cpu"
    folder.mkdir(parents=True)
    monkeypatch.setattr(rendered, "__file__", str(folder / "rendered.py"))
    return folder.parents[1]


def test_each_file_of_the_package_counts(package):
    stamps = []
    for name, text, time in [("a.py", "", 1), ("a.py", "x", 1), ("a.py", "y", 2), ("b.py", "", 1),
                             ("a.txt", "", 1), ("__pycache__", None, 1)]:  # fmt: skip
        if text is None:
            (package / name).mkdir()
            continue
        (package / name).write_text(text)
        os.utime(package / name, ns=(time, time))
        stamps.append(package_stamp())
    assert len(set(stamps[:4])) == 4
    assert stamps[4] == stamps[3]


def test_code_that_may_have_changed_since_the_import_keeps_nothing(package, cache):
    (package / "edited.py").write_text("")
    assert package_stamp(0) is None
    StoredRenderer(SPEC, cache).render(scaled())
    assert not cache.folder.exists() or not list(cache.folder.iterdir())


def test_an_edit_before_the_code_generator_is_imported_keeps_nothing(package, cache, monkeypatch):
    file = package / "edited.py"
    file.write_text("")
    os.utime(file, ns=(1, 1))
    renderer = StoredRenderer(SPEC, cache)
    file.write_text("x")
    os.utime(file, ns=(2, 2))
    monkeypatch.delitem(sys.modules, "kernelrt.backend.llvm")
    renderer.render(scaled())
    assert not cache.folder.exists() or not list(cache.folder.iterdir())


@pytest.mark.parametrize("data", [b"", b"no program", b"\x78\x9c\x03\x00\x00\x00\x00\x01"])
def test_what_is_no_program_is_a_miss(data):
    assert decoded(data, SPEC, scaled()) is None
    program = LLVMRenderer(SPEC).render(scaled())
    assert decoded(encoded(program)[:-9], SPEC, scaled()) is None


def test_without_a_cache_each_program_is_written():
    program = StoredRenderer(SPEC, None).render(scaled())
    assert fields_of(program) == fields_of(LLVMRenderer(SPEC).render(scaled()))
