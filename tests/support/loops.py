"""Loops whose steps' times a test writes down."""

import numpy as np
from tests.support import records

from torchgauge.records.timeline.loop import STEP_KINDS, Captured, Loop, Rank, StepTimes
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree


def step_times(count=40, noise=0.0, seed=0, first=1, preempted=None, **seconds):
    """Return steps of these seconds by kind (a number, or one each), with noise."""
    draw = np.random.default_rng(seed)
    series = {}
    for kind in STEP_KINDS:
        values = np.broadcast_to(np.asarray(seconds.pop(kind, 0.0), float), (count,))
        series[kind] = tuple((values * (1 + noise * draw.standard_normal(count))).tolist())
    assert not seconds, f"no kinds: {seconds}"
    steps = tuple(range(first, first + count))
    return StepTimes(steps=steps, preempted=preempted, **series)


def loop(times, *, number=None, world=2, rows=None, **changes):
    """Return a loop whose undisturbed steps took these times; with `number` that of a rank."""
    return Loop(
        **{
            "roots": ("Net",),
            "environment": records.environment(),
            "captured": Captured(requested=5, recorded=0, budget=10**9),
            "by": "optimizer",
            "count": 60,
            "step_times": times,
            "program": "train.py --lr 1",
            "tree": None if rows is None else tree(rows),
            "rank": None if number is None else Rank(number=number, world=world, job="job"),
            **changes,
        }
    )


def tree(rows):
    """Return a tree of (name, kind, parent, phase, calls, ms); the first is the loop."""
    return Tree(
        step="loop",
        rows=tuple(
            TreeRow(
                name=name, kind=kind, parent=parent, phase=phase, calls=calls,
                host=round(ms * 1e6), path=name if kind == "layer" else "",
                type=name.title() if kind == "layer" else "",
            )
            for name, kind, parent, phase, calls, ms in [("loop", "model", -1, "", 0, 0), *rows]
        ),
    )  # fmt: skip
