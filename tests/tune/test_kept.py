"""What autotuning found is kept on disk and used by later processes, whatever lies there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kernelrt.device.spec import DeviceSpec
from kernelrt.device.tuned import Tuned
from kernelrt.errors import KernelrtWarning
from kernelrt.native.core import pool_limit

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "0123456789abcdef"
SPEC = DeviceSpec.avx2()

PROGRAM = """
import sys, warnings
import numpy as np
import kernelrt as krt
from kernelrt import tune
from kernelrt.device.registry import opened
from kernelrt.runtime import KernelProfile

x = np.linspace(-1, 1, 60 * 96, dtype=np.float32).reshape(60, 96)
w = np.linspace(-2, 1, 96 * 70, dtype=np.float32).reshape(96, 70)
plan = krt.prepare(krt.tensor(x) @ krt.tensor(w))
kernel = plan.kernels[0]
renderer = opened("CPU").renderer
own = renderer.render(kernel.ast).variant
ways = list(renderer.variants(kernel.ast))
kinds = {"bits": [v.text for v in ways if v.keeps_bits and v.text != own][1],
         "any": next(v.text for v in ways if not v.keeps_bits)}
if sys.argv[1:]:
    wanted = kinds[sys.argv[1]]

    def measure(plan):
        plan.execute()
        return [KernelProfile(k, "CPU", 1, 1e-3 if k.variant == wanted else 2e-3, 0.0, 1, 1, 1, 0)
                for k in plan.kernels]

    keep = len(sys.argv) < 3
    target = [tune._Target(plan)]
    tuning = tune._Tuning(target, 1e9, sys.argv[1] == "any", keep, False, measure=measure)
    print(tuning.run(), file=sys.stderr)
    assert plan.kernels[0].variant == wanted
    again = krt.prepare(krt.tensor(x + 0) @ krt.tensor(w))
    kernel = krt.prepare(krt.tensor(x) @ krt.tensor(w)).kernels[0]
