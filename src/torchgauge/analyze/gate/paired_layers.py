"""Test each layer for a change over the blocks of a paired run, false discoveries controlled."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from torchgauge.analyze.compare.compare_locations import shortened, with_significance
from torchgauge.analyze.statistics.paired import estimate
from torchgauge.imports import imported
from torchgauge.records.comparison import Comparison, Place
from torchgauge.records.record import Interval

TESTED = "paired t over {blocks} ABBA blocks, false discoveries at 5 % (Benjamini–Hochberg)"
MIN_BLOCKS = 3


@dataclasses.dataclass(frozen=True)
class LayerTest:
    """One layer's d by block, with a two-sided test against no change."""

    differences: tuple[float, ...]

    @property
    def change(self) -> float:
        """The mean relative change."""
        return math.expm1(statistics.fmean(self.differences))

    def interval(self) -> Interval:
        """Return the 95 % interval of the change."""
        return estimate(self.differences).interval

    @property
    def p(self) -> float:
        """The two-sided probability of so large a mean without a change."""
        t = imported("scipy.stats").t

        estimated = estimate(self.differences)
        if estimated.deviation == 0:
            return 1.0 if estimated.mean == 0 else 0.0
        statistic = abs(estimated.mean) * math.sqrt(estimated.blocks) / estimated.deviation
        return float(2 * t.sf(statistic, estimated.blocks - 1))


def with_layers(
    comparison: Comparison,
    differences: Sequence[Mapping[str, float]],
    layers: Sequence[Sequence[Mapping[str, float]]],
    step_change: float,
) -> Comparison:
    """Return the comparison with the layers timed and tested over the blocks.

    `differences` are d by layer path and block, `layers` the own seconds of the four processes
    (A, B, B, A) of each block, `step_change` the seconds by which the whole step changed.
    """
    if len(differences) < MIN_BLOCKS:
        return comparison
    common = set(differences[0]).intersection(*differences[1:])
    tests = {
        path: LayerTest(tuple(block_differences[path] for block_differences in differences))
        for path in common
    }
    before, after = ([block[n] for block in layers for n in side] for side in ((0, 3), (1, 2)))
    timed_layers = [_timed(layer, before, after) for layer in comparison.layers]
    listed = {layer.name for layer in timed_layers}
    tested_layers = shortened(
        with_significance(
            timed_layers, {path: test for path, test in tests.items() if path in listed}
        )
    )
    return msgspec.structs.replace(
        comparison,
        layers=tested_layers,
        step_change=step_change,
        remainder=step_change - math.fsum(layer.contribution for layer in tested_layers),
        places_tested=TESTED.format(blocks=len(differences)),
    )


def _timed(
    layer: Place, before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> Place:
    old, new = _typical(layer.name, before), _typical(layer.name, after)
    if old is None and new is None:
        return layer
    return msgspec.structs.replace(
        layer,
        baseline=old,
        current=new,
        contribution=(new or 0.0) - (old or 0.0),
        change=new / old - 1 if old and new is not None else None,
    )


def _typical(path: str, processes: Sequence[Mapping[str, float]]) -> float | None:
    times = [layers[path] for layers in processes if path in layers]
    if not times:
        return None
    return statistics.geometric_mean(times) if min(times) > 0 else statistics.median(times)
