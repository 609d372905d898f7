"""The nodes of a loop's steps, from traces of whole microseconds made by hand."""

import json

import pytest

from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.timeline.loop_tree import _windows, joined, loop_table
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.nesting import nest


def events_of(spans):
    """Make a trace of (name, thread, begin, end)."""
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": thread,
            "ts": 1000 + begin,
            "dur": end - begin,
            "args": {},
        }
        for name, thread, begin, end in spans
    ]
    return read_events(json.dumps({"traceEvents": events}).encode())


def table_of(spans, marks=()):
    """Return the nodes of such a trace; module 1 is `layer`."""
    tree = CallTree([NamedModule(("",), "Net"), NamedModule(("layer",), "Linear")], "Net")
    return loop_table(events_of(spans), tree, marks)


def point(number, time, thread=1):
    return (f"tg@{number}", thread, time, time + 1)


def times(found):
    """Return the µs of each node's own by step, of those that have any, by name."""
    return {
        node.name: (host // 1000).tolist()
        for node, host in zip(found.table.nodes, found.table.host, strict=True)
        if host.any()
    }


def parent(found, name):
    node = next(one for one in found.table.nodes if one.name == name)
    return found.table.nodes[node.parent].name


def test_steps_last_from_point_to_point():
    found = table_of([
        point(0, 0),  # ends at 1
        ("tg#1", 1, 10, 30),
        ("aten::add", 1, 15, 20),
        point(1, 99),
        ("tg#1", 1, 120, 130),
        point(2, 149),
        ("aten::add", 1, 160, 170),
    ])  # fmt: skip
    assert times(found) == {
        "layer": [15, 10],
        "aten::add": [5, 0],
        "outside the model": [99 - 20, 50 - 10],
    }


def test_a_span_around_a_point_ends_there():
    found = table_of([
        ("whole", 1, -5, 400),
        point(0, 0),
        ("Optimizer.step#SGD.step", 1, 80, 110),
        point(1, 99),
        ("aten::mul", 1, 120, 130),
        point(2, 149),
    ])  # fmt: skip
    assert times(found) == {
        "Optimizer.step#SGD.step": [20, 0],
        "aten::mul": [0, 10],
        "outside the model": [79, 40],
    }


def test_what_is_cut_nests_strictly():
    spans = [("whole", 1, -5, 400), point(0, 0), ("step", 1, 80, 110), point(1, 99), point(2, 149)]
    cut = _windows(events_of(spans))
    host = cut.category.where(lambda name: name == "cpu_op")
    nesting = nest(cut.start[host], cut.duration[host], cut.thread.codes[host])
    assert nesting.overlaps == 0
    assert nesting.parent.tolist() == [-1, -1, 1, -1]


def test_marks_and_data_loading_are_buckets():
    found = table_of(
        [
            point(0, 0),
            ("tg:0", 1, 10, 30),
            ("aten::sort", 1, 15, 20),
            ("tg:1", 1, 22, 27),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 40, 50),
            ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1, 60, 70),
            ("tg#1", 1, 71, 80),
            ("tg:0", 1, 72, 79),
            point(1, 99),
        ],
        ["out", "in"],
    )
    host = {
        (node.kind, node.name): int(own[0]) // 1000
        for node, own in zip(found.table.nodes, found.table.host, strict=True)
        if own.any()
    }
    assert host == {
        ("bucket", "out"): 20 - 5 - 5,
        ("operator", "aten::sort"): 5,
        ("bucket", "in"): 5,
        ("bucket", "data loading"): 20,
        ("layer", "layer"): 2,
        ("operator", "out"): 7,
        ("bucket", "outside the model"): 99 - 49,
    }
    assert parent(found, "aten::sort") == "out"


def test_communication_on_another_thread_counts_where_it_is_waited_for():
    found = table_of([
        point(0, 0),
        ("c10d::allreduce_", 1, 10, 14),
        ("aten::mm", 1, 14, 40),
        ("gloo:all_reduce", 7, 12, 70),
        ("gloo:all_reduce", 8, 60, 80),
        ("aten::add", 1, 90, 95),
        point(1, 99),
    ])  # fmt: skip
    # Under way from 10 to 80; nothing else was done from 40 to 80, and in the call itself.
    assert found.communication.tolist() == [70_000]
    assert found.waiting.tolist() == [44_000]
    assert times(found)["gloo:all_reduce"] == [40]
    assert times(found)["outside the model"] == [99 - 30 - 5 - 40]
    assert parent(found, "gloo:all_reduce") == "communication"
    assert found.table.host.sum() == 99_000
    assert found.concurrent.tolist() == [0]


def test_what_other_threads_do_beside_the_loop_is_told():
    found = table_of([
        point(0, 0),
        ("aten::mm", 1, 10, 50),
        ("aten::mm", 2, 20, 60),
        point(1, 99),
    ])  # fmt: skip
    assert found.concurrent.tolist() == [40_000]


@pytest.mark.parametrize("second", ["aten::mm", "aten::add"])
def test_recordings_of_one_loop_are_joined(second):
    one = table_of([point(0, 0), ("aten::mm", 1, 10, 50), point(1, 99)])
    two = table_of([point(2, 0), (second, 1, 10, 30), point(3, 59), point(4, 70)])
    both = joined([one, two])
    assert both.table.host.shape[1] == 3
    wanted = {"aten::mm": [40, 20, 0]} if second == "aten::mm" else {
        "aten::mm": [40, 0, 0], "aten::add": [0, 20, 0]
    }  # fmt: skip
    assert times(both) == wanted | {"outside the model": [59, 39, 11]}


def test_a_recording_without_points_has_no_step():
    assert table_of([("aten::mm", 1, 10, 50)]).table.host.shape[1] == 0
