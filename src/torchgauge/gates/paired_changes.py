"""A comparison with times and layers as blocks measured them in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.compare.compare import inputs_differ, judged
from torchgauge.analyze.gate.paired_layers import with_layers
from torchgauge.analyze.statistics.paired import Paired, estimate
from torchgauge.records.comparison import Change, Comparison

if TYPE_CHECKING:
    from torchgauge.measure.latency.blocks import Timed

BASE, CURRENT = (0, 3), (1, 2)  # the processes of a block, which are A, B, B, A


def typical(blocks: Sequence[Timed], name: str, side: tuple[int, int]) -> float:
    """Return a metric's geometric mean over the visits to a side's processes, in its SI unit."""
    return statistics.geometric_mean(
        value for block in blocks for number in side for value in block.figures[name][number]
    )


def with_pairs(
    compared: Comparison, paired: Sequence[Paired], blocks: Sequence[Timed]
) -> Comparison:
    """Return the comparison with times and layers as they were measured in turn."""
    if not paired:
        return compared
    measured = {pair.metric.name: pair for pair in paired}
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
    return with_layers(
        in_turn,
        [block.layer_differences() for block in blocks],
        [block.layers for block in blocks],
        typical(blocks, "latency", CURRENT) - typical(blocks, "latency", BASE),
    )


def _in_turn(change: Change, paired: Paired, against: str | None) -> Change:
    paired_estimate = estimate(paired.differences)
    judgement = "unknown" if against else judged(paired.metric, paired_estimate.interval)
    open_end = "the interval holds both no change and one" if judgement == "inconclusive" else ""
    return msgspec.structs.replace(
        change,
        baseline=paired.baseline,
        current=paired.current,
        change=None if against else math.expm1(paired_estimate.mean),
        interval=None if against else paired_estimate.interval,
        judgement=judgement,
        method=f"paired t over {paired_estimate.blocks} ABBA blocks",
        reason=against or open_end,
    )


def _not_in_turn(change: Change) -> Change:
    """Return a time of which each build has one process: too little to judge it by."""
    if change.exact or change.judgement == "unknown":
        return change
    return msgspec.structs.replace(
        change, judgement="inconclusive", method="", reason="of one process each, not in turn"
    )
