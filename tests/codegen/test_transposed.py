"""Blocks loaded by rows and had by columns: which lanes end where, in how many shuffles."""

import itertools
import re

import pytest

from kernelrt import dtype as dt
from kernelrt.backend.cpu.compiler import LLVMCompiler
from kernelrt.backend.llvm.llvm_types import Text, Value
from kernelrt.backend.llvm.vector_shuffles import transpose
from kernelrt.device.spec import DeviceSpec


class Lanes(Text):
    """Text that knows which element each lane of a value holds."""

    def __init__(self):
        super().__init__()
        self.held = {}

    def row(self, number, width, dtype):
        value = Value(self.name(), width, dtype)
        self.held[value.text] = [(number, column) for column in range(width)]
        return value

    def shuffle(self, a, b, mask):
        made = super().shuffle(a, b, mask)
        both = self.held[a.text] + (self.held[b.text] if b is not None else [])
        self.held[made.text] = [both[lane] if lane >= 0 else None for lane in mask]
        return made

    def lane(self, value, lane):
        made = super().lane(value, lane)
        self.held[made.text] = [self.held[value.text][lane]]
        return made

    def splat(self, value, lanes):
        made = super().splat(value, lanes)
        self.held[made.text] = self.held[value.text] * (lanes // value.lanes)
        return made

    def fence(self, value):
        made = super().fence(value)
        self.held[made.text] = self.held[value.text]
        return made

    def pack(self, values):
        made = super().pack(values)
        self.held[made.text] = [lane for value in values for lane in self.held[value.text]]
        return made


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int32, dt.bfloat16, dt.int8])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_columns_hold_what_rows_held(dtype, width):
    for height in range(2, 17):
        text = Lanes()
        columns = transpose(text, [text.row(r, width, dtype) for r in range(height)])
        for c, column in enumerate(columns):
            assert text.held[column.text] == [(r, c) for r in range(height)], (height, c)


def block(rows, columns):
    text, loaded = Text(), []
    ty = f"<{columns} x float>"
    for at in range(rows):
        address = text.emit(f"getelementptr float, ptr %bufs, i64 {at * columns}")
        loaded.append(Value(text.emit(f"load {ty}, ptr {address}, align 4"), columns, dt.float32))
    for at, column in enumerate(transpose(text, loaded)):
        address = text.emit(f"getelementptr float, ptr %vals, i64 {at * rows}")
        text.lines.append(f"  store <{rows} x float> {column.text}, ptr {address}, align 4")
    body = "\n".join([*text.lines, "  ret void", "}", *text.declarations.values()])
    width = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
    head = "define void @block(ptr %bufs, ptr %vals) #0 {"
    return f"{head}\n{body}\nattributes #0 = {{ {width} }}\n"


@pytest.mark.parametrize(
    ("device", "size"), [(DeviceSpec.avx512(), 16), (DeviceSpec.avx2(), 8), (DeviceSpec.avx2(), 4)]
)
def test_each_round_takes_an_instruction_for_a_row(device, size):
    written = LLVMCompiler(device).assembly("block", block(size, size))
    shuffles = re.findall(r"^\tv(?:unpck|shuf|perm|insert|movlh|blend)\w*", written, re.MULTILINE)
    assert len(shuffles) <= size * (size.bit_length() - 1)
    assert "vpermt2" not in written


def test_sizes_of_blocks_differ():
    texts = {block(*sizes) for sizes in itertools.product((4, 8), (4, 8))}
    assert len(texts) == 4
