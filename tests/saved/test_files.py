"""Damaged, foreign and half-written model files are refused, and savers leave whole files."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import struct
import subprocess
import sys
import textwrap
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.saved_programs import normal

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import ModelFileError

if TYPE_CHECKING:
    from pathlib import Path

HEADER, SECTION = struct.Struct("<8sIIQII"), struct.Struct("<8sQQII")


def small() -> bytes:
    """Return a model of some kernels, a loop, a dynamic size and state."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    total = krt.zeros(2)

    def run(x):
        carry, sums = krt.scan(lambda c, v: (c + v, c.sum()), total, net(x))
        total.assign(carry)
        return sums[krt.arange(2)], x.sort(0)[0]

    function = krt.jit(run, dynamic={"x": {0: krt.Variable("n", 2, 9)}})
    from kernelrt.jit import saving

    return b"".join(saving.content({"run": (function, normal(3, 3))}))


@pytest.fixture(scope="module")
def content() -> bytes:
    return small()


def sections(content: bytes) -> list[tuple[str, int, int]]:
    """Return name, offset and length of each section."""
    n = HEADER.unpack_from(content)[2]
    rows = [SECTION.unpack_from(content, HEADER.size + i * SECTION.size) for i in range(n)]
    return [(name.rstrip(b"\0").decode(), offset, nbytes) for name, offset, nbytes, _, _ in rows]


def sealed(content: bytearray) -> bytes:
    """Return the file with checksums that fit its content."""
    fields = [*HEADER.unpack_from(content)]
    for i, (name, offset, nbytes) in enumerate(sections(content)):
        crc = zlib.crc32(content[offset : offset + nbytes])
        SECTION.pack_into(content, HEADER.size + i * SECTION.size, name.encode(), offset, nbytes,
                          crc, 0)  # fmt: skip
    table = content[HEADER.size : HEADER.size + fields[2] * SECTION.size]
    fields[3], fields[4] = len(content), zlib.crc32(table)
    HEADER.pack_into(content, 0, *fields)
    return bytes(content)


def test_every_truncation_is_refused(content: bytes) -> None:
    for n in [*range(200), *range(200, len(content), 97), len(content) - 1]:
        with pytest.raises(ModelFileError):
            krt.load(content[:n])
    with pytest.raises(ModelFileError, match=r"it has .* bytes and should have"):
        krt.load(content + b"\0")


def test_every_flipped_bit_is_refused(content: bytes) -> None:
    used = [range(HEADER.size - 4), *(range(o, o + n) for _, o, n in sections(content))]
    draw = random.Random(0)  # noqa: S311
    for span in used:
        for at in draw.sample(span, min(60, len(span))):
            damaged = bytearray(content)
            damaged[at] ^= 1 << draw.randrange(8)
            with pytest.raises(ModelFileError, match=r"damaged|no model file|format"):
                krt.load(bytes(damaged))


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_tables_that_contradict_each_other_are_refused_or_harmless(
    seed: int, content: bytes
) -> None:
    """With checksums that fit: an attacker could do more, but no number may lead out of bounds."""
    draw = random.Random(seed)  # noqa: S311
    refused = 0
    for name, offset, nbytes in sections(content):
        if name in ("CODE", "DATA", "TEXT") or not nbytes:
            continue  # the values of kernels, in INTS, are trusted like code
        for _ in range(20):
            damaged = bytearray(content)
            at = offset + draw.randrange(nbytes // 4) * 4
            value = draw.choice([0, 1, 2**31, 2**32 - 1, draw.randrange(2**32)])
            struct.pack_into("<I", damaged, at, value)
            try:
                krt.load(sealed(damaged))
            except ModelFileError:
                refused += 1
    assert refused > 33


def test_other_versions_and_processors_are_refused(content: bytes) -> None:
    other = bytearray(content)
    struct.pack_into("<I", other, 8, 2)
    with pytest.raises(ModelFileError, match="has format 2, but this version of kernelrt reads"):
        krt.load(bytes(other))
    name, offset, nbytes = next(s for s in sections(content) if s[0] == "TEXT")
    assert name == "TEXT"
    text = content[offset : offset + nbytes]
    for given, new, message in (
        (b"x86_64\0", b"sparc4\0", "was saved for sparc4"),
        (b"aarch64\0", b"sparc64\0", "was saved for sparc64"),
        (b"sse4.2", b"sse9.2", "this one lacks sse9.2; save it again with KERNELRT_TARGET"),
    ):
        if given in text:
            changed = bytearray(content)
            changed[offset : offset + nbytes] = text.replace(given, new)
            with pytest.raises(ModelFileError, match=message):
                krt.load(sealed(changed))


def test_a_digest_that_the_caller_trusts_is_checked(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.krt"
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert krt.load(path, trusted_digest=digest.upper()).functions
    assert krt.load(content, trusted_digest=digest).functions
    with pytest.raises(ModelFileError, match="open the file with this digest"):
        krt.load(path, trusted_digest="0" * 64)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        krt.load(tmp_path / "none.krt")
    with pytest.raises(ModelFileError, match="it is not a regular file"):
        krt.load(tmp_path)
    (tmp_path / "empty.krt").touch()
    with pytest.raises(ModelFileError, match="it has 0 bytes"):
        krt.load(tmp_path / "empty.krt")
    (tmp_path / "zip.krt").write_bytes(b"PK\3\4" + bytes(999))
    with pytest.raises(ModelFileError, match=r"kernelrt\.nn\.load reads state dicts"):
        krt.load(tmp_path / "zip.krt")
    os.mkfifo(tmp_path / "pipe.krt")
    with pytest.raises(ModelFileError, match="it is not a regular file"):
        krt.load(tmp_path / "pipe.krt")


def test_a_file_may_be_replaced_while_it_is_open(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.krt"
    path.write_bytes(content)
    model = krt.load(path)
    expected = krt.load(content)(normal(3, 3))[0].numpy()
    with path.open("r+b") as file:
        file.truncate(10)
    np.testing.assert_array_equal(model(normal(3, 3))[0].numpy(), expected)


@pytest.mark.parametrize("save", ["function", "model"])
def test_a_full_disk_leaves_the_old_file(save: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.krt").write_bytes(content)
    script = f"""
        import resource, signal, numpy as np, kernelrt as krt
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        model = krt.load("m.krt")
        function = krt.jit(lambda x: x * 2)
        function(np.ones(3, np.float32))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            {"model.save('m.krt')" if save == "model" else "function.save('m.krt')"}
        except (krt.ModelFileError, OSError) as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "File too large" in done.stdout, done.stderr
    assert (tmp_path / "m.krt").read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["m.krt"]


def test_two_savers_leave_a_whole_file(content: bytes, tmp_path: Path) -> None:
    models = [krt.load(content) for _ in range(4)]

    def save(model: krt.jit) -> None:
        for _ in range(20):
            model(normal(3, 3))
            model.save(tmp_path / "m.krt")
            krt.load(tmp_path / "m.krt")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, models))
    assert [file.name for file in tmp_path.iterdir()] == ["m.krt"]


def test_opening_many_models_frees_their_memory(content: bytes) -> None:
    for _ in range(50):
        krt.load(content)(normal(3, 3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500):
        krt.load(content)(normal(3, 3))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
