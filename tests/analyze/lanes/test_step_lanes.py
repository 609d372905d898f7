"""The timeline of a step of a live recording."""

import re

from tests.support.kineto_events import kernel, launch, mark, op, read
from tests.support.timelines import drawn

from torchgauge.analyze.lanes.recorded_lanes import MAX_BYTES, step_timeline
from torchgauge.analyze.trace.device_work import attributed

STEP = re.compile(r"tg@\d+")
US = 1000


def timeline(*parts, marks=None):
    events = read(*parts)
    modules, spans = attributed(events)
    return step_timeline(events, spans, modules.tree, STEP, marks)


def test_it_is_the_step_of_middle_length_with_what_it_launched():
    found = timeline(
        mark("tg@0", 0, 300),
        op("aten::first", 10, 20),
        mark("tg@1", 300, 100),
        op("aten::second", 310, 20),
        launch(1, 315, 5),
        mark("tg@2", 400, 50),
        kernel("late", 430, 40, 1),  # in the next step's time, launched in this
        op("aten::third", 440, 5),
        mark("tg:0", 350, 10),
        marks={"tg:0": "augment"},
    )
    assert found.duration == 170 * US  # to the end of the kernel
    assert len(found.columns) <= MAX_BYTES
    spans = drawn(found)
    on_host = {one.name: (one.begin, one.duration) for one in spans if "thread" in one.lane}
    assert on_host == {
        "step 1": (0, 100 * US),
        "aten::second": (10 * US, 20 * US),
        "cudaLaunchKernel": (15 * US, 5 * US),
        "augment": (50 * US, 10 * US),
    }
    (late,) = [one for one in spans if one.lane == "GPU 0, stream 7"]
    assert (late.name, late.begin, late.duration) == ("late", 130 * US, 40 * US)
    assert spans[late.launch].name == "cudaLaunchKernel"


def test_without_a_marked_step_there_is_none():
    assert timeline(op("aten::first", 10, 20)) is None
