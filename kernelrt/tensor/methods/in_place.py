"""In-place methods and augmented assignment."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kernelrt.errors import DTypeError, PlanBusyError, ShapeError
from kernelrt.ir import Op
from kernelrt.ir.shape import format_shape
from kernelrt.native.fast_paths import moment, put_shown, put_whole
from kernelrt.tensor import state
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.methods.setitem import changes_in_place, without_history
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import flag, integer
from kernelrt.tensor.nodes.promotion import element, is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor.base import Operand
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["InPlaceMethods"]

#: Limit of attempts to compute a value; after the first _TIMES_WITHOUT_LOCK other threads wait.
_MOST_TIMES: Final = 16
_TIMES_WITHOUT_LOCK: Final = 4


def _assigning(name: str) -> Callable[..., Any]:
    """Return a method that assigns the result of the method `name` to its tensor."""

    def method(self: InPlaceMethods, *args: Any, **options: Any) -> Any:
        compute = getattr(self, name)
        new = self._assign_result(lambda: compute(*args, **options))
        return self if new is None else self._replace(new, f"{name}_")

    method.__name__ = f"{name}_"
    method.__code__ = method.__code__.replace(co_name=f"{name}_")  # errors name it
    method.__doc__ = (
        f"Assign the result of :meth:`{name}` to this tensor and return this tensor.\n\n"
        f"        The parameters are those of :meth:`{name}`. The tensor keeps its shape and\n"
        "        dtype; :class:`InPlaceMethods` lists the errors.\n        "
    )
    return method


@functools.cache
def _references() -> int:
    """Return what ``sys.getrefcount`` counts in `_in_place` for a tensor with a single name."""

    class Probe(InPlaceMethods):
        def _in_place(self, *_: object) -> Any:
            def found_there() -> Any:
                return self  # makes `self` a cell variable, as in `_in_place`

            found.append(sys.getrefcount(self))
            return found_there()

    found: list[int] = []
    probe = Probe.__new__(Probe)
    probe += 0
    return found[0]


class InPlaceMethods(_Below):
    """Operations that assign their result to the tensor.

    ``x.add_(1)`` and ``x += 1`` give x the value of ``x + 1``, and its history. Changing a view, as
    in ``x[0].add_(1)``, changes the tensor that it views and all other views of that tensor.
    Results computed earlier keep their values. An exception is ``x += y`` for a stored tensor if
    gradients flow through the new value: it binds the name x to a new tensor. If the old tensor has
    views or other names, it is written in place all the same, so that these see the change.

    Raises
    ------
    ShapeError
        The result has another shape, or the tensor is an expanded view.
    DTypeError
        The result is of a higher dtype kind, such as floats for an integer tensor.
    GradientError
        Gradients are recorded, and the tensor is a parameter or comes from outside of the traced
        function.
    JitError
        A traced function assigns to its argument.

    Examples
    --------
    >>> x = krt.tensor([[1.0, -2.0], [-3.0, 4.0]])
    >>> x.abs_().tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    >>> x[0] += 10
    >>> x.tolist()
    [[11.0, 12.0], [3.0, 4.0]]
    >>> krt.tensor([1, 2]).add_(0.5)
    Traceback (most recent call last):
    kernelrt.errors.DTypeError: add_: the result is float32, which cannot be assigned to int64...
    """

    __slots__ = ()

    def _assign_result(self, compute: Callable[[], Self]) -> Self | None:
        """Compute a value and assign it to the storage of this tensor.

        If another thread or a signal handler has meanwhile written to the memory that the
        computation reads, compute the value again. Return None once it is assigned. Return the
        value without assigning it if the tensor has no storage, or a history is involved.
        """
        for time in range(_MOST_TIMES):
            with state.lock if time >= _TIMES_WITHOUT_LOCK else contextlib.nullcontext():
                begun = moment()
                new = compute()
                with state.lock:  # keeps other threads from writing
                    done = state.changing is None and put_whole(self, new, begun)
            if done is False and self._link is not None:
                done = state.changing is None and put_shown(self, new)
            if done is not None:
                return None if done else new
        raise PlanBusyError(
            f"an assignment was interrupted {_MOST_TIMES} times by code that writes to the memory "
            "that the assignment reads; run the signal handler less often"
        )

    def _replace(self, new: Self, name: str) -> Self:
        """Give this tensor the value of `new` and its history."""
        new = self._fitting(new, name)
        if self._link is not None:
            self._check_no_leaf(name)
            self._become_value(new, new, history=False)
            return self
        history = self._gets_history(new, name)
        if history and self.is_realized:
            self._write_whole(new)
        else:
            self._become_value(new, new, history=history)
        return self

    def _fitting(self, new: Self, name: str) -> Self:
        """Return `new` in this tensor's dtype, or raise an error if its shape differs."""
        if not build.same_shape(new.dims, self.dims):
            raise ShapeError(
                f"{name}: the result has shape {format_shape(new.dims)}, not the tensor's shape "
                f"{format_shape(self.dims)}; give the result another name, as in y = x + 1"
            )
        if new.dtype is not self.dtype:
            if new.dtype.kind > self.dtype.kind:
                raise DTypeError(
                    f"{name}: the result is {new.dtype.name}, which cannot be assigned to "
                    f"{self.dtype.name} without loss; cast the tensor first, as in x.float()"
                )
            new = new.cast(self.dtype)
        return new

    def _gets_history(self, new: Self, name: str) -> bool:
        """Return whether gradients have to flow through the new value."""
        trace = state.local.trace
        outside = trace is not None and trace.is_from_outside(self)
        # The trace records the answer: another answer needs another plan. Arguments cannot be
        # assigned to.
        parameter = is_parameter(self) if outside else self._is_parameter
        if not state.is_grad_enabled() or not (self.requires_grad or new.requires_grad):
            return False
        if parameter or outside or self._born is not trace or hasattr(self, "_whose"):
            raise changes_in_place(name) if self.requires_grad else without_history(name, self)
        return True

    def _in_place(
        self, rule: Callable[[Self, Operand], Self], other: Operand, sign: str
    ) -> Any:
        """Apply the augmented assignment `sign` to this tensor.

        Numbers passed to a traced function are not tensors: for them, bind the name to a new
        tensor. Do the same for a stored tensor that has a single name, if the new value has a
        history. Writing that value to storage would cost a copy, and gradients of results computed
        from the old elements could be lost.
        """
        traced = state.local.trace is not None
        if (traced or state.local.stepwise) and is_number(self.uop):
            return NotImplemented
        new = self._assign_result(lambda: rule(self, other))
        if new is None:
            return self
        alone = self._link is None and not hasattr(self, "_whose")
        stored = alone and self.is_realized and not self._is_parameter
        if not traced and stored and state.local.grad and (
            self.requires_grad or new.requires_grad
        ):  # fmt: skip
            if sys.getrefcount(self) <= _references():
                return new
            self._write_whole(self._fitting(new, sign))
            return self
        return self._replace(new, sign)

    def _write_whole(self, new: Self) -> None:
        """Assign a value that has a history to a stored tensor."""
        with state.lock:
            self._write_part(lambda x, v: x._become_value(v, v, x is not self), new)

    def __iadd__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.add, other, "+="))

    def __isub__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.sub, other, "-="))

    def __imul__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.mul, other, "*="))

    def __itruediv__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.truediv, other, "/="))

    def __ifloordiv__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.floordiv, other, "//="))

    def __imod__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.mod, other, "%="))

    def __ipow__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.pow, other, "**="))

    def __iand__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.and_, other, "&="))

    def __ior__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.or_, other, "|="))

    def __ixor__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.xor, other, "^="))

    def __ilshift__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.lshift, other, "<<="))

    def __irshift__(self, other: Operand) -> Self:
        return cast("Self", self._in_place(operator.rshift, other, ">>="))

    def fill_diagonal_(self, fill_value: float, wrap: bool = False) -> Self:
        """Assign one number to the elements whose indices are equal along all axes.

        Parameters
        ----------
        fill_value : number
            Number to assign.
        wrap : bool
            Whether the diagonal of a tall matrix starts again one row below its end.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError
            There are fewer than two axes, or more than two of different sizes.
        DTypeError
            The dtype cannot represent `fill_value`.

        Examples
        --------
        >>> krt.zeros(2, 3).fill_diagonal_(5).tolist()
        [[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]]
        """
        if self.ndim < 2 or (self.ndim > 2 and len(set(self.dims)) > 1):
            raise ShapeError(
                "fill_diagonal_: expected a matrix, or more axes of equal size, not the shape "
                f"{format_shape(self.dims)}"
            )
        number = element(fill_value, self.dtype, "fill_value")
        row, *others = (build.iota_along(self.dims, a) for a in range(self.ndim))
        if flag(wrap, "wrap") and self.ndim == 2:
            period = integer(self._static_size(1, "fill_diagonal_"), "size") + 1
            row = row.alu(Op.MOD, build.full(period, row.dtype, row.shape))
        hit = row.eq(others[0])
        for other in others[1:]:
            hit = hit.alu(Op.AND, row.eq(other))
        return self._replace(self._of(build.where(hit, number, self.uop)), "fill_diagonal_")

    abs_ = _assigning("abs")
    absolute_ = _assigning("absolute")
    acos_ = _assigning("acos")
    acosh_ = _assigning("acosh")
    add_ = _assigning("add")
    addbmm_ = _assigning("addbmm")
    addcdiv_ = _assigning("addcdiv")
    addcmul_ = _assigning("addcmul")
    addmm_ = _assigning("addmm")
    addmv_ = _assigning("addmv")
    addr_ = _assigning("addr")
    arccos_ = _assigning("arccos")
    arccosh_ = _assigning("arccosh")
    arcsin_ = _assigning("arcsin")
    arcsinh_ = _assigning("arcsinh")
    arctan_ = _assigning("arctan")
    arctan2_ = _assigning("arctan2")
    arctanh_ = _assigning("arctanh")
    asin_ = _assigning("asin")
    asinh_ = _assigning("asinh")
    atan_ = _assigning("atan")
    atan2_ = _assigning("atan2")
    atanh_ = _assigning("atanh")
    baddbmm_ = _assigning("baddbmm")
    bitwise_and_ = _assigning("bitwise_and")
    bitwise_left_shift_ = _assigning("bitwise_left_shift")
    bitwise_not_ = _assigning("bitwise_not")
    bitwise_or_ = _assigning("bitwise_or")
    bitwise_right_shift_ = _assigning("bitwise_right_shift")
    bitwise_xor_ = _assigning("bitwise_xor")
    ceil_ = _assigning("ceil")
    clamp_ = _assigning("clamp")
    clamp_max_ = _assigning("clamp_max")
    clamp_min_ = _assigning("clamp_min")
    clip_ = _assigning("clip")
    copysign_ = _assigning("copysign")
    cos_ = _assigning("cos")
    cosh_ = _assigning("cosh")
    cumprod_ = _assigning("cumprod")
    cumsum_ = _assigning("cumsum")
    deg2rad_ = _assigning("deg2rad")
    digamma_ = _assigning("digamma")
    div_ = _assigning("div")
    divide_ = _assigning("divide")
    eq_ = _assigning("eq")
    erf_ = _assigning("erf")
    erfc_ = _assigning("erfc")
    erfinv_ = _assigning("erfinv")
    exp_ = _assigning("exp")
    exp2_ = _assigning("exp2")
    expm1_ = _assigning("expm1")
    fix_ = _assigning("fix")
    float_power_ = _assigning("float_power")
    floor_ = _assigning("floor")
    floor_divide_ = _assigning("floor_divide")
    fmod_ = _assigning("fmod")
    frac_ = _assigning("frac")
    gcd_ = _assigning("gcd")
    ge_ = _assigning("ge")
    greater_ = _assigning("greater")
    greater_equal_ = _assigning("greater_equal")
    gt_ = _assigning("gt")
    heaviside_ = _assigning("heaviside")
    hypot_ = _assigning("hypot")
    i0_ = _assigning("i0")
    index_add_ = _assigning("index_add")
    index_copy_ = _assigning("index_copy")
    index_fill_ = _assigning("index_fill")
    index_put_ = _assigning("index_put")
    index_reduce_ = _assigning("index_reduce")
    lcm_ = _assigning("lcm")
    ldexp_ = _assigning("ldexp")
    le_ = _assigning("le")
    lerp_ = _assigning("lerp")
    less_ = _assigning("less")
    less_equal_ = _assigning("less_equal")
    lgamma_ = _assigning("lgamma")
    log_ = _assigning("log")
    log10_ = _assigning("log10")
    log1p_ = _assigning("log1p")
    log2_ = _assigning("log2")
    logical_and_ = _assigning("logical_and")
    logical_not_ = _assigning("logical_not")
    logical_or_ = _assigning("logical_or")
    logical_xor_ = _assigning("logical_xor")
    logit_ = _assigning("logit")
    lt_ = _assigning("lt")
    masked_fill_ = _assigning("masked_fill")
    masked_scatter_ = _assigning("masked_scatter")
    mul_ = _assigning("mul")
    multiply_ = _assigning("multiply")
    mvlgamma_ = _assigning("mvlgamma")
    nan_to_num_ = _assigning("nan_to_num")
    ne_ = _assigning("ne")
    neg_ = _assigning("neg")
    negative_ = _assigning("negative")
    nextafter_ = _assigning("nextafter")
    not_equal_ = _assigning("not_equal")
    polygamma_ = _assigning("polygamma")
    pow_ = _assigning("pow")
    put_ = _assigning("put")
    rad2deg_ = _assigning("rad2deg")
    reciprocal_ = _assigning("reciprocal")
    relu_ = _assigning("relu")
    remainder_ = _assigning("remainder")
    renorm_ = _assigning("renorm")
    round_ = _assigning("round")
    rsqrt_ = _assigning("rsqrt")
    scatter_ = _assigning("scatter")
    scatter_add_ = _assigning("scatter_add")
    scatter_reduce_ = _assigning("scatter_reduce")
    sgn_ = _assigning("sgn")
    sigmoid_ = _assigning("sigmoid")
    sign_ = _assigning("sign")
    sin_ = _assigning("sin")
    sinc_ = _assigning("sinc")
    sinh_ = _assigning("sinh")
    sqrt_ = _assigning("sqrt")
    square_ = _assigning("square")
    sub_ = _assigning("sub")
    subtract_ = _assigning("subtract")
    conj_physical_ = _assigning("conj_physical")
    tan_ = _assigning("tan")
    tanh_ = _assigning("tanh")
    tril_ = _assigning("tril")
    triu_ = _assigning("triu")
    true_divide_ = _assigning("true_divide")
    trunc_ = _assigning("trunc")
    xlogy_ = _assigning("xlogy")
