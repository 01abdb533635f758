"""Replay and JitCore: what matches, what is copied, what is bound, what comes back."""

from __future__ import annotations

import collections
import gc
import weakref
from collections import OrderedDict

import numpy as np
import pytest

from kernelrt import dtype, errors
from kernelrt._dispatch import COPY, CUSTOM, KERNEL, MAY_FAIL, STATUS, PlanCore
from kernelrt.native.array_handle import MAX_DIMS, ArrayHandle
from kernelrt.native.memory import BlockCache, Memory
from kernelrt.native.replay import MISMATCH, JitCore, Replay
from kernelrt.native.signature import ARRAY, FLOAT, STATIC

F32 = dtype.float32.code


class Handle(ArrayHandle):
    __slots__ = ()

    @classmethod
    def of(cls, array):
        handle = cls()
        code = dtype.from_numpy(array.dtype).code
        handle._bind(array, memoryview(array), code, array.shape)
        return handle

    def numpy(self):
        name = next(d.name for d in dtype.ALL if d.code == self._dtype_code)
        return np.frombuffer(self._memory, name).reshape(self._shape)


class Adder:
    """A plan of out += a (16 floats), with out as its own state."""

    def __init__(self, kernels, *, sites=False, writes=()):
        self.a = np.zeros((4, 4), np.float32)
        self.out = np.zeros((4, 4), np.float32)
        self.scale = np.zeros(1, np.float64)
        self.plan = PlanCore([(KERNEL, kernels.add, (self.out.ctypes.data, self.a.ctypes.data),
                               (16,), 1, -1, 0, 0, ())])  # fmt: skip
        bound = [(0, 1, 0)] if sites else []
        self.replay = Replay(
            self.plan,
            [
                (ARRAY, F32, (4, 4), self.a.ctypes.data, bound),
                (FLOAT, dtype.float64.code, self.scale.ctypes.data),
                (STATIC, "train", True),
            ],
            [(self.out.ctypes.data, F32, (4, 4))],
            Handle,
            writes=writes,
            keep=self,
        )

    def __call__(self, x, scale=1.0, mode="train"):
        return self.replay(x, scale, mode)


@pytest.fixture
def adder(kernels):
    return Adder(kernels)


X = np.arange(16, dtype=np.float32).reshape(4, 4)
UNALIGNED = np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view("f4").reshape(4, 4)


def test_a_hit_copies_in_and_out(adder):
    first = adder(X, 2.5)
    second = adder(X, 2.5)
    assert type(first) is Handle
    assert first._shape == (4, 4)
    assert first._dtype_code == F32
    assert first._nbytes == 64
    assert first._uop is None
    np.testing.assert_array_equal(first.numpy(), X)
    np.testing.assert_array_equal(second.numpy(), 2 * X)
    assert adder.scale[0] == 2.5
    assert adder.replay.calls == 2
    assert adder.replay.plan is adder.plan


def test_a_handle_goes_in_like_an_array(adder):
    result = adder(Handle.of(X))
    np.testing.assert_array_equal(result.numpy(), X)
    np.testing.assert_array_equal(adder(result).numpy(), 2 * X)


@pytest.mark.parametrize(
    "x",
    [X.T, X[::-1], np.arange(32, dtype=np.float32).reshape(4, 8)[:, ::2],
     np.broadcast_to(X[0], (4, 4)), UNALIGNED],
    ids=["transposed", "reversed", "sliced", "broadcast", "unaligned"],
)  # fmt: skip
@pytest.mark.parametrize("sites", [False, True])
def test_any_layout_matches(kernels, x, sites):
    np.testing.assert_array_equal(Adder(kernels, sites=sites)(x).numpy(), x)


class SubArray(np.ndarray):
    pass


