"""Dynamic sizes in the public API.

Internally a dimension is an int or a UOp over Variables, and UOps are compared by identity. User
code gets a :class:`Size`, which compares the value, as in ``x.shape[0] > 3``. If the bounds of the
Variables decide the comparison, it has a result. Otherwise it raises VariableError, because a
function is traced once for all sizes.
"""

from __future__ import annotations

import gc
import math
import numbers
import operator
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, VariableError, made
from kernelrt.ir import uop
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import as_dim, as_uop, dim_span, format_size
from kernelrt.ir.terms import render
from kernelrt.ir.ufuncs import asked, operate
from kernelrt.ir.uop import UOp, const, toposort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from kernelrt.ir.uop import Dim

__all__ = ["Real", "Size", "SizeWatch", "Variable", "as_size", "plain"]


def as_size(dim: Dim) -> int | Size:
    """Return a dimension for user code: an int or a Size."""
    return Size(dim) if isinstance(dim, UOp) else dim


def plain(value: Any) -> Any:
    """Replace a Size or Real by its node; convert sequences item by item."""
    if type(value) is int:
        return value
    if isinstance(value, Size | Real):
        return value.uop
    if type(value) in (tuple, list) and any(isinstance(v, Size | Real) for v in value):
        return type(value)(plain(v) for v in value)
    return value


#: Modules of abstract base classes, whose functions isinstance() calls.
_ASKING = frozenset({"abc", "_py_abc"})


class _Local(threading.local):
    watch: SizeWatch | None = None


_local = _Local()


class SizeWatch:
    """Context manager that detects code that can tell a Size from an int, in one thread.

    It detects code that converts a size to text, reads an unknown attribute of it, calls
    isinstance() on it, catches an error of it, or keeps it. It does not detect ``type(size)``.
    """

    def __init__(self) -> None:
        self._met: list[weakref.ref[_Expression]] = []
        self._told = ""
        self._errors = 0
        self._before: SizeWatch | None = None

    def __enter__(self) -> Self:
        self._before, self._errors = _local.watch, made.count
        _local.watch = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.watch = self._before
        if made.count != self._errors:
            self._told = "it catches an error that a dynamic size may cause"

    def meet(self, size: _Expression) -> None:
        """Register a size, to detect code that keeps it."""
        self._met.append(weakref.ref(size))

    def note(self, what: str) -> None:
        """Record that user code does `what` with a size. Called by :func:`_note`.

        If kernelrt itself does this, it does not count. If an abstract base class does it, the
        caller of isinstance() counts instead.
        """
        caller: FrameType | None = sys._getframe(3)  # noqa: SLF001
        while caller is not None and caller.f_globals.get("__name__") in _ASKING:
            caller = caller.f_back
        name = "" if caller is None else caller.f_globals.get("__name__", "")
        if name.partition(".")[0] != "kernelrt":
            self._told = f"it {what}"

    def told(self) -> str:
        """Return how the code in the ``with`` block can tell sizes from ints; "" if it cannot.

        Call it after the block.
        """
        if not self._told and any(met() is not None for met in self._met):
            gc.collect()
            if any(met() is not None for met in self._met):
                self._told = "it stores a size"
        return self._told


def _note(what: str) -> None:
    if (watch := _local.watch) is not None:
        watch.note(what)


