"""Loading data sets by protocol, in order, by threads that end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from typing import NamedTuple

import numpy as np
import pytest
from support.interrupts import heed_ctrl_c
from support.patience import PATIENCE, until

import kernelrt as krt
from kernelrt import data


class Point(NamedTuple):
    x: object
    y: object


class Squares:
    """No base class: the protocol alone."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int):
        if not 0 <= i < self.count:
            raise IndexError(i)
        return np.float32(i), {"square": i * i, "name": f"n{i}"}


def loader_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("kernelrt-loader")]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order(workers):
    loader = data.DataLoader(Squares(), batch_size=4, num_workers=workers)
    assert len(loader) == 3
    for _ in range(2):
        found = list(loader)
        assert [x.tolist() for x, _ in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        x, rest = found[1]
        assert isinstance(x, krt.Tensor)
        assert x.dtype is krt.float32
        assert rest["square"].dtype is krt.int64
        assert rest["square"].tolist() == [16, 25, 36, 49]
        assert rest["name"] == ["n4", "n5", "n6", "n7"]
    until(lambda: not loader_threads())


@pytest.mark.parametrize("sample", [
    1.5, 3, True, np.float32(2), np.arange(3), "text", b"bytes", (1, 2.0), [1, 2.0], Point(1, 2.5),
    {"a": {"b": (1.0, np.ones((2, 2)))}}, np.int8(4), [np.ones(2), "s"],
])  # fmt: skip
def test_samples_are_joined_as_torch_joins_them(sample):
    torch = pytest.importorskip("torch")
    found = data.default_collate([sample, sample])
    wanted = torch.utils.data.default_collate([sample, sample])

    def same(a, b) -> None:
        if isinstance(b, torch.Tensor):
            assert isinstance(a, krt.Tensor)
            assert a.dtype.name == str(b.dtype).removeprefix("torch.")
            assert a.shape == tuple(b.shape)
            assert a.tolist() == b.tolist()
        elif isinstance(b, dict):
            assert a.keys() == b.keys()
            for k in b:
                same(a[k], b[k])
        elif isinstance(b, tuple | list):
            assert len(a) == len(b)
            for v, w in zip(a, b, strict=True):
                same(v, w)
        else:
            assert a == b

    same(found, wanted)


def test_tensors_of_both_are_joined():
    torch = pytest.importorskip("torch")
    for sample in (krt.ones(2), torch.ones(2), torch.ones(2, requires_grad=True),
                   krt.ones(2, requires_grad=True)):  # fmt: skip
        found = data.default_collate([sample, sample])
        assert found.tolist() == [[1, 1], [1, 1]]
        assert found.dtype is krt.float32
    for narrow in (krt.ones(2, dtype="bfloat16"), torch.ones(2, dtype=torch.bfloat16)):
        assert data.default_collate([narrow, narrow]).dtype is krt.bfloat16


def test_data_sets_of_torch():
    torch = pytest.importorskip("torch")
    numbers = torch.arange(7).float()
    held = torch.utils.data.TensorDataset(numbers, numbers * 2)
    found = list(data.DataLoader(held, batch_size=3))
    assert [x.tolist() for x, _ in found] == [[0, 1, 2], [3, 4, 5], [6]]
    part = torch.utils.data.Subset(held, [5, 1])
    assert next(iter(data.DataLoader(part, batch_size=2)))[1].tolist() == [10, 2]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert [b.tolist() for b in data.DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    sampler = torch.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], 4)
    drawn = data.DataLoader(held, batch_size=2, sampler=sampler)
    assert [x.tolist() for x, _ in drawn] == [[1, 1], [1, 1]]


