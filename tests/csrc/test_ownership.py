"""Memory stays while it is used, and nothing is used that is not as it was checked.

Between a check and a run any code can come: finalizers, handlers of signals, methods of arguments,
other threads. Here all of them are one callable, put wherever code can come in.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from kernelrt import dtype, errors
from kernelrt._dispatch import CUSTOM, KERNEL, PlanCore
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, UOp
from kernelrt.native.array_handle import ArrayHandle, HandleRegistry
from kernelrt.native.eager_plan import DONE, UNFIT, Prepared, new_result
from kernelrt.native.graph_key import structural_key
from kernelrt.native.memory import BlockCache, Memory
from kernelrt.native.node import toposort
from kernelrt.native.replay import MISMATCH, Replay
from kernelrt.native.signature import ARRAY, STATIC

F32 = dtype.float32.code
N = 1024


class Handle(ArrayHandle):
    __slots__ = ("link",)

    @classmethod
    def of(cls, array):
        handle = cls()
        handle.hold_on(array)
        return handle

    def hold_on(self, array):
        memory = Memory(array.nbytes)
        memoryview(memory)[:] = array.tobytes()
        self._bind(memory, memoryview(memory), dtype.from_numpy(array.dtype).code, array.shape)


class Key(str):
    """A static argument whose comparison runs what it is given."""

    __slots__ = ("run",)

    def __eq__(self, other):
        if self.run is not None:
            self.run()
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Watch:
    """What a replay asks before a run; each question runs what it is given."""

    def __init__(self, run):
        self.run = run

    def fits(self):
        self.run()
        return True

    def before(self):
        self.run()
        return False, ([], []), ()


def key(run=None):
    made = Key("key")
    made.run = run
    return made


class Adder:
    """A replay of out = x over N floats; `meanwhile` runs at `place`."""

    def __init__(self, kernels, place, *, bound):
        self.meanwhile = lambda: None
        self.home = np.zeros(N, np.float32)
        self.out = np.zeros(N, np.float32)
        ops = [(KERNEL, kernels.add, (self.out.ctypes.data, self.home.ctypes.data), (N,), 1, -1, 0,
                0, ())]  # fmt: skip
        if place == "run":
            ops.insert(0, (CUSTOM, self.interfere, (), (), 1, -1, 0, 0, ()))
        self.place = place
        register = {1: 1} if place == "make_way" else {}
        self.replay = Replay(
            PlanCore(ops),
            [
                (ARRAY, F32, (N,), self.home.ctypes.data, [(len(ops) - 1, 1, 0)] if bound else []),
                (STATIC, key(), True),
            ],
            [(self.out.ctypes.data, F32, (N,))],
            Handle,
            watch=Watch(self.interfere) if place == "watch" else None,
            make_way=self.interfere,
            registers=(register,),
            bindings=self.bindings if place == "bindings" else None,
            keep=self,
        )

    def interfere(self):
        self.meanwhile()

    def bindings(self):
        self.meanwhile()
        return (), (), (), ()

    def __call__(self, x, meanwhile):
        self.meanwhile = meanwhile
        self.out[:] = 0
        result = self.replay(x, key(meanwhile if self.place == "static" else None))
        return result if result is MISMATCH else np.frombuffer(result._memory, np.float32)


BEFORE_THE_RUN = ["static", "watch", "make_way", "bindings"]
X = np.arange(N, dtype=np.float32)


def resized(x):
    x.resize(3, refcheck=False)


def reshaped(x):
    x.shape = (2, N // 2)


def read_otherwise(x):
    x.dtype = np.int32


@pytest.mark.parametrize("bound", [False, True], ids=["copied", "bound"])
@pytest.mark.parametrize("place", BEFORE_THE_RUN)
@pytest.mark.parametrize("change", [resized, reshaped, read_otherwise])
def test_an_array_that_changes_before_the_run_is_not_taken(kernels, place, change, bound):
    adder = Adder(kernels, place, bound=bound)
    x = X.copy()
    assert adder(x, lambda: change(x)) is MISMATCH
    assert adder.replay.calls == 0
    np.testing.assert_array_equal(adder(X, lambda: None), X)
    assert adder.replay.plan.pointer(0, 1) == adder.home.ctypes.data


@pytest.mark.parametrize("bound", [False, True], ids=["copied", "bound"])
@pytest.mark.parametrize("place", BEFORE_THE_RUN)
def test_a_handle_that_loses_its_memory_before_the_run_is_not_taken(kernels, place, bound):
    for change in (Handle._unbind, lambda x: x.hold_on(X[:3])):
        adder = Adder(kernels, place, bound=bound)
        x = Handle.of(X)
        assert adder(x, lambda x=x, change=change: change(x)) is MISMATCH
    np.testing.assert_array_equal(adder(Handle.of(X), lambda: None), X)


@pytest.mark.parametrize("bound", [False, True], ids=["copied", "bound"])
@pytest.mark.parametrize("place", BEFORE_THE_RUN)
def test_a_handle_with_other_memory_of_the_kind_is_taken_as_it_is_then(kernels, place, bound):
    x = Handle.of(X)
    adder = Adder(kernels, place, bound=bound)
    np.testing.assert_array_equal(adder(x, lambda: x.hold_on(2 * X)), 2 * X)


@pytest.mark.parametrize("take", [Handle._unbind, lambda x: x.hold_on(2 * X)])
def test_what_an_argument_owned_lives_until_the_run_is_over(kernels, take):
    adder = Adder(kernels, "run", bound=True)
    x = Handle.of(X)
    memory = weakref.ref(x._memory)
    seen = []

    def meanwhile():
        take(x)
        gc.collect()
        seen.append(memory() is not None)

    np.testing.assert_array_equal(adder(x, meanwhile), X)
    assert seen == [True]
    assert memory() is None


@pytest.mark.parametrize("place", BEFORE_THE_RUN)
def test_state_that_moves_before_the_run_is_noticed(place):
    state = Handle.of(X)
    done = []
    out = np.zeros(4, np.float32)
    first = state._hold  # so that its address is not given out again

    def move():
        state.hold_on(X)

    replay = Replay(
        PlanCore([(CUSTOM, lambda: done.append(1), (), (), 1, -1, 0, 0, ())]),
        [(STATIC, key(), True)],
        [(out.ctypes.data, F32, (4,))],
        Handle,
        guards=[(state, state._address)],
        watch=Watch(move) if place == "watch" else None,
        make_way=move,
        registers=({1: 1} if place == "make_way" else {},),
        bindings=(lambda: (move(), ((), (), (), ()))[1]) if place == "bindings" else None,
        keep=(out, first),
    )
    assert replay(key(move if place == "static" else None)) is MISMATCH
    assert not done


class Gone:
    """Runs something when it dies."""

    def __init__(self, run):
        self.run = run

    def __del__(self):
        self.run()


def test_what_the_collector_clears_reads_no_memory():
    registry = HandleRegistry()
    found = []

    def look():
        found.extend((h._address, h._copy_out(), h._only()) for h in registry.members())

    handle = Handle.of(X)
    handle.link = handle
    # The collector does not know nodes, so this one dies when the field of the handle is cleared.
    handle._uop = UOp(Op.CONST, dtype.float32, (), Gone(look))
    registry.add(handle)
    del handle
    gc.collect()
    assert found == [(None, None, None)]
    assert len(registry) == 0


@pytest.mark.parametrize("change", [Handle._unbind, lambda h: h.hold_on(X[:3])])
def test_a_handle_agrees_with_itself_whenever_it_is_seen(change):
    seen = []
    handle = Handle()

    def look():
        data = handle._copy_out()
        seen.append(None if data is None else data.tolist())

    export = memoryview(X)
    handle._bind(Gone(look), export, F32, X.shape)
    change(handle)
    assert seen == [None if change is Handle._unbind else [0.0, 1.0, 2.0]]


# ---- Memory and storage


@pytest.mark.parametrize("nbytes", [1, 100, 128, 5000])
def test_memory_is_initialised_once(nbytes):
    cache = BlockCache()
    stored, borrowed = cache.alloc(nbytes), Buffer.wrap(np.zeros(nbytes, np.uint8)).hold().obj
    for memory in (stored, borrowed, Memory(nbytes), new_result(cache, nbytes)):
        for _ in range(2):
            with pytest.raises(errors.BufferReleasedError):
                memory.__init__(8)
            if not memory.exports:
                memory.release()
    assert cache.alloc(nbytes).nbytes == nbytes


def test_a_storage_whose_memory_is_gone_has_no_address():
    buffer = Buffer(N, dtype.float32)
    memory = buffer.hold().obj
    memory.release()
    for use in (lambda: buffer.address, buffer.hold, buffer.numpy, buffer.storage.hand_out):
        with pytest.raises(errors.BufferReleasedError):
            use()


# ---- Eager plans


def eager(kernels, *buffers, meanwhile=lambda: None, written=False):
    """A plan of out += buffer for the sum of `buffers`, which nobody else holds while it runs."""
    out = np.zeros(N, np.float32)
    ops = [(CUSTOM, meanwhile, (), (), 1, -1, 0, 0, ())]
    ops.extend(
        (KERNEL, kernels.add, (out.ctypes.data, buffer.address), (N,), 1, -1, 0, 0, ())
        for buffer in buffers
    )
    bound = [(b.address, b.nbytes, written, [(i + 1, 1, 0)]) for i, b in enumerate(buffers)]
    sites = [(i + 1, 0, 0) for i in range(len(buffers))]
    return out, Prepared(PlanCore(ops), bound, [(out.ctypes.data, out.nbytes, sites)])


def filled(value):
    buffer = Buffer(N, dtype.float32)
    buffer.copyin(np.full(N, value, np.float32))
    return buffer


def node(buffer):
    return UOp(Op.BUFFER, buffer.dtype, (), buffer)


def zeroed(cache):
    memory = new_result(cache, 4 * N)
    np.frombuffer(memory, np.float32)[:] = 0
    return memory


def test_buffers_cannot_be_released_while_an_eager_plan_reads_them(kernels):
    cache = BlockCache()
    first, second = filled(1), filled(2)
    refused = []

    def meanwhile():
        for buffer in (first, second):
            with pytest.raises(BufferError):
                buffer.release()
            refused.append(buffer)

    out, prepared = eager(kernels, first, second, meanwhile=meanwhile)
    result = zeroed(cache)
    nodes = [node(first), node(second)]
    assert prepared.run(nodes, [result], [], [], {}) == DONE
    assert refused == [first, second]
    assert np.frombuffer(result, np.float32).tolist() == [3.0] * N
    assert not out.any()
    for buffer in (first, second):
        buffer.release()
    with pytest.raises(errors.BufferReleasedError):
        prepared.run(nodes, [zeroed(cache)], [], [], {})


def test_a_failed_run_leaves_buffers_free_and_the_plan_as_it_was(kernels):
    cache = BlockCache()

    def fail():
        raise ValueError("no")

    first, second, third = filled(1), filled(2), filled(3)
    _, prepared = eager(kernels, first, second, meanwhile=fail, written=True)
    before = [prepared.plan.pointer(op, slot) for op in (1, 2) for slot in (0, 1)]
    overlapping = [node(third), node(third.view(4, N - 1))]
    assert prepared.run(overlapping, [zeroed(cache)], [], [], {}) == UNFIT
    assert [prepared.plan.pointer(op, slot) for op in (1, 2) for slot in (0, 1)] == before
    with pytest.raises(errors.CustomFunctionError):
        prepared.run([node(third), node(second)], [zeroed(cache)], [], [], {})
    for buffer in (first, second, third):
        buffer.release()


# ---- Graphs


class Arg:
    """An arg of a node, all of which are equal; hashing it runs what it is given."""

    run = staticmethod(lambda: None)

    def __hash__(self):
        Arg.run()
        return 7

    def __eq__(self, other):
        return isinstance(other, Arg)


def constants(n):
    return [UOp(Op.CONST, dtype.float32, (), float(i)) for i in range(n)]


def graph(n):
    nodes = constants(n)
    total = nodes[0]
    for other in nodes:
        total = UOp(Op.ADD, dtype.float32, (total, other), Arg())
    return total


def test_a_structure_does_not_depend_on_walks_within_its_own():
    root, other = graph(5), graph(9)
    expected, others = structural_key([root])[0], structural_key([other])[0]
    assert expected != others
    depth = []

    def nested():
        if len(depth) < 3:
            depth.append(1)
            structural_key([*reversed(constants(9)), root])
            depth.pop()

    Arg.run = staticmethod(nested)
    try:
        assert structural_key([root])[0] == expected
        assert structural_key([other])[0] == others
    finally:
        Arg.run = staticmethod(lambda: None)


@pytest.mark.parametrize("walk", [structural_key, toposort])
@pytest.mark.parametrize("root", [None, 3, object()])
def test_only_nodes_are_walked(walk, root):
    with pytest.raises(TypeError, match="nodes"):
        walk([graph(2), root])