class _Expression:
    """Common base of Size and Real."""

    __slots__ = ("__weakref__", "uop")

    uop: UOp

    def __init__(self, uop: UOp) -> None:
        self.uop = uop
        if _local.watch is not None:
            _local.watch.meet(self)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class, as isinstance() reads it."""
        _note("asks for the type of a size")
        return type(self)

    def __getattr__(self, name: str) -> Any:
        _note(f"asks for the attribute {name!r} of a size")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with NumPy scalars, or the square root. Raise VariableError for other ufuncs."""
        if ufunc.__name__ == "sqrt" and method == "__call__" and not options:
            return self._with(Op.POW, 0.5)
        # NumPy passes its scalars as arrays of shape ().
        scalars = tuple(i[()] if isinstance(i, np.ndarray) and i.ndim == 0 else i for i in inputs)
        found = operate(self, ufunc, method, scalars, options)
        if found is NotImplemented:
            raise VariableError(
                f"{asked(ufunc, method)}: {render(self.uop)} is known only at run time, but NumPy "
                "needs a number; convert it and array operands to tensors and use their methods, "
                "as in kernelrt.tensor(n).log()"
            )
        return found

    def __hash__(self) -> int:
        """Return the hash of a size with one possible value; raise VariableError otherwise."""
        if self.uop.dtype is dt.int64 and self.bounds[0] == self.bounds[1]:
            return hash(self.bounds[0])
        raise _undecided("hash", self.uop)

    def __round__(self, digits: int | None = None) -> Any:
        raise _undecided("round", self.uop)

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        return dim_span(self.uop)

    def __repr__(self) -> str:
        _note("converts a size to text")
        return render(self.uop)

    def __float__(self) -> float:
        raise _undecided("float", self.uop)

    def real(self) -> UOp:
        """Return the value as a float64 node."""
        node = self.uop
        return node if node.dtype.is_float else node.cast(dt.float64)

    def _with(self, op: Op, other: object, *, turned: bool = False) -> Any:
        """Apply `op` to this and a number, in float64."""
        if isinstance(other, _Expression):
            node = other.real()
        elif isinstance(other, bool) or not isinstance(other, numbers.Real):
            return NotImplemented
        else:
            node = const(float(other), dt.float64)
        a, b = (node, self.real()) if turned else (self.real(), node)
        return Real(a.alu(op, b))

    def _refuse(self, other: object, sign: str, *, turned: bool = False) -> Any:
        """Raise VariableError for ``//`` or ``%`` with an operand that is not an integer."""
        if isinstance(other, bool) or not isinstance(other, numbers.Real | _Expression):
            return NotImplemented
        names = [render(self.uop), repr(other)]
        left, right = reversed(names) if turned else names
        raise VariableError(
            f"{left} {sign} {right}: // and % of sizes known at run time take integers only; write "
            "n // 2 or n % 2 with integers, n / 2 for true division, or compute with a tensor, as "
            f"in kernelrt.tensor(n) {sign} 2.0"
        )

    def __format__(self, spec: str) -> str:
        if not spec:
            _note("converts a size to text")
            return render(self.uop)
        raise _undecided("format", self.uop)

    def __truediv__(self, other: object) -> Any:
        return self._with(Op.DIV, other)

    def __rtruediv__(self, other: object) -> Any:
        return self._with(Op.DIV, other, turned=True)

    def __rpow__(self, other: object) -> Any:
        if isinstance(other, int):
            _note("computes int ** size")
        return self._with(Op.POW, other, turned=True)

    def _refuse_bits(self, other: object = None) -> Any:
        """Raise VariableError for bitwise operators."""
        del other
        raise VariableError(
            f"{render(self.uop)} is known only at run time, so bitwise operators do not accept "
            "this size; use them on a tensor, kernelrt.tensor(n)"
        )

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse_bits
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _refuse_bits


