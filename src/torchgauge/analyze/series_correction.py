"""How much of the differences within a series of runs was the machine's, by their yardsticks."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from torchgauge.analyze.correction import FEWEST_RUNS, WORTH
from torchgauge.analyze.reference_weights import Logs, is_known, log_work, weights_of

NO_WEIGHT_WORTH = 1.0
"""No correction at all counts for so many runs."""


@dataclasses.dataclass(frozen=True)
class SeriesCorrection:
    """What the machine did to each run of a series.

    Attributes:
        log_ratios: The part of ln(run ÷ a run at the machine's usual speed) that the machine
            explains, to be subtracted; None for a run whose yardstick does not tell.
        between: Standard deviation of a run's log figure that is left, by neighbouring runs.
        before: The same without a correction.
        runs: Runs that have a correction.
    """

    log_ratios: tuple[float | None, ...]
    between: float
    before: float
    runs: int


def series_correction(
    values: Sequence[float], yardsticks: Sequence[Mapping[str, float]], versions: Sequence[str]
) -> SeriesCorrection | None:
    """Return what the machine explains of each run of a series, oldest first, of one target.

    The weights of a run are learnt from all others, from what changes between neighbours. Another
    version of torch makes the reference work another one, so that the machine's usual speed is the
    median over the runs of each version. A run has no correction whose yardstick lacks a kind that
    the newest yardstick has, or where fewer than six others of its version have one. None where no
    run has one, and where the correction would not have made the spread smaller by a fifth.
    """
    newest = next((yardstick for yardstick in reversed(yardsticks) if yardstick), {})
    whole = [
        value > 0 and bool(newest) and all(is_known(yardstick, kind) for kind in newest)
        for value, yardstick in zip(values, yardsticks, strict=True)
    ]
    known = [version for version, has_all in zip(versions, whole, strict=True) if has_all]
    places = [
        at
        for at, has_all in enumerate(whole)
        if has_all and known.count(versions[at]) > FEWEST_RUNS
    ]
    if not places:
        return None
    call = statistics.median(values[at] for at in places)
    work = np.array([log_work(yardsticks[at], tuple(newest), call) for at in places])
    version = np.array([versions[at] for at in places])
    for name in set(version):
        work[version == name] -= np.median(work[version == name], axis=0)
    logs = Logs(np.log([values[at] for at in places]), work)
    explained = np.array(
        [
            work[row] @ weights_of(logs.without(row).moves(), NO_WEIGHT_WORTH)
            for row in range(len(places))
        ]
    )
    left = Logs(logs.medians - explained, work)
    before, after = (math.sqrt(float((one.moves().medians ** 2).mean())) for one in (logs, left))
    if after >= WORTH * before:  # both 0 where all runs are equal
        return None
    by_place = dict(zip(places, map(float, explained), strict=True))
    ratios = tuple(by_place.get(at) for at in range(len(values)))
    return SeriesCorrection(ratios, between=after, before=before, runs=len(places))