@pytest.mark.parametrize(
    "args",
    [
        (X[:3],),
        (X[None],),
        (X.ravel(),),
        (X.astype(np.float64),),
        (X.astype(">f4"),),
        (X.view(np.int32),),
        (X.view(SubArray),),
        (X.tolist(),),
        (Handle.of(X.astype(np.int32)),),
        (Handle.of(X[:2]),),
        (Handle(),),
        (None,),
        (X, 1),
        (X, np.float32(1)),
        (X, True),
        (X, 1.0, "test"),
        (X, 1.0, None),
        (X, 1.0, X),
    ],
)
def test_a_mismatch_changes_nothing(adder, args):
    assert adder(*args) is MISMATCH
    assert not adder.a.any()
    assert not adder.out.any()
    assert adder.scale[0] == 0
    assert adder.replay.calls == 0


def test_another_number_of_arguments(adder):
    assert adder.replay() is MISMATCH
    assert adder.replay(X, 1.0) is MISMATCH
    assert adder.replay(X, 1.0, "train", None) is MISMATCH


@pytest.mark.parametrize(
    ("value", "same", "other"),
    [(1, 1, True), (True, True, 1), (10**30, 10**30, 10**30 + 1), ("ab", "".join("ab"), "abc"),
     (None, None, 0), ((1, 2), (1, 2), (1, 3)), (0.5, 0.5, 0.25)],
)  # fmt: skip
def test_statics(value, same, other):
    replay = Replay(PlanCore([]), [(STATIC, value, True)], [], Handle)
    assert replay(same) == ()
    assert replay(other) is MISMATCH


def test_a_static_by_identity_is_not_compared():
    class Equal:
        def __eq__(self, other):
            raise AssertionError("compared")

        __hash__ = object.__hash__

    first, second = Equal(), Equal()
    replay = Replay(PlanCore([]), [(STATIC, first, False)], [], Handle)
    assert replay(first) == ()
    assert replay(second) is MISMATCH


def test_a_static_that_cannot_be_compared_is_a_mismatch():
    class Odd:
        def __eq__(self, other):
            raise RuntimeError("no")

        __hash__ = None

    replay = Replay(PlanCore([]), [(STATIC, Odd(), True)], [], Handle)
    assert replay(Odd()) is MISMATCH


@pytest.mark.parametrize("scalar", dtype.ALL, ids=lambda d: d.name)
def test_every_dtype(scalar):
    if scalar is dtype.bfloat16:
        replay = Replay(PlanCore([]), [(ARRAY, scalar.code, (3,), 64, ())], [], Handle)
        assert all(replay(np.zeros(3, d.name)) is MISMATCH for d in dtype.ALL if d is not scalar)
        return
    home = np.zeros(3, scalar.name)
    replay = Replay(
        PlanCore([]),
        [(ARRAY, scalar.code, (3,), home.ctypes.data, ())],
        [(home.ctypes.data, scalar.code, (3,))],
        Handle,
        keep=home,
    )
    for other in dtype.ALL:
        if other is dtype.bfloat16:
            continue
        result = replay(np.array([0, 1, 1], other.name))
        if other is scalar:
            assert result.numpy().tolist() == [0, 1, 1]
        else:
            assert result is MISMATCH


def test_both_names_of_a_c_integer_match():
    home = np.zeros(3, np.int64)
    replay = Replay(
        PlanCore([]), [(ARRAY, dtype.int64.code, (3,), home.ctypes.data, ())], [], Handle
    )
    for name in "lq":
        values = np.array([4, 5, 6], name)
        if values.itemsize == 8:
            home[:] = 0
            assert replay(values) == ()
            assert home.tolist() == [4, 5, 6]


def test_results_are_the_callers(adder):
    held = [adder(X) for _ in range(5)]
    gc.collect()
    for i, result in enumerate(held):
        np.testing.assert_array_equal(result.numpy(), (i + 1) * X)


def test_large_arrays_are_bound_for_one_call_only(kernels):
    adder = Adder(kernels, sites=True)
    home = adder.plan.pointer(0, 1)
    assert home == adder.a.ctypes.data
    np.testing.assert_array_equal(adder(X).numpy(), X)
    assert not adder.a.any()
    assert adder.plan.pointer(0, 1) == home


