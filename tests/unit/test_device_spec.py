"""DeviceSpec and the registry of devices."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.skip_list import needs

from kernelrt.device import processor, registry
from kernelrt.device import spec as module
from kernelrt.device.spec import TARGETS, DeviceSpec, host, lacking, machine, named, runnable
from kernelrt.errors import DeviceError

if TYPE_CHECKING:
    from kernelrt.device.registry import Device


def test_the_host_is_described_once():
    spec = host()
    assert spec is host()
    assert spec.name == "CPU"
    assert spec.cores >= 1
    assert spec.vector_bits in (128, 256, 512)
    assert spec.l1_bytes >= 16 << 10
    assert spec.l2_bytes >= spec.l1_bytes


@pytest.mark.parametrize(
    ("spec", "bits", "registers", "fma"),
    [
        (DeviceSpec.avx512(), 512, 32, True),
        (DeviceSpec.avx2(), 256, 16, True),
        (DeviceSpec.neon(), 128, 32, True),
        (DeviceSpec.sse4(), 128, 16, False),
        (DeviceSpec.generic(), 128, 16, False),
    ],
)
def test_targets_that_are_not_here(spec, bits, registers, fma):
    assert (spec.vector_bits, spec.vector_registers, spec.has_fma) == (bits, registers, fma)
    assert spec.lanes(4) == bits // 32
    assert spec.lanes(1 << 10) == 1


def test_features_are_looked_up_whole():
    spec = DeviceSpec.avx512()
    assert spec.has("avx512f")
    assert not spec.has("avx512")
    assert not DeviceSpec.avx2().has("avx512f")


@pytest.mark.parametrize(("kib", "step", "held"), [
    (512, 64, 8192), (512, 4096, 128), (512, 4160, 8192), (512, 1 << 16, 16),
    # 20 ways of 64 KiB.
    (1280, 64, 20480), (1280, 4096, 320), (1280, 4160, 20480), (1280, 1 << 16, 20),
    (1280, 1 << 20, 20), (1280, 5 << 14, 80),
])  # fmt: skip
def test_lines_that_the_l2_cache_holds(kib, step, held):
    spec = dataclasses.replace(DeviceSpec.avx2(), l2_bytes=kib << 10)
    assert not spec.evicts(held, step)
    assert spec.evicts(held + 1, step)


def test_a_spec_is_a_value():
    assert DeviceSpec.avx2() == DeviceSpec.avx2()
    assert hash(DeviceSpec.avx2(2)) != hash(DeviceSpec.avx2(4))
    with pytest.raises(dataclasses.FrozenInstanceError):
        DeviceSpec.avx2().cores = 3


@pytest.fixture
def on(monkeypatch):
    """Return the target of a process on a machine, under a value of KERNELRT_TARGET."""

    def process(here: DeviceSpec, value: str) -> DeviceSpec:
        monkeypatch.setattr(module, "machine", lambda: here)
        monkeypatch.setenv("KERNELRT_TARGET", value)
        return host.__wrapped__()

    return process


MACHINE = dataclasses.replace(DeviceSpec.avx2(6), cpu="znver3", l2_bytes=3 << 20)


@pytest.mark.parametrize("value", ["", "native", " Native "])
def test_the_target_is_the_machine_unless_one_is_named(on, value):
    assert on(MACHINE, value) is MACHINE


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v2", "x86-64-v3", "X86-64-V3 "])
def test_a_named_target_depends_on_the_machine_only_in_its_cores(on, name):
    other = dataclasses.replace(DeviceSpec.avx512(6), cpu="skylake-avx512", l1_bytes=48 << 10)
    assert on(MACHINE, name) == on(other, name)
    assert on(MACHINE, name) == dataclasses.replace(TARGETS[name.strip().lower()](), cores=6)


def test_a_named_target_takes_the_object_format_of_the_machine(on):
    mac = dataclasses.replace(DeviceSpec.neon(8), triple="arm64-apple-darwin24", features="")
    assert on(mac, "armv8-a") == dataclasses.replace(DeviceSpec.neon(8), triple=mac.triple)


def test_a_target_that_an_option_names_is_refused_in_its_name():
    assert named("native", MACHINE, "--target") is MACHINE
    for name in ("x86-64-v4", "avx2"):
        with pytest.raises(DeviceError, match=f"^--target: .*'{name}'"):
            named(name, MACHINE, "--target")


@pytest.mark.parametrize(("name", "text"), [
    ("x86-64-v4", r"machine \(znver3\) cannot run code for 'x86-64-v4', as it lacks avx512f,"),
    ("x86-64-v4", r" set it to 'native', or to one of x86-64, x86-64-v2, x86-64-v3$"),
    ("armv8-a", r"cannot run code for 'armv8-a', as it lacks aarch64; set it to 'native'"),
    ("avx2", r"KERNELRT_TARGET: 'avx2' is no target; expected 'native', or one of x86-64,"),
    ("avx2", r" this machine runs x86-64, x86-64-v2, x86-64-v3$"),
])  # fmt: skip
def test_targets_that_the_machine_cannot_run_are_refused(on, name, text):
    with pytest.raises(DeviceError, match=text):
        on(MACHINE, name)


@pytest.mark.parametrize(("name", "features"), [
    ("x86-64-v2", "cx16 sahf crc32 popcnt sse3 ssse3 sse4.1 sse4.2"),
    ("x86-64-v3", "cx16 sahf movbe xsave avx avx2 bmi bmi2 f16c fma lzcnt"),
])  # fmt: skip
def test_every_feature_of_a_level_is_asked_for(name, features):
    """Those of the psABI, all of which LLVM uses under the level's name."""
    whole = TARGETS["x86-64-v4"]()
    for feature in features.split():
        there = whole.features.replace(f"+{feature},", f"-{feature},")
        assert lacking(TARGETS[name](), dataclasses.replace(whole, features=there)) == [feature]


