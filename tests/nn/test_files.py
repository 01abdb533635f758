"""Files of state dicts: what is written is read, by others, too; whatever is broken says so."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
import warnings
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.skip_list import needs

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import StateError
from kernelrt.nn import files
from kernelrt.nn.tree import named_objects

if TYPE_CHECKING:
    from pathlib import Path

TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
    "bfloat16", "float32", "float64",
]  # fmt: skip


def example() -> dict[str, krt.Tensor]:
    rng = np.random.default_rng(0)
    state = {
        f"{kind}.{len(shape)}": krt.tensor(rng.integers(0, 2, shape), dtype=kind)
        for kind in TYPES
        for shape in ((), (3,), (2, 0), (2, 3))
    }
    return state | {"ünï": krt.tensor([0.1, -2.5]), "big": krt.tensor(rng.normal(size=(40, 30)))}


def equal(a: dict[str, krt.Tensor], b: dict[str, krt.Tensor]) -> None:
    assert sorted(a) == sorted(b)
    for name, value in a.items():
        assert b[name].dtype is value.dtype
        assert b[name].shape == value.shape
        assert b[name].cast("float64").tolist() == value.cast("float64").tolist()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_every_type_and_shape_comes_back(tmp_path, suffix):
    path = tmp_path / f"state{suffix}"
    nn.save(example(), path)
    equal(example(), nn.load(path))
    nn.save({}, path)
    assert nn.load(path) == {}


def test_safetensors_are_what_their_format_says(tmp_path):
    """Read by hand: 8 bytes of length, JSON, elements in little-endian without gaps."""
    nn.save(example(), tmp_path / "state.safetensors")
    data = (tmp_path / "state.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    elements = data[8 + length :]
    begin, end = header["big"]["data_offsets"]
    found = np.frombuffer(elements[begin:end], "<f8").reshape(header["big"]["shape"])
    assert header["big"]["dtype"] == "F64"
    np.testing.assert_array_equal(found, example()["big"].numpy())
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(elements)
    assert {e["dtype"] for e in header.values()} == {
        "BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64",
    }  # fmt: skip


def test_safetensors_of_torch_load(tmp_path):
    torch = pytest.importorskip("torch")
    weights = {
        "a": torch.randn(3, 4), "b": torch.randn(5).bfloat16(), "c": torch.randn(2, 2).half(),
        "d": torch.arange(3),
    }  # fmt: skip
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
    header, blob = {"__metadata__": {"format": "pt"}}, b""
    for name, value in weights.items():
        raw = value.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": names[value.dtype], "shape": list(value.shape),
            "data_offsets": [len(blob), len(blob) + len(raw)],
        }  # fmt: skip
        blob += raw
    text = json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
    found = nn.load(tmp_path / "w.safetensors")
    assert sorted(found) == sorted(weights)
    for name, value in weights.items():
        assert found[name].cast("float64").tolist() == value.double().tolist()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".onnx", ".h5", ".pkl", ".ckpt"])
def test_names_of_other_formats_are_refused(tmp_path, suffix):
    with pytest.raises(StateError, match=r"\.npz or \.safetensors"):
        nn.save({}, tmp_path / f"model{suffix}")
    assert not list(tmp_path.iterdir())


# ---- broken files


def broken(path) -> None:
    """Loading gives StateError, in little memory, or what the file does say."""
    tracemalloc.start()
    try:
        nn.load(path)
    except StateError as error:
        assert str(path) in str(error)  # noqa: PT017 - right results are allowed, too
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.cases(1)
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_no_damage_raises_anything_else(tmp_path, suffix):
    path = tmp_path / f"state{suffix}"
    nn.save({"w": krt.randn(5, 7), "b": krt.zeros(3, dtype="bfloat16"), "n": krt.arange(4)}, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(900):
        data = bytearray(whole)
        way = rng.integers(5)
        at = int(rng.integers(len(data)))
        if way == 0:
            del data[at:]
        elif way == 1:
            data[at] ^= 1 << rng.integers(8)
        elif way == 2:
            data[at : at + 8] = rng.bytes(8)
        elif way == 3:
            data[at : at + 4] = b"\xff" * int(rng.integers(1, 9))
        else:
            other = int(rng.integers(len(data)))
            data[at : at + 16] = data[other : other + 16]
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            broken(path)


def archive(**entries: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in entries.items():
            made.writestr(name, data)
    return out.getvalue()


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin-1")
    width = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(width, len(text)) + text + data


def header(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


def safe(text: str, data: bytes = b"", length: int | None = None) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


EIGHT = b"\0" * 8
ARCHIVES = {
    "empty": b"",
    "text": b"not a file of ours",
    "pickle": b"\x80\x04\x95\x10\x00",
    "no arrays": archive(x=b"hello"),
    "objects": archive(x=npy(header("'|O'"), EIGHT)),
    "records": archive(x=npy(header("[('a', '<f4')]"), EIGHT)),
    "complex": archive(x=npy(header("'<c8'"), EIGHT * 2)),
    "text elements": archive(x=npy(header("'<U2'"), EIGHT * 2)),
    "long floats": archive(x=npy(header("'<f16'"), EIGHT * 4)),
    "bools of 2": archive(x=npy(header("'|b1'", "(8,)"), b"\1\0" * 3 + b"\1\2")),
    "bools of 255": archive(x=npy(header("'|b1'", "(1, 1)"), b"\xff")),
    "dates": archive(x=npy(header("'<M8[s]'"), EIGHT * 2)),
    "no such type": archive(x=npy(header("'<f3'"), EIGHT)),
    "type of numbers": archive(x=npy(header("3"), EIGHT)),
    "negative": archive(x=npy(header(shape="(-2,)"), EIGHT)),
    "shape of text": archive(x=npy(header(shape="'ab'"), EIGHT)),
    "shape of bools": archive(x=npy(header(shape="(True, 2)"), EIGHT)),
    "too large": archive(x=npy(header(shape="(2**40,)"), EIGHT)),
    "huge": archive(x=npy(header(shape="(1099511627776,)"), EIGHT)),
    "product overflows": archive(x=npy(header(shape="(4294967296, 4294967296, 0)"), b"")),
    "many axes": archive(x=npy(header(shape=f"({'1,' * 200})"), EIGHT)),
    "too short": archive(x=npy(header(shape="(3,)"), EIGHT)),
    "too long": archive(x=npy(header(shape="(1,)"), EIGHT)),
    "header of code": archive(x=npy("__import__('os').abort()", EIGHT)),
    "header in braces": archive(x=npy("{" * 3000, EIGHT)),
    "header of minus": archive(x=npy("-" * 60000 + "1", EIGHT)),
    "header is a list": archive(x=npy("[1]", EIGHT)),
    "header has more": archive(x=npy(header()[:-1] + ", 'x': 1}", EIGHT)),
    "header with lists": archive(x=npy("{[]: 1}", EIGHT)),
    "version 9": archive(x=npy(header(), EIGHT, 9)),
    "header too long": archive(x=b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"),
    "bfloat16 of floats": archive(**{"x:bfloat16.npy": npy(header(), EIGHT)}),
}
SAFE = {
    "empty": b"",
    "short": b"\1\0",
    "header too long": safe("{}", length=2**63),
    "header longer than the file": safe("{}", length=3),
    "no JSON": safe("{x"),
    "not UTF-8": struct.pack("<Q", 2) + b"\xff\xfe",
    "deep": safe("[" * 100_000),
    "a list": safe("[]"),
    "entries are numbers": safe('{"x": 1}'),
    "no offsets": safe('{"x": {"dtype": "F32", "shape": [2]}}', EIGHT),
    "unknown type": safe('{"x": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}'),
    "type is a list": safe('{"x": {"dtype": [], "shape": [8], "data_offsets": [0, 8]}}', EIGHT),
    "offsets turned": safe('{"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}', EIGHT),
    "beyond": safe('{"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}', EIGHT),
    "gap": safe('{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}', EIGHT),
    "rest": safe('{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', EIGHT),
    "negative": safe('{"x": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}', EIGHT),
    "fractions": safe('{"x": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}', EIGHT),
    "huge": safe('{"x": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 8]}}'),
    "overlap": safe(
        '{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},'
        ' "y": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', EIGHT),
    "twice": safe(
        '{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
        ' "x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}', EIGHT),
    "bools of 2": safe('{"x": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}}', b"\2" * 8),
    "digits": safe('{"x": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 8]}}' % ("9" * 9000)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_are_not_ours(tmp_path, name):
    path = tmp_path / "state.npz"
    path.write_bytes(ARCHIVES[name])
    with pytest.raises(StateError, match=r"state\.npz"):
        nn.load(path)


@pytest.mark.parametrize("name", SAFE)
def test_safetensors_that_are_not_right(tmp_path, name):
    path = tmp_path / "state.safetensors"
    path.write_bytes(SAFE[name])
    with pytest.raises(StateError, match=r"state\.safetensors"):
        nn.load(path)


def test_a_bomb_is_refused_before_memory_is_taken(tmp_path):
    """An archive that declares a terabyte, in both of its places, and holds none."""
    data = bytearray(archive(x=npy(header(shape="(2,)"), EIGHT)))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", 0xFFFFFFF0)
    path = tmp_path / "bomb.npz"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(StateError, match="more than it can hold"):
        nn.load(path)
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


def test_big_endian_and_fortran_order_are_read(tmp_path):
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "a.npz", big=array, turned=np.asfortranarray(array.astype("f4")))
    found = nn.load(tmp_path / "a.npz")
    assert found["big"].tolist() == found["turned"].tolist() == array.tolist()


@pytest.mark.parametrize("order", ["1   ", "0   ", "None", "[1] "])
def test_an_order_that_is_no_bool_is_refused(tmp_path, order) -> None:
    array = io.BytesIO()
    np.lib.format.write_array(array, np.asfortranarray(np.ones((2, 3), np.float32)))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", array.getvalue().replace(b"True", order.encode(), 1))
    with pytest.raises(StateError, match="fortran_order"):
        nn.load(tmp_path / "a.npz")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        nn.load(tmp_path / "none.npz")
    with pytest.raises(OSError, match="directory"):
        nn.load(tmp_path)


# ---- writing


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_threads_that_save_to_one_name_do_not_collide(tmp_path, suffix):
    path = tmp_path / f"shared{suffix}"
    errors = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                nn.save({"w": krt.full((50,), float(number))}, path)
                found = nn.load(path)["w"].numpy()
                assert (found == found[0]).all()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_links_are_replaced_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="ascii")
    path = tmp_path / "state.npz"
    path.symlink_to(victim)
    nn.save({"w": krt.ones(2)}, path)
    assert victim.read_text(encoding="ascii") == "mine"
    assert not path.is_symlink()
    assert nn.load(path)["w"].tolist() == [1, 1]


def test_files_have_the_permissions_of_others(tmp_path):
    (tmp_path / "usual").touch()
    nn.save({"w": krt.ones(2)}, tmp_path / "state.npz")
    assert (tmp_path / "state.npz").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    nn.save({"w": krt.ones(2)}, path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        nn.save({"w": krt.zeros(2)}, path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert nn.load(path)["w"].tolist() == [1, 1]


@needs("Linux")
def test_a_user_without_a_home_has_a_cache_in_the_temporary_folder(tmp_path):
    script = """
