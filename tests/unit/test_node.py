"""Interning of nodes, and the structure of graphs as a key."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.uop import const
from kernelrt.native.graph_key import structural_key
from kernelrt.tensor.autograd.tags import Custom, Kept, Leaf, Stale, mark


def buffer(size: int = 4) -> UOp:
    return UOp(Op.BUFFER, dt.float32, (), Buffer(size, dt.float32))


def test_one_node_for_each_content():
    a = const(2.0, dt.float32)
    assert UOp(Op.CONST, dt.float32, (), 2.0) is a
    assert UOp(Op.CONST, dt.float32, arg=2.0) is a
    assert UOp(op := Op.NEG, dt.float32, src=(a,)) is UOp(op, dt.float32, (a,))
    assert UOp(Op.NEG, dt.float32, (a,)) is not UOp(Op.NEG, dt.float64, (a,))
    assert copy.copy(a) is a


def test_floats_are_told_apart_by_their_bits():
    zero, minus = (UOp(Op.CONST, dt.float64, (), v) for v in (0.0, -0.0))
    assert zero is not minus
    assert UOp(Op.CONST, dt.float64, (), -0.0) is minus
    nan = UOp(Op.CONST, dt.float64, (), float("nan"))
    assert UOp(Op.CONST, dt.float64, (), float(np.float64(-np.nan))) is nan


@pytest.mark.parametrize("bad", [
    lambda: UOp(Op.NEG), lambda: UOp(Op.NEG, dt.float32, [buffer()]),
    lambda: UOp(Op.NEG, dt.float32, (), 1, 2), lambda: UOp(Op.NEG, dt.float32, other=1),
    lambda: toposort([1]),
])  # fmt: skip
def test_wrong_calls(bad):
    with pytest.raises(TypeError):
        bad()


def test_nodes_die_and_come_again():
    gc.collect()
    b = buffer()
    chains = [b]
    for _ in range(3000):
        chains.append(UOp(Op.NEG, dt.float32, (chains[-1],)))
    ids = {id(n) for n in chains}
    assert len(ids) == 3001
    del chains
    again = UOp(Op.NEG, dt.float32, (b,))
    assert again.src[0] is b
    assert UOp(Op.NEG, dt.float32, (b,)) is again


def test_a_deep_graph_is_made_walked_and_dropped():
    node = buffer()
    for _ in range(200_000):
        node = UOp(Op.NEG, dt.float32, (node,))
    assert len(toposort([node])) == 200_001
    assert len(structural_key([node])[1]) == 1
    del node


def test_comparing_an_arg_may_make_and_drop_nodes():
    """A search of the table starts again when the comparison of an arg changed it."""

    class Unruly:
        def __init__(self, name: int) -> None:
            self.name = name

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            for i in range(3000):
                UOp(Op.CONST, dt.int64, (), i + 10**9)
            return isinstance(other, Unruly) and self.name == other.name

    held = [UOp(Op.IOTA, dt.int64, (), Unruly(i)) for i in range(5)]
    assert [UOp(Op.IOTA, dt.int64, (), Unruly(i)) for i in range(5)] == held


def test_a_finalizer_that_runs_at_the_end_of_a_search_makes_no_second_node():
    class Last:
        def __init__(self, name: int) -> None:
            self.name = name

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            held.clear()
            return isinstance(other, Last) and self.name == other.name

        def __del__(self) -> None:
            if self.name == 0:
                made.append(UOp(Op.IOTA, dt.int64, (), Last(1)))

    made: list[UOp] = []
    held = [UOp(Op.IOTA, dt.int64, (), Last(0))]
    node = UOp(Op.IOTA, dt.int64, (), Last(1))
    assert [id(n) for n in made] == [id(node)]


def test_the_collector_does_not_walk_nodes():
    node = UOp(Op.NEG, dt.float32, (buffer(),))
    held = (node, node), {node: node}
    gc.collect()
    assert not gc.is_tracked(node)
    assert not any(map(gc.is_tracked, held))


def test_a_deep_graph_ends_without_recursion():
    node = buffer()
    for _ in range(300_000):
        node = UOp(Op.NEG, dt.float32, (node,))
    end = weakref.ref(node)
    del node
    assert end() is None


@pytest.mark.parametrize("src", [(1,), (None,), ("text", 2.0), ((),)])
def test_operands_that_are_no_nodes_are_told(src: tuple[object, ...]):
    with pytest.raises(TypeError, match="expected a tuple of nodes"):
        UOp(Op.NEG, dt.float32, src)
    with pytest.raises(TypeError, match="expected a tuple of nodes"):
        UOp(Op.ADD, dt.float32, (buffer(), *src))


def test_threads_and_finalizers_make_the_same_nodes():
    class Maker:
        def __del__(self) -> None:
            UOp(Op.CONST, dt.int64, (), 5)

    def work() -> None:
        for i in range(3000):
            cycle = [Maker()]
            cycle.append(cycle)
            found.append(UOp(Op.CONST, dt.int64, (), i % 50))

    found: list[UOp] = []
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(n) for n in found}) == 50


def both(make):
    """The structures that two calls of `make` give, each with buffers of its own."""
    (one, _, _), (two, _, _) = structural_key(make()), structural_key(make())
    return one, two


def test_structure_leaves_out_which_buffers():
    def graph() -> list[UOp]:
        a, b = buffer(), buffer()
        return [a.alu(Op.ADD, b).alu(Op.MUL, a)]

    one, two = both(graph)
    assert one == two
    assert hash(one) == hash(two)
    _, buffers, _ = structural_key(root := graph())
    assert buffers == [n for n in toposort(root) if n.op is Op.BUFFER]


def test_structure_tells_apart():
    a, b, c = buffer(), buffer(), buffer(5)
    two = UOp(Op.CONST, dt.float32, (), 2.0)
    graphs = [
        [a.alu(Op.ADD, b)], [a.alu(Op.ADD, a)], [a.alu(Op.SUB, b)], [a, b], [a, a], [b, a, b],
        [a], [c], [two], [UOp(Op.CONST, dt.float32, (), 0.0)],
        [UOp(Op.CONST, dt.float32, (), -0.0)], [UOp(Op.RESHAPE, dt.float32, (a,), (2, 2))],
        [UOp(Op.RESHAPE, dt.float32, (a,), (4, 1))], [a.cast(dt.float64)],
        [a.alu(Op.ADD, b).alu(Op.ADD, a)], [a.alu(Op.ADD, b).alu(Op.ADD, b)],
    ]  # fmt: skip
    keys = [structural_key(g)[0] for g in graphs]
    assert len(set(keys)) == len(graphs)
    assert keys[0] != 1


def test_marks_are_looked_through():
    a, b = buffer(), buffer()
    kept = mark(a.alu(Op.NEG), Kept(b))
    plain = structural_key([b.alu(Op.ADD, a)])[0]
    assert structural_key([mark(kept, None).alu(Op.ADD, mark(a, Leaf()))])[0] == plain


def test_a_deep_key_sees_marks():
    a, b = buffer(), buffer()
    leaf, other = Leaf(), Leaf()

    def rule(node, g, i):
        return g

    graphs = [
        [mark(a, leaf).alu(Op.ADD, mark(b, other))], [mark(a, leaf).alu(Op.ADD, mark(b, leaf))],
        [mark(a, leaf).alu(Op.ADD, b)], [mark(mark(a, leaf), None).alu(Op.ADD, b)],
        [mark(mark(a, leaf).alu(Op.NEG), Kept(b))],
        [mark(mark(a, leaf), Custom(rule, (mark(a, leaf),)))],
        [mark(mark(a, leaf), Custom(rule, (mark(a, leaf),), arg=1))],
    ]  # fmt: skip
    keys = [structural_key(g, True)[0] for g in graphs]
    assert len(set(keys)) == len(graphs)
    assert [structural_key(g, True)[2] for g in graphs[:2]] == [[leaf, other], [leaf]]
    third, fourth = Leaf(), Leaf()
    fresh = [mark(buffer(), third).alu(Op.ADD, mark(buffer(), fourth))]
    assert structural_key(fresh, True)[0] == keys[0]
    assert structural_key([mark(a, Stale(a)).alu(Op.ADD, b)], True) is None
