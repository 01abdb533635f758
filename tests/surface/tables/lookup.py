"""Rows of tables that integers name, and bags of them."""

from __future__ import annotations

from surface.rows import In, Index, Row, function

BAGS = (Index("a b", "c"), "c d")
#: What a greatest row is left out of.
MOST = {"max": {"special": False, "why": "torch overlooks NaN that does not stand first"}}


def _bag(*args, **options):
    return function("T.nn.functional.embedding_bag", *args, **options)


def _parted(ends, **options):
    return function("T.nn.functional.embedding_bag", **options).replace(
        "*others", f"*others, T.tensor({ends})")


ROWS = [
    Row("embedding_padding", "T.nn.functional.embedding(i, w, 1)",
        (Index("a b", "4"), "4 d")),
    *(Row(f"bag_{mode}", _bag(mode=mode), BAGS, **MOST.get(mode, {}))
      for mode in ("mean", "sum", "max")),
    *(Row(f"bag_padding_{mode}", _bag(mode=mode, padding_idx=-1), (Index("a 4", "3"), "3 d"),
          **MOST.get(mode, {})) for mode in ("mean", "sum", "max")),
    *(Row(f"bag_parted_{mode}", _parted([0, 2, 2, 3], mode=mode), (Index("5", "3"), "3 d"),
          **MOST.get(mode, {})) for mode in ("mean", "sum", "max")),
    Row("bag_ends", _parted([0, 1, 1, 5], mode="sum", include_last_offset=True),
        (Index("5", "3"), "3 d")),
    Row("bag_weights",
        "T.nn.functional.embedding_bag(i, w, mode='sum', per_sample_weights=s)", (*BAGS, "a b")),
    Row("bag_weights_parted",
        "T.nn.functional.embedding_bag(i, w, T.tensor([0, 3]), mode='sum', per_sample_weights=s)",
        (Index("5", "3"), "3 d", In("5", 0.5, 2))),
]  # fmt: skip
