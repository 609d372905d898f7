"""Events and known blocks → figures, on recordings written by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from tests.support.paths import public_trace

from torchgauge.analyze.memory import allocations as memory
from torchgauge.analyze.memory.allocations import NamedStorage, StepTimes, pair, step_memory
from torchgauge.analyze.memory.tree_memory import Ranges, outermost_operators
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.trace.events import MemoryEvents

WHOLE = StepTimes(start=0, forward=0, forward_end=1000, end=1000)


def events(*rows):
    """Rows of (time, size, address[, thread])."""
    rows = [(*row, 0)[:4] for row in rows]
    time, size, address, thread = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
    same = np.zeros_like(time)
    return MemoryEvents(
        time=time,
        thread=thread,
        address=address,
        size=size,
        allocated=same,
        reserved=same,
        device_type=same,
        device=same - 1,
        index=same,
    )


def operators(*rows):
    """Rows of (start, end[, thread])."""
    rows = [(*row, 0)[:3] for row in rows]
    columns = [np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)] or [
        np.zeros(0, dtype=np.int64)
    ] * 3
    return Ranges(tuple("op" for _ in rows), *columns)


def figures(blocks, ops=(), known=(), step=WHOLE):
    return step_memory(blocks, operators(*ops), list(known), step)


def nonzero(parts):
    return {part: size for part, size in parts.items() if size}


def test_a_free_of_a_block_older_than_the_recording_is_ignored():
    # Address 1 is freed before anything was allocated there; its reported size is wrong, too.
    result = figures(pair(events((10, -999, 1), (20, 100, 2), (30, -100, 2), (40, 50, 1))))
    assert [point.live for point in result.timeline] == [0, 0, 100, 0, 50]
    assert result.peak == 100


def test_an_address_used_again_without_a_free_ends_its_former_block():
    blocks = pair(events((10, 100, 1), (20, 60, 1), (30, -60, 1)))
    assert blocks.lost == 1
    assert [point.live for point in figures(blocks).timeline] == [0, 100, 60, 0]


def test_scratch_is_freed_within_its_operator_and_an_activation_is_not():
    blocks = pair(events((15, 100, 1), (16, 30, 2), (19, -30, 2), (50, -100, 1)))
    result = figures(blocks, ops=[(10, 20), (40, 45)])
    assert result.parts["activations"] == 100
    assert result.parts["workspace"] == 30
    assert result.peak == 130
    freed_at_the_very_end = pair(events((15, 100, 1), (20, -100, 1)))
    assert nonzero(figures(freed_at_the_very_end, ops=[(10, 20)]).parts) == {"workspace": 100}


@pytest.mark.parametrize(("held", "workspace"), [(None, 7), (1000, 1000 - 100 - 33), (120, 7)])
def test_what_the_allocator_held_without_a_name_is_workspace(held, workspace):
    # At the start: 100 recorded and still alive, 40 known from before, 7 of them a cache. The
    # allocator never held less than it is known to hold, whatever it says.
    blocks = pair(events((10, 100, 1), (40, 60, 2), (50, -60, 2)))
    known = [NamedStorage("parameters", 3, 33, 20), NamedStorage("workspace", 4, 7, 20)]
    step = StepTimes(start=20, forward=20, forward_end=100, end=100)
    result = step_memory(blocks, operators((39, 55)), known, step, held=held)
    before = 100 + 33 + workspace
    assert [point.live for point in result.timeline] == [before, before + 60, before]
    # The recorded block that was alive at the start, and the operator's scratch.
    assert nonzero(result.parts) == {"parameters": 33, "workspace": workspace + 100 + 60}
    assert result.peak == sum(result.parts.values())


def test_operators_of_another_thread_do_not_matter():
    blocks = pair(events((15, 100, 1, 1), (18, -100, 1, 1)))
    here, elsewhere = (10, 20, 1), (10, 20, 0)
    assert nonzero(figures(blocks, ops=[here]).parts) == {"workspace": 100}
    assert nonzero(figures(blocks, ops=[elsewhere, (16, 17, 1), (17, 18, 1)]).parts) == {
        "activations": 100
    }


@pytest.mark.parametrize(
    ("freed", "part"), [(25, "workspace"), (29, "workspace"), (31, "activations")]
)
def test_a_block_made_outside_belongs_to_the_next_operator_until_the_one_after_it(freed, part):
    blocks = pair(events((5, 8, 1), (freed, -8, 1)))
    assert nonzero(figures(blocks, ops=[(10, 20), (30, 40)]).parts) == {part: 8}


def test_without_any_operator_what_stays_is_an_activation():
    assert nonzero(figures(pair(events((5, 8, 1)))).parts) == {"activations": 8}
    assert nonzero(figures(pair(events((5, 8, 1), (6, -8, 1)))).parts) == {"workspace": 8}


def test_known_storages_are_found_by_address_at_a_time():
    # Address 1 is used by three blocks in turn; the known one is the one alive at 35.
    blocks = pair(
        events((10, 64, 1), (20, -64, 1), (30, 32, 1), (40, -32, 1), (50, 16, 1), (55, 99, 2))
    )
    known = [NamedStorage("gradients", address=1, size=32, time=35)]
    step = StepTimes(start=25, forward=25, forward_end=60, end=60)
    result = figures(blocks, known=known, step=step)
    assert nonzero(result.parts) == {"activations": 16 + 99}
    before = StepTimes(start=25, forward=25, forward_end=38, end=38)
    assert nonzero(figures(blocks, known=known, step=before).parts) == {"gradients": 32}


def test_the_baseline_counts_once_and_only_what_the_recording_did_not_allocate():
    blocks = pair(events((10, 64, 1), (150, 10, 3)))
    step = StepTimes(start=100, forward=100, forward_end=200, end=200)
    known = [
        NamedStorage(
            "buffers", address=1, size=60, time=100
        ),  # allocated in the recording: 64 by event
        NamedStorage("parameters", address=7, size=400, time=100),
        NamedStorage("inputs", address=7, size=400, time=100),  # the same storage
        NamedStorage("inputs", address=8, size=40, time=100),
        NamedStorage("outputs", address=3, size=10, time=200),
        NamedStorage("gradients", address=9, size=1000, time=180),  # not there at the start
    ]
    result = figures(blocks, known=known, step=step)
    expected = {"buffers": 64, "parameters": 400, "inputs": 40, "outputs": 10}
    assert nonzero(result.parts) == expected
    assert result.peak == sum(expected.values())


def test_what_came_before_the_step_or_with_the_optimizer_is_no_activation():
    blocks = pair(events((10, 64, 1), (120, 8, 2), (170, 4, 3)))
    step = StepTimes(start=100, forward=100, forward_end=130, optimizer=160, end=200)
    assert nonzero(figures(blocks, step=step).parts) == {"workspace": 64 + 4, "activations": 8}


def test_retained_is_what_the_forward_left_without_new_outputs():
    rows = [(10, 1000, 1), (110, -1000, 1), (120, 64, 2), (130, 32, 3), (140, 16, 4), (145, -16, 4)]
    known = [NamedStorage("outputs", address=3, size=32, time=200)]
    step = StepTimes(start=100, forward=115, forward_end=150, end=200, optimizer=160)
    assert figures(pair(events(*rows)), known=known, step=step).retained == 64


def test_an_output_that_was_there_before_the_forward_is_not_taken_off():
    known = [NamedStorage("outputs", address=1, size=100, time=200)]  # a view of something cached
    step = StepTimes(start=100, forward=115, forward_end=150, end=200, optimizer=160)
    blocks = pair(events((10, 100, 1), (120, 64, 2)))
    assert figures(blocks, known=known, step=step).retained == 64


def test_the_average_is_weighted_by_time():
    # 0 for 100 ns, 100 bytes for 300 ns, 20 for 600 ns of the 1000; 7 bytes of baseline.
    blocks = pair(events((100, 100, 1), (400, -100, 1), (400, 20, 2)))
    result = figures(blocks, known=[NamedStorage("parameters", address=9, size=7, time=0)])
    assert result.average == pytest.approx((100 * 300 + 20 * 600) / 1000 + 7)
    assert figures(pair(events((0, 5, 1))), step=StepTimes(0, 0, 0, 0)).average == 5.0


def test_a_block_alive_over_the_whole_step_is_there_without_any_event():
    step = StepTimes(start=100, forward=100, forward_end=200, end=200)
    result = figures(pair(events((10, 64, 1))), step=step)
    assert (result.peak, result.average, len(result.timeline)) == (64, 64.0, 1)


@pytest.mark.parametrize(
    ("name", "device"),
    [("h100_bert_small", 0), ("h100_qwen_0.5b", 0), ("v100_train_memory_events_rank1of2", 1)],
)
def test_a_cuda_recording_agrees_with_the_allocators_own_total(name, device):
    path = public_trace(name)
    events = read_events(path)
    blocks = pair(events.memory.on_device(1, device))
    end = int(blocks.times[-1])
    whole = StepTimes(start=-1, forward=-1, forward_end=end, end=end)
    result = step_memory(blocks, outermost_operators(events), [], whole)
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    memory = [e for e in raw if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
    first = min(memory, key=lambda e: (e["ts"], e["args"]["Ev Idx"]))["args"]
    before = first["Total Allocated"] - first["Bytes"]
    assert result.peak == max(e["args"]["Total Allocated"] for e in memory) - before
    assert sum(result.parts.values()) == result.peak
    assert blocks.lost == 0


def test_a_long_timeline_keeps_every_spike_in_its_place():
    rows = []
    for i in range(50_000):  # a saw-tooth with one spike and one hole
        size = {20_000: 5000, 30_000: 1}.get(i, 100 + i % 7)
        rows += [(2 * i + 1, size, 1), (2 * i + 2, -size, 1)]
    step = StepTimes(start=0, forward=0, forward_end=200_000, end=200_000)
    result = figures(pair(events(*rows)), step=step)
    assert len(result.timeline) <= memory.MAX_POINTS
    assert (result.timeline[0].time, result.timeline[-1].time) == (0, 100_000)
    spike = max(result.timeline, key=lambda point: point.live)
    assert (spike.time, spike.live, result.peak) == (40_001, 5000, 5000)
    assert {point.live for point in result.timeline if point.live} <= {*range(100, 107), 5000}
    assert [p.time for p in result.timeline] == sorted({p.time for p in result.timeline})
