"""The verifier: a legal graph passes, and each illegal one is named with its rule."""

import pytest
from support.graphs import Memory, iota, mul, reduce, reshape, softmax, windows

from kernelrt import dtype as dt
from kernelrt.errors import SpecError
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.kernel_spec import KERNEL, verify_kernel
from kernelrt.ir.local import ROWS_BYTES
from kernelrt.ir.ops import HALVES, Parts
from kernelrt.ir.tensor_spec import TENSOR, verify_tensor
from kernelrt.schedule import schedule

MEM = Memory(5)
X = MEM.random(4, 6)
Y = MEM.random(6, 4)
N = MEM.indices(4, 3)
F, INT, B = dt.float32, dt.int64, dt.bool_
ZERO = const(0, INT)


def test_a_legal_graph_passes() -> None:
    verify_tensor([softmax(X), windows(X, (1, 3, 1, 1)), iota(5)])


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (UOp(Op.ADD, F, (X, Y)), "operand shapes"),
        (UOp(Op.ADD, F, (X,)), "takes 2 operands, has 1"),
        (UOp(Op.ADD, F, (X, UOp(Op.CAST, dt.float64, (X,)))), "cast to one"),
        (UOp(Op.ADD, INT, (X, X)), "its dtype is int64; expected float32"),
        (UOp(Op.LT, F, (X, X)), "expected bool"),
        (UOp(Op.WHERE, F, (X, X, X)), "must be bool"),
        (UOp(Op.EXP, INT, (N,)), "is for floats"),
        (UOp(Op.DIV, INT, (N, N)), "is for floats"),
        (UOp(Op.AND, F, (X, X)), "not float"),
        (UOp(Op.SHL, B, (UOp(Op.LT, B, (N, N)),) * 2), "is for integers"),
        (UOp(Op.NEG, B, (UOp(Op.LT, B, (N, N)),)), "bool is not defined"),
        (UOp(Op.BITCAST, dt.float64, (X,)), "widths must be equal"),
        (UOp(Op.CONST, F, (), 1), "must be a float"),
        (UOp(Op.VAR, INT, (), ("n", 4, 1)), "must be (name, min, max)"),
        (UOp(Op.BUFFER, F, (), "x"), "has no size"),
        (UOp(Op.RESHAPE, F, (X,), (5, 5)), "differ in elements"),
        (UOp(Op.EXPAND, F, (X,), (8, 6)), "only axes of size 1 can expand"),
        (UOp(Op.EXPAND, F, (X,), (1, 4, 6)), "keeps the rank"),
        (UOp(Op.PERMUTE, F, (X,), (0, 0)), "not a permutation"),
        (UOp(Op.SHRINK, F, (X,), ((0, 4), (2, 7))), "cannot be cut"),
        (UOp(Op.PAD, F, (X,), ((0, 4), (-2, 7))), "must not be negative"),
        (UOp(Op.PAD, F, (X,), ((0, 4),)), "one pair for each of 2 axes"),
        (UOp(Op.FLIP, F, (X,), (2,)), "must be distinct and lie in 0..1"),
        (UOp(Op.IM2COL, F, (X,), ((0, 2, 0, 1),)), "must be positive"),
        (UOp(Op.COL2IM, F, (X,), ((4, 6), ((1, 3, 1, 1),))), "windows of (4, 6) have shape"),
        (UOp(Op.REDUCE_AXIS, F, (X,), (Op.SUB, (0,))), "not a reducer"),
        (UOp(Op.REDUCE_AXIS, F, (X,), (Op.ADD, (0, 0))), "must be distinct"),
        (UOp(Op.GATHER, F, (X, N)), "one per axis"),
        (UOp(Op.GATHER, F, (X, N, reshape(N, (3, 1)))), "index shapes"),
        (UOp(Op.SCATTER, F, (X, N, N, N), Op.ADD), "types must be equal"),
        (UOp(Op.SCATTER, F, (X, X, N, N), Op.SUB), "not a reducer"),
        (UOp(Op.CAT, F, (X, Y), 0), "differ in other axes than 0"),
        (UOp(Op.CAT, F, (X, X), 2), "must lie in 0..1"),
        (UOp(Op.RANGE, INT, (ZERO,), 0), "is not allowed at this stage"),
    ],
)
def test_tensor_faults(node: UOp, fault: str) -> None:
    with pytest.raises(SpecError, match="tensor stage") as caught:
        verify_tensor([node])
    assert fault in str(caught.value)


P = UOp(Op.PARAM, F, (), (0, 24))
Q = UOp(Op.PARAM, F, (), (1, 24))
R = UOp(Op.RANGE, INT, (const(24, INT),), 0)
S = UOp(Op.RANGE, INT, (const(6, INT),), 1)
LOAD = UOp(Op.LOAD, F, (Q, R))


def store(value: UOp, index: UOp = R, param: UOp = P, *loops: UOp, mode: Op | None = None) -> UOp:
    return UOp(Op.STORE, value.dtype, (param, index, value, *loops), mode)


T = UOp(Op.RANGE, INT, (const(6, INT),), 2)
SUM = UOp(Op.REDUCE, F, (UOp(Op.LOAD, F, (Q, S)), S), Op.ADD)