import os, pathlib, pwd
os.environ.pop("HOME", None)
pwd.getpwuid = lambda uid: (_ for _ in ()).throw(KeyError(uid))
from kernelrt.util.object_cache import ObjectCache
print(ObjectCache.default().folder)
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KERNELRT", "XDG"))}
    root = os.path.dirname(os.path.dirname(krt.__file__))  # noqa: PTH120
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / f"kernelrt-{os.getuid()}")


class Exporter:
    def __dlpack__(self) -> None: ...


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "value",
    [3, 2.5, True, 1j, "text", b"bytes", np.ones(2), np.float32(1), np.int64(1), Exporter()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda v: {"a": krt.ones(2), "b": v}, "'b'"), (lambda v: [krt.ones(2), v], "'1'"),
        (lambda v: {"a": ({"b": [v]}, krt.ones(2))}, "'a.0.b.0'"), (lambda v: v, "''"),
    ],
    ids=["dict", "list", "deep", "alone"],
)  # fmt: skip
def test_what_would_be_lost_is_an_error(tmp_path, suffix, value, wrap, name) -> None:
    path = tmp_path / f"file{suffix}"
    kind = type(value).__name__
    with pytest.raises(StateError, match=rf"^state: {name} is .*{kind}.*tensor.*pickle"):
        nn.save(wrap(value), path)
    assert list(tmp_path.iterdir()) == []


