"""Parts of a recording: by hand, and that nothing is in two of them or in none."""

import itertools

import numpy as np
import pytest
from tests.support.kineto_events import launched, mark, op, read
from tests.support.paths import public_trace
from tests.support.span_parts import EVENTS, TEXT

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.recording import recording, window
from torchgauge.analyze.trace.selection import Part, select, selected_events, waits_for_others
from torchgauge.errors import InputError
from torchgauge.readers.kineto.kineto import read_events

PUBLIC = ["h100_bert_small", "a100_nccl_rank0of2", "mi300_resnet_ddp_checkpoint_rank0of8"]


@pytest.fixture(scope="module")
def made():
    return recording(read_events(TEXT.encode()))


def names(of, kept):
    return [of.events.name[row] for row in np.flatnonzero(kept.spans).tolist()]


def times(of, kept):
    rows = np.flatnonzero(kept.spans)
    return (of.events.start[rows] // 1000).tolist()


def test_work_is_in_the_step_that_launched_it(made):
    third, fourth = (select(made, Part(step=number)) for number in (3, 4))
    assert names(made, fourth) == [
        "ProfilerStep#4", "aten::item", "cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)",
    ]  # fmt: skip
    assert "gemm_back" in names(made, third)
    # The device's range of step 3 begins in step 4, and the kernel `before` has no launch.
    assert names(made, third).count("ProfilerStep#3") == 2
    assert "before" in names(made, third)
    assert third.memory.tolist() == [True, False]
    assert fourth.memory.tolist() == [False, True]


def test_a_range_of_time_holds_its_begin_and_not_its_end(made):
    assert times(made, select(made, Part(begin=100e-6))) == [100, 105, 106, 140]
    assert times(made, select(made, Part(end=5e-6))) == [0, 110, 2]
    assert times(made, select(made, Part(begin=5e-6, end=14e-6))) == [5, 10, 12]
    # The launch at 47, and its kernel that begins at 120.
    assert times(made, select(made, Part(begin=47e-6, end=50e-6))) == [47, 120]


def test_a_layer_has_its_calls_backward_and_device_work(made):
    one = select(made, Part(layer="Linear_1"))
    assert times(made, one) == [45, 46, 47, 120, 70, 71, 73, 130]
    assert not one.memory.any()
    first = select(made, Part(layer="Linear_0"))
    assert times(made, first) == [10, 12, 14, 15, 110]
    assert first.memory.tolist() == [True, False]
    model = select(made, Part(layer="Net_0"))
    assert times(made, model) == [5, *times(made, first), *times(made, one)]


def test_all_conditions_hold_together(made):
    kept = select(made, Part(layer="Net_0", step=3, begin=60e-6))
    assert times(made, kept) == [70, 71, 73, 130]


def test_arrows_are_kept_with_all_of_their_ends(made):
    flows = made.events.flows

    def kept(**part):
        mask = select(made, Part(**part)).flows
        return [(flows.category[i], int(flows.id[i])) for i in np.flatnonzero(mask).tolist()]

    assert sorted(kept(step=3)) == [("ac2g", 1)] * 2 + [("fwdbwd", 1)] * 2
    assert kept(step=4) == [("ac2g", 4)] * 2
    assert sorted(kept()) == sorted(kept(step=3) + kept(step=4) + [("fwdbwd", 2)] * 2)


@pytest.mark.parametrize(
    ("part", "id", "says"),
    [
        (Part(step=7), "step-unknown", "It marks 3, 4."),
        (Part(layer="Linear_3"), "layer-unknown", "such as Linear_"),
        (Part(begin=1), "part-empty", "in 0.0002 s"),
        (Part(begin=0.00012, end=0.00011), "part-empty", "events"),
    ],
)
def test_what_is_not_there_is_said(made, part, id, says):
    with pytest.raises(InputError) as caught:
        select(made, part)
    assert caught.value.id == id
    assert says in str(caught.value)


def test_without_layers_and_steps_none_can_be_chosen():
    bare = recording(read(EVENTS[7]))
    for part, says in ((Part(step=1), "It marks none"), (Part(layer="Net"), "without stacks")):
        with pytest.raises(InputError, match=says):
            select(bare, part)


@pytest.mark.parametrize("name", PUBLIC)
def test_parts_that_share_no_moment_share_no_event_and_make_the_whole(name):
    path = public_trace(name)
    of = recording(read_events(path))
    begin, end = window(of.events)
    cuts = [None, *np.linspace(0, (end - begin) * 0.4e-9, 4)[1:].tolist(), None]
    ranges = [Part(low, high) for low, high in itertools.pairwise(cuts)]
    steps = sorted(set(of.step(of.time).tolist()) - {-1})
    assert steps
    rest = of.step(of.time) == -1
    for parts, left in ((ranges, np.zeros(len(of.time), bool)), (map(_step, steps), rest)):
        kept = [select(of, part) for part in parts]
        assert np.array_equal(sum(one.spans.astype(int) for one in kept) + left, left | True)
        assert (sum(one.flows.astype(int) for one in kept) <= 1).all()
        for one in kept:  # work and its launch are on one side
            launched = of.work.launched
            work, call = of.work.row[launched], of.work.call[launched]
            assert (one.spans[work] == one.spans[call]).all()
    whole = select(of, Part())
    assert whole.spans.all()
    assert whole.memory.all()
    assert whole.flows.all()


def _step(number):
    return Part(step=number)


def part_of(whole, **bounds):
    selection = select(whole, Part(**bounds))
    return selected_events(whole.events, selection), waits_for_others(whole, selection)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_records_of_parts_add_up_to_that_of_the_whole(name):
    whole = recording(read_events(public_trace(name)))
    begin, end = window(whole.events)
    middle = (end - begin) * 0.4e-9
    parts = [part_of(whole, end=middle)[0], part_of(whole, begin=middle)[0]]
    records = [rank_trace(events, "part")[0] for events in (whole.events, *parts)]
    for figure in (
        lambda record: record.device_time,
        lambda record: record.launched_before,
        lambda record: sum(copied.time for copied in record.copies),
        lambda record: sum(waited.time for waited in record.synchronisations),
        lambda record: record.contents.operators,
        lambda record: record.contents.device_work,
    ):
        complete, *halves = map(figure, records)
        assert sum(halves) == pytest.approx(complete, abs=1e-9)
        assert 0 <= halves[0] <= complete


def test_a_step_is_a_trace_of_its_own():
    whole = recording(
        read(
            mark("ProfilerStep#0", 0, 100), op("aten::mm", 10, 20),
            launched("gemm", 40, 30, at=12),
            mark("ProfilerStep#1", 100, 100), op("aten::add", 110, 20),
            launched("add", 140, 30, at=112),
        )
    )  # fmt: skip
    events, behind = part_of(whole, step=1)
    record = rank_trace(events, "part", "step 1", behind_others=behind)[0]
    assert record.window == pytest.approx(100e-6)
    assert record.device_time == pytest.approx(30e-6)
    assert record.contents.steps == 1
    assert record.part == "step 1"
    assert [node.name for node in record.tree.root.walk() if node.kind == "operator"] == [
        "aten::add"
    ]
    path = record.critical_path
    assert path.length == pytest.approx(70e-6)  # from the step's begin to the end of its work
    assert path.host == pytest.approx(12e-6)


def test_what_waited_for_an_earlier_step_has_no_critical_path():
    whole = recording(
        read(
            mark("ProfilerStep#0", 0, 20), launched("long", 10, 200, at=5),
            mark("ProfilerStep#1", 20, 20), launched("next", 210, 30, at=25),
        )
    )  # fmt: skip
    events, behind = part_of(whole, step=1)
    record = rank_trace(events, "part", "step 1", behind_others=behind)[0]
    assert record.critical_path is None
    assert any(note.startswith("no critical path") for note in record.missing)
    assert part_of(whole, step=0)[1] is False  # who is behind it does not matter to it