plan = krt.prepare(krt.tensor(x) @ krt.tensor(w))
plan.execute()
name = {own: "own", kinds["bits"]: "bits", kinds["any"]: "any"}[plan.kernels[0].variant]
print(name, plan.output_buffer.copyout().tobytes()[::401].hex())
"""


@pytest.fixture
def process(tmp_path):
    """Runs the program in a process of its own; gives the way it used, its result and what it said.
    """
    folder = tmp_path / "cache"

    def call(*arguments, **environment):
        plain = {k: v for k, v in os.environ.items() if not k.startswith("KERNELRT_TUNED")}
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", PROGRAM, *arguments],
            env={**plain, "KERNELRT_CACHE_DIR": str(folder), **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        way, result = done.stdout.split()
        return way, result, done.stderr

    call.folder = folder
    return call


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.krtt"))


@pytest.mark.exhaustive
def test_later_processes_take_what_was_found(process):
    way, result, _ = process()
    assert (way, files(process.folder)) == ("own", [])
    assert process("bits")[:2] == ("bits", result)
    assert process()[:2] == ("bits", result)
    assert process(KERNELRT_TUNED="0")[:2] == ("own", result)
    assert process(KERNELRT_TUNED="1")[:2] == ("bits", result)
    assert process(KERNELRT_TUNED="any")[:2] == ("bits", result)
    # Noted for as many threads as there are.
    assert process(KERNELRT_THREADS="1")[0] == ("own" if pool_limit() > 1 else "bits")
    (path,) = files(process.folder)
    content = json.loads(path.read_text())
    assert json.loads(content["variant"])["tiles"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.exhaustive
def test_other_orders_of_sums_are_taken_only_by_who_asks(process):
    _, result, _ = process()
    assert process("any")[0] == "own"  # of a plan made later; the tuned one is as it was tuned
    assert process()[:2] == ("own", result)
    assert process(KERNELRT_TUNED="any")[0] == "any"


@pytest.mark.cases(1 / 4)
def test_nothing_is_kept_where_that_is_not_wanted(process):
    assert process("bits", "no")[0] == "own"
    assert files(process.folder) == []


@pytest.mark.exhaustive
def test_a_process_without_a_folder_keeps_it_for_itself(process):
    assert process("bits", KERNELRT_CACHE="0")[0] == "bits"
    assert not process.folder.exists()


@pytest.mark.exhaustive
def test_a_broken_file_is_ignored_with_one_warning(process):
    process("bits")
    (path,) = files(process.folder)
    path.write_bytes(b"[" * 9000)
    way, _, text = process()
    assert (way, text.count("KernelrtWarning")) == ("own", 1)
    assert str(path) in text
    assert process("bits")[0] == "bits"
    assert process()[0] == "bits"


@pytest.mark.exhaustive
def test_what_does_not_fit_the_kernel_is_ignored_with_one_warning(process):
    process("bits")
    (path,) = files(process.folder)
    variant = '{"chunked":null,"order":[0,1],"share":0,"tiles":{"0":[100000,1]}}'
    path.write_text(json.dumps({**json.loads(path.read_text()), "variant": variant}))
    way, _, text = process()
    assert (way, text.count("KernelrtWarning")) == ("own", 1)


class Folder:
    def __init__(self, path):
        self.folder, self.usable = path, True


@pytest.mark.parametrize("content", [
    b"", b"\x00\xff" * 40, b"[]", b"null", b"{}", b'{"variant": 3}', b"[" * 9000, b"x" * 100_000,
])  # fmt: skip
def test_whatever_lies_there_is_told_once(tmp_path, content):
    Tuned(SPEC, Folder(tmp_path)).keep(KERNEL, "a", keeps_bits=True)
    (path,) = files(tmp_path)
    path.write_bytes(content)
    tuned = Tuned(SPEC, Folder(tmp_path))
    with pytest.warns(KernelrtWarning, match="is ignored") as caught:
        assert [tuned.find(KERNEL) for _ in range(3)] == [None] * 3
    assert len(caught) == 1
    tuned.keep(KERNEL, "b", keeps_bits=True)
    assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) == "b"


def test_a_file_of_another_kernel_or_processor_is_ignored(tmp_path):
    Tuned(SPEC, Folder(tmp_path)).keep(KERNEL, "a", keeps_bits=True)
    (path,) = files(tmp_path)
    content = json.loads(path.read_text())
    for field in content.keys() - {"variant"}:
        path.write_text(json.dumps({**content, field: "other"}))
        with pytest.warns(KernelrtWarning, match=f"{field}: expected .*, not 'other'"):
            assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) is None


def test_versions_processors_threads_and_kernels_are_apart(tmp_path, monkeypatch):
    Tuned(SPEC, Folder(tmp_path)).keep(KERNEL, "a", keeps_bits=True)
    assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) == "a"
    # The default tiling, whose bits a variant keeps, depends on the sizes of the caches.
    for other in (DeviceSpec.avx512(), replace(SPEC, l2_bytes=1 << 20)):
        assert Tuned(other, Folder(tmp_path)).find(KERNEL) is None
    assert Tuned(replace(SPEC, cores=64), Folder(tmp_path)).find(KERNEL) == "a"
    assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL[::-1]) is None
    monkeypatch.setattr("kernelrt.device.tuned.__version__", "another")
    assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) is None
    monkeypatch.undo()
    monkeypatch.setattr("kernelrt.device.tuned.get_num_threads", lambda: 99)
    assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) is None


def test_a_wrong_setting_is_told_once(tmp_path, monkeypatch):
    tuned = Tuned(SPEC, Folder(tmp_path))
    tuned.keep(KERNEL, "a", keeps_bits=True)
    monkeypatch.setenv("KERNELRT_TUNED", "all")
    with pytest.warns(KernelrtWarning, match="KERNELRT_TUNED") as caught:
        assert [tuned.find(KERNEL), tuned.find(KERNEL)] == ["a", "a"]
    assert len(caught) == 1


def test_links_and_folders_are_no_files(tmp_path):
    tuned = Tuned(SPEC, Folder(tmp_path))
    tuned.keep(KERNEL, "a", keeps_bits=True)
    (path,) = files(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.warns(KernelrtWarning):
        assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) is None
    path.unlink()
    path.mkdir()
    with pytest.warns(KernelrtWarning):
        assert Tuned(SPEC, Folder(tmp_path)).find(KERNEL) is None


def test_a_full_or_lost_folder_only_means_that_nothing_is_kept(tmp_path):
    lost = Folder(tmp_path / "lost")
    tuned = Tuned(SPEC, lost)
    tuned.keep(KERNEL, "a", keeps_bits=True)
    assert tuned.find(KERNEL) == "a"
    assert Tuned(SPEC, lost).find(KERNEL) is None


def test_many_writers_and_readers_see_whole_files(tmp_path):
    texts = [letter * 3000 for letter in "abcd"]
    wrong = []

    def write(text):
        tuned = Tuned(SPEC, Folder(tmp_path))
        for _ in range(40):
            tuned.keep(KERNEL, text, keeps_bits=True)

    def read():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(200):
                found = Tuned(SPEC, Folder(tmp_path)).find(KERNEL)
                if found not in (None, *texts):
                    wrong.append(found)

    threads = [threading.Thread(target=write, args=(t,)) for t in texts]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert [p.suffix for p in tmp_path.iterdir()] == [".krtt"]
