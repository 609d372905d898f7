"""Test each layer for a change over the blocks of a paired run, false discoveries controlled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from torchgauge.analyze.compare.compare_locations import shortened, with_significance
from torchgauge.analyze.statistics.paired import BlockTest, FourLogs
from torchgauge.records.comparison import Comparison, Place

TESTED = "permutations in {blocks} ABBA blocks, false discoveries at 0.5 % (Benjamini–Hochberg)"
FALSE_DISCOVERIES = 0.005
MIN_BLOCKS = 3


def with_layers(
    comparison: Comparison,
    logs: Sequence[Mapping[str, FourLogs]],
    layers: Sequence[Sequence[Mapping[str, float]]],
    step_change: float,
) -> Comparison:
    """Return the comparison with the layers timed and tested over the blocks.

    `logs` and `layers` are log own times and own seconds of the four processes (A, B, B, A) of each
    block by layer path, `step_change` the seconds by which the whole step changed.
    """
    if len(logs) < MIN_BLOCKS:
        return comparison
    common = set(logs[0]).intersection(*logs[1:], (layer.name for layer in comparison.layers))
    tests = {path: BlockTest([block_logs[path] for block_logs in logs]) for path in sorted(common)}
    before, after = ([block[n] for block in layers for n in side] for side in ((0, 3), (1, 2)))
    timed_layers = [_timed(layer, before, after) for layer in comparison.layers]
    tested_layers = shortened(with_significance(timed_layers, tests, FALSE_DISCOVERIES))
    return msgspec.structs.replace(
        comparison,
        layers=tested_layers,
        step_change=step_change,
        remainder=step_change - math.fsum(layer.contribution for layer in tested_layers),
        places_tested=TESTED.format(blocks=len(logs)),
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