def test_an_array_that_the_plan_writes_is_copied(kernels):
    backing = np.zeros(40, np.float32)
    out = backing[8:24].reshape(4, 4)
    home = np.zeros(16, np.float32)
    plan = PlanCore([(KERNEL, kernels.add, (out.ctypes.data, home.ctypes.data), (16,),
                      1, -1, 0, 0, ())])  # fmt: skip
    replay = Replay(
        plan,
        [(ARRAY, F32, (4, 4), home.ctypes.data, [(0, 1, 0)])],
        [(out.ctypes.data, F32, (4, 4))],
        Handle,
        writes=[(out.ctypes.data, out.ctypes.data + out.nbytes)],
    )
    for start in (0, 7, 8, 23, 24):
        home[:] = 0
        backing[:] = np.arange(40)
        x = backing[start : start + 16].reshape(4, 4)
        expected = x + out
        np.testing.assert_array_equal(replay(x).numpy(), expected)
        assert home.any() == (start < 24), start


def test_site_offsets(kernels):
    out, home = np.zeros(4, np.float32), np.zeros(16, np.float32)
    plan = PlanCore([(KERNEL, kernels.add, (out.ctypes.data, home[4:].ctypes.data), (4,),
                      1, -1, 0, 0, ())])  # fmt: skip
    replay = Replay(plan, [(ARRAY, F32, (16,), home.ctypes.data, [(0, 1, 16)])], [], Handle)
    assert replay(np.arange(16, dtype=np.float32)) == ()
    assert out.tolist() == [4, 5, 6, 7]


def test_several_results_and_build():
    state = np.arange(4, dtype=np.float32)
    outputs = [(state.ctypes.data, F32, (2, 2)), (state.ctypes.data + 8, F32, ())]
    first, second = Replay(PlanCore([]), [], outputs, Handle)()
    assert first.numpy().tolist() == [[0, 1], [2, 3]]
    assert second.numpy() == 2
    built = Replay(PlanCore([]), [], outputs, Handle, build=lambda a, b: {"a": a, "b": b})()
    assert built["b"].numpy() == 2
    none = Replay(PlanCore([]), [], [(state.ctypes.data, F32, (0, 3))], Handle)()
    assert none.numpy().shape == (0, 3)


def test_guards():
    state = Handle.of(X)
    replay = Replay(PlanCore([]), [], [], Handle, guards=[(state, X.ctypes.data)])
    assert replay() == ()
    state._unbind()
    assert replay() is MISMATCH
    state._bind(X, memoryview(X[0, 1:2]), F32, (1,))
    assert replay() is MISMATCH
    state._bind(X, memoryview(X), F32, (4, 4))
    assert replay() == ()


def test_a_failing_run_hands_nothing_out(kernels):
    log = np.zeros(1, np.int64)

    plan = PlanCore([(KERNEL, kernels.fail, (log.ctypes.data, STATUS), (1,),
                      1, -1, MAY_FAIL, 0, ())])  # fmt: skip
    replay = Replay(plan, [], [(log.ctypes.data, dtype.int64.code, ())], Handle)
    for _ in range(2):
        with pytest.raises(errors.IndexBoundsError):
            replay()
    assert replay.calls == 0
    plan.set_value(0, 0, 0)
    assert replay().numpy() == 3
    plan.release()
    with pytest.raises(errors.PlanReleasedError):
        replay()


def test_reentry_is_refused():
    def reenter():
        with pytest.raises(errors.PlanBusyError):
            replay()

    plan = PlanCore([(CUSTOM, reenter, (), (), 1, -1, 0, 0, ())])
    replay = Replay(plan, [], [], Handle)
    assert replay() == ()


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ([(ARRAY, 13, (1,), 64, ())], errors.DTypeError),
        ([(ARRAY, -1, (1,), 64, ())], errors.DTypeError),
        ([(ARRAY, F32, (-1,), 64, ())], errors.ShapeError),
        ([(ARRAY, F32, (2**62,), 64, ())], errors.ShapeError),
        ([(ARRAY, F32, (1,) * (MAX_DIMS + 1), 64, ())], errors.ShapeError),
        ([(ARRAY, F32, (1,), 0, ())], errors.ShapeError),
        ([(ARRAY, F32, (1,), 64, [(0, 0, 0)])], errors.PlanBuildError),
        ([(FLOAT, dtype.int32.code, 64)], errors.DTypeError),
        ([(FLOAT, F32, 0)], errors.ShapeError),
        ([(7, F32, 0)], errors.DTypeError),
    ],
)
def test_malformed_inputs(inputs, error):
    with pytest.raises(error):
        Replay(PlanCore([]), inputs, [], Handle)