def test_arm64_machines_differ_in_their_dot_products(on):
    old, newer = DeviceSpec.neon(4), DeviceSpec.neon_dot(4)
    assert lacking(DeviceSpec.neon_i8mm(), newer) == ["i8mm"]
    assert lacking(newer, DeviceSpec.neon_i8mm()) == []
    assert on(newer, "armv8.2-a") == newer
    text = r"lacks dotprod; set it to 'native', or to one of armv8-a$"
    with pytest.raises(DeviceError, match=text):
        on(old, "armv8.2-a")
    bare = dataclasses.replace(old, features="-aes,-sve")
    assert lacking(old, bare) == []


@needs("armv8-a")
def test_an_arm64_machine_names_its_features():
    assert {"dotprod", "i8mm"} <= {feature[1:] for feature in machine().features.split(",")}


#: Prints a hash of the results of element-wise functions and of normal random numbers, and one of
#: float arithmetic, integers and uniform random numbers.
ELEMENTWISE = """
import hashlib, warnings
import numpy as np
import kernelrt as krt

warnings.simplefilter("ignore")
functions = '''acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1
gelu i0 lgamma log log10 log1p log2 sigmoid sin sinc sinh softplus tan tanh'''.split()
plain = '''abs ceil floor frac neg reciprocal relu round rsqrt sign sqrt square trunc'''.split()
found, exact = [], []
for kind in ("float32", "float64", "float16", "bfloat16"):
    x = krt.tensor(np.random.default_rng(0).normal(0, 9, 1003)).cast(kind).realize()
    found += krt.jit(lambda x: tuple(getattr(x, name)() for name in functions))(x)
    found += krt.jit(lambda x: (x ** 3.3, x.atan2(x * x), x.addcmul(x, x, value=0.3)))(x)
    exact += krt.jit(lambda x: tuple(getattr(x, name)() for name in plain))(x)
    exact += krt.jit(lambda x: (x * 3.1 + x, x / 7, x // 3, x % 3, x.fmod(-0.7), x > 1))(x)
i = krt.tensor(np.arange(-500, 503))
exact += krt.jit(lambda i: (i // 7, i % 7, i * i, i.sum(), i.argmax(), i.sort()[0]))(i)
krt.manual_seed(3)
normal, *others = krt.jit(lambda: (krt.randn(99), krt.rand(99), krt.randperm(99)))()
for outs in ([*found, normal], [*exact, *others]):
    digest = hashlib.sha256()
    for out in outs:
        bits = out.float() if out.dtype.name == "bfloat16" else out
        digest.update(bits.numpy().tobytes())
    print(digest.hexdigest())
"""


@functools.cache
def digests(target: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ELEMENTWISE], env={**os.environ, "KERNELRT_TARGET": target},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.cases(1 / 2)
@pytest.mark.parametrize("name", ["native", *TARGETS])
def test_elementwise_functions_give_the_same_bits_under_targets_that_fuse_alike(name):
    spec = machine() if name == "native" else TARGETS[name]()
    if name not in ("native", *runnable(machine())):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            digests(name)
        assert "cannot run code for" in caught.value.stderr
        return
    runs = runnable(machine())
    alike = next((n for n in runs if TARGETS[n]().has_fma is spec.has_fma), name)
    functions, arithmetic = digests(name)
    assert len(functions) == len(arithmetic) == 64
    assert functions == digests(alike)[0]
    assert arithmetic == digests(runs[0])[1]


@needs("CPUID")
def test_a_process_that_compiles_nothing_does_not_load_llvm(tmp_path):
    code = (
        "import sys, kernelrt as krt; x = krt.ones(3, 4); f = krt.jit(lambda x: (x @ x.T).exp());"
        "assert f(x).sum().item() > 9; print('llvmlite.binding' in sys.modules)"
    )
    environment = {**os.environ, "KERNELRT_CACHE_DIR": str(tmp_path), "KERNELRT_CACHE": "1"}
    command = [sys.executable, "-c", code]
    loaded = [
        subprocess.run(command, check=True, env=environment, capture_output=True).stdout.strip()
        for _ in range(2)
    ]
    assert loaded == [b"True", b"False"]


@needs("CPUID")
def test_another_processor_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELRT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KERNELRT_CACHE", "1")
    answers = iter([("x86_64", "old", {"avx": True}), ("x86_64", "new", {"avx": False})])
    monkeypatch.setattr(processor, "_ask_llvm", lambda: next(answers))
    old = processor.described()
    assert processor.described() == old
    monkeypatch.setattr(processor, "processor_identity", lambda: "1 2 3")
    assert processor.described()[1:] == ("new", {"avx": False})


def test_describing_targets_does_not_import_llvm():
    code = (
        "import sys; from kernelrt.device.spec import DeviceSpec; DeviceSpec.avx2(); "
        "from kernelrt.device.buffer import Buffer; from kernelrt import dtype; "
        "Buffer(4, dtype.float32).address; import kernelrt.runtime; "
        "sys.exit('llvmlite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_device_names_the_known_ones():
    with pytest.raises(DeviceError, match="'TPU' is unknown; expected one of: CPU"):
        registry.opened("TPU")


def test_a_device_is_opened_once_and_when_needed():
    cpu = registry.opened("CPU")
    calls = []

    def factory() -> Device:
        calls.append(1)
        return cpu

    registry.register("TEST_ONCE", factory)
    assert "TEST_ONCE" in registry.known()
    assert not calls
    assert registry.opened("TEST_ONCE") is registry.opened("TEST_ONCE") is cpu
    assert calls == [1]
