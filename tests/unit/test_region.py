"""Regions of memory: what a map finds is what comparing every pair finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.between import Between

from kernelrt import dtype as dt
from kernelrt.device import byte_ranges as regions
from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import HOST, ByteRange, ByteRangeMap, byte_range_of, islands

ELSEWHERE = object()
REGIONS = st.builds(
    lambda storage, start, nbytes: ByteRange(storage, start, start + nbytes),
    st.sampled_from([HOST, ELSEWHERE]), st.integers(0, 40), st.sampled_from([0, 1, 2, 5, 30]),
)  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), REGIONS), max_size=30), REGIONS)
@settings(max_examples=300, deadline=None)
def test_a_map_finds_all_that_meet(steps: list[tuple[bool, ByteRange]], wanted: ByteRange) -> None:
    table: ByteRangeMap[int] = ByteRangeMap()
    plain: list[tuple[ByteRange, int]] = []
    for number, (drops, region) in enumerate(steps):
        if drops:
            table.drop_covered(region)
            plain = [(r, n) for r, n in plain if not (region.nbytes and region.covers(r))]
        table.add(region, number)
        plain.append((region, number))
    assert table.meeting(wanted) == [n for r, n in plain if r.meets(wanted)]


@given(st.lists(REGIONS, max_size=20), st.booleans())
@settings(max_examples=300, deadline=None)
def test_islands_share_no_byte(regions: list[ByteRange], joined: bool) -> None:
    found = islands(list(zip(regions, range(len(regions)), strict=True)), joined=joined)
    kept = sorted(n for _, group in found for n in group)
    assert kept == [n for n, r in enumerate(regions) if r.nbytes]
    for whole, group in found:
        assert all(whole.covers(regions[n]) for n in group)
        assert {b for n in group for b in range(regions[n].start, regions[n].stop)} == set(
            range(whole.start, whole.stop)
        )
    for i, (a, _) in enumerate(found):
        for b, _ in found[i + 1 :]:
            touching = a.storage is b.storage and (a.stop == b.start or b.stop == a.start)
            assert not a.meets(b)
            assert not (joined and touching)


def test_buffers_are_told_apart_by_address() -> None:
    whole = Buffer(8, dt.float32)
    part = whole.view(8, 2)
    again = Buffer.wrap(whole.numpy()[2:6])
    assert whole.storage is not None
    assert byte_range_of(whole).covers(byte_range_of(again))
    assert byte_range_of(part).meets(byte_range_of(again))
    assert not byte_range_of(whole.view(0, 2)).meets(byte_range_of(again))
    assert not byte_range_of(Buffer(0, dt.float32)).meets(byte_range_of(whole))


def test_regions_that_come_while_a_map_is_searched_or_grows_hide_no_others() -> None:
    at, lines = 0, 0
    while at <= lines:
        table: ByteRangeMap[int] = ByteRangeMap()
        for i in range(40):
            table.add(ByteRange(HOST, 10 * i, 10 * i + 5), i)

        def come(table: ByteRangeMap[int] = table) -> None:
            table.add(ByteRange(HOST, -100, 3), -1)
            table.add(ByteRange(HOST, -50, -45), -2)

        with Between(come, at, regions.__file__) as between:
            found = table.meeting(ByteRange(HOST, 201, 213))
            table.add(ByteRange(HOST, 400, 410), 40)
        assert found == [20, 21]
        assert table.meeting(ByteRange(HOST, 1, 2)) == [0, -1] if between.done else [0]
        lines = between.lines
        at += 1
