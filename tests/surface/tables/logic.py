"""Bits, logic and comparisons."""

from surface.rows import Bool, Index, Row

A, B = Index("a b", "50", -50), Index("b", "50", -50)
SHIFTS = Index("b", "9")

ROWS = [
    Row("bitwise_and", "x.bitwise_and(y)", (A, B), grad=False, ints=True),
    Row("bitwise_or", "x.bitwise_or(y)", (A, B), grad=False, ints=True),
    Row("bitwise_xor", "x.bitwise_xor(y)", (A, B), grad=False, ints=True),
    Row("bitwise_not", "x.bitwise_not()", (A,), grad=False, ints=True),
    Row("bitwise_bools",
        "(x.bitwise_and(y), x.bitwise_or(y), x.bitwise_xor(y), "
        "x.bitwise_not())", (Bool("a b"), Bool("b")), grad=False),
    Row("left_shift", "x.bitwise_left_shift(y)", (A, SHIFTS), grad=False),
    Row("right_shift", "x.bitwise_right_shift(y)", (A, SHIFTS), grad=False),
    Row("left_shift_too_far", "x.bitwise_left_shift(64)", (A,), grad=False),
    Row("right_shift_too_far", "x.bitwise_right_shift(64)", (A,), grad=False),
    Row("shifts_of_numbers", "(1 << x, 100 >> x)", (SHIFTS,), grad=False),
    Row("bits_with_numbers", "(1 & x, 6 | x, 5 ^ x)", (A,), grad=False),
    Row("logical_xor", "x.logical_xor(y)", ("a b", "b"), grad=False, ints=True),
    Row("greater",
        "(x.greater(y), x.greater_equal(y), x.less(y), x.less_equal(y), "
        "x.not_equal(y))", ("a b", "b"), grad=False, ints=True),
    Row("isclose", "x.isclose(y, rtol=0.5, atol=0.25)", ("a b", "b"), grad=False,
        ints=True),
    Row("isclose_nan", "x.isclose(y, equal_nan=True)", ("a b", "b"), grad=False),
    Row("allclose", "(x.allclose(y), x.allclose(x), x.equal(y), x.equal(x))",
        ("a b", "a b"), grad=False, ints=True, jit=False, why="the result is a bool of Python's"),
]
