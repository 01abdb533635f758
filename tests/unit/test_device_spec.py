"""DeviceSpec and the registry of devices."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kernelrt.device import registry
from kernelrt.device.spec import DeviceSpec, host
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


def test_a_spec_is_a_value():
    assert DeviceSpec.avx2() == DeviceSpec.avx2()
    assert hash(DeviceSpec.avx2(2)) != hash(DeviceSpec.avx2(4))
    with pytest.raises(dataclasses.FrozenInstanceError):
        DeviceSpec.avx2().cores = 3


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