class Real(_Expression):
    """A real number computed from sizes at run time, such as ``1 / x.shape[0]``.

    In arithmetic with numbers, sizes and tensors it behaves like a Python float: ``x * (1 / n)``
    has the dtype of `x`. ``kernelrt.tensor(r)`` converts it to a tensor.

    Parameters
    ----------
    uop : UOp
        Expression of Variables that computes the number. Users get a Real from arithmetic on sizes.

    Raises
    ------
    VariableError
        Python needs a number or a decision, as in ``int(n)`` or ``if n > 3``, that depends on the
        size.

    Examples
    --------
    >>> n = krt.Variable("n", 1, 8)
    >>> mean = krt.jit(lambda x: x.sum() * (1 / x.shape[0]), dynamic={"x": {0: n}})
    >>> mean(krt.tensor([1.0, 3.0])).item(), mean(krt.tensor([1.0, 3.0, 5.0, 7.0])).item()
    (2.0, 4.0)
    """

    __slots__ = ()

    def __add__(self, other: object) -> Any:
        return self._with(Op.ADD, other)

    def __radd__(self, other: object) -> Any:
        return self._with(Op.ADD, other, turned=True)

    def __sub__(self, other: object) -> Any:
        return self._with(Op.SUB, other)

    def __rsub__(self, other: object) -> Any:
        return self._with(Op.SUB, other, turned=True)

    def __mul__(self, other: object) -> Any:
        return self._with(Op.MUL, other)

    def __rmul__(self, other: object) -> Any:
        return self._with(Op.MUL, other, turned=True)

    def __pow__(self, other: object) -> Any:
        return self._with(Op.POW, other)

    def __neg__(self) -> Real:
        return Real(-self.uop)

    def __pos__(self) -> Real:
        return self

    def __abs__(self) -> Real:
        return Real(self.uop.alu(Op.ABS))

    def __floordiv__(self, other: object) -> Any:
        return self._refuse(other, "//")

    def __rfloordiv__(self, other: object) -> Any:
        return self._refuse(other, "//", turned=True)

    def __mod__(self, other: object) -> Any:
        return self._refuse(other, "%")

    def __rmod__(self, other: object) -> Any:
        return self._refuse(other, "%", turned=True)

    def __int__(self) -> int:
        raise _undecided("int", self.uop)

    __trunc__ = __int__

    def __bool__(self) -> bool:
        raise _undecided("bool", self.uop)

    def _refuse_order(self, sign: str, other: object) -> Any:
        text = repr(other) if isinstance(other, int | float | _Expression) else type(other).__name__
        raise _undecided(f"{sign} {text}", self.uop)

    def __lt__(self, other: object) -> Any:
        return self._refuse_order("<", other)

    def __le__(self, other: object) -> Any:
        return self._refuse_order("<=", other)

    def __gt__(self, other: object) -> Any:
        return self._refuse_order(">", other)

    def __ge__(self, other: object) -> Any:
        return self._refuse_order(">=", other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real) and other.uop is self.uop:
            return True
        if isinstance(other, int | float | _Expression):
            raise _undecided(f"== {other!r}", self.uop)
        return False

    __hash__ = _Expression.__hash__