def test_what_objects_keep_beside_tensors_is_theirs(tmp_path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.sizes, self.name, self.table = {"width": 3}, "mine", np.ones(2)
            self.weight = krt.ones(2)

    around = [Model(), None, nn.ReLU(), {}]
    around.append(around)
    nn.save(around, tmp_path / "file.npz")
    assert list(nn.load(tmp_path / "file.npz")) == ["0.weight"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "state",
    [{"a.b": 1, "a": {"b": 0}}, {1: 1, "1": 0}, [{"x": 1, "y": {"z": 0}, "y.z": 3}],
     {"": {"a": 1}, "a": 2}],
    ids=str,
)  # fmt: skip
def test_two_tensors_of_one_name_are_refused(tmp_path, suffix, state):
    def filled(value):
        if isinstance(value, int):
            return krt.full((1,), value)
        items = enumerate(value) if isinstance(value, list) else value.items()
        made = {key: filled(child) for key, child in items}
        return list(made.values()) if isinstance(value, list) else made

    state = filled(state)
    for use in (lambda: nn.save(state, tmp_path / f"x{suffix}"), lambda: nn.state_dict(state),
                lambda: nn.load_state_dict(state, {})):  # fmt: skip
        with pytest.raises(StateError, match="two tensors have the name '"):
            use()
    assert list(tmp_path.iterdir()) == []
    same = krt.ones(1)
    nn.save({"a.b": same, "a": {"b": same}}, tmp_path / f"x{suffix}")


NAMES = ["__metadata__", "x:bfloat16", "a\0b", "a\0", "", "a.npy", "a/b", "../a", "\ud800",
         "é" * 900, "n" * 70_000, "con", " ", ".", "a\nb", '"', "\\"]  # fmt: skip


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("name", NAMES, ids=lambda n: ascii(n[:12]))
@pytest.mark.parametrize("kind", ["uint16", "bfloat16", "float32"])
def test_a_name_comes_back_or_is_refused(tmp_path, suffix, name, kind):
    path = tmp_path / f"file{suffix}"
    state = {name: krt.ones(2, dtype=kind), f"{name}2": krt.zeros(1)}
    fault = None
    try:
        nn.save(state, path)
        equal(nn.load(path), state)
    except StateError as error:
        fault = str(error)
    refused = name in ("\ud800", *(("__metadata__",) if suffix == ".safetensors" else (
        "x:bfloat16", "a\0b", "a\0", "n" * 70_000)))  # fmt: skip
    assert refused == (fault is not None and fault.startswith("state: ")), fault
    assert len(list(tmp_path.iterdir())) == (not refused)


def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path):
    path = tmp_path / "state.npz"
    for mode in (0o600, 0o640):
        path.touch()
        path.chmod(mode)
        nn.save({"w": krt.ones(2)}, path)
        assert path.stat().st_mode & 0o777 == mode
        assert nn.load(path)["w"].tolist() == [1, 1]


