"""How much of the difference between runs was the machine's, by their yardsticks.

The logarithm of a target's time follows those of the reference work with weights that depend on
what the target is bound by. They are learnt from the host's earlier runs of the target, never from
the runs that are corrected.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.imports import imported

if TYPE_CHECKING:
    from torchgauge.model.past_run import PastRun

FEWEST_RUNS = 6
WORTH = 0.8
"""A correction must leave this share of the spread at most, in runs that it was not learnt from."""
POOLED_RUNS = 10.0
"""No correction counts for so many runs against what other targets of the host tell."""
OWN_RUNS = 1.0
"""The weights of the other targets count for so many runs against the target's own."""

_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Correction:
    """What the machine did to one run against another.

    Attributes:
        log_ratio: The part of ln(current ÷ baseline) that the machine explains, to be subtracted.
        between: Standard deviation of a run's log median that is left.
        before: The same without a correction.
        runs: Earlier runs of the target that the weights rest on.
    """

    log_ratio: float
    between: float
    before: float
    runs: int


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


class _Logs(NamedTuple):
    """Runs of one target: log medians, and log times of reference work, a column to each kind."""

    medians: _Floats
    work: _Floats

    def centred(self) -> _Logs:
        return _Logs(self.medians - self.medians.mean(), self.work - self.work.mean(axis=0))

    def moves(self) -> _Logs:
        """Return what changed from run to run, at the scale of a single run.

        A change of the target that stays is in one of them, and in half of the centred runs.
        """
        return _Logs(*(np.diff(part, axis=0) / math.sqrt(2) for part in self))

    def without(self, at: int) -> _Logs:
        return _Logs(np.delete(self.medians, at), np.delete(self.work, at, axis=0))


def correction(baseline: PastRun, current: PastRun, past: Sequence[PastRun]) -> Correction | None:
    """Return what the machine explains of the difference between two runs of one target.

    The weights are those of non-negative least squares with a ridge: those of the host's other
    targets are drawn towards no correction, the target's own towards those. None where fewer than
    six other runs of the target are remembered, and where the correction, each of those left out of
    its own weights, would not have made their spread smaller by a fifth.

    Source: Hoerl and Kennard (1970); Lawson and Hanson (1974) for the non-negative solution.
    """
    kinds = tuple(
        kind
        for kind, time in baseline.yardstick.items()
        if time > 0 and current.yardstick.get(kind, 0) > 0
    )
    others = [run for run in past if run.medians not in (baseline.medians, current.medians)]
    own = _logs([run for run in others if run.target == current.target], kinds)
    if not kinds or own is None or len(own.medians) < FEWEST_RUNS:
        return None
    names = dict.fromkeys(run.target for run in others if run.target != current.target)
    rest = [_logs([run for run in others if run.target == name], kinds) for name in names]
    pooled = _pooled([logs.centred() for logs in rest if logs is not None], len(kinds))
    before, after = _left_out(own, pooled)
    if after > WORTH * before:
        return None
    moved = np.array([math.log(current.yardstick[k] / baseline.yardstick[k]) for k in kinds])
    centred = own.centred()
    weights = _weights(centred, pooled, OWN_RUNS)
    # Reference work that moves further than it ever did is weighted by little knowledge.
    known = centred.work.T @ centred.work + _ridge(centred, OWN_RUNS) * np.eye(len(kinds))
    unknown = float(moved @ np.linalg.solve(known, moved)) / 2
    return Correction(
        log_ratio=float(moved @ weights),
        between=after * math.sqrt(1 + unknown),
        before=before,
        runs=len(own.medians),
    )


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
        value > 0 and bool(newest) and all(yardstick.get(kind, 0) > 0 for kind in newest)
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
    work = np.log([[yardsticks[at][kind] for kind in newest] for at in places])
    version = np.array([versions[at] for at in places])
    for name in set(version):
        work[version == name] -= np.median(work[version == name], axis=0)
    logs = _Logs(np.log([values[at] for at in places]), work)
    none = np.zeros(len(newest))
    explained = np.array(
        [
            work[row] @ _weights(logs.without(row).moves(), none, OWN_RUNS)
            for row in range(len(places))
        ]
    )
    left = _Logs(logs.medians - explained, work)
    before, after = (math.sqrt(float((one.moves().medians ** 2).mean())) for one in (logs, left))
    if after >= WORTH * before:  # both 0 where all runs are equal
        return None
    by_place = dict(zip(places, map(float, explained), strict=True))
    ratios = tuple(by_place.get(at) for at in range(len(values)))
    return SeriesCorrection(ratios, between=after, before=before, runs=len(places))


def _logs(runs: Sequence[PastRun], kinds: Sequence[str]) -> _Logs | None:
    """Return the runs that have all kinds of work; None below two."""
    whole = [
        run
        for run in runs
        if run.medians
        and min(run.medians) > 0
        and all(run.yardstick.get(kind, 0) > 0 for kind in kinds)
    ]
    if len(whole) < 2:
        return None
    return _Logs(
        np.array([np.log(run.medians).mean() for run in whole]),
        np.log([[run.yardstick[kind] for kind in kinds] for run in whole]),
    )


def _pooled(targets: Sequence[_Logs], kinds: int) -> _Floats:
    none = np.zeros(kinds)
    if not targets:
        return none
    together = _Logs(*(np.concatenate(part) for part in zip(*targets, strict=True)))
    return _weights(together, none, POOLED_RUNS)


def _weights(logs: _Logs, prior: _Floats, runs: float) -> _Floats:
    """Return the weights at which centred logs follow the work, the prior worth so many runs."""
    nnls = imported("scipy.optimize").nnls

    ridge = math.sqrt(_ridge(logs, runs))
    rows = np.vstack([logs.work, ridge * np.eye(prior.size)])
    found, _ = nnls(rows, np.concatenate([logs.medians, ridge * prior]))
    return np.asarray(found, dtype=np.float64)


def _ridge(logs: _Logs, runs: float) -> float:
    return max(runs * float((logs.work**2).mean()), 1e-12)


def _left_out(own: _Logs, prior: _Floats) -> tuple[float, float]:
    """Return the spread of the runs, raw and corrected, each by weights of all others."""
    raw, left = [], []
    count = own.medians.size
    for at in range(count):
        others = own.without(at)
        weights = _weights(others.centred(), prior, OWN_RUNS)
        raw.append(float(own.medians[at] - others.medians.mean()))
        left.append(raw[-1] - float((own.work[at] - others.work.mean(axis=0)) @ weights))
    # A run lies further from the mean of the others than from the mean of all.
    share = (count - 1) / count
    spread = [math.sqrt(share * math.fsum(x * x for x in logs) / count) for logs in (raw, left)]
    return spread[0], spread[1]