class Size(_Expression):
    """An integer known at run time: the size of a dynamic axis, or arithmetic on sizes.

    Arithmetic with integers gives a Size, or an int if the result is constant. Division with ``/``,
    and arithmetic with floats, give a :class:`Real`. Comparisons, ``bool``, ``max`` and ``min``
    work if the bounds of the Variables decide their result.

    Parameters
    ----------
    uop : UOp
        Expression of Variables that computes the integer. Users get a Size from the shape of a
        tensor, or from arithmetic with a :class:`Variable`.

    Raises
    ------
    VariableError
        Python needs a number or a decision, as in ``int(n)`` or ``if n > 3``, that depends on the
        size.

    Examples
    --------
    >>> n = krt.Variable("n", 1, 40)
    >>> n, n * 2 + 1, n // 2, (n // 2).bounds
    (n, (n * 2) + 1, n // 2, (0, 20))
    >>> n > 0, n == 0, n * 2 - n == n
    (True, False, True)
    """

    __slots__ = ()

    def __init__(self, uop: UOp) -> None:
        if not isinstance(uop, UOp):
            raise DTypeError(
                f"Size: expected an expression of Variables, not {uop!r}; the shape of a tensor is "
                "a tuple: use (2, 3) for torch.Size([2, 3])"
            )
        super().__init__(uop)

    # ---- arithmetic

    def _whole(self, op: Op, other: object, *, turned: bool = False) -> Any:
        node = _as_node(other)
        if node is None:
            return self._with(op, other, turned=turned)
        a, b = (node, self.uop) if turned else (self.uop, node)
        if op in (Op.IDIV, Op.MOD):
            low, high = dim_span(as_dim(b))
            if low == high == 0:
                raise ZeroDivisionError(f"{format_size(as_dim(a))} divided by 0")
            if low <= 0 <= high:
                raise VariableError(
                    f"{render(a)} is divided by {render(b)}, which may be 0: its bounds are {low} "
                    f"to {high}; narrow the bounds of {_variables(b)}"
                )
        return _exact(as_dim(a.alu(op, b)))

    def __add__(self, other: object) -> Any:
        return self._whole(Op.ADD, other)

    def __radd__(self, other: object) -> Any:
        return self._whole(Op.ADD, other, turned=True)

    def __sub__(self, other: object) -> Any:
        return self._whole(Op.SUB, other)

    def __rsub__(self, other: object) -> Any:
        return self._whole(Op.SUB, other, turned=True)

    def __mul__(self, other: object) -> Any:
        return self._whole(Op.MUL, other)

    def __rmul__(self, other: object) -> Any:
        return self._whole(Op.MUL, other, turned=True)

    def _divided(self, op: Op, sign: str, other: object, *, turned: bool = False) -> Any:
        if _as_node(other) is None:
            return self._refuse(other, sign, turned=turned)
        return self._whole(op, other, turned=turned)

    def __floordiv__(self, other: object) -> Any:
        return self._divided(Op.IDIV, "//", other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._divided(Op.IDIV, "//", other, turned=True)

    def __mod__(self, other: object) -> Any:
        return self._divided(Op.MOD, "%", other)

    def __rmod__(self, other: object) -> Any:
        return self._divided(Op.MOD, "%", other, turned=True)

    def __divmod__(self, other: object) -> Any:
        return NotImplemented if _as_node(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: object) -> Any:
        return NotImplemented if _as_node(other) is None else (other // self, other % self)

    def __pow__(self, other: object) -> Any:
        if isinstance(other, int) and not isinstance(other, bool) and 0 <= other < 8:
            out: Any = 1
            for _ in range(other):
                out = self * out
            return out
        if isinstance(other, int) and other > 0:
            _note(f"computes size ** {other}")
        return self._with(Op.POW, other)

    def __neg__(self) -> Any:
        return _exact(as_dim(-self.uop))

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __round__(self, digits: int | None = None) -> Size:
        if digits is not None and digits < 0:
            raise _undecided("round", self.uop)
        return self

    def __floor__(self) -> Size:
        return self

    __ceil__ = __trunc__ = __floor__

    # ---- decisions

    def _decide(self, sign: str, other: Any, certain: Callable[[int, int], bool | None]) -> Any:
        """Decide a comparison: apply `certain` to the bounds of this minus `other`."""
        if _is_real(other):
            if not abs(other) < 2.0**63:  # below or above all sizes; NaN is neither
                end = other > 0 if sign in ("<", "<=") else other < 0 and sign in (">", ">=")
                return bool(end)
            whole = math.floor(other)  # bools among them
            if whole == other:
                other = whole
            elif sign == "==":
                return False
            else:  # n < 2.5 means n < 3, and n <= 2.5 means n <= 2
                other = whole + 1 if sign in ("<", ">=") else whole
        node = _as_node(other)
        if node is None:
            return NotImplemented
        low, high = dim_span(as_dim(self.uop - node))
        found = certain(low, high)
        if found is None:
            raise _undecided(f"{sign} {format_size(as_dim(node))}", self.uop, node)
        return found

    def __lt__(self, other: object) -> bool:
        found: bool = self._decide(
            "<", other, lambda low, high: True if high < 0 else False if low >= 0 else None
        )
        return found

    def __le__(self, other: object) -> bool:
        found: bool = self._decide(
            "<=", other, lambda low, high: True if high <= 0 else False if low > 0 else None
        )
        return found

    def __gt__(self, other: object) -> bool:
        found: bool = self._decide(
            ">", other, lambda low, high: True if low > 0 else False if high <= 0 else None
        )
        return found

    def __ge__(self, other: object) -> bool:
        found: bool = self._decide(
            ">=", other, lambda low, high: True if low >= 0 else False if high < 0 else None
        )
        return found

    def __eq__(self, other: object) -> bool:
        found: bool = self._decide("==", other, _are_equal)
        return found

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    __hash__ = _Expression.__hash__

    def __bool__(self) -> bool:
        low, high = self.bounds
        if low > 0 or high < 0:
            return True
        if low == high:
            return False
        raise _undecided("bool", self.uop)

    def __index__(self) -> int:
        low, high = self.bounds
        if low == high:
            return low
        raise _undecided("int", self.uop)

    def __int__(self) -> int:
        return operator.index(self)

    def __float__(self) -> float:
        low, high = self.bounds
        if low == high:
            return float(low)
        raise _undecided("float", self.uop)


def Variable(name: str, min_val: int, max_val: int) -> Size:  # noqa: N802 - the public noun
    """Return an integer variable that is set at run time, within two inclusive bounds.

    Parameters
    ----------
    name : str
        Name for ``execute_with_vars``; an identifier other than ``core_id``.
    min_val, max_val : int
        Inclusive bounds.

    Returns
    -------
    Size
        The variable. As a size in ``dynamic=`` of :func:`kernelrt.jit`, it stands for the size of
        an axis.

    Raises
    ------
    VariableError
        The name is invalid, or `min_val` is greater than `max_val`.

    Examples
    --------
    >>> batch = krt.Variable("batch", 1, 256)
    >>> (batch * 4).bounds
    (4, 1024)
    >>> double = krt.jit(lambda x: x * 2, dynamic={"x": {0: batch}})
    >>> double(krt.ones(2)).tolist(), double(krt.ones(3)).tolist()  # one plan for both sizes
    ([2.0, 2.0], [2.0, 2.0, 2.0])
    """
    return Size(uop.Variable(name, min_val, max_val))


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Rational | float | np.floating)


def _exact(dim: Dim) -> int | Size:
    """Return a result of arithmetic. Raise VariableError if it may overflow 64 bits."""
    if isinstance(dim, UOp) and not dim.exact:
        raise VariableError(
            f"{render(dim)} may overflow 64-bit integers; narrow the bounds of {_variables(dim)}, "
            "or compute with floats, as in n * 1.0"
        )
    return as_size(dim)


def _are_equal(low: int, high: int) -> bool | None:
    if low == high == 0:
        return True
    return False if low > 0 or high < 0 else None


def _as_node(value: object) -> UOp | None:
    """Return an integer or Size as a node; None for other values."""
    if isinstance(value, Size):
        return value.uop
    if isinstance(value, UOp):
        return value if value.dtype is dt.int64 else None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", "i")
    if getattr(value, "shape", ()) != () or kind not in ("i", "u"):
        return None  # an array that is not one integer
    return as_uop(int(operator.index(value)))


def _variables(*nodes: UOp) -> str:
    found: Iterable[UOp] = dict.fromkeys(n for n in toposort(nodes) if n.op is Op.VAR)
    return ", ".join(f"Variable {n.arg[0]!r} ({n.arg[1]} to {n.arg[2]})" for n in found)


def _undecided(question: str, *nodes: UOp) -> VariableError:
    text = render(nodes[0])
    asked = f"{question}({text})" if question.isalpha() else f"{text} {question}"
    number = question in ("int", "float", "round", "format")
    wanted = "a number" if number else "a hash" if question == "hash" else "True or False"
    instead = (
        "Compute with the size itself, as in x / n, n // 2 or n ** 0.5; convert it to a tensor "
        "with kernelrt.tensor(n)"
        if number
        else "Use another key in sets and dicts, and compare sizes one by one"
        if question == "hash"
        else "Decide at run time with where(kernelrt.tensor(n) > 3, a, b) or maximum(); narrow the "
        "bounds"
    )
    return VariableError(
        f"{asked}: Python needs {wanted}, but the size is known only at run time, as one trace "
        f"serves all values of {_variables(*nodes)}. {instead}; or leave the axis out of dynamic "
        "to get a plan for each size"
    )
