"""The headline metrics of a run that are significantly worse than those of a stored run."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.compare.shapes import compare_generations
from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.gate.tolerances import GENERATION_METRICS, USUAL_METRICS, default_tolerance
from torchgauge.records.comparison import Change, Comparison, Regressions
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile


def regressions(
    baseline: Profile, current: Profile, *, noise: HostNoise | None = None
) -> Regressions:
    """Return the metrics that got worse by more than is tolerated, and the undecided ones.

    With six processes on each side latency is judged by its interval; with fewer only a change
    beyond the host's noise floor counts (20 % where it was never calibrated).
    """
    comparison = compare(baseline, current, noise=noise)
    changes = [
        change for name in USUAL_METRICS if (change := comparison.change_of(name)) is not None
    ]
    return _among(changes, comparison)


def generation_regressions(baseline: Generation, current: Generation) -> Regressions:
    """Return what got worse of the model and of each shape that both generations measured."""
    comparison = compare_generations(baseline, current)
    names = {*USUAL_METRICS, *GENERATION_METRICS}
    changes = [
        change
        for change in comparison.changes
        if change.metric in names and None not in (change.baseline, change.current)
    ]
    return _among(changes, comparison)


def _among(changes: Sequence[Change], comparison: Comparison) -> Regressions:
    return Regressions(
        regressed=tuple(filter(_worse, changes)),
        undecided=tuple(
            change for change in changes if change.judgement in ("inconclusive", "unknown")
        ),
        comparison=comparison,
    )


def _worse(change: Change) -> bool:
    if change.judgement != "worse":
        return False
    accepted = default_tolerance(change.metric).accepted
    interval = change.judged_interval
    smallest = change.change if interval is None else interval.low
    if change.better == "higher" and change.change is not None:
        smallest = -change.change if interval is None else -interval.high
    return smallest is None or smallest > accepted
