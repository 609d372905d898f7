"""Which layers changed, from the blocks of a paired run: a test each, false discoveries counted."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from torchgauge.analyze.compare_places import shortened, with_significance
from torchgauge.analyze.paired import estimate
from torchgauge.imports import imported
from torchgauge.model.comparison import Comparison, Place
from torchgauge.model.record import Interval

TESTED = "paired t over {blocks} ABBA blocks, false discoveries at 5 % (Benjamini–Hochberg)"
FEWEST = 3


@dataclasses.dataclass(frozen=True)
class LayerTest:
    """One layer's d by block, tested against no change on both sides."""

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

        found = estimate(self.differences)
        if found.deviation == 0:
            return 1.0 if found.mean == 0 else 0.0
        statistic = abs(found.mean) * math.sqrt(found.blocks) / found.deviation
        return float(2 * t.sf(statistic, found.blocks - 1))


def with_layers(
    comparison: Comparison,
    differences: Sequence[Mapping[str, float]],
    layers: Sequence[Sequence[Mapping[str, float]]],
    step_change: float,
) -> Comparison:
    """Return the comparison with layers as the blocks timed and tested them.

    `differences` are d by layer path and block, `layers` the own seconds of the four processes
    (A, B, B, A) of each block, `step_change` the seconds by which the whole step changed.
    """
    if len(differences) < FEWEST:
        return comparison
    common = set(differences[0]).intersection(*differences[1:])
    tests = {path: LayerTest(tuple(one[path] for one in differences)) for path in common}
    before, after = ([block[n] for block in layers for n in side] for side in ((0, 3), (1, 2)))
    places = [_timed(place, before, after) for place in comparison.layers]
    known = {place.name for place in places}
    found = shortened(
        with_significance(places, {path: test for path, test in tests.items() if path in known})
    )
    return msgspec.structs.replace(
        comparison,
        layers=found,
        step_change=step_change,
        elsewhere=step_change - math.fsum(place.contribution for place in found),
        places_tested=TESTED.format(blocks=len(differences)),
    )


def _timed(
    place: Place, before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> Place:
    old, new = _typical(place.name, before), _typical(place.name, after)
    if old is None and new is None:
        return place
    return msgspec.structs.replace(
        place,
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
