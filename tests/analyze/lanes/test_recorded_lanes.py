"""The timeline of recordings: its lanes' sums are the record's figures."""

import pytest
from tests.support.kineto_events import kernel, launch, launched, mark, module, op, read
from tests.support.paths import public_traces
from tests.support.timelines import drawn

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.tree import disagreements

US = 1000
FILES = public_traces()


def made(*parts):
    return rank_trace(read(*parts), "made.json", timeline_bytes=1_000_000)[0]


def test_lanes_of_a_small_trace():
    rank = made(
        mark("ProfilerStep#3", 0, 500),
        module("Linear_0", 10, 100),
        op("aten::linear", 20, 60),
        launch(1, 30, 5),
        kernel("gemm", 100, 50, 1),
        kernel("gemm", 250, 10, 999),  # no launch in the file
        launched("ncclDevKernel_AllReduce_Sum", 160, 20, at=70, stream=9),
    )
    timeline = rank.tree.timeline
    assert timeline.duration == 500 * US
    assert [*disagreements(timeline)] == []
    found = drawn(timeline)
    names = list(dict.fromkeys(one.lane for one in found))
    assert names[:4] == [
        "Critical path",
        "GPU 0: idle, by cause",
        "GPU 0, stream 7",
        "GPU 0, stream 9",
    ]
    host = [one for one in found if "thread 1" in one.lane]
    assert [(one.row, one.kind, one.name) for one in host] == [
        (0, "step", "step 3"),
        (1, "layer", "Linear_0"),
        (2, "operator", "aten::linear"),
        (3, "call", "cudaLaunchKernel"),
        (3, "call", "cudaLaunchKernel"),
    ]
    stream = [one for one in found if one.lane == "GPU 0, stream 7"]
    first, second = stream
    assert (first.kind, first.begin, first.duration) == ("compute", 100 * US, 50 * US)
    assert found[first.launch].name == "cudaLaunchKernel"
    assert found[first.launch].begin == 30 * US
    assert first.layer == "Linear_0"
    assert second.launch is None
    talk = next(one for one in found if one.lane == "GPU 0, stream 9")
    assert talk.kind == "communication"


def test_names_with_the_same_text_stay_apart_by_kind():
    rank = made(op("same", 0, 10), launch(1, 2, 2), kernel("same", 20, 5, 1))
    timeline = rank.tree.timeline
    kinds = dict.fromkeys(zip(timeline.names, timeline.kinds, strict=True))
    assert [kind for name, kind in sorted(kinds) if name == "same"] == ["compute", "operator"]


def test_without_the_request_there_is_none():
    assert rank_trace(read(op("aten::add", 0, 10)), "made.json")[0].tree.timeline is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_sums_of_lanes_are_the_figures_of_the_record(file):
    rank = rank_trace(read_events(file), file.name, timeline_bytes=5_500_000)[0]
    timeline = rank.tree.timeline
    found = drawn(timeline)
    groups = {lane.name: lane.group for lane in timeline.lanes}
    assert [*disagreements(timeline)] == []
    assert sum(lane.left_out for lane in timeline.lanes) == 0
    device = sum(one.duration for one in found if groups[one.lane] == "device")
    assert device * 1e-9 == pytest.approx(rank.device_time, rel=1e-9)
    count = sum(one.count for one in found if groups[one.lane] == "device")
    assert count == rank.contents.device_work
    idle = dict.fromkeys(("idle: host", "idle: device", "idle: other", "idle: unknown"), 0)
    for one in found:
        if groups[one.lane] == "idle":
            idle[one.kind] += one.duration
    recorded = [device.breakdown.idle for device in rank.times]
    assert idle["idle: host"] * 1e-9 == pytest.approx(sum(one.host_wait for one in recorded))
    assert idle["idle: device"] * 1e-9 == pytest.approx(sum(one.kernel_wait for one in recorded))
    assert idle["idle: other"] * 1e-9 == pytest.approx(sum(one.other for one in recorded))
    assert idle["idle: unknown"] * 1e-9 == pytest.approx(sum(one.unknown for one in recorded))
    path = sum(one.duration for one in found if groups[one.lane] == "path")
    assert path * 1e-9 == pytest.approx(
        0 if rank.critical_path is None else rank.critical_path.length
    )
    operators = sum(one.count for one in found if one.kind == "operator")
    assert operators == rank.contents.operators
    launches = [one for one in found if one.launch is not None]
    assert all(found[one.launch].kind == "call" for one in launches)