def test_malformed_rest():
    with pytest.raises(errors.DTypeError):
        Replay(PlanCore([]), [], [], dict)
    with pytest.raises(errors.ShapeError):
        Replay(PlanCore([]), [], [(0, F32, ())], Handle)
    with pytest.raises(TypeError):
        Replay(None, [], [], Handle)
    with pytest.raises(errors.ShapeError):
        Replay(PlanCore([]), [], [], Handle, guards=[(None, 1)])


def test_results_free_their_memory(adder):
    result = adder(X)
    memory = weakref.ref(result._memory)
    assert isinstance(memory(), Memory)
    assert memory().address % 16 == 0
    del result
    assert memory() is None


def taking(node, values=()):
    """A replay that takes one argument of structure `node` with statics as its leaves."""
    structure = (tuple, None, (node,))
    return jitted(Replay(PlanCore([]), [(STATIC, v, True) for v in values], [], Handle,
                         structure=structure))  # fmt: skip


def jitted(replay):
    class Function(JitCore):
        def _slow(self, *_):
            return MISMATCH

    function = Function()
    function._add_replay(replay)
    return function


def test_a_container_is_what_it_holds_whatever_its_iterator_says():
    class Pair(collections.namedtuple("Pair", "a b")):  # noqa: PYI024 - untyped on purpose
        __slots__ = ()

        def __iter__(self):
            return iter(range(100))

        def __len__(self):
            return 100

    assert taking((Pair, None, (None, None)), (1, 2))(Pair(1, 2)) == ()
    assert taking((Pair, None, (None, None)), (0, 1))(Pair(1, 2)) is MISMATCH


def test_keys_that_change_the_dict_while_it_is_compared():
    class Key:
        def __init__(self, action):
            self.action = action

        def __hash__(self):
            return 1

        def __eq__(self, other):
            self.action()
            return True

    arguments = {}
    for action in (arguments.clear, lambda: arguments.update({i: object() for i in range(1000)}),
                   lambda: arguments.pop(next(iter(arguments)), None)):  # fmt: skip
        keys = [Key(action) for _ in range(3)]
        function = taking((dict, tuple(Key(lambda: None) for _ in keys), (None,) * 3), (1, 2, 3))
        arguments.clear()
        for key in keys:
            key.action = lambda: None
        arguments.update({("other", i): "x" * i for i in range(3)})
        arguments.clear()
        for i, key in enumerate(keys):
            dict.__setitem__(arguments, key, "y" * 1000 + str(i))
        for key in keys:
            key.action = action
        assert function(arguments) is MISMATCH


def test_lists_that_shrink_while_they_are_compared():
    items = [{"a": 1}, 2, 3]

    class Key(str):
        __slots__ = ()

        def __eq__(self, other):
            items.clear()
            return True

        __hash__ = str.__hash__

    items[0] = {Key("a"): 1}
    node = (list, None, ((dict, (Key("a"),), (None,)), None, None))
    assert taking(node, (1, 2, 3))(items) is MISMATCH


@pytest.mark.parametrize(
    "node",
    [(), (list,), (set, None, ()), (dict, None, ()), (list, (), ()), (dict, ("a",), ()),
     (list, None, [None]), (tuple, None, ((int, None, ()),)), (OrderedDict, ("a",), (None,))],
)  # fmt: skip
def test_malformed_structures(node):
    with pytest.raises(errors.JitError):
        taking(node)


def test_a_replay_that_failed_to_begin_matches_nothing():
    replay = Replay.__new__(Replay)
    assert replay() is MISMATCH
    with pytest.raises(errors.ShapeError):
        replay.__init__(PlanCore([]), [], [(0, F32, ())], Handle)
    assert replay() is MISMATCH
    assert jitted(replay)() is MISMATCH