def test_a_data_set_that_is_asked_for_many_samples_at_once():
    class Table:
        """As of Hugging Face: columns, and rows as dicts."""

        asked = 0

        def __len__(self):
            return 5

        def __getitem__(self, key):
            raise AssertionError(key)

        def __getitems__(self, keys):
            Table.asked += 1
            return [{"x": [k, k + 1], "label": k % 2} for k in keys]

        def __iter__(self):
            raise AssertionError

    found = list(data.DataLoader(Table(), batch_size=2))
    assert Table.asked == 3
    assert [v.tolist() for v in found[0]["x"]] == [[0, 1], [1, 2]]
    assert found[2]["label"].tolist() == [0]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_come_one_by_one(workers):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(7))

    loader = data.DataLoader(Stream(), batch_size=3, num_workers=workers)
    assert [b.tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b.tolist() for b in data.DataLoader(Stream(), 3, drop_last=True, num_workers=workers)
            ] == [[0, 1, 2], [3, 4, 5]]  # fmt: skip
    assert list(data.DataLoader(Stream(), batch_size=None, num_workers=workers)) == list(range(7))
    with pytest.raises(TypeError):
        len(loader)
    with pytest.raises(krt.ShapeError, match="shuffle"):
        data.DataLoader(Stream(), shuffle=True)
    until(lambda: not loader_threads())


