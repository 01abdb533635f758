"""Operations as objects: they are functions and methods to all who look at them."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import threading
import weakref

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import GradientError, PlanBusyError
from kernelrt.native.thread_modes import began_write, computed, undisturbed
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.operation import operation


@pytest.mark.parametrize(
    "name", ["relu", "view", "tile", "mm", "bmm", "clip", "swapaxes", "__rand__", "softmax"]
)
def test_methods_are_pickled_copied_and_referred_to(name):
    method = getattr(krt.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) is method  # noqa: S301 - its own
    assert copy.copy(method) is copy.deepcopy(method) is method
    assert weakref.ref(method)() is method
    assert method.__doc__ or name.startswith("_")
    assert "self" in inspect.signature(method).parameters


def test_bound_methods_keep_their_tensor():
    x = krt.tensor([-1.0, 2.0])
    bound = x.relu
    assert bound.__self__ is x
    assert weakref.WeakMethod(bound)() == bound
    assert [t.tolist() for t in map(x.add, [1, 2])] == [[0, 3], [1, 4]]
    partial = pickle.loads(pickle.dumps(functools.partial(krt.Tensor.add, other=3)))  # noqa: S301
    assert partial(x).tolist() == [2, 5]


def test_calls_in_every_way_give_the_same():
    x = krt.tensor([-1.0, 2.0])
    assert krt.Tensor.relu(x).tolist() == [0, 2]
    assert krt.Tensor.relu.__call__(x).tolist() == [0, 2]
    assert krt.cat.__call__([x, x]).tolist() == [-1, 2, -1, 2]
    assert type(krt.cat).__call__(krt.cat, tensors=[x], dim=0).tolist() == [-1, 2]
    assert krt.jit(krt.cat.__call__)([x, x]).tolist() == [-1, 2, -1, 2]
    assert x.clamp(max=1, min=0).tolist() == [0, 1]


def test_errors_of_arguments_name_the_method():
    x = krt.ones(2)
    with pytest.raises(TypeError, match="add"):
        x.add()
    with pytest.raises(TypeError, match="nothing"):
        x.relu(nothing=1)


def test_subclasses_override_and_call_what_they_override():
    class Named(krt.Tensor):
        __slots__ = ()

        def relu(self):
            """With one added."""
            return super().relu() + 1

    assert Named([-1.0, 2.0]).relu().tolist() == [1, 3]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("index", [0, slice(0, 1), "mask"])
def test_a_part_is_set_of_what_has_to_be_computed_first(index, own):
    """The tensor has storage once its operand is written; what its history read is gone."""
    p = krt.tensor([7.0, 8.0, 9.0], requires_grad=True)
    w = krt.tensor([1.0, 2.0, 3.0]).realize()
    y = w * (p if own else 2)
    at = krt.tensor([True, False, False]) if index == "mask" else index
    w.assign(w + 10)
    y[at] = 5.0 if own else p[:1].sum()
    np.testing.assert_array_equal(y.detach().numpy()[1:], [16, 27] if own else [4, 6])
    assert y.detach().numpy()[0] == y.tolist()[0] == (5 if own else 7)
    if own:
        with pytest.raises(GradientError, match="assigned since"):
            y.sum().backward()
    else:
        y.sum().backward()
        assert p.grad.tolist() == [1, 0, 0]


def test_what_another_thread_leaves_pending_does_not_repeat_a_swap_in_a_trace():
    a, b, c = krt.tensor([1.0]).realize(), krt.tensor([10.0]).realize(), krt.zeros(1).realize()
    big = krt.zeros(1).realize()

    @krt.jit
    def swap(x):
        thread = threading.Thread(target=lambda: big.assign(krt.tensor([3.0])))
        thread.start()
        thread.join()
        assign_all([(a, b), (b, a), (c, big)])
        return x + 0

    swap(krt.ones(1))
    assert (a.item(), b.item(), c.item()) == (10, 1, 3)


def test_what_is_written_to_meanwhile_is_done_again():
    calls = []

    def disturbed(times, values):
        calls.append(times)
        if len(calls) <= times:
            began_write()
            if values:
                computed()
        return len(calls)

    # An operation minds no write before which nothing had to be computed; a gradient minds each.
    for values, expected in ((False, 1), (True, 4)):
        calls.clear()
        assert operation(disturbed)(3, values) == expected
        calls.clear()
        assert undisturbed(lambda v=values: disturbed(3, v), disturbed) == 4
    for do in (
        lambda: operation(disturbed)(10**9, True),
        lambda: undisturbed(lambda: disturbed(10**9, False), disturbed),
    ):
        calls.clear()
        with pytest.raises(PlanBusyError, match=r"disturbed was interrupted 100 times"):
            do()
        assert len(calls) == 100


#: Methods that take a short road, and what stands beside the tensor. Beyond float32 there are
#: numbers that it rounds; integers wrap.
SHORT = ["add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "mul", "__mul__", "__rmul__",
         "div", "__truediv__", "__rtruediv__"]  # fmt: skip
BESIDE = [2.0, -0.0, 0.1, 1e300, math.inf, math.nan, 3, 0, -7, 2**24 + 1, 2**40, 2**70, True,
          np.float32(0.1), "like", "wide", "row"]  # fmt: skip


@pytest.mark.parametrize("method", SHORT)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "bfloat16"])
def test_a_fast_path_makes_the_node_that_the_method_makes(method, dtype):
    operation = getattr(krt.Tensor, method)
    for shape in ((), (1,), (2, 3), (0, 3)):
        x = krt.ones(shape, dtype=dtype).realize()
        rest = {
            "like": x + x,
            "wide": krt.ones(shape, dtype="float64"),
            "row": krt.ones(shape[-1:], dtype=dtype),
        }
        for mode in (krt.enable_grad, krt.no_grad):
            for other in BESIDE:
                value = rest.get(other, other) if isinstance(other, str) else other
                made = []
                with mode():
                    for function in (operation, operation.__wrapped__):
                        try:
                            made.append(function(x, value))
                        except krt.KernelrtError as error:
                            made.append(type(error))
                short, long = made
                if isinstance(short, type):
                    assert short is long, (other, shape)
                else:
                    assert short._uop is long._uop, (other, shape)
                    assert short.shape == long.shape == short._uop.shape
                    assert short._plain == long._plain


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 2, 3), (1, 4)])
def test_a_fast_path_to_rows_makes_the_view_that_the_method_makes(shape):
    x = krt.tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape))
    operation = krt.Tensor.__getitem__
    ends = (None, 0, 1, 3, -1, -2, 7, -9)
    indices = [0, 1, -1, -5, 4, 9, np.int64(1), slice(1, 3, 2), slice(None, None, 1)]
    indices += [slice(a, b) for a in ends for b in ends]
    for index in indices:
        made = []
        for function in (operation, operation.__wrapped__):
            try:
                made.append(function(x, index))
            except krt.KernelrtError as error:
                made.append(type(error))
        short, long = made
        if isinstance(short, type):
            assert short is long, index
            continue
        assert short.shape == long.shape
        assert short.tolist() == long.tolist() == x.numpy()[index].tolist()
        assert short._link.path == long._link.path
        for a, b in ((short, long), (short._uop, long._uop)):
            assert type(a) is type(b)
        assert [n.op for n in krt.ir.toposort([short._uop])] == [
            n.op for n in krt.ir.toposort([long._uop])
        ]
        short.add_(1)
        assert long.tolist() == short.tolist()


#: What is put to rows `at` of x, of y and of a number; and of the arrays that they stand for.
GIVEN = {
    "lazy": lambda x, y, at, i: y[at] + i,
    "stored": lambda x, y, at, i: y[at] + i if isinstance(y, np.ndarray) else (y[at] + i).realize(),
    "row": lambda x, y, at, i: y[at],
    "own": lambda x, y, at, i: x[at] * 2,
    "number": lambda x, y, at, i: i,
    "wide": lambda x, y, at, i: y[at] + np.float64(i),
    "broadcast": lambda x, y, at, i: y[0, :1] + i,
}


@pytest.mark.parametrize("value", GIVEN)
@pytest.mark.parametrize("index", [2, -1, slice(1, 3), slice(0, 1)])
def test_rows_take_values_in_order(index, value):
    given = GIVEN[value]
    want = np.arange(12, dtype=np.float32).reshape(4, 3)
    other = want * 10
    x, y = krt.tensor(want), krt.tensor(other)
    for i in range(4):
        before, row = x * 2, x[0]
        kept = want * 2
        x[index] = given(x, y, index, i)
        want[index] = given(want, other, index, i)
        assert before.tolist() == kept.tolist()
        assert row.tolist() == want[0].tolist()
        x[index] += 1
        want[index] += 1
        if i % 2:
            assert x.tolist() == want.tolist()
    assert x.tolist() == want.tolist()


class Strange(krt.Tensor):
    """What makes its instances may be replaced."""

    made: object = None

    def __new__(cls) -> object:
        return super().__new__(cls) if cls.made is None else cls.made

    def add(self, other: object, **options: object) -> krt.Tensor:
        return krt.Tensor.add(self, other, **options) * 100


def test_instances_that_are_no_tensors_are_refused(monkeypatch):
    t = Strange._of(krt.ones(3).realize().uop)
    monkeypatch.setattr(Strange, "made", 5)
    for do in (lambda: t + 1, lambda: t[0], lambda: t * t, lambda: t[1:]):
        with pytest.raises((TypeError, AttributeError)):
            do()


def test_operators_do_not_ask_for_methods_that_a_subclass_replaced():
    a = krt.ones(3).realize()
    t = Strange._of(a.uop)
    assert (t + 1).tolist() == [2, 2, 2]
    a.assign(a * 3)  # the short way of an operation is left while this is pending
    assert (t + 1).tolist() == [2, 2, 2]