ROW = UOp(Op.LOCAL, F, (UOp(Op.LOAD, F, (Q, S)), S))
LONG = UOp(Op.RANGE, INT, (const(ROWS_BYTES // 4 + 1, INT),), 2)


def element(array: UOp, index: UOp = ZERO) -> UOp:
    return UOp(Op.LOAD, array.dtype, (array, index))


@pytest.mark.parametrize(
    ("stores", "fault"),
    [
        ((LOAD,), "must all be STOREs"),
        ((store(LOAD, R, LOAD),), "must be a PARAM"),
        ((store(element(ROW), R, ROW),), "must be a PARAM"),
        ((store(ROW),), "as a number; LOAD an element"),
        ((store(element(Q, UOp(Op.LOCAL, INT, (S, S)))),), "as a number; LOAD an element"),
        ((store(element(LOAD)),), "must be a PARAM, a LOCAL or WORDS"),
        ((store(element(ROW, S)),), "which only the operands of"),
        ((store(element(ROW.replace(src=(LOAD, ZERO)))),), "not a RANGE"),
        ((store(element(ROW.replace(src=(LOAD,)))),), "takes 2 operands or more"),
        ((store(element(ROW.replace(src=(LOAD, S, S)))),), "has a RANGE as operand twice"),
        ((store(element(ROW.replace(dtype=dt.float64)).cast(F)),), "LOCAL keeps the dtype"),
        ((store(SUM), store(element(ROW))), "also belongs"),
        ((store(element(UOp(Op.LOCAL, F, (LOAD, LONG)))),), f"take up to {ROWS_BYTES + 4} bytes"),
        ((store(const(1, INT)),), "stores int64 to memory of float32"),
        ((store(LOAD, LOAD),), "must be int64"),
        ((store(UOp(Op.LOAD, F, (Q, R, R))),), "its predicate is int64"),
        ((store(LOAD, R, P, R),), "only a STORE with a reducer takes loop operands"),
        ((store(LOAD, R, P, mode=Op.ADD),), "RANGE 0 repeats the update"),
        ((store(LOAD, R, P, R, ZERO, mode=Op.ADD),), "a loop operand that is not a RANGE"),
        ((store(SUM, R, P, R, S, mode=Op.ADD),), "which only the operands of"),
        ((store(LOAD, mode=Op.SUB),), "must be None or a reducer"),
        ((store(UOp(Op.LOAD, dt.float64, (Q, R))),), "LOAD keeps the dtype"),
        ((store(UOp(Op.REDUCE, F, (LOAD, R), Op.SUB), ZERO),), "not a reducer"),
        ((store(UOp(Op.REDUCE, F, (LOAD, ZERO), Op.ADD)),), "not a RANGE"),
        ((store(SUM, S),), "which only the operands of"),
        ((store(SUM), store(UOp(Op.REDUCE, F, (UOp(Op.CAST, F, (S,)), S), Op.MAX))), "also belong"),
        ((store(LOAD, R.replace(arg=-1)),), "a number of at least 0"),
        ((store(LOAD), store(LOAD, R, P.replace(arg=(0, 25)))), "slot 0 is used twice"),
        ((store(LOAD, S.replace(arg=0)),), "RANGE number 0 is used twice"),
        ((store(UOp(Op.LOAD, F, (Q, UOp(Op.BOUND, INT, (R, ZERO, P))))),), "status word"),
        ((store(reshape(X, (24,))),), "is not allowed at this stage"),
    ],
)
def test_kernel_faults(stores: tuple[UOp, ...], fault: str) -> None:
    with pytest.raises(SpecError, match="kernel stage") as caught:
        verify_kernel(UOp(Op.SINK, F, stores))
    assert fault in str(caught.value)


def test_words_are_of_narrow_integers() -> None:
    narrow = UOp(Op.PARAM, dt.int8, (), (1, 24))
    word = UOp(Op.LOAD, dt.int32, (UOp(Op.WORDS, dt.int32, (narrow,)), R))
    for arg in (HALVES, *(Parts(4, x, y) for x in (True, False) for y in (True, False))):
        verify_kernel(UOp(Op.SINK, F, (store(UOp(Op.DOT, dt.int32, (word, word), arg).cast(F)),)))
    wide = word.replace(src=(UOp(Op.WORDS, dt.int32, (P,)), R))
    faults = [
        (wide, "integers of 8 or 16 bits, or of bfloat16"),
        (UOp(Op.DOT, dt.int32, (word, word), 4), "must be Parts.number=2, .*, or Parts of 4 bytes"),
        (UOp(Op.DOT, dt.int32, (word, word.cast(F)), HALVES), "words, which are int32"),
        (UOp(Op.DOT, F, (word, word), Parts(4, True, True)), r"must be Parts\(number=2, [^)]*\)$"),
        (UOp(Op.DOT, dt.float64, (word, word), HALVES), "expected int32, float32 or bfloat16"),
        (UOp(Op.DOT, dt.int32, (word,), HALVES), "takes 2 operands"),
    ]
    for value, fault in faults:
        with pytest.raises(SpecError, match=fault):
            verify_kernel(UOp(Op.SINK, F, (store(value.cast(F)),)))


def test_a_kernel_is_a_sink() -> None:
    verify_kernel(UOp(Op.SINK, F, (store(SUM), store(element(ROW.replace(src=(T.cast(F), T)))))))
    with pytest.raises(SpecError, match="must be a SINK"):
        verify_kernel(store(LOAD))


def test_the_scheduler_verifies_what_it_is_given() -> None:
    with pytest.raises(SpecError, match="operand shapes"):
        schedule([UOp(Op.ADD, F, (X, Y))])


def test_every_op_has_a_stage() -> None:
    # An ELEMENT stands for what is read from data until its kernel is lowered.
    assert set(Op) - {Op.ELEMENT} == set(TENSOR) | set(KERNEL)
    assert Op.ELEMENT not in TENSOR.keys() | KERNEL.keys()


def test_scheduled_kernels_are_legal() -> None:
    for kernel in schedule([mul(softmax(X), 2.0), reduce(Y, Op.MAX, 0)]).kernels:
        verify_kernel(kernel.ast)
        assert {n.op for n in toposort([kernel.ast])} <= set(KERNEL)