def test_orders():
    loader = data.DataLoader(Squares(), batch_size=10, shuffle=True, seed=3)
    first, second = (next(iter(loader))[0].tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    again = data.DataLoader(Squares(), batch_size=10, shuffle=True, seed=3)
    assert next(iter(again))[0].tolist() == first
    drawn = data.DataLoader(Squares(), 10, True, generator=np.random.default_rng(0))
    assert sorted(next(iter(drawn))[0].tolist()) == list(range(10))
    by_list = data.DataLoader(Squares(), batch_size=2, sampler=[3, 1, 2], drop_last=True)
    assert [x.tolist() for x, _ in by_list] == [[3, 1]]
    by_batch = data.DataLoader(Squares(), batch_sampler=[[3, 1, 2], [0]])
    assert len(by_batch) == 2
    assert [x.tolist() for x, _ in by_batch] == [[3, 1, 2], [0]]
    plain = list(data.DataLoader(Squares(3), batch_size=None))
    assert [s[0] for s in plain] == [0, 1, 2]
    mine = data.DataLoader(Squares(4), batch_size=2, collate_fn=lambda b: [s[1]["name"] for s in b])
    assert list(mine) == [["n0", "n1"], ["n2", "n3"]]
    again = list(data.RandomSampler(Squares(4), replacement=True, num_samples=50, seed=1))
    assert len(again) == 50
    assert set(again) == {0, 1, 2, 3}


def test_rows_of_tensors_are_taken_together():
    x = krt.arange(10).float()
    held = data.TensorDataset(x, np.arange(10) * 2)
    assert held[3][0].item() == 3
    assert held[-1][1] == 18
    assert held[2:4][1].tolist() == [4, 6]
    found = list(data.DataLoader(held, batch_size=4))
    assert [x.tolist() for x, _ in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert isinstance(found[0][1], krt.Tensor)
    with pytest.raises(IndexError):
        held[10]


def test_parts_of_data_sets():
    held = Squares(10)
    parts = data.random_split(held, [0.55, 0.25, 0.2], seed=0)
    assert [len(p) for p in parts] == [6, 2, 2]
    rows = [p[i][1]["square"] for p in parts for i in range(len(p))]
    assert sorted(rows) == [i * i for i in range(10)]
    assert [len(p) for p in data.random_split(held, [3, 7])] == [3, 7]
    both = data.ConcatDataset([Squares(2), Squares(3)])
    assert [both[i][1]["name"] for i in range(len(both))] == ["n0", "n1", "n0", "n1", "n2"]
    assert data.Subset(held, [4, 2])[-1][1]["name"] == "n2"


class Failing(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise ZeroDivisionError("sample 5")
        return super().__getitem__(i)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_arrive_where_the_batch_is_due(workers):
    loader = iter(data.DataLoader(Failing(), batch_size=2, num_workers=workers))
    assert next(loader)[0].tolist() == [0, 1]
    assert next(loader)[0].tolist() == [2, 3]
    with pytest.raises(ZeroDivisionError, match="sample 5"):
        next(loader)
    until(lambda: not loader_threads())


def test_threads_end_where_a_loop_is_left():
    for _ in data.DataLoader(Squares(1000), batch_size=1, num_workers=3):
        break
    until(lambda: not loader_threads())


def test_threads_load_side_by_side_and_are_told_their_number():
    together = threading.Barrier(4)

    class Meeting(Squares):
        def __getitem__(self, i):
            together.wait(PATIENCE)  # until four threads are here at once
            return super().__getitem__(i)

    told = []
    loader = data.DataLoader(Meeting(16), batch_size=1, num_workers=4, worker_init_fn=told.append)
    assert [int(x.item()) for x, _ in loader] == list(range(16))
    assert sorted(told) == list(range(4))


def test_waiting_can_have_an_end():
    over = threading.Event()

    class Stuck(Squares):
        def __getitem__(self, i):
            assert over.wait(PATIENCE)
            return i

    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        next(iter(data.DataLoader(Stuck(), num_workers=1, timeout=0.05)))
    over.set()
    until(lambda: not loader_threads())


@pytest.mark.cases(1 / 4)
def test_ctrl_c_ends_a_program_that_waits_for_data():
    """Also one that comes while the main thread is about to wait."""
    code = """
    import sys, time
    from kernelrt.data import DataLoader

    class Stuck:
        def __len__(self): return 100
        def __getitem__(self, i):
            print("loading", flush=True)
            time.sleep(600)

    for _ in DataLoader(Stuck(), num_workers=2):
        pass
    """
    for _ in range(8):
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=heed_ctrl_c)  # fmt: skip # noqa: PLW1509
        assert child.stdout is not None
        assert child.stdout.readline().startswith("loading")
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=PATIENCE)
        assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize(("kind", "text", "call"), [
    (krt.ShapeError, "batch_size: expected at least 1, not -1",
     lambda: data.DataLoader(Squares(), -1)),
    (krt.ShapeError, "num_workers", lambda: data.DataLoader(Squares(), num_workers=-1)),
    (krt.DTypeError, "num_workers", lambda: data.DataLoader(Squares(), num_workers=1.5)),
    (krt.DTypeError, "dataset: expected an object with", lambda: data.DataLoader(3)),
    (krt.ShapeError, "sampler", lambda: data.DataLoader(Squares(), shuffle=True, sampler=[1])),
    (krt.ShapeError, "batch_sampler",
     lambda: data.DataLoader(Squares(), batch_size=2, batch_sampler=[[1]])),
    (krt.ShapeError, "drop_last", lambda: data.DataLoader(Squares(), None, drop_last=True)),
    (krt.DTypeError, "shuffle", lambda: data.DataLoader(Squares(), shuffle=1)),
    (krt.DTypeError, "collate_fn", lambda: data.DataLoader(Squares(), collate_fn=3)),
    (krt.DomainError, "timeout", lambda: data.DataLoader(Squares(), timeout=-1)),
    (krt.ShapeError, "prefetch_factor", lambda: data.DataLoader(Squares(), prefetch_factor=0)),
    (krt.DTypeError, "generator",
     lambda: list(data.DataLoader(Squares(), shuffle=True, generator=3))),
    (krt.ShapeError, r"batch: expected samples of equal shape.*collate_fn",
     lambda: data.default_collate([np.ones(2), np.ones(3)])),
    (krt.ShapeError, "of equal length", lambda: data.default_collate([(1, 2), (1,)])),
    (krt.ShapeError, "sample 1 has the keys", lambda: data.default_collate([{"a": 1}, {"b": 1}])),
    (krt.DTypeError, r"batch\['a'\]: expected.*not object",
     lambda: data.default_collate([{"a": object()}])),
    (krt.ShapeError, "batch: expected at least one", lambda: data.default_collate([])),
    (krt.ShapeError, "lengths", lambda: data.random_split(Squares(), [3, 3])),
    (krt.ShapeError, "lengths", lambda: data.random_split(Squares(), [0.5, 0.4])),
    (krt.DTypeError, "lengths", lambda: data.random_split(Squares(), ["a"])),
    (krt.ShapeError, "tensors", data.TensorDataset),
    (krt.ShapeError, r"tensors\[1\] has 2", lambda: data.TensorDataset(np.ones(3), np.ones(2))),
    (krt.DTypeError, "dataset", lambda: data.Subset(iter([1]), [0])),
])  # fmt: skip
def test_bad_arguments_are_named(kind, text, call):
    with pytest.raises(kind, match=text):
        call()


class _Lengths(data.Dataset):
    """Samples that operations made, of unequal lengths."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, object]:
        row = krt.tensor(np.arange(1 + i % 5, dtype=np.float32))
        return {"row": row.flip(0) if i % 3 else row * 2, "i": i}


def _padded(samples: list[dict[str, krt.Tensor]]) -> tuple[krt.Tensor, list[object]]:
    rows = [s["row"] for s in samples]
    assert all(r.is_realized for r in rows)
    whole = [r.pad((0, 5 - r.shape[0])) for r in rows]
    return krt.stack(whole), [s["i"] for s in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_uses_a_batch_has_a_graph_that_begins_at_the_batch(workers: int) -> None:
    loader = data.DataLoader(_Lengths(), 4, collate_fn=_padded, num_workers=workers)
    batches = list(loader)
    assert all(x.is_realized for x, _ in batches)
    assert [names for _, names in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[0][0].tolist()[2] == [2, 1, 0, 0, 0]
    singles = list(data.DataLoader(_Lengths(), batch_size=None, num_workers=workers))
    assert all(s["row"].is_realized for s in singles)


def test_a_loader_in_a_traced_function_gives_graphs() -> None:
    rows = [krt.ones(2), krt.ones(2) * 3]

    @krt.jit
    def total(x: krt.Tensor) -> krt.Tensor:
        def scaled(samples: list[krt.Tensor]) -> krt.Tensor:
            return krt.stack([row * x for row in samples])

        (batch,) = data.DataLoader(rows, batch_size=2, collate_fn=scaled)
        return batch.sum()

    assert total(np.array([1, 2], np.float32)).item() == 12


@pytest.mark.parametrize(("samples", "text"), [
    ([1.0, None], "batch: sample 1 holds None, but sample 0 holds a value of .*collate_fn"),
    ([1, None], "batch: sample 1 holds None"),
    ([True, None], "batch: sample 1 holds None"),
    ([{"y": 1.0}, {"y": None}], r"batch\['y'\]: sample 1 holds None"),
    ([(0.5, 1), (None, 2)], r"batch\[0\]: sample 1 holds None"),
    ([(1, (2, 3)), (1, (2, None))], r"batch\[1\]\[1\]: sample 1 holds None"),
    ([np.ones(2), None], "batch: sample 1 holds None"),
    ([np.ones(2), "ab"], "batch: sample 1 holds a value of type str"),
    ([1.0, "2"], "batch: sample 1 holds a value of type str"),
    ([1, 2j], "batch: sample 1 holds a value of type complex"),
    ([1.0, np.ones(2)], "batch: sample 1 holds a value of type ndarray"),
    ([(1, 2), {"a": 1, "b": 2}], "batch: sample 1 holds a value of type dict"),
    ([(1, 2), "ab"], "batch: sample 1 holds a value of type str"),
    ([(1, 2), 3], "batch: sample 1 holds a value of type int"),
    ([{"a": 1}, 3], "batch: sample 1 holds a value of type int"),
    ([{"a": 1}, {"a": 2**70}], r"\['a'\]: sample 1 holds an integer that does not fit in int64"),
    ([{"a": np.ones(2)}, {"a": np.ones(2) * 1j}], r"batch\['a'\]: expected numbers, not complex"),
])  # fmt: skip
def test_samples_of_several_kinds_are_refused_by_field(samples, text):
    with pytest.raises(krt.DTypeError, match=text):
        next(iter(data.DataLoader(samples, batch_size=2)))


@pytest.mark.parametrize(("samples", "wanted"), [
    ([True, False], np.array([True, False])),
    ([True, 2], np.array([1, 2])),
    ([1, np.float32(2.5)], np.array([1.0, 2.5])),
    ([1.0, np.array(2)], np.array([1.0, 2.0])),
    ([1, krt.tensor(2.5, dtype="bfloat16")], np.array([1.0, 2.5])),
    ([1, 2.5, True], np.array([1.0, 2.5, 1.0])),
])  # fmt: skip
def test_numbers_get_a_type_that_holds_all(samples, wanted):
    found = data.default_collate(samples).numpy()
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