def test_an_interrupt_while_statics_are_compared_comes_through():
    class Static:
        def __eq__(self, other):
            raise self.error

        __hash__ = object.__hash__

    replay = Replay(PlanCore([]), [(STATIC, Static(), True)], [], Handle)
    other = Static()
    other.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        replay(other)
    other.error = ValueError()
    assert replay(other) is MISMATCH


def test_dimensions_are_ints():
    handle = Handle()
    with pytest.raises(errors.ShapeError, match="must be an int"):
        handle._bind(X, memoryview(X), F32, (np.int64(4), 4))


@pytest.mark.parametrize(
    "export", [memoryview(X[:2]), memoryview(X[:, ::2].copy())[:1], memoryview(X)[::2]]
)
def test_a_handle_takes_what_its_shape_says(export):
    with pytest.raises(errors.ShapeError, match="contiguous bytes"):
        Handle()._bind(X, export, F32, (4, 4))


def test_results_of_any_size_use_memory_again(kernels):
    source = np.ones(1 << 18, np.float32)
    cache = BlockCache()
    replay = Replay(
        PlanCore([]), [], [(source.ctypes.data, F32, source.shape)], Handle, results_from=cache
    )
    first = replay()._address
    assert replay()._address == first
    both = [replay(), replay()]
    assert len({r._address for r in both}) == 2
    assert all((r.numpy() == 1).all() for r in both)


def test_jit_core_tries_its_replays(kernels):
    small = np.zeros(2, np.float32)
    replays = [
        Replay(PlanCore([]), [(ARRAY, F32, shape, small.ctypes.data, ())], [], Handle,
               build=lambda shape=shape: shape)
        for shape in [(1,), (2,)]
    ]  # fmt: skip
    slow = []

    class Function(JitCore):
        def __init__(self, name):
            self.name = name

        def _slow(self, args, kwargs):
            slow.append((args, kwargs))
            return "slow"

    function = Function("f")
    one, two, three = (np.zeros(n, np.float32) for n in (1, 2, 3))
    assert function(one) == "slow"
    for replay in replays:
        function._add_replay(replay)
    assert function._replays == tuple(replays)
    for x in (one, two, two, one):
        assert function(x) == x.shape
    assert function(three) == "slow"
    assert function(x=one) == "slow"
    function._clear_replays()
    assert function(one) == "slow"
    assert slow[2][1] == {"x": one}
    with pytest.raises(NotImplementedError):
        JitCore()()


def test_a_replay_that_was_cleared_while_it_ran_is_not_the_latest():
    sizes = iter(((1,), (2,)))

    def clear():
        function._clear_replays()

    small = np.zeros(2, np.float32)
    plans = PlanCore([]), PlanCore([(CUSTOM, clear, [], [], 1, -1, 0, 1, [])])
    # The one added last is asked first, and takes other arguments.
    replays = [
        Replay(plan, [(ARRAY, F32, next(sizes), small.ctypes.data, ())], [], Handle)
        for plan in plans
    ]
    slow = []

    class Function(JitCore):
        def _slow(self, args, _):
            slow.append(args)
            return "slow"

    function = Function()
    for replay in reversed(replays):
        function._add_replay(replay)
    x = np.zeros(2, np.float32)
    assert function(x) == ()
    assert not slow
    assert function._replays == ()
    assert function(x) == "slow"


def test_bound_results_are_written_where_they_lie():
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    plan = PlanCore([(COPY, None, [out.ctypes.data, x.ctypes.data], [64], 1, -1, 0, 1, [])])
    replay = Replay(plan, [], [(out.ctypes.data, F32, (4, 4), [(0, 0, 0)])], Handle)
    first = replay()
    x += 1
    second = replay()
    assert second._copy_out().ravel().tolist() == x.tolist()
    assert (first._copy_out() + 1).ravel().tolist() == x.tolist()
    assert not out.any()
    assert plan.pointer(0, 0) == out.ctypes.data
    plan.execute()
    assert out.tolist() == x.tolist()
    with pytest.raises(errors.ShapeError, match="outside"):
        Replay(plan, [], [(out.ctypes.data, F32, (4, 4), [(0, 0, 65)])], Handle)