def test_devices_pipes_and_folders_are_not_replaced(tmp_path):
    pipe, folder = tmp_path / "pipe.npz", tmp_path / "folder.npz"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(StateError, match="is a folder, a device or a pipe"):
            nn.save({"w": krt.ones(2)}, path)
    assert pipe.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npz", "pipe.npz"]


@pytest.mark.parametrize("path", ["", "a\0.npz", ".", "/"])
def test_paths_that_name_no_file(path):
    with pytest.raises(StateError, match="path"):
        nn.save({"a": krt.ones(1)}, path)


def test_devices_and_pipes_are_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    for path in ("/dev/zero", "/dev/full", pipe):
        with pytest.raises(StateError, match="device or a pipe"):
            nn.load(path)
    with pytest.raises(StateError, match="null"):
        nn.load("a\0.npz")


def test_an_error_of_the_disk_is_not_called_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nn.save(example(), tmp_path / "run.npz")

    def fails(*_: object) -> object:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_read_archive", fails)
    with pytest.raises(OSError, match="Input/output error"):
        nn.load(tmp_path / "run.npz")


class Counted(nn.Module):
    """A module whose state dict has a number that is no attribute of type Tensor."""

    def __init__(self) -> None:
        self.w = krt.ones(2, requires_grad=True)
        self.seen = 0

    def state_dict(self, *, prefix: str = "") -> dict[str, krt.Tensor]:
        name = f"{prefix}.seen" if prefix else "seen"
        return {**super().state_dict(prefix=prefix), name: krt.tensor(self.seen)}

    def load_state_dict(self, state_dict, strict=True):
        rest = dict(state_dict)
        self.seen = int(rest.pop("seen").item())
        return super().load_state_dict(rest, strict)


