"""The part of the differences within a series of runs that the machine explains."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from torchgauge.analyze.latency import correction

PRIOR_RUNS = 1.0
"""The ridge towards no correction weighs as much as this many runs."""


@dataclasses.dataclass(frozen=True)
class SeriesCorrection:
    """The machine's effect on each run of a series.

    Attributes:
        log_ratios: The part of ln(run ÷ a run at the machine's usual speed) that the machine
            explains, to be subtracted; None for a run whose yardstick does not tell.
        between: Standard deviation of a run's log figure after it, by neighbouring runs.
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
    """Return the machine's effect on each run of a series of one target, oldest first.

    The weights of a run are learnt from all others, from what changes between neighbours. Another
    version of torch makes the reference work another one, so that the machine's usual speed is the
    median over the runs of each version. A run has no correction whose yardstick lacks a kind that
    the newest yardstick has, or where fewer than six others of its version have one. None where no
    run has one, and where the correction would not have made the spread smaller by a fifth.
    """
    newest = next((yardstick for yardstick in reversed(yardsticks) if yardstick), {})
    complete = [
        value > 0 and bool(newest) and all(correction.has_kind(yardstick, kind) for kind in newest)
        for value, yardstick in zip(values, yardsticks, strict=True)
    ]
    complete_versions = [
        version for version, is_complete in zip(versions, complete, strict=True) if is_complete
    ]
    indices = [
        index
        for index, is_complete in enumerate(complete)
        if is_complete and complete_versions.count(versions[index]) > correction.MIN_RUNS
    ]
    if not indices:
        return None
    call = statistics.median(values[index] for index in indices)
    work = np.array(
        [correction.log_work(yardsticks[index], tuple(newest), call) for index in indices]
    )
    version = np.array([versions[index] for index in indices])
    for name in set(version):
        work[version == name] -= np.median(work[version == name], axis=0)
    logs = correction.Logs(np.log([values[index] for index in indices]), work)
    explained = np.array(
        [
            work[row] @ correction.fitted_weights(logs.without(row).moves(), PRIOR_RUNS)
            for row in range(len(indices))
        ]
    )
    corrected_logs = correction.Logs(logs.medians - explained, work)
    before, after = (
        math.sqrt(float((series_logs.moves().medians ** 2).mean()))
        for series_logs in (logs, corrected_logs)
    )
    if after >= correction.MAX_RESIDUAL_SHARE * before:  # both 0 where all runs are equal
        return None
    by_index = dict(zip(indices, map(float, explained), strict=True))
    ratios = tuple(by_index.get(index) for index in range(len(values)))
    return SeriesCorrection(ratios, between=after, before=before, runs=len(indices))
