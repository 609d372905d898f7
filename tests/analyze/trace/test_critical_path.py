"""What work waited for, where recorded times overlap: hand-made streams, and drawn ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kineto_events import kernel, launch, op, read, span

from torchgauge.analyze.trace.critical_path import critical_path
from torchgauge.analyze.trace.dependencies import Dependencies, Waits
from torchgauge.analyze.trace.device_work import COMPUTE, Activities
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.records.trace.events import ABSENT

NOTHING = np.zeros(0, np.int64)


def of_one_stream(*pieces, first=0):
    """Return the ns of each link on the path of (begin, end) pieces whose launches are unknown."""
    begin, end = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    zeros = np.zeros(len(begin), np.int64)
    absent = zeros + ABSENT
    activities = Activities(begin, end, zeros + COMPUTE, absent, absent, zeros, zeros)
    waits = Waits(NOTHING, NOTHING, NOTHING, NOTHING)
    times = {}
    known = Dependencies(False, {}, NOTHING, absent)
    for segment in critical_path(activities, absent, waits, first, known):
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


def waiting(name, correlation, stream, awaited_stream=-1, record=-1):
    return span(
        "cuda_sync", name, 0, 0, tid=stream, device=0, stream=stream, correlation=correlation,
        wait_on_stream=awaited_stream, wait_on_cuda_event_record_corr_id=record,
    )  # fmt: skip


def path_of(*parts):
    """Return the µs of each link and name on the path of a made trace."""
    path = rank_trace(read(*parts), "made.json")[0].critical_path
    return {(item.link, item.name): round(item.time * 1e6, 3) for item in path.items}


# The kernel of stream 8 begins at 150. The one on stream 7 ended at 120, that on stream 9 at 140.
THREE_STREAMS = (
    op("aten::mm", 0, 20),
    launch(1, 1), kernel("awaited", 60, 60, 1, stream=7),
    launch(2, 4, name="cudaEventRecord"),
    launch(3, 7), kernel("beside", 50, 90, 3, stream=9),
    launch(4, 10, name="cudaStreamWaitEvent"),
    launch(5, 13), kernel("waiting", 150, 50, 5, stream=8),
)  # fmt: skip


def test_a_stream_waits_for_the_work_that_it_was_told_to_wait_for():
    recorded = path_of(*THREE_STREAMS, waiting("Stream Wait Event", 4, 8, 7, record=2))
    assert recorded == {
        ("compute", "waiting"): 50,
        ("pause", "waiting"): 30,
        ("compute", "awaited"): 60,
        ("pause", "awaited"): 49,  # a launch takes 10 µs at most, as far as the file tells
        ("launch", "aten::mm"): 10,
        ("host", "aten::mm"): 1,
    }
    assert ("compute", "beside") in path_of(*THREE_STREAMS)  # else what ended last is a guess


def test_work_launched_after_the_event_was_recorded_is_not_awaited():
    recorded = path_of(
        op("aten::mm", 0, 20),
        launch(1, 1), kernel("awaited", 10, 40, 1, stream=7),
        launch(2, 4, name="cudaEventRecord"),
        launch(3, 6), kernel("later", 50, 90, 3, stream=7),
        launch(4, 10, name="cudaStreamWaitEvent"),
        launch(5, 13), kernel("waiting", 60, 100, 5, stream=8),
        waiting("Stream Wait Event", 4, 8, 7, record=2),
    )  # fmt: skip
    assert ("compute", "awaited") in recorded
    assert ("compute", "later") not in recorded


def test_an_event_that_was_recorded_before_the_window_says_nothing():
    assert path_of(*THREE_STREAMS, waiting("Stream Wait Event", 4, 8)) == {
        ("compute", "waiting"): 50,
        ("pause", "waiting"): 127,
        ("launch", "aten::mm"): 10,
        ("host", "aten::mm"): 13,
    }


def host_waits(name, *recorded):
    return path_of(
        op("aten::item", 0, 150),
        launch(1, 1), kernel("awaited", 10, 90, 1, stream=7),
        launch(2, 4, name="cudaEventRecord"),
        launch(3, 6), kernel("beside", 20, 105, 3, stream=9),
        launch(4, 10, 120, name=name), *recorded,
        launch(5, 140), kernel("after", 145, 10, 5, stream=8),
    )  # fmt: skip


def test_the_host_waits_for_the_stream_or_the_event_that_it_names():
    of_stream = host_waits("cudaStreamSynchronize", waiting("Stream Sync", 4, 7))
    of_event = host_waits("cudaEventSynchronize", waiting("Event Sync", 4, -1, 7, record=2))
    of_all = host_waits("cudaDeviceSynchronize", waiting("Context Sync", 4, -1))
    assert of_stream == of_event
    assert ("compute", "awaited") in of_stream
    assert of_stream["host", "aten::item"] == 40 + 1  # 100 to 140, and the first launch
    assert ("compute", "beside") in of_all
    assert of_all["host", "aten::item"] == 15 + 6  # 125 to 140


def test_a_communication_kernel_that_waits_for_other_ranks_is_not_work_of_this_one():
    message = {
        "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000,
        "Out msg nelems": 1000, "Group size": 8,
    }  # fmt: skip

    def talk(begin, length, number):
        return kernel("ncclDevKernel_AllReduce", begin, length, number, **message)

    several = read(
        launch(1, 0), kernel("gemm", 10, 20, 1),
        launch(2, 1), talk(30, 100, 2),
        launch(3, 2), talk(130, 10, 3),
    )  # fmt: skip
    path = rank_trace(several, "made.json")[0].critical_path
    assert round(path.wait * 1e6, 3) == 90
    assert round(path.communication * 1e6, 3) == 20
    assert round(path.compute * 1e6, 3) == 20
    single = rank_trace(read(launch(2, 1), talk(30, 100, 2)), "made.json")[0].critical_path
    assert single.wait is None
    assert round(single.communication * 1e6, 3) == 100