class Asking(Counted):
    """The same, by the functions of the package."""

    def state_dict(self, **_) -> dict[str, krt.Tensor]:
        return {**nn.state_dict(self), "seen": krt.tensor(self.seen)}

    def load_state_dict(self, state_dict, strict=True):
        self.seen = int(state_dict["seen"].item())
        rest = {k: v for k, v in state_dict.items() if k != "seen"}
        return nn.load_state_dict(self, rest, strict=strict)


@pytest.mark.parametrize("kind", [Counted, Asking])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_a_class_says_of_its_state_is_saved(tmp_path, kind, suffix):
    path = tmp_path / f"state{suffix}"
    inner, other = kind(), kind()
    inner.seen = 7
    nn.save(inner, path)
    other.load_state_dict(nn.load(path))
    assert other.seen == 7
    for make in (lambda m: {"a": m, "b": nn.Linear(1, 1)}, lambda m: nn.Sequential(m, nn.Tanh())):
        whole, twin = make(inner), make(kind())
        nn.save(whole, path)
        assert sorted(nn.load(path)) == sorted(nn.state_dict(whole))
        nn.load_state_dict(twin, nn.load(path))
        assert [m.seen for _, m in named_objects(twin) if isinstance(m, kind)] == [7]
    with pytest.raises(StateError, match="unexpected"):
        nn.load_state_dict(twin, {**nn.load(path), "0.more": krt.ones(1)})


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_on_where_it_was_saved(tmp_path, suffix, search):
    x = krt.tensor(np.random.default_rng(0).standard_normal((9, 3)))

    def make():
        krt.manual_seed(0)
        model = nn.Linear(3, 2).double()
        return {"model": model, "opt": nn.optim.LBFGS(
            model.parameters(), lr=0.3, max_iter=3, line_search_fn=search)}  # fmt: skip

    def train(pair):
        def closure():
            pair["opt"].zero_grad()
            loss = (pair["model"](x).tanh() - 0.3).square().mean()
            loss.backward()
            return loss

        return float(pair["opt"].step(closure).item())

    straight, twin, third = make(), make(), make()
    nn.save(twin, tmp_path / f"fresh{suffix}")
    nn.load_state_dict(straight, nn.load(tmp_path / f"fresh{suffix}"))
    for _ in range(2):
        train(straight)
    nn.save(straight, tmp_path / f"state{suffix}")
    held = nn.load(tmp_path / f"state{suffix}")
    nn.load_state_dict(twin, held)
    third["model"].load_state_dict({k[6:]: v for k, v in held.items() if k.startswith("model.")})
    nn.save(straight["opt"], tmp_path / f"opt{suffix}")
    nn.load_state_dict(third["opt"], nn.load(tmp_path / f"opt{suffix}"))
    for _ in range(3):
        wanted = train(straight)
        assert train(twin) == wanted
        assert train(third) == wanted
    short = {k: v for k, v in held.items() if k != "opt.H_diag"}
    with pytest.raises(StateError, match=r"H_diag.*missing"):
        nn.load_state_dict(twin, short)


def test_states_that_files_do_not_hold_are_refused(tmp_path):
    opt = nn.optim.SGD(nn.Linear(1, 1).parameters())

    class Trainer:
        def __init__(self, schedule):
            self.schedule = schedule

    for make in (lambda o: nn.optim.lr_scheduler.StepLR(o, 3),
                 lambda o: nn.optim.swa_utils.SWALR(o, 0.1),
                 nn.optim.lr_scheduler.ReduceLROnPlateau):  # fmt: skip
        schedule = make(opt)
        for state, name in ((schedule, "object"), ({"s": schedule}, "'s'"), ([schedule], "'0'"),
                            (Trainer(schedule), "'schedule'")):  # fmt: skip
            with pytest.raises(StateError, match=f"{name} is of type .*state_dict.*pickle"):
                nn.save(state, tmp_path / "state.npz")
    assert not list(tmp_path.iterdir())

    class Extra(nn.Module):
        def get_extra_state(self):
            return krt.ones(1)

    for call in (Extra().state_dict, lambda: nn.save([Extra()], tmp_path / "state.npz")):
        with pytest.raises(StateError, match="Extra defines get_extra_state"):
            call()


