"""What work waited for, where recorded times overlap: hand-made streams, and drawn ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.trace.critical_path import critical_path
from torchgauge.analyze.trace.device_work import COMPUTE, Activities
from torchgauge.analyze.trace.synchronisations import Waits
from torchgauge.records.trace.events import ABSENT

NOTHING = np.zeros(0, np.int64)


def of_one_stream(*pieces, first=0):
    """Return the ns of each link on the path of (begin, end) pieces whose launches are unknown."""
    begin, end = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    zeros = np.zeros(len(begin), np.int64)
    absent = zeros + ABSENT
    activities = Activities(begin, end, zeros + COMPUTE, absent, zeros, zeros)
    waits = Waits(NOTHING, NOTHING, NOTHING, NOTHING)
    times = {}
    for segment in critical_path(activities, absent, waits, first):
        times[segment.link] = times.get(segment.link, 0) + segment.end - segment.begin
    return times


def test_work_that_overlaps_by_nanoseconds_follows_the_work_before_it():
    pieces = (340_000, 341_002), (341_000, 342_000), (342_500, 343_000)
    assert of_one_stream(*pieces) == {"host": 340_000, "compute": 2_500, "pause": 500}


def test_work_beside_longer_work_waited_for_what_ended_last():
    # The second ends within the first; the third begins after both.
    assert of_one_stream((0, 100), (10, 20), (103, 110)) == {"compute": 107, "pause": 3}


def test_before_the_first_work_the_device_does_not_pause():
    assert of_one_stream((50, 60), first=0) == {"host": 50, "compute": 10}


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=30))
def test_pauses_are_at_most_the_idle_time_of_the_only_stream(drawn):
    pieces = [(begin, begin + length) for begin, length in drawn]
    busy = np.zeros(500, bool)
    for begin, end in pieces:
        busy[begin:end] = True
    first, last = min(begin for begin, _ in pieces), max(end for _, end in pieces)
    times = of_one_stream(*pieces, first=first)
    assert sum(times.values()) == last - first
    assert times.get("pause", 0) <= int((~busy[first:last]).sum())
