"""Calls of user functions, in C or Python, as operations on tensors."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError, VariableError
from kernelrt.ir import UOp
from kernelrt.ir.ffi import FfiFunction
from kernelrt.ir.nest import Nest
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.ir.size import plain
from kernelrt.native.thread_modes import NONFINITE, Mode
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import RuleOfAll, custom
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions.creation import from_data
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import flag, whole
from kernelrt.tensor.operation import operation
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kernelrt.dtype import DType
    from kernelrt.ir.ffi import Form
    from kernelrt.runtime import kernel
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.autograd.tags import CustomRule
    from kernelrt.tensor.tracing import vmap_trace
else:
    kernel = Module("kernelrt.runtime.kernel")
    vmap_trace = Module("kernelrt.tensor.tracing.vmap_trace")
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["call", "keeps_order"]


def call(
    fn: Any,
    *tensors: Any,
    out: Any,
    vjp: Callable[..., Any] | None = None,
    pure: bool = True,
    fails: bool = False,
    vectorized: bool = False,
    name: str | None = None,
) -> Any:
    """Call a user function, in Python or C, as an operation on tensors.

    The function is called when a plan that needs a result runs. Without jit, that is when a result
    is computed; in a jitted function, it is in each call of the jitted function. By default it is
    assumed to be pure: its results depend only on its operands. So it is not called if no result is
    needed, and only once if a plan needs the same call twice. Without jit, results that are read
    one by one are computed one by one. If the function keeps state between calls, pass the state as
    operands and results, or use ``pure=False``.

    Parameters
    ----------
    fn : callable, int or object
        A Python callable or a C function. A Python callable gets a NumPy array for each of
        `tensors`. The arrays are copies, which it may keep and change. It returns arrays, nested
        like `out`. It runs with the GIL on the thread that runs the plan. A C function has the
        signature ``void (void *const *bufs, const int64_t *vals)`` and is given as an address, a
        ctypes function pointer, a numba cfunc or a capsule. ``bufs`` has the addresses of the
        results, then of the operands; each is row-major, and they do not overlap. ``vals[i]`` is
        the number of elements of ``bufs[i]``. The function runs without the GIL, possibly on
        another thread. kernelrt cannot verify its signature or that it stays within its buffers.
    *tensors : Tensor, array or number
        Operands, of fixed sizes.
    out : pair, Tensor or nested dicts, lists and tuples of them
        Shape and dtype of each result: a pair, as in ``((3, 2), krt.float32)``, or an object with
        attributes ``shape`` and ``dtype``. With ``pure=False`` also None, for a Python function
        that is called only for its side effects.
    vjp : callable, optional
        ``vjp(inputs, results, cotangents)`` returns one gradient for each input, a tensor or None,
        computed by operations on tensors or other calls. Inputs are a tuple; results and
        cotangents are nested like `out`. The cotangent of a result that is not floating is None.
        Without `vjp`, results have no gradient.
    pure : bool
        If False, the function is called exactly once, even if no result is used: without jit
        immediately, in a jitted function once in each call. Calls with ``pure=False`` keep their
        order. Side effects of the function are not undone if the run fails later.
    fails : bool
        For C functions: whether ``bufs`` has one more entry after the operands, the address of an
        int64 that is 0. If the function stores another number there, the run raises an error with
        this number.
    vectorized : bool
        Whether ``func.vmap`` may call the function once, with operands and results that have an
        additional first axis. Otherwise it is called for each index along that axis.
    name : str, optional
        Name for errors and profiles. Default: the function's own name.

    Returns
    -------
    Tensor, or nested dicts, lists and tuples of Tensor
        Results, nested like `out`.

    Raises
    ------
    DTypeError
        `fn` is not callable and no C function; `out` has no dtype; an operand is not a tensor.
    ShapeError
        `out` has no shape, or no result; an operand or result has no elements.
    VariableError
        A size is known only at run time.
    JitError
        ``pure=False`` in a function under ``func.vmap``.
    PlanBuildError
        `fn` has no address.
    CustomFunctionError
        Raised when the results are computed: a Python function raised, or returned results that
        do not match `out`, or a C function reported a failure. All state is as before.

    Examples
    --------
    >>> import numpy as np, kernelrt as krt
    >>> def bins(x):
    ...     return np.histogram(x, 4, (0, 1))[0]
    >>> x = krt.tensor([0.1, 0.2, 0.6, 0.9])
    >>> krt.call(bins, x, out=((4,), krt.int64)).tolist()
    [2, 0, 1, 1]
    """
    pure = flag(pure, "pure")
    forms = () if out is None else out
    nest = Nest.of(forms, _is_form)
    results = tuple(_form(leaf, path) for path, leaf in nest.leaves(forms, "out"))
    if not results and (pure or out is not None or _address(fn)):
        raise ShapeError(
            "out: expected at least one result; only a Python function called with pure=False may "
            "have none, as out=None"
        )
    if name is not None and not isinstance(name, str):
        raise DTypeError(f"name: expected a str, not {type(name).__name__}")
    if vjp is not None and not callable(vjp):
        raise DTypeError(f"vjp: expected a callable, not {type(vjp).__name__}")
    made = _CheckedCall(fn, nest, results or (_DUMMY,), vjp, name)
    made.vectorized, made.fails = flag(vectorized, "vectorized"), flag(fails, "fails")
    if made.fails and not made.address:
        raise DTypeError(
            "fails: expected False, as fn is a Python function; let fn raise an exception"
        )

    kind = next((type(t) for t in tensors if isinstance(t, TensorBase)), tensor_module.Tensor)
    given = [
        t if isinstance(t, TensorBase) else from_data(kind, t, f"tensors[{i}]")
        for i, t in enumerate(tensors)
    ]
    found = _results(made, kind, *given) if pure else _ordered_results(made, kind, given)
    return None if out is None else nest.filled(iter(found))


def _ordered_results(made: _CheckedCall, kind: type[Any], given: Sequence[TensorBase]) -> list[Any]:
    """Return the results of a call with pure=False, ordered after earlier such calls."""
    if state.local.trace is None:
        realize(*given)  # in a run of their own, so that no failure follows the call
        found = _results(made, kind, *given)
        with Mode(NONFINITE, False):  # debug_nans would repeat the call
            realize(*found)
        return found

    if isinstance(state.local.trace, vmap_trace.VmapTrace):
        raise JitError(
            f"{made.name}: pure=False requires calls in order, but the calls for the batch "
            "elements of vmap have no order; pass pure=True, or make the call outside vmap"
        )
    made.ordered = True
    turn = _order_token(kind)
    found = _results(made, kind, *given, turn)
    with state.no_grad():
        first = build.reshape(found[0].uop, (build.volume(found[0].dims),))
        turn.assign(kind._of(build.shrink(first, [(0, 1)]).cast(dt.uint8)))
    return found


def _order_token(kind: type[Any]) -> Any:
    """Return a state token that each pure=False call in a jitted function reads and then writes.

    The token makes these calls side effects on state, so they are kept and stay in order. Its
    value is meaningless.
    """
    if not _order_tokens:
        with state.lock:
            if not _order_tokens:
                _order_tokens.append(kind._over(Buffer(1, dt.uint8), (1,)))
    return _order_tokens[0]


def keeps_order(tensors: Iterable[TensorBase]) -> bool:
    """Return whether `tensors`, which a graph assigns to, include the token of pure=False calls."""
    return any(t is turn for t in tensors for turn in _order_tokens)


_order_tokens: list[Any] = []
#: The result of a function without results.
_DUMMY: Form = ((), dt.uint8)


@operation
def _results(made: _CheckedCall, kind: type[Any], *tensors: TensorBase) -> list[Any]:
    return [kind._of(node) for node in made.nodes(*(t.uop for t in tensors))]


class _CheckedCall:
    """A checked call, without its operands."""

    def __init__(
        self, fn: Any, nest: Nest, results: tuple[Form, ...], vjp: Callable[..., Any] | None,
        name: str | None,
    ) -> None:  # fmt: skip
        self._fn = fn
        self.address = _address(fn)
        self._nest = None if self.address else nest
        self._results = results
        self._rule = None if vjp is None else _Vjp(vjp, nest, results)
        self.vectorized = self.fails = False
        self.name = _name(fn) if name is None else name
        #: Whether the last operand is the ordering token.
        self.ordered = False

    def nodes(self, *operands: UOp) -> list[UOp]:
        """Return the nodes of the results for some operands."""
        callee = FfiFunction(
            self.name, self._fn, self.address,
            tuple(_form_of(x, f"tensors[{i}]") for i, x in enumerate(operands)),
            self._results, self._nest, (), self.vectorized, self.fails, self.ordered,
        )  # fmt: skip
        nodes = [build.foreign(callee, k, *operands) for k in range(len(self._results))]
        inputs = operands[:-1] if self.ordered else operands
        return nodes if self._rule is None else self._rule.marked(nodes, inputs)


# ---- the called function


def _address(fn: Any) -> int:
    """Return the address of a C function; 0 for a Python function."""
    has_address = type(getattr(fn, "address", None)) is int
    if isinstance(fn, (int, _POINTER)) or has_address or type(fn).__name__ == "PyCapsule":
        return kernel.address_of(fn, "fn")
    if not callable(fn):
        raise DTypeError(
            f"fn: expected a Python callable, or a C function as an address, a ctypes pointer, a "
            f"numba cfunc or a capsule, not {type(fn).__name__}"
        )
    return 0


def _name(fn: Any) -> str:
    found = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    return str(found or ("c_function" if isinstance(fn, int) else type(fn).__name__))


# ctypes has no public name for the base class of function pointers.
_POINTER: Any = type(ctypes.pythonapi.PyCapsule_GetName).__mro__[1]


# ---- operands and results


def _is_template(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def _is_form(value: object) -> bool:
    """Return whether `value` is a leaf of `out`, and not nested leaves."""
    if _is_template(value):
        return True
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    shape, dtype = value
    sizes = shape if isinstance(shape, list | tuple) else (shape,)
    nested = (dtype, *sizes)
    return not any(_is_template(v) or isinstance(v, list | tuple | dict) for v in nested)


def _form(leaf: Any, name: str) -> Form:
    """Return the shape and dtype of a leaf of `out`."""
    if _is_template(leaf):
        shape, dtype = leaf.shape, leaf.dtype
    elif _is_form(leaf):
        shape, dtype = leaf
    else:
        raise DTypeError(
            f"{name}: expected a pair of a shape and a dtype, as in ((3, 2), krt.float32), or "
            f"an object with attributes shape and dtype, not {leaf!r}"
        )
    sizes = []
    for d in map(plain, shape if isinstance(shape, list | tuple) else (shape,)):
        if isinstance(d, UOp):
            raise _unknown(name, leaf.shape)
        size = whole(d)
        if size is None:
            raise DTypeError(f"{name}: expected a shape of ints, not {shape!r}")
        if size < 1:
            raise ShapeError(f"{name}: expected sizes of at least 1, not {shape!r}")
        sizes.append(size)
    return tuple(sizes), dt.parse(dtype, name)


def _form_of(x: UOp, name: str) -> Form:
    if not is_static(x.shape):
        raise _unknown(name, x.shape)
    if build.has_zero(x.shape):
        raise ShapeError(
            f"{name}: expected a tensor with at least one element, not one of shape "
            f"{format_shape(x.shape)}"
        )
    return tuple(int(d) for d in x.shape if isinstance(d, int)), x.dtype


def _unknown(name: str, shape: Sequence[Any]) -> VariableError:
    return VariableError(
        f"{name}: the shape {format_shape(tuple(map(plain, shape)))} is known only at run time, "
        "but the called function takes fixed sizes; call it outside the function that has "
        "Variables, or pad to a fixed size"
    )


# ---- derivatives


@dataclass(frozen=True, slots=True, eq=False)
class _Vjp(RuleOfAll):
    """The derivative rule of the results of a call.

    If several results are floating, they are concatenated in one node that has the rule. So the
    user's function is called once for the gradients of all of them.

    Attributes
    ----------
    function : callable
        The user's VJP function.
    nest : Nest
        Nesting of the results.
    forms : tuple of (shape, DType)
        Shapes and dtypes of the results.
    """

    function: Callable[..., Any]
    nest: Nest
    forms: tuple[Form, ...]

    @property
    def _key(self) -> tuple[object, ...]:
        f = self.function
        same = (id(f.__self__), id(f.__func__)) if isinstance(f, MethodType) else (id(f),)
        return same, self.nest, self.forms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Vjp) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _floats(self) -> list[int]:
        return [k for k, (_, dtype) in enumerate(self.forms) if dtype.is_float]

    @property
    def _wide(self) -> DType:
        return dt.promote(*(self.forms[k][1] for k in self._floats))

    def marked(self, nodes: list[UOp], operands: tuple[UOp, ...]) -> list[UOp]:
        """Return the results, tagged with this rule."""
        floats = self._floats
        others = tuple(n for k, n in enumerate(nodes) if k not in floats)
        if len(floats) > 1:
            flat = [build.reshape(nodes[k], (build.volume(nodes[k].shape),)) for k in floats]
            packed = build.cat([x.cast(self._wide) for x in flat], 0)
        elif floats:
            packed = nodes[floats[0]]
        else:
            return nodes
        packed = custom(packed, self, *operands, parts=others)
        found = iter(self._cut(packed))
        return [next(found) if k in floats else n for k, n in enumerate(nodes)]

    def _cut(self, packed: UOp) -> Iterator[UOp]:
        """Yield the floating results from the node that concatenates them."""
        floats = self._floats
        start = 0
        for k in floats:
            shape, dtype = self.forms[k]
            size = int(np.prod(shape, dtype=np.int64))
            if len(floats) == 1:
                yield packed
            else:
                part = build.shrink(packed, [(start, start + size)])
                yield build.reshape(part, shape).cast(dtype)
            start += size

    def at(self, node: UOp, gradient: UOp) -> CustomRule:
        """Return the rule for one gradient; call the user's function once for all gradients."""
        found = self._input_gradients(node, gradient)
        return lambda _node, _gradient, i: found[i]

    def __call__(self, node: UOp, g: UOp, i: int) -> UOp | None:
        """Return the gradient of one input."""
        return self._input_gradients(node, g)[i]

    def _input_gradients(self, node: UOp, g: UOp) -> list[UOp | None]:
        floats, others = self._cut(node), iter(node.arg.parts)
        results = [next(floats) if dtype.is_float else next(others) for _, dtype in self.forms]
        slopes = self._cut(g)
        cotangents = [
            tensor_module.Tensor._of(next(slopes)) if dtype.is_float else None
            for _, dtype in self.forms
        ]
        inputs = tuple(tensor_module.Tensor._of(x) for x in node.arg.inputs)
        found = self.function(
            inputs,
            self.nest.filled(iter([tensor_module.Tensor._of(x) for x in results])),
            self.nest.filled(iter(cotangents)),
        )
        return self._checked(found, inputs)

    def _checked(self, found: Any, inputs: tuple[TensorBase, ...]) -> list[UOp | None]:
        who = f"vjp {_name(self.function)!r}"
        listed = found if isinstance(found, list | tuple) else (found,)
        if len(listed) != len(inputs):
            raise GradientError(
                f"{who}: expected a gradient or None for each of {len(inputs)} inputs, not "
                f"{len(listed)} values"
            )
        nodes: list[UOp | None] = []
        for i, (gradient, like) in enumerate(zip(listed, inputs, strict=True)):
            is_tensor = isinstance(gradient, TensorBase)
            if gradient is not None and not (is_tensor and gradient.dims == like.dims):
                said = f"shape {format_shape(gradient.dims)}" if is_tensor else gradient
                raise GradientError(
                    f"{who}: the gradient of input {i} must be None or a Tensor of shape "
                    f"{format_shape(like.dims)}, not {said}"
                )
            floats = gradient is not None and like.dtype.is_float
            nodes.append(gradient.uop.cast(like.dtype) if floats else None)
        return nodes
