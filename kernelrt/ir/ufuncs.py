"""NumPy's ufuncs and operators on kernelrt's objects.

NumPy calls ``__array_ufunc__`` both for ``array + x`` and for ``numpy.sqrt(x)``. If the ufunc
belongs to a Python operator, the method of this operator is called. Callers raise an error for
other ufuncs.
"""

from __future__ import annotations

from typing import Any

__all__ = ["asked", "operate"]

_UNARY = {
    "absolute": "__abs__", "invert": "__invert__", "negative": "__neg__", "positive": "__pos__",
}  # fmt: skip
#: Ufunc name -> method of the first operand, reflected method of the second operand.
_BINARY = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "divmod": ("__divmod__", "__rdivmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
}


def operate(own: Any, ufunc: Any, method: str, inputs: tuple[Any, ...], options: Any) -> Any:
    """Apply the Python operator of `ufunc`; return NotImplemented if there is none.

    `own` is the operand that is a kernelrt object. For ``array += own``, NumPy passes the array as
    the output. The function still returns a new object, and Python assigns this object to the name.
    """
    out = options.get("out", ())
    if method != "__call__" or len(options) > len(out) or any(o is not inputs[0] for o in out):
        return NotImplemented
    if len(inputs) == 1:
        do = getattr(type(own), _UNARY.get(ufunc.__name__, ""), None)
        return NotImplemented if do is None else do(own)
    names = _BINARY.get(ufunc.__name__, ("", ""))
    first, second = inputs[:2]
    name, other = (names[0], second) if first is own else (names[1], first)
    do = getattr(type(own), name, None)
    return NotImplemented if do is None else do(own, other)


def asked(ufunc: Any, method: str) -> str:
    """Return the name of a ufunc call in user code, such as ``numpy.add.reduce``."""
    name = str(ufunc.__name__)
    return f"numpy.{name}" if method == "__call__" else f"numpy.{name}.{method}"
