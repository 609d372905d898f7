"""A comparison with times and layers as blocks measured them in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.compare.compare import inputs_differ, judged
from torchgauge.analyze.gate.paired_layers import with_layers
from torchgauge.analyze.statistics.paired import BlockTest, FourLogs, Paired, four_of
from torchgauge.records.comparison import Change, Comparison, Judgement
from torchgauge.records.metric import METRICS
from torchgauge.records.verdict import Tolerance

if TYPE_CHECKING:
    from torchgauge.measure.latency.blocks import Timed

BASE, CURRENT = (0, 3), (1, 2)  # the processes of a block, which are A, B, B, A
UNDISTURBED = {"latency": 1, "p50": 1, "throughput": -1}
"""Metrics that are the time of a typical call, or go with its inverse."""


def paired(blocks: Sequence[Timed], tolerance: Tolerance, unit: str, *, busy: bool) -> Paired:
    """Return a timing metric that all blocks have; on a `busy` machine of undisturbed calls."""
    name = tolerance.metric
    undisturbed = busy and name in UNDISTURBED
    logs = tuple(_logs(block, name, undisturbed=undisturbed) for block in blocks)
    before, after = (typical(logs, side) for side in (BASE, CURRENT))
    return Paired(METRICS[name], unit, logs, tolerance, before, after, undisturbed)


def _logs(block: Timed, name: str, *, undisturbed: bool) -> FourLogs:
    typical_logs = block.logs(name)
    if not undisturbed:
        return typical_logs
    # Of a throughput the samples of a call are left, which are the same in all of them.
    power = UNDISTURBED[name]
    samples = typical_logs[0] - power * block.logs("latency")[0] if power < 0 else 0.0
    return four_of(samples + power * math.log(seconds) for seconds in block.undisturbed)


def typical(logs: Sequence[FourLogs], side: tuple[int, int]) -> float:
    """Return the geometric mean over a side's processes."""
    return math.exp(statistics.fmean(four[number] for four in logs for number in side))


def with_pairs(
    compared: Comparison, pairs: Sequence[Paired], blocks: Sequence[Timed], *, busy: bool
) -> Comparison:
    """Return the comparison with times and layers as they were measured in turn."""
    if not pairs:
        return compared
    measured = {pair.metric.name: pair for pair in pairs}
    against = inputs_differ(compared.differences)
    changes = tuple(
        _in_turn(change, measured[change.metric], against)
        if change.metric in measured
        else _not_in_turn(change)
        for change in compared.changes
    )
    in_turn = msgspec.structs.replace(compared, changes=changes, paired=True)
    if against:
        return in_turn
    step = [_logs(block, "latency", undisturbed=busy) for block in blocks]
    return with_layers(
        in_turn,
        [block.layer_logs(fastest=busy) for block in blocks],
        [block.fastest if busy else block.layers for block in blocks],
        typical(step, CURRENT) - typical(step, BASE),
    )


def _in_turn(change: Change, pair: Paired, against: str | None) -> Change:
    test = BlockTest(pair.logs)
    interval = None if against else test.interval()
    judgement: Judgement = "unknown" if against else "inconclusive"
    if interval is not None:
        judgement = judged(pair.metric, interval)
    open_end = "the interval holds both no change and one" if judgement == "inconclusive" else ""
    return msgspec.structs.replace(
        change,
        how=pair.how,
        baseline=pair.baseline,
        current=pair.current,
        change=None if against else test.change,
        interval=interval,
        undisturbed=pair.undisturbed,
        judgement=judgement,
        method=f"permutations in {test.blocks} ABBA blocks",
        reason=against or open_end,
    )


def _not_in_turn(change: Change) -> Change:
    """Return a time of which each build has one process: too little to judge it by."""
    if change.exact or change.judgement == "unknown":
        return change
    return msgspec.structs.replace(
        change, judgement="inconclusive", method="", reason="of one process each, not in turn"
    )
