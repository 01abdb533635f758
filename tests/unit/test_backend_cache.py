"""The cache of objects on disk."""

from __future__ import annotations

import dataclasses
import os
import time
import tracemalloc
import warnings
from typing import TYPE_CHECKING

import pytest
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader, ObjectCache
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device import registry
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.errors import CompileError
from kernelrt.ir import Op, UOp, const
from kernelrt.runtime import kernel_cache
from kernelrt.util import object_cache
from kernelrt.util.atomic_file import writing

if TYPE_CHECKING:
    from pathlib import Path

SRC = "define void @k(ptr %a, ptr %b) { ret void }"
KEY = ("version", "source")


@pytest.fixture
def cache(tmp_path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def entries(cache: ObjectCache) -> list[Path]:
    return sorted(cache.folder.iterdir())


def test_what_was_put_is_found(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"
    assert (cache.hits, cache.misses) == (1, 1)


def test_another_process_finds_it(cache):
    cache.put(KEY, b"object")
    assert ObjectCache(cache.folder).get(KEY) == b"object"


def test_each_part_of_a_key_counts(cache):
    cache.put(("a", "bc"), b"1")
    assert cache.get(("ab", "c")) is None
    assert cache.get(("a", "bc", "")) is None
    assert cache.get(("a",)) is None


def test_there_is_one_file_a_kernel_and_nothing_else(cache):
    for i in range(3):
        cache.put((str(i),), b"object")
    assert len(entries(cache)) == 3
    assert all(p.suffix == ".krto" for p in entries(cache))


def test_the_folder_and_the_files_are_the_owner_s_alone(cache):
    cache.put(KEY, b"object")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert entries(cache)[0].stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(p.read_bytes()[:-1]),
        lambda p: p.write_bytes(p.read_bytes() + b"x"),
        lambda p: p.write_bytes(bytes([p.read_bytes()[0] ^ 1]) + p.read_bytes()[1:]),
        lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?"),
        lambda p: p.write_bytes(b"some other program's file"),
        lambda p: (p.unlink(), p.mkdir()),
        lambda p: (p.unlink(), os.mkfifo(p)),
        lambda p: (p.rename(p.with_name("moved")), p.symlink_to(p.with_name("moved"))),
    ],
    ids=["empty", "short", "long", "magic", "content", "foreign", "folder", "pipe", "link"],
)
def test_a_broken_or_foreign_entry_is_a_miss(cache, damage):
    cache.put(KEY, b"object")
    damage(entries(cache)[0])
    assert cache.get(KEY) is None


def test_a_broken_entry_is_replaced(cache):
    cache.put(KEY, b"object")
    entries(cache)[0].write_bytes(b"broken")
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"


@pytest.mark.parametrize("mode", [0o755, 0o701, 0o750])
def test_a_folder_that_others_only_read_is_used(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    cache = ObjectCache(folder)
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"
    assert [path.stat().st_mode & 0o077 for path in entries(cache)] == [0]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o720])
def test_a_folder_that_others_write_to_is_refused_with_a_warning(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    cache = ObjectCache(folder)
    with pytest.warns(RuntimeWarning, match="chmod 700"):
        assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert list(folder.iterdir()) == []


@needs("root")
def test_a_folder_of_someone_else_is_refused(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="another user"):
        assert not ObjectCache(folder).usable


def test_a_link_to_a_folder_of_ones_own_is_followed_once(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cache = ObjectCache(tmp_path / "link")
    cache.put(KEY, b"object")
    (tmp_path / "link").unlink()
    assert cache.get(KEY) == b"object"
    assert cache.folder == (tmp_path / "real").resolve()


@needs("root")
@pytest.mark.parametrize("theirs", ["link", "real"])
def test_a_link_of_someone_else_or_to_their_folder_is_refused(tmp_path, theirs):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.chown(tmp_path / theirs, 12345, 12345, follow_symlinks=False)
    with pytest.warns(RuntimeWarning, match="another user"):
        assert not ObjectCache(tmp_path / "link").usable


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("x")
    cache = ObjectCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="cannot be created"):
        cache.put(KEY, b"object")


def test_a_folder_that_vanishes_is_no_error(cache):
    cache.put(KEY, b"object")
    for path in entries(cache):
        path.unlink()
    cache.folder.rmdir()
    assert cache.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, b"object")


def test_the_size_is_bounded_and_the_least_used_go_first(tmp_path):
    cache = ObjectCache(tmp_path / "cache", limit=10_000)
    for i in range(8):
        cache.put((str(i),), bytes(1000))
        for path in entries(cache):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    cache.put(("last",), bytes(3000))
    assert sum(p.stat().st_size for p in entries(cache)) <= 10_000
    assert cache.get(("last",)) is not None
    assert cache.get(("0",)) is None
    assert cache.get(("7",)) is not None


