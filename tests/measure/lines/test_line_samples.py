"""Samples at random intervals find short gaps between long operators too, in a simulated run."""

import itertools
import json
import signal

import numpy as np
import pytest

from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.timeline.line_times import Samples, Spot, line_times
from torchgauge.measure.lines.line_samples import LineSamples
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

LONG, SHORT, OPERATOR = 300_000, 100_000, 3_000_000  # ns
STEP = LONG + SHORT + 2 * OPERATOR
STEPS = 500
INTERVAL = 200_000


def busy_at(time):
    """Return the line that runs, and when Python runs next: at once, or after the operator."""
    begin, within = divmod(time, STEP)
    if within < LONG:
        return Spot("net.py", 1), time
    if within < LONG + OPERATOR:
        return Spot("net.py", 2), begin * STEP + LONG + OPERATOR
    if within < STEP - OPERATOR:
        return Spot("net.py", 2), time
    return Spot("net.py", 1), (begin + 1) * STEP


def test_lines_have_the_time_of_their_gaps_however_long_operators_are():
    events = []
    for number in range(STEPS):
        start = number * STEP
        spans = [(f"tg@{number}", 0, STEP), ("tg#0", 0, STEP)]
        spans += [("aten::mm", LONG, OPERATOR), ("aten::mm", STEP - OPERATOR, OPERATOR)]
        events += [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
            | {"ts": (start + begin) / 1000, "dur": duration / 1000}
            for name, begin, duration in spans
        ]
    recorded = read_events(json.dumps({"traceEvents": events}).encode())
    layers = CallTree([NamedModule(("",), "Net")], "Net")
    spans = attribute(recorded, layers)
    is_step = recorded.name.take(spans.row).where(lambda name: name.startswith("tg@"))
    taken, now = [], 0
    for interval in itertools.islice(LineSamples(INTERVAL)._intervals, 10_000):
        due = now + interval
        spot, now = busy_at(due)
        if now >= STEPS * STEP:
            break
        taken.append((due, now, spot))
    due, when, spots = zip(*taken, strict=True)
    samples = Samples(np.array(due), np.array(when), spots, INTERVAL, 0)
    row = TreeRow(name="Net", kind="model", parent=-1, calls=1, host=LONG + SHORT)
    found = line_times(samples, spans, is_step, layers, Tree(rows=(row,)), lambda _: "")
    assert {one.line: one.time for one in found} == pytest.approx(
        {1: LONG * 1e-9, 2: SHORT * 1e-9}, rel=0.1
    )


def test_a_sample_that_comes_late_does_not_set_the_timer_again():
    sampler = LineSamples(10**9)
    with sampler.sampling():
        pass
    try:
        sampler._take(signal.SIGALRM, None)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert sampler.samples == []
