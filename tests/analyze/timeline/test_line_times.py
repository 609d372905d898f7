"""Python's time by line from samples and a recording made by hand: every figure is exact."""

import json

import numpy as np
import pytest

from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.timeline.line_times import Samples, Spot, line_times
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

A, B = Spot("net.py", 7), Spot("net.py", 9)
INTERVAL = 50_000
# µs: the step, the model and its layer in it, an operator in each of these.
SPANS = [
    ("tg@0", 0, 1000),
    ("tg#0", 100, 900),
    ("aten::mul", 200, 300),
    ("tg#1", 400, 800),
    ("aten::mm", 500, 700),
]
TREE = Tree(
    rows=(
        TreeRow(name="Net", kind="model", parent=-1, calls=1, host=4_000_000),
        TreeRow(name="layer", path="layer", kind="layer", parent=0, calls=1, host=1_000_000),
        TreeRow(name="aten::mm", kind="operator", parent=1, calls=1, host=3_000_000),
        TreeRow(name="outside the model", kind="bucket", parent=0, calls=0, host=2_000_000),
    )
)


def found(*samples):
    """Return the lines from samples of (due, taken, spot), in µs."""
    text = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
        | {"ts": start, "dur": end - start}
        for name, start, end in SPANS
    ]
    events = read_events(json.dumps({"traceEvents": text}).encode())
    layers = CallTree([NamedModule(("",), "Net"), NamedModule(("layer",), "Linear")], "Net")
    spans = attribute(events, layers)
    is_step = events.name.take(spans.row).where(lambda name: name == "tg@0")
    due, taken, spots = zip(*samples, strict=True)
    given = Samples(np.array(due) * 1000, np.array(taken) * 1000, spots, INTERVAL, 0)
    lines = line_times(given, spans, is_step, layers, TREE, lambda spot: f"line {spot.line}")
    return {(one.layer, one.line): one for one in lines}


def test_lines_share_their_layer_s_own_time_by_their_samples():
    lines = found((150, 150, A), (160, 160, B), (170, 170, B), (350, 350, B), (450, 450, A))
    assert lines["Net", 9].time == pytest.approx(0.003)
    assert lines["Net", 7].time == pytest.approx(0.001)
    assert lines["layer", 7].time == pytest.approx(0.001)
    assert lines["Net", 9].share == pytest.approx(0.3)  # of 10 ms
    assert (lines["Net", 9].samples, lines["Net", 9].source) == (3, "line 9")
    assert next(iter(lines)) == ("Net", 9)


def test_time_in_operators_counts_for_no_line():
    lines = found((150, 150, A), (550, 700, B), (250, 300, B), (650, 700, B))
    assert set(lines) == {("Net", 7)}
    assert lines["Net", 7].time == pytest.approx(0.004)


def test_time_until_a_late_sample_counts_but_for_operators():
    # 25 µs after the operator until the sample is taken, against an interval of 50 µs.
    lines = found((450, 450, A), (550, 725, B))
    assert lines["layer", 7].time == pytest.approx(0.001 * 2 / 3)
    assert lines["layer", 9].time == pytest.approx(0.001 / 3)
    # Due and taken outside: the interval, and 50 + 50 µs around the operator.
    lines = found((450, 450, A), (450, 750, B))
    assert lines["layer", 9].time == pytest.approx(0.001 * 3 / 4)


def test_what_is_in_no_line_of_the_user_s_stays_with_the_layer():
    lines = found((150, 150, A), (160, 160, None), (170, 170, None), (180, 180, None))
    assert lines["Net", 7].time == pytest.approx(0.001)


def test_around_the_model_and_outside_of_the_steps():
    lines = found((50, 50, A), (950, 950, B), (1500, 1500, B), (1600, 1600, B))
    assert lines["outside the model", 7].time == pytest.approx(0.001)
    assert lines["outside the model", 9].time == pytest.approx(0.001)