def test_the_size_counts_what_other_processes_left(tmp_path):
    ObjectCache(tmp_path / "cache").put(("old",), bytes(9000))
    time.sleep(0.02)
    cache = ObjectCache(tmp_path / "cache", limit=10_000)
    cache.put(("new",), bytes(3000))
    assert cache.get(("old",)) is None
    assert cache.get(("new",)) is not None


def test_files_that_killed_processes_left_are_evicted(tmp_path):
    cache = ObjectCache(tmp_path / "cache", limit=10_000)
    assert cache.usable
    unfinished = writing(cache._path(KEY), cached=True)
    unfinished.__enter__().truncate(9000)
    [left] = entries(cache)
    os.utime(left, (0, 0))
    cache.put(("new",), bytes(3000))
    assert not left.exists()
    assert cache.get(("new",)) is not None


@pytest.fixture
def ended(monkeypatch):
    """Do at once what is to be done when the process ends."""
    monkeypatch.setattr(object_cache.atexit, "register", lambda end: end())


@pytest.mark.usefixtures("ended")
def test_processes_that_write_little_keep_the_bound_together(tmp_path):
    limit, most = 400_000, 0
    for i in range(1500):
        ObjectCache(tmp_path / "cache", limit=limit).put((str(i),), bytes(1000))
        if i % 50 == 0:
            used = sum(p.stat().st_size for p in (tmp_path / "cache").iterdir())
            most = max(most, used)
    assert limit * 0.7 < most < limit * 1.1


@pytest.mark.usefixtures("ended")
def test_a_full_folder_is_not_looked_through_by_each_process(tmp_path, monkeypatch):
    looks = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(path) or scandir(path))
    for i in range(300):
        ObjectCache(tmp_path / "cache").put((str(i),), bytes(4000))
    assert len(looks) < 10


def test_a_process_that_writes_little_looks_through_the_folder_when_it_ends(tmp_path, monkeypatch):
    cache, looks, ends = ObjectCache(tmp_path / "cache", limit=400_000), [], []
    monkeypatch.setattr(object_cache.atexit, "register", ends.append)
    monkeypatch.setattr(cache, "_evict", lambda: looks.append(1))
    for i in range(100):  # a sixth of what a look follows
        cache.put((str(i),), bytes(1000))
        cache._unseen = 0.0
    assert (looks, len(ends)) == ([], 1)
    ends[0]()
    assert looks == [1]


def test_use_is_noted(cache):
    cache.put(KEY, b"object")
    [path] = entries(cache)
    os.utime(path, (0, time.time() - 1e6))
    cache.get(KEY)
    assert time.time() - path.stat().st_mtime < 100