def test_averages_go_on_where_they_were_saved(tmp_path):
    def make():
        krt.manual_seed(0)
        model = nn.Linear(2, 2)
        return model, nn.optim.swa_utils.AveragedModel(model)

    model, averaged = make()
    for k in range(3):
        model.weight.data.fill_(float(k))
        averaged.update_parameters(model)
    nn.save({"model": model, "mean": averaged}, tmp_path / "state.npz")
    other, twin = make()
    nn.load_state_dict({"model": other, "mean": twin}, nn.load(tmp_path / "state.npz"))
    for m, a in ((model, averaged), (other, twin)):
        m.weight.data.fill_(9.0)
        a.update_parameters(m)
    assert twin.module.weight.tolist() == averaged.module.weight.tolist()
    assert int(twin.n_averaged) == 4


@pytest.mark.parametrize("form", [None, "npz", "safetensors"])
def test_states_go_through_files_without_a_name(tmp_path, form):
    stream = io.BytesIO(b"before")
    stream.seek(6)
    nn.save(example(), stream, format=form)
    with pytest.raises(StateError, match=r"end; call seek\(0\)"):
        nn.load(stream)
    stream.seek(6)
    equal(example(), nn.load(stream))
    # They are the files that have names.
    path = tmp_path / ("state.safetensors" if form == "safetensors" else "state.npz")
    path.write_bytes(stream.getvalue()[6:])
    equal(example(), nn.load(path))
    with path.open("rb") as file:
        equal(example(), nn.load(file))
    with (tmp_path / "again").open("wb") as file:
        nn.save({}, file, format=form)
    with (tmp_path / "again").open("rb") as file:
        assert nn.load(file) == {}


@pytest.mark.parametrize(("kind", "text", "call"), [
    (krt.DTypeError, "path: expected a str, a path or a binary file, not int",
     lambda: nn.save({}, 3)),
    (krt.DTypeError, "path: expected a str.*not bytes", lambda: nn.load(b"state.npz")),
    (krt.DTypeError, "path: expected a binary file.*'wb'", lambda: nn.save({}, io.StringIO())),
    (krt.DTypeError, "path: expected a binary file", lambda: nn.load(io.StringIO("a"))),
    (StateError, "format: expected 'npz' or 'safetensors', not 'pt'",
     lambda: nn.save({}, io.BytesIO(), format="pt")),
    (StateError, "format: expected None", lambda: nn.save({}, "state.npz", format="npz")),
    (StateError, "the file is not a state dict", lambda: nn.load(io.BytesIO(b"PK\3\4ab"))),
    (StateError, "the file is not a state dict", lambda: nn.load(io.BytesIO(b"ab"))),
    (krt.DTypeError, "max_bytes", lambda: nn.load(io.BytesIO(), max_bytes="1k")),
    (krt.ShapeError, "max_bytes", lambda: nn.load(io.BytesIO(), max_bytes=-1)),
])  # fmt: skip
def test_what_is_no_file_is_refused(kind, text, call):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_a_limit_stops_what_would_unpack_to_more(form):
    stream = io.BytesIO()
    nn.save({"a": krt.zeros(1000), "b": krt.zeros(1 << 20)}, stream, format=form)
    size = 4000 + (1 << 22)
    for limit in (1000, size - 1):
        stream.seek(0)
        tracemalloc.start()
        with pytest.raises(StateError, match=f"^max_bytes: expected .* most {limit} bytes, not "):
            nn.load(stream, max_bytes=limit)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert form == "safetensors" or peak < 1 << 20
    stream.seek(0)
    assert sorted(nn.load(stream, max_bytes=size + 1000)) == ["a", "b"]


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64"])
def test_types_of_safetensors_that_there_are_not_are_named(kind):
    entry = {"dtype": kind, "shape": [2], "data_offsets": [0, 2]}
    header = json.dumps({"layer.weight": entry}).encode()
    data = struct.pack("<Q", len(header)) + header + b"\0\0"
    with pytest.raises(StateError, match=rf"^the file: 'layer.weight' has .* {kind}, .*BOOL.*BF16"):
        nn.load(io.BytesIO(data))
