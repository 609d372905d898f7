"""Rows of a lane: what is inside another lies below it, and nothing of a row overlaps."""

import numpy as np
import pytest
from tests.support.timelines import drawn, synthetic

from torchgauge.analyze.lanes.recorded_lanes import (
    MAX_ROWS,
    Labels,
    blocks,
    encoded,
    lane,
    packed,
    rows,
    zigzag,
)
from torchgauge.records.timeline.tree import disagreements


def rows_of(*spans, tolerance=0):
    spans = sorted(spans, key=lambda span: (span[0], -span[1]))
    begin, end = np.array(spans, np.int64).T
    return rows(begin, end, tolerance).tolist()


def test_what_is_inside_lies_below():
    assert rows_of((0, 10), (1, 3), (2, 3), (4, 6), (10, 12)) == [0, 1, 2, 1, 0]


def test_what_overlaps_without_nesting_has_rows_of_its_own():
    assert rows_of((0, 10), (8, 12), (11, 13)) == [0, 1, 2]


def test_times_that_are_rounded_do_not_make_rows():
    assert rows_of((0, 1001), (1000, 2000), (1999, 3000), tolerance=1) == [0, 0, 0]
    assert rows_of((0, 1000), (999, 1000), tolerance=1) == [0, 1]  # it is inside


def test_what_is_nested_too_deep_is_counted():
    depth = MAX_ROWS + 3
    begin = np.arange(depth)
    made = lane("t", "host", begin, 1000 - begin, np.zeros(depth, np.int64))
    assert (len(made), made.left_out) == (MAX_ROWS, 3)


@pytest.mark.parametrize("seed", range(5))
def test_no_events_of_a_row_overlap(seed):
    rng = np.random.default_rng(seed)
    begin = np.sort(rng.integers(0, 500, 200))
    end = begin + rng.integers(0, 60, 200)
    made = lane("t", "host", begin, end, np.zeros(200, np.int64))
    assert len(made) + made.left_out == 200
    for row in range(made.row.max() + 1):
        inside = np.flatnonzero(made.row == row)
        assert (made.begin[inside][1:] >= made.end[inside][:-1]).all()


def test_numbers_are_leb128():
    assert encoded(np.array([0, 1, 127, 128, 300])) == bytes([0, 1, 127, 128, 1, 172, 2])
    assert encoded(np.array([2**62])) == bytes([128] * 8 + [64])
    assert zigzag(np.array([0, -1, 1, -2, 2])).tolist() == [0, 1, 2, 3, 4]


def test_packing_keeps_every_event():
    labels = Labels()
    name, other = labels.number("a\u202e<b>", "operator"), labels.number("k", "compute")
    host = lane(
        "thread",
        "host",
        np.array([100, 110, 150]),
        np.array([140, 120, 150]),
        np.array([name, name, name]),
        place=np.array([0, -1, 1]),
        source=np.array([5, 6, 9]),
    )
    device = lane(
        "stream",
        "device",
        np.array([130, 160]),
        np.array([160, 170]),
        np.array([other, other]),
        source=np.array([7, 8]),
        launch=np.array([6, -1]),
    )
    places = (("fc", "forward"), ("", "outside"))
    timeline = packed([device, host], labels, places, (100, 170), 10_000)
    assert timeline.duration == 70
    assert [(lane.name, lane.rows) for lane in timeline.lanes] == [
        ("stream", (2,)),
        ("thread", (2, 1)),
    ]
    found = drawn(timeline)
    assert [(one.row, one.begin, one.duration) for one in found] == [
        (0, 30, 30), (0, 60, 10), (0, 0, 40), (0, 50, 0), (1, 10, 10),
    ]  # fmt: skip
    assert [one.name for one in found] == ["k", "k"] + ["a\u202e<b>"] * 3
    assert [(one.layer, one.phase) for one in found[2:]] == [
        ("fc", "forward"), ("", "outside"), ("", ""),
    ]  # fmt: skip
    assert [one.launch for one in found] == [4, None, None, None, None]
    assert [*disagreements(timeline)] == []


@pytest.mark.thorough
def test_short_events_share_blocks_where_there_are_too_many():
    whole, fewer = synthetic(20_000), synthetic(20_000, max_events=3_000)
    found = drawn(fewer)
    assert 1_500 < len(found) <= 3_000
    assert sum(one.count for one in found) == fewer.events == whole.events
    assert sum(one.busy for one in found) == sum(one.busy for one in drawn(whole))
    assert all(one.launch is None for one in found if one.kind == "merged")
    lengths = {one.name: 0 for one in found}
    long = max(one.duration for one in found if one.kind == "merged")
    for one in drawn(whole):
        if one.duration >= 2 * long:  # longer than a part of the time: it is drawn as it is
            assert one._replace(launch=None) in [other._replace(launch=None) for other in found]
            lengths[one.name] += 1
    assert sum(lengths.values()) > 10


def test_blocks_join_neighbours_of_a_row_alone():
    begin = np.array([0, 1, 2, 50, 51, 52])
    end = begin + np.array([1, 1, 40, 1, 1, 1])
    row = np.array([0, 0, 0, 0, 1, 1])
    assert blocks(begin, end, row, 4).tolist() == [0, 0, 1, 2, 3, 3]
    assert blocks(begin, end, row, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_bytes_have_a_limit():
    assert (
        len(synthetic(20_000, max_bytes=20_000).columns) <= 20_000 < len(synthetic(20_000).columns)
    )