def test_subclasses_of_float_are_floats(adder):
    assert adder(X, np.float64(2)) is not MISMATCH
    assert adder.scale[0] == 2


def nested(structure, count):
    """A replay that takes `count` floats, nested, and gives them back."""
    homes = np.zeros(count)
    code = dtype.float64.code
    return Replay(
        PlanCore([]),
        [(FLOAT, code, homes[i:].ctypes.data) for i in range(count)],
        [(homes.ctypes.data, code, (count,))],
        Handle,
        structure=structure,
        keep=homes,
    )


class Direct(JitCore):
    def __init__(self, *replays):
        for replay in replays:
            self._add_replay(replay)

    def _slow(self, *_):
        return "slow"


def test_nested_arguments_are_taken_apart():
    pair = (tuple, None, (None, None))
    structure = (tuple, None, ((dict, ("x", "y"), (None, pair)), (list, None, (None,))))
    call = Direct(nested(structure, 4))
    good = {"x": 1.0, "y": (2.0, 3.0)}
    assert call(good, [4.0]).numpy().tolist() == [1, 2, 3, 4]
    for args in (
        (good,),
        (good, [4.0], 5.0),
        (good, (4.0,)),
        (good, [4.0, 5.0]),
        (good, []),
        ({"y": (2.0, 3.0), "x": 1.0}, [4.0]),
        ({"x": 1.0}, [4.0]),
        ({"x": 1.0, "z": (2.0, 3.0)}, [4.0]),
        ({"x": 1.0, "y": [2.0, 3.0]}, [4.0]),
        ({"x": 1.0, "y": 2.0}, [4.0]),
        ({"x": [1.0], "y": (2.0, 3.0)}, [4.0]),
        ({"x": 1, "y": (2.0, 3.0)}, [4.0]),
        ((1.0, (2.0, 3.0)), [4.0]),
    ):
        assert call(*args) == "slow"
    assert call(good, [4.0]).numpy().tolist() == [1, 2, 3, 4]


def test_keys_of_another_type_are_other_keys():
    call = Direct(nested((tuple, None, ((dict, (1, "a"), (None, None)),)), 2))
    assert call({1: 5.0, "a": 6.0}).numpy().tolist() == [5, 6]
    assert call({True: 5.0, "a": 6.0}) == "slow"
    assert call({1.0: 5.0, "a": 6.0}) == "slow"


def test_keywords_continue_positions():
    call = Direct(nested((tuple, None, (None, None, None)), 3))
    assert call(1.0, 2.0, c=3.0) == "slow"
    call._name_parameters(("a", "b", "c"))
    assert call(1.0, 2.0, c=3.0).numpy().tolist() == [1, 2, 3]
    assert call(c=3.0, b=2.0, a=1.0).numpy().tolist() == [1, 2, 3]
    for args, kwargs in (
        ((1.0, 2.0, 3.0), {"c": 3.0}),
        ((1.0,), {"c": 3.0}),
        ((1.0, 2.0), {"d": 3.0}),
        ((1.0, 2.0), {"a": 3.0}),
        ((1.0, 2.0, 3.0), {"d": 3.0}),
    ):
        assert call(*args, **kwargs) == "slow"


def test_registers_ask_for_way():
    register, made = {}, []
    replay = Replay(
        PlanCore([]), [], [], Handle, registers=[register], make_way=lambda: made.append(1)
    )
    assert replay() == ()
    assert not made
    register["key"] = 1
    assert replay() == ()
    assert made == [1]
    with pytest.raises(errors.JitError, match="register"):
        Replay(PlanCore([]), [], [], Handle, registers=[[]])

    def fail():
        raise ValueError("no way")

    replay = Replay(PlanCore([]), [], [], Handle, registers=[register], make_way=fail)
    with pytest.raises(ValueError, match="no way"):
        replay()
    register.clear()
    assert replay() == ()


def test_a_jitted_function_waits_for_its_registers():
    call, register = Direct(nested((tuple, None, (None,)), 1)), {}
    call._require_empty([register])
    assert call(1.0).numpy().tolist() == [1]
    register[0] = 0
    assert call(1.0) == "slow"
