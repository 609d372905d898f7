"""What a memory snapshot tells, against truths computed by hand."""

import pickle
import random

import pytest
from tests.support import snapshots as made
from tests.support.snapshots import ADAM, BASE, LOG, MIB, PUBLIC, TRAIN, block, segment, whole

from torchgauge.analyze.snapshot.growth import growth
from torchgauge.analyze.snapshot.replay import Free, Ranges, cause, gaps
from torchgauge.analyze.snapshot.snapshot import snapshot
from torchgauge.readers.snapshot.snapshot import read_recording
from torchgauge.records import codec


def told(content):
    return snapshot(read_recording(pickle.dumps(content)), "s.pickle")


def device(content):
    (found,) = told(content).devices
    return found


def by_function(found, held):
    """Bytes and blocks by the innermost function shown."""
    names = {}
    for one in held:
        stack = None if one.stack is None else found.stacks[one.stack]
        name = None if stack is None else stack.frames[0].name if stack.frames else ""
        names[name] = (one.bytes, one.blocks)
    return names


def test_the_peak_and_what_was_alive_at_it():
    found = told(made.step())
    (one,) = found.devices
    assert one.peak.bytes == 14 * MIB
    assert one.peak.event == 2
    assert one.peak.time == pytest.approx(2e-6)
    assert one.peak.reserved == 20 * MIB
    assert by_function(found, one.peak.held) == {"keep": (10 * MIB, 1), "step": (4 * MIB, 1)}
    assert by_function(found, one.alive) == {"step": (4 * MIB, 1)}
    assert one.window.before == 0
    assert one.window.lost == 0
    assert one.window.length == pytest.approx(4e-6)
    assert one.window.events["free_completed"] == 1
    assert one.timeline[0] == (0.0, 0, 0)
    assert [point[1] // MIB for point in one.timeline] == [0, 0, 4, 14, 14, 4]
    assert [point[2] // MIB for point in one.timeline] == [0, 20, 20, 20, 20, 20]


def test_stacks_show_the_users_frames_and_guess_by_torchs():
    found = told(made.step())
    step = next(one for one in found.stacks if one.frames[0].name == "step")
    assert step.own
    assert [one.line for one in step.frames] == [42, 10]
    assert step.category == "activations"
    keep = next(one for one in found.stacks if one.frames[0].name == "keep")
    assert keep.category == "unknown"


@pytest.mark.parametrize(
    ("place", "category", "own"),
    [
        ("/x/site-packages/torch/optim/adam.py:1:_init_group", "optimizer", False),
        ("/x/site-packages/torch/_tensor.py:1:backward", "gradients", False),
        ("/x/site-packages/torch/autograd/graph.py:1:_engine_run_backward", "gradients", False),
        ("/x/site-packages/torch/nn/modules/module.py:1:_apply", "parameters", False),
        ("/x/site-packages/torch/nn/modules/linear.py:1:__init__", "parameters", False),
        ("/x/site-packages/torch/nn/modules/module.py:1:_call_impl", "activations", False),
        ("/home/me/net.py:3:forward", "activations", True),
        ("/home/me/net.py:3:run", "unknown", True),
        ("<ipython-input-3>:1:run", "unknown", True),
        ("<frozen importlib>:1:run", "unknown", False),
        ("/build/CUDACachingAllocator.cpp:0:malloc", "unknown", False),
        ("??:0:start", "unknown", False),
    ],
)
def test_each_frame_lets_guess(place, category, own):
    content = whole([segment(BASE, block(BASE, MIB, stack=made.frames(place)))])
    (stack,) = told(content).stacks
    assert (stack.category, stack.own) == (category, own)
    assert len(stack.frames) == 1  # without one of the user's, what there is is shown


def test_times_of_events_go_on_where_a_threads_clock_is_behind():
    times = [one[0] for one in device(made.step()).timeline]
    content = made.step()
    content["device_traces"][0][1]["time_us"] -= 1000
    assert times[1] == 0 < times[2]
    found = [one[0] for one in device(content).timeline]
    assert found == [0, 0, 0, *times[3:]]


def test_blocks_are_as_large_as_the_allocator_rounds_them():
    blocks = [(BASE, 10), (BASE + 1024, 512)]
    ranges = Ranges(
        read_recording(pickle.dumps(whole([segment(BASE, block(BASE, 2048))]))).segments
    )
    assert [one.size for one in gaps(ranges, blocks)] == [512, 512]


def test_fragmentation_by_all_definitions():
    blocks = [
        block(BASE, 4 * MIB, 3 * MIB),
        block(BASE + 4 * MIB, 2 * MIB, 0, "inactive"),
        block(BASE + 6 * MIB, MIB, MIB, "active_pending_free"),
        block(BASE + 7 * MIB, 13 * MIB, 0, "inactive"),
    ]
    unused = segment(BASE + 100 * MIB, block(BASE + 100 * MIB, 20 * MIB, 0, "inactive"), stream=7)
    one = device(whole([segment(BASE, *blocks), unused]))
    assert one.reserved == 40 * MIB
    assert (one.allocated, one.pending) == (4 * MIB, MIB)
    assert one.requested == 4 * MIB
    lost = one.fragmentation
    assert lost.internal == MIB
    assert lost.split == 15 * MIB
    assert lost.cached == 35 * MIB == one.reserved - one.allocated - one.pending
    assert lost.largest == 20 * MIB
    assert [part.fill for part in one.segments] == [0.25, 0.0]
    assert one.window is None
    assert one.peak is None


def test_free_parts_of_an_expandable_segment_can_go_back():
    blocks = block(BASE, MIB), block(BASE + MIB, 19 * MIB, 0, "inactive")
    one = device(whole([segment(BASE, *blocks, expandable=True)]))
    assert one.fragmentation.split == 0
    assert one.fragmentation.cached == 19 * MIB


def test_rounding_is_unknown_where_the_file_does_not_say_what_was_asked_for():
    content = whole([segment(BASE, block(BASE, MIB))])
    del content["segments"][0]["blocks"][0]["requested_size"]
    one = device(content)
    assert one.requested is None
    assert one.fragmentation.internal is None


def full(asked, left, *, stream=0, more=()):
    """40 MiB in four blocks, of which the first and the third are freed; then an OOM."""
    trace = made.Allocator()
    trace.reserve(BASE, 40 * MIB)
    places = [BASE + at * 10 * MIB for at in range(4)]
    for place in places:
        trace.alloc(place, 10 * MIB)
    trace.free(places[0], 10 * MIB)
    trace.free(places[2], 10 * MIB)
    trace.oom(asked, left, LOG, stream=stream)
    states = ["inactive", "active_allocated"] * 2
    blocks = [
        block(place, 10 * MIB, state=state) for place, state in zip(places, states, strict=True)
    ]
    return trace, [segment(BASE, *blocks), *more]


@pytest.mark.parametrize(
    ("asked", "left", "why", "words"),
    [
        (15 * MIB, 2 * MIB, "fragmentation", "in no single block"),
        (30 * MIB, 2 * MIB, "full", "really full"),
        (30 * MIB, 50 * MIB, "limit", "something else refused"),
    ],
)
def test_why_memory_ran_out(asked, left, why, words):
    trace, segments = full(asked, left)
    found = told(whole(segments, trace))
    (one,) = found.devices[0].ooms
    assert one.cause == why
    assert (one.requested, one.device_free) == (asked, left)
    assert (one.alive, one.reserved) == (20 * MIB, 40 * MIB)
    assert (one.cached, one.largest, one.usable) == (20 * MIB, 10 * MIB, 10 * MIB)
    assert found.stacks[one.stack].frames[0].name == "keep"
    first = found.findings[0]
    assert first.id == f"oom-{why}"
    assert first.severity == "serious"
    assert words in first.title


def test_a_piece_of_another_stream_is_told_from_fragmentation():
    free = segment(BASE + 100 * MIB, block(BASE + 100 * MIB, 20 * MIB, 0, "inactive"), stream=7)
    trace, segments = full(15 * MIB, 2 * MIB, more=[free])
    (one,) = device(whole(segments, trace)).ooms
    assert (one.largest, one.usable) == (20 * MIB, 10 * MIB)
    assert one.cause == "elsewhere"


def test_small_segments_are_not_for_large_blocks():
    small = segment(
        BASE + 100 * MIB, block(BASE + 100 * MIB, 20 * MIB, 0, "inactive"), kind="small"
    )
    trace, segments = full(15 * MIB, 2 * MIB, more=[small])
    (one,) = device(whole(segments, trace)).ooms
    assert one.cause == "elsewhere"


@pytest.mark.parametrize(
    ("asked", "left", "said"),
    [
        (5 * MIB, 8 * MIB, "less than the segment"),
        (5 * MIB, 20 * MIB, "something else refused"),
        (MIB, 2 * MIB - 1, "less than the segment"),
        (11 * MIB, 12 * MIB - 1, "less than the segment"),
        (11 * MIB, 12 * MIB, "something else refused"),
    ],
)
def test_room_for_the_tensor_is_not_room_for_its_segment(asked, left, said):
    """Nobody's limit is to be looked for where the device was full."""
    trace = made.Allocator()
    trace.reserve(BASE, 20 * MIB)
    trace.alloc(BASE, 20 * MIB)
    trace.oom(asked, left)
    (first, *_) = told(whole([segment(BASE, block(BASE, 20 * MIB))], trace)).findings
    assert first.id == "oom-limit"
    assert said in first.title


def test_findings_of_several_devices_say_of_which_they_are():
    first, second = made.Allocator(), made.Allocator()
    first.reserve(BASE, 20 * MIB)
    first.alloc(BASE, 20 * MIB)
    second.reserve(2 * BASE, 20 * MIB)
    second.alloc(2 * BASE, 20 * MIB)
    second.oom(40 * MIB, MIB)
    segments = [
        segment(BASE, block(BASE, 20 * MIB)),
        segment(2 * BASE, block(2 * BASE, 20 * MIB), device=1),
    ]
    found = [one.title for one in told(whole(segments, first, second)).findings]
    assert found == [
        "Out of memory at 41.94 MB on GPU 1: the memory was really full",
        "100 % of the peak of GPU 0 comes from train.py:42 step",
        "100 % of the peak of GPU 1 comes from train.py:42 step",
    ]


def test_what_came_after_an_oom_does_not_change_it():
    trace, _ = full(15 * MIB, 2 * MIB)
    places = [BASE + at * 10 * MIB for at in range(4)]
    trace.alloc(places[0], 9 * MIB)
    trace.free(places[1], 10 * MIB)
    trace.free(places[3], 10 * MIB)
    trace.free(places[0], 9 * MIB)
    trace.reserve(BASE, 40 * MIB, "segment_free")
    trace.reserve(BASE, 60 * MIB)
    trace.alloc(BASE, 60 * MIB)
    after = [segment(BASE, block(BASE, 60 * MIB))]
    one = device(whole(after, trace))
    (oom,) = one.ooms
    assert oom.cause == "fragmentation"
    assert (oom.alive, oom.reserved) == (20 * MIB, 40 * MIB)
    assert (oom.cached, oom.largest) == (20 * MIB, 10 * MIB)
    assert one.peak.bytes == 60 * MIB


def test_of_events_that_contradict_the_segments_the_cause_is_unknown():
    trace, segments = full(15 * MIB, 2 * MIB)
    trace.reserve(BASE + 500 * MIB, MIB)  # and it is not there at the end
    (one,) = device(whole(segments, trace)).ooms
    assert one.cause == "unknown"
    assert one.cached is None


@pytest.mark.parametrize(
    ("asked", "device", "free", "why"),
    [
        (10, 0, Free(9, 9, 9), "full"),
        (10, 1, Free(9, 9, 9), "fragmentation"),
        (10, 9, Free(9, 5, 5), "fragmentation"),
        (10, 10, Free(0, 0, 0), "limit"),
        (10, 0, Free(10, 10, 10), "limit"),
        (10, 0, Free(10, 10, 9), "elsewhere"),
        (10, None, Free(9, 9, 9), "unknown"),
        (10, 0, None, "unknown"),
    ],
)
def test_the_causes_at_their_limits(asked, device, free, why):
    assert cause(asked, device, free) == why


def test_pending_frees_are_held_until_they_are_complete():
    trace = made.Allocator()
    trace.alloc(BASE, 8 * MIB)
    trace.alloc(BASE + 8 * MIB, 8 * MIB)
    trace.add("free_requested", BASE, 8 * MIB)
    blocks = (block(BASE, 8 * MIB, state="active_pending_free"), block(BASE + 8 * MIB, 8 * MIB))
    found = told(whole([segment(BASE, *blocks)], trace))
    (one,) = found.devices
    assert (one.allocated, one.pending) == (8 * MIB, 8 * MIB)
    assert one.timeline[-1][1] == 16 * MIB
    assert one.window.lost == 0
    assert "pending-frees" in [finding.id for finding in found.findings]


def test_a_recording_without_completed_frees_ends_them_when_asked():
    trace = made.Allocator()
    trace.alloc(BASE, MIB)
    trace.add("free_requested", BASE, MIB)
    one = device(whole([segment(BASE, block(BASE, MIB, 0, "inactive"))], trace))
    assert one.timeline[-1][1] == 0
    assert one.window.lost == 0


def test_a_ring_buffer_that_forgot_the_begin_costs_names_and_no_bytes():
    trace = made.Allocator()
    trace.free(BASE, 10 * MIB)
    trace.alloc(BASE, 2 * MIB, LOG)
    blocks = (
        block(BASE, 2 * MIB, stack=LOG),
        block(BASE + 2 * MIB, 8 * MIB, 0, "inactive"),
        block(BASE + 10 * MIB, 5 * MIB, stack=ADAM),
    )
    found = told(whole([segment(BASE, *blocks)], trace))
    (one,) = found.devices
    assert one.window.before == 15 * MIB
    assert one.window.before_blocks == 2
    assert one.window.lost == 0
    assert (one.peak.bytes, one.peak.event) == (15 * MIB, -1)
    assert by_function(found, one.peak.held) == {None: (10 * MIB, 1), "step": (5 * MIB, 1)}
    assert [point[1] // MIB for point in one.timeline] == [15, 15, 5, 7]
    assert "window-middle" in [finding.id for finding in found.findings]


def test_expandable_segments_grow_and_shrink():
    trace = made.Allocator()
    trace.reserve(BASE, 20 * MIB, "segment_map")
    trace.alloc(BASE, 16 * MIB)
    trace.reserve(BASE + 20 * MIB, 20 * MIB, "segment_map")
    trace.alloc(BASE + 16 * MIB, 20 * MIB, LOG)
    trace.oom(6 * MIB, MIB)
    trace.free(BASE + 16 * MIB, 20 * MIB, LOG)
    trace.reserve(BASE + 20 * MIB, 20 * MIB, "segment_unmap")
    blocks = block(BASE, 16 * MIB), block(BASE + 16 * MIB, 4 * MIB, 0, "inactive")
    one = device(whole([segment(BASE, *blocks, expandable=True)], trace))
    assert [point[2] // MIB for point in one.timeline] == [0, 20, 20, 40, 40, 40, 40, 40, 20]
    (oom,) = one.ooms
    assert (oom.reserved, oom.cached, oom.largest) == (40 * MIB, 4 * MIB, 4 * MIB)
    assert oom.cause == "full"


def test_pieces_of_an_expandable_segment_are_one_where_they_touch():
    trace = made.Allocator()
    trace.oom(20 * MIB, 0)
    trace.reserve(BASE + 10 * MIB, 10 * MIB, "segment_unmap")
    trace.reserve(BASE, 10 * MIB, "segment_unmap")
    (oom,) = device(whole([], trace)).ooms
    assert (oom.cached, oom.largest) == (20 * MIB, 20 * MIB)
    assert oom.cause == "limit"  # it would have fitted


def test_a_leak_is_named():
    trace, blocks = made.Allocator(), []
    trace.reserve(BASE, 40 * MIB)
    for number in range(10):
        trace.alloc(BASE + 30 * MIB, 10 * MIB)
        trace.alloc(BASE + number * MIB, MIB, LOG)
        trace.free(BASE + 30 * MIB, 10 * MIB)
        blocks.append(block(BASE + number * MIB, MIB, stack=LOG))
    free = block(BASE + 10 * MIB, 30 * MIB, 0, "inactive")
    found = told(whole([segment(BASE, *blocks, free)], trace))
    (kept,) = found.devices[0].possible_leaks
    assert (kept.bytes, kept.blocks, kept.allocations) == (10 * MIB, 10, 10)
    assert found.stacks[kept.stack].frames[0].name == "keep"
    (finding,) = [one for one in found.findings if one.id == "kept"]
    assert "log.py:7 keep" in finding.title


@pytest.mark.parametrize("backward", [False, True])
def test_what_forward_passes_keep_is_no_leak_where_no_backward_pass_was_recorded(backward):
    trace, blocks = made.Allocator(), []
    trace.reserve(BASE, 40 * MIB)
    if backward:
        trace.alloc(
            BASE + 30 * MIB, MIB, made.frames("loop.py:9:step", "/x/torch/_tensor.py:1:backward")
        )
        trace.free(BASE + 30 * MIB, MIB)
    for number in range(20):
        call = "/x/site-packages/torch/nn/modules/module.py:1:_call_impl"
        layer = made.frames(f"net.py:{number % 2}:forward", call)
        trace.alloc(BASE + number * MIB, MIB, layer)
        blocks.append(block(BASE + number * MIB, MIB, stack=layer))
    free = block(BASE + 20 * MIB, 20 * MIB, 0, "inactive")
    findings = told(whole([segment(BASE, *blocks, free)], trace)).findings
    kept = [one for one in findings if one.id.startswith("kept")]
    if backward:
        assert [one.id for one in kept] == ["kept", "kept"]
    else:
        (only,) = kept
        assert (only.id, only.severity) == ("kept-for-backward", "info")
        assert "20.97 MB" in only.title
        assert only.evidence == "20 blocks of 2 places."


def test_what_was_allocated_in_one_go_is_no_leak():
    trace, blocks = made.Allocator(), []
    for number in range(10):
        trace.alloc(BASE + number * MIB, MIB, LOG)
        blocks.append(block(BASE + number * MIB, MIB, stack=LOG))
    for _ in range(10):
        trace.alloc(BASE + 30 * MIB, 10 * MIB)
        trace.free(BASE + 30 * MIB, 10 * MIB)
    assert device(whole([segment(BASE, *blocks)], trace)).possible_leaks == ()


def leaking(blocks):
    held = [block(BASE + at * MIB, MIB, stack=LOG) for at in range(blocks)]
    return told(whole([segment(BASE, block(BASE + 500 * MIB, 8 * MIB), *held)]))


def test_growth_between_two_snapshots_is_by_stack():
    found = growth(leaking(3), leaking(10))
    assert (found.before, found.after) == (11 * MIB, 18 * MIB)
    (one,) = found.stacks  # what holds the same is left out
    assert one.growth == 7 * MIB
    assert (one.before_blocks, one.after_blocks) == (3, 10)
    assert one.stack.frames[0].name == "keep"
    assert growth(leaking(3), leaking(3)).stacks == ()


def test_what_came_and_went_adds_up_to_the_difference():
    before = told(whole([segment(BASE, block(BASE, 5 * MIB, stack=ADAM))]))
    after = told(
        whole(
            [
                segment(BASE, block(BASE, 2 * MIB, stack=LOG)),
                segment(BASE, block(BASE, MIB, stack=LOG), device=1),
            ]
        )
    )
    found = growth(before, after)
    assert [(one.device, one.growth) for one in found.stacks] == [
        (0, 2 * MIB),
        (1, MIB),
        (0, -5 * MIB),
    ]
    assert sum(one.growth for one in found.stacks) == found.after - found.before


def test_several_devices_are_apart():
    first, second = made.Allocator(), made.Allocator()
    first.alloc(BASE, MIB)
    second.alloc(BASE, 2 * MIB)
    segments = [
        segment(BASE, block(BASE, 2 * MIB), device=1),
        segment(BASE, block(BASE, MIB), device=0),
        segment(BASE, block(BASE, 3 * MIB), device=3),
    ]
    found = told(whole(segments, first, second))
    assert [(one.device, one.reserved // MIB) for one in found.devices] == [(0, 1), (1, 2), (3, 3)]
    assert [one.peak and one.peak.bytes // MIB for one in found.devices] == [1, 2, None]


def test_contradictions_are_counted_and_said():
    trace = made.Allocator()
    trace.alloc(BASE, MIB)
    trace.alloc(BASE, 2 * MIB)  # given out twice
    trace.free(BASE, 2 * MIB)
    trace.free(BASE, 2 * MIB)  # freed twice
    found = told(whole([segment(BASE, block(BASE, MIB))], trace))  # and in use at the end
    (one,) = found.devices
    assert one.window.lost == 3
    assert [warning.id for warning in found.warnings] == ["snapshot-events"]


def test_a_state_without_history_says_so():
    found = told(whole([segment(BASE, block(BASE, MIB, stack=[]))]))
    assert [one.id for one in found.findings] == ["no-history", "no-stacks"]


def random_run(seed, steps=400):
    """A run of a simple allocator: events, the state at the end, and what was alive when."""
    chance = random.Random(seed)
    trace, live, free = made.Allocator(), {}, list(range(200))
    stacks, levels = [TRAIN, LOG, ADAM, []], [0]
    trace.reserve(BASE, 200 * MIB)
    levels.append(0)
    for _ in range(steps):
        if free and (not live or chance.random() < 0.55):
            slot = free.pop(chance.randrange(len(free)))
            size, stack = chance.randrange(1, MIB), chance.choice(stacks)
            trace.alloc(BASE + slot * MIB, size, stack)
            live[slot] = size, stack
            levels.append(levels[-1] + size)
        else:
            slot = chance.choice(list(live))
            size, _ = live.pop(slot)
            free.append(slot)
            trace.free(BASE + slot * MIB, size)
            levels += [levels[-1], levels[-1] - size]
    blocks = [
        block(BASE + slot * MIB, MIB, live[slot][0], stack=live[slot][1])
        if slot in live
        else block(BASE + slot * MIB, MIB, 0, "inactive")
        for slot in range(200)
    ]
    return trace, [segment(BASE, *blocks)], levels


@pytest.mark.parametrize("cut", [0, 1, 77, 300])
@pytest.mark.parametrize("seed", range(3))
def test_parts_are_their_totals_however_much_the_ring_buffer_forgot(seed, cut):
    trace, segments, levels = random_run(seed)
    found = told(whole(segments, trace.events[cut:]))
    (one,) = found.devices
    assert one.window.lost == 0
    assert [point[1] for point in one.timeline] == levels[cut:]
    assert one.timeline[-1][1] == one.requested
    assert one.window.before == levels[cut]
    assert one.peak.bytes == max(levels[cut:]) == sum(held.bytes for held in one.peak.held)
    assert one.allocated == sum(held.bytes for held in one.alive)
    assert sum(held.blocks for held in one.alive) == one.blocks
    assert one.reserved == one.allocated + one.pending + one.fragmentation.cached + one.unlisted
    assert codec.decode(codec.encode(found)) == found


def test_a_long_timeline_keeps_the_peak_in_two_thousand_points():
    trace, segments, levels = random_run(5, steps=20_000)
    (one,) = told(whole(segments, trace)).devices
    assert len(one.timeline) <= 2000
    assert max(point[1] for point in one.timeline) == max(levels) == one.peak.bytes
    assert one.timeline[-1][1] == levels[-1]


def test_the_public_sample_against_a_plain_count():
    content = pickle.loads(PUBLIC.read_bytes())
    level = most = 0
    for event in content["device_traces"][0]:
        level += event["size"] if event["action"] == "alloc" else -event["size"]
        most = max(most, level)
    (one,) = told(content).devices
    assert level == 0
    blocks = [each for part in content["segments"] for each in part["blocks"]]
    before = sum(each["requested_size"] for each in blocks)
    assert one.window.before == before
    assert one.peak.bytes == most + before
    assert one.reserved == sum(part["total_size"] for part in content["segments"])
    assert one.unlisted == one.reserved - sum(each["size"] for each in blocks)
    assert one.peak.reserved is None  # it holds more than its segments: they are cut


def test_what_stacks_held_over_time_adds_up_to_what_was_alive():
    one = device(made.step())  # 4 MiB by one stack, then 10 by another until they are freed
    assert [point[1] // MIB for point in one.timeline] == [0, 0, 4, 14, 14, 4]
    held = {row.stack: [size // MIB for size in row.bytes] for row in one.held_over_time}
    assert sorted(held.values()) == [[0, 0, 0, 10, 10, 0], [0, 0, 4, 4, 4, 4]]


def test_over_time_there_are_the_stacks_that_hold_most_at_the_peak():
    memory = made.Allocator()
    memory.reserve(made.BASE, 60 * MIB)
    for number in range(9):
        stack = made.frames(f"/home/me/train.py:{number + 1}:step")
        memory.alloc(made.BASE + number * 6 * MIB, (number + 1) * 1000, stack)
    one = device(made.whole([made.segment(made.BASE, made.block(made.BASE, 60 * MIB))], memory))
    largest = [holding.stack for holding in one.peak.held[:7]]
    assert [row.stack for row in one.held_over_time] == largest