def test_clear_removes_everything(cache):
    cache.put(KEY, b"object")
    cache.clear()
    assert cache.get(KEY) is None
    assert entries(cache) == []


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELRT_CACHE", raising=False)
    monkeypatch.delenv("KERNELRT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ObjectCache.default().folder == tmp_path / "kernelrt"
    monkeypatch.setenv("KERNELRT_CACHE_DIR", str(tmp_path / "mine"))
    assert ObjectCache.default().folder == tmp_path / "mine"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELRT_CACHE_DIR", "~/mine")
    assert ObjectCache.default().folder == tmp_path / "home" / "mine"


def test_the_cache_can_be_switched_off(monkeypatch):
    for off in ("0", "off", "OFF", "no", " false "):
        monkeypatch.setenv("KERNELRT_CACHE", off)
        assert ObjectCache.default() is None
    for on in ("", "1", "on", "yes", "True"):
        monkeypatch.setenv("KERNELRT_CACHE", on)
        assert ObjectCache.default() is not None
    monkeypatch.setenv("KERNELRT_CACHE", "of")
    with pytest.warns(RuntimeWarning, match="KERNELRT_CACHE: expected 0 .* not 'of'"):
        assert ObjectCache.default() is not None


@pytest.mark.parametrize(
    ("size", "limit"), [("", 256 << 20), ("4096", 4096), ("3k", 3 << 10), ("2G", 2 << 30), ("0", 0)]
)
def test_the_limit_can_be_set(monkeypatch, tmp_path, size, limit):
    monkeypatch.delenv("KERNELRT_CACHE", raising=False)
    monkeypatch.setenv("KERNELRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KERNELRT_CACHE_SIZE", size)
    cache = ObjectCache.default()
    assert cache.limit == limit
    assert cache.most_files == max(32_768, limit // 8_192)


@pytest.mark.parametrize(
    "size", ["G", "-1", "1.5G", "2T", "much", "\N{SUPERSCRIPT TWO}", "9" * 5000]
)
def test_a_limit_that_is_no_size_is_named(monkeypatch, tmp_path, size):
    monkeypatch.delenv("KERNELRT_CACHE", raising=False)
    monkeypatch.setenv("KERNELRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KERNELRT_CACHE_SIZE", size)
    with pytest.warns(RuntimeWarning, match="KERNELRT_CACHE_SIZE is .*expected a number of bytes"):
        assert ObjectCache.default().limit == 256 << 20


def test_the_compiler_looks_there_first(cache):
    first = LLVMCompiler(host(), cache=cache).compile_sources([("k", SRC)])
    assert (cache.hits, cache.misses) == (0, 1)
    assert LLVMCompiler(host(), cache=cache).compile_sources([("k", SRC)]) == first
    assert (cache.hits, cache.misses) == (1, 1)


def test_keys_tell_targets_and_effort_apart():
    avx2 = DeviceSpec.avx2()
    compilers = [
        LLVMCompiler(avx2),
        LLVMCompiler(DeviceSpec.avx512()),
        LLVMCompiler(dataclasses.replace(avx2, triple="x86_64-apple-darwin")),
        LLVMCompiler(dataclasses.replace(avx2, cpu="znver4")),
        LLVMCompiler(dataclasses.replace(avx2, features=f"{avx2.features},+avxvnni")),
        LLVMCompiler(DeviceSpec.avx2(), codegen_level=1),
        LLVMCompiler(DeviceSpec.avx2(), optimize=2),
    ]
    keys = {c.key(SRC) for c in compilers} | {compilers[0].key(SRC + " ")}
    assert len(keys) == 8
    assert LLVMCompiler(DeviceSpec.avx2(cores=64)).key(SRC) == compilers[0].key(SRC)


def test_a_renamed_file_is_a_miss(tmp_path):
    """What a file holds was made from what its name says."""
    cache = ObjectCache(tmp_path / "cache")
    cache.put(("one",), b"object of one")
    (found,) = (tmp_path / "cache").iterdir()
    cache.put(("two",), b"object of two")
    (other,) = (p for p in (tmp_path / "cache").iterdir() if p != found)
    found.replace(other)
    assert cache.get(("two",)) is None


def test_a_huge_file_is_a_miss_without_being_read(tmp_path):
    cache = ObjectCache(tmp_path / "cache")
    cache.put(("one",), b"object")
    (path,) = (tmp_path / "cache").iterdir()
    with path.open("r+b") as file:
        file.truncate(8 << 30)  # sparse: it takes no room, but would take memory
    tracemalloc.start()
    try:
        assert cache.get(("one",)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    path.unlink()


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = ObjectCache("cache")
    cache.put(("one",), b"object")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cache.get(("one",)) == b"object"


def test_the_number_of_files_is_bounded_and_few_go_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache, "_EVICT_AT_ONCE", 8)
    cache, most = ObjectCache(tmp_path / "cache"), 0
    cache.most_files = 64
    for i in range(400):
        before = set(entries(cache)) if cache.folder.exists() else set()
        cache.put((str(i),), b"object")
        assert len(before - set(entries(cache))) <= 8
        most = max(most, len(entries(cache)))
    assert 48 <= len(entries(cache)) <= most <= 64 + 8
    assert cache.get(("399",)) == b"object"
    assert cache.get(("0",)) is None


def test_a_limit_of_nothing_keeps_nothing(tmp_path):
    cache = ObjectCache(tmp_path / "cache", limit=0)
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None


def test_an_object_that_cannot_be_linked_is_compiled_anew(tmp_path, monkeypatch):
    """As one that another machine kept in a shared folder, with functions that this one lacks."""
    spec = host()
    cache = ObjectCache(tmp_path / "cache")
    compiler = LLVMCompiler(spec, cache=cache)
    x, y = (UOp(Op.PARAM, dt.float32, (), (slot, 4)) for slot in (1, 0))
    i = UOp(Op.RANGE, dt.int64, (const(4, dt.int64),), 0)
    value = UOp(Op.LOAD, dt.float32, (x, i)) * 3
    ast = UOp(Op.SINK, dt.float32, (UOp(Op.STORE, dt.float32, (y, i, value)),))
    program = LLVMRenderer(spec).render(ast)
    lacking = (
        f"define void @{program.name}(ptr %a, ptr %b) {{\n  call void @no_such_function()\n"
        "  ret void\n}\ndeclare void @no_such_function()\n"
    )
    [wrong] = LLVMCompiler(spec).compile_sources([(program.name, lacking)])
    cache.put(compiler.key(program.src), wrong)
    device = registry.Device(spec, LLVMRenderer(spec), compiler, LLVMLoader(compiler))
    monkeypatch.setattr(kernel_cache, "opened", lambda name: device)
    [kernel] = kernel_cache.build([(ast, None)])
    assert kernel.entry_point == program.name
    assert cache.get(compiler.key(program.src)) not in (None, wrong)
    monkeypatch.setattr(compiler, "cache", None)
    monkeypatch.setattr(compiler, "_object", lambda name, src: wrong)
    with pytest.raises(CompileError, match="no_such_function"):
        kernel_cache.build([(ast, None)])
