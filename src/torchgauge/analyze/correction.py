"""How much of the difference between runs was the machine's, by fast processes and yardsticks.

Others disturb some processes of a run more than the rest, so that its fastest ones tell most of
the target. The logarithm of their time follows those of the reference work, and of the page faults
of the calls, with weights that depend on what the target is bound by. All is learnt from the
host's earlier runs of the target, never from the runs that are corrected.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchgauge.analyze.reference_weights import (
    Floats,
    Logs,
    is_known,
    log_work,
    ridge,
    weights_of,
)
from torchgauge.analyze.yardstick import FAULTING, WAITING

if TYPE_CHECKING:
    from torchgauge.model.past_run import PastRun

FEWEST_RUNS = 6
FASTEST = 3
"""So many processes of a run tell how long its calls take where nothing disturbs them."""
LEAST_ERROR = 0.001
FAST = 0.25
"""The quantile of processes above which others are thought to have disturbed them."""
WORTH = 0.8
"""A correction must leave this share of the spread at most, in runs that it was not learnt from."""
PROCESS_WORTH = 5.0
"""No correction at all counts for so many processes."""
BISECTIONS = 60


@dataclasses.dataclass(frozen=True)
class Correction:
    """What the machine did to one run against another.

    Attributes:
        log_ratio: The part of ln(current ÷ baseline) that the machine explains, to be subtracted.
        error: Standard error of what is left of it.
        between: Standard deviation of a typical run's log time that is left.
        before: The same without a correction.
        runs: Earlier runs of the target that this rests on.
    """

    log_ratio: float
    error: float
    between: float
    before: float
    runs: int


def correction(baseline: PastRun, current: PastRun, past: Sequence[PastRun]) -> Correction | None:
    """Return what the machine explains of the difference between two runs of one target.

    A run's figure is the mean of its fastest processes: others disturb a process, and speed up
    none. Each process is corrected by its own page faults, or by its whole yardstick, where that
    would have left less spread in the other runs, each of them left out of its own weights. A run
    has an error of its own, by how far its fastest processes lie apart: one without any quiet
    moment decides little. None where fewer than six other runs are remembered, and where their
    spread would not be smaller by a fifth.

    Source: Paule and Mandel (1982) for the spread; Hoerl and Kennard (1970) and Lawson and Hanson
    (1974) for the weights.
    """
    kinds = _kinds_of(baseline) if _kinds_of(baseline) == _kinds_of(current) else ()
    others = [run for run in past if run.medians not in (baseline.medians, current.medians)]
    own = [run for run in others if run.target == current.target and _usable(run, ())]
    if len(own) < FEWEST_RUNS or not (_usable(baseline, ()) and _usable(current, ())):
        return None
    with_work = [run for run in own if _usable(run, kinds)] if kinds else []
    candidates: tuple[tuple[str, ...], ...] = ((),)
    if len(with_work) >= FEWEST_RUNS:
        faulting = (FAULTING,) if FAULTING in kinds else ()
        own, candidates = with_work, ((), faulting, kinds)
    before = float(np.std([_mean(run) for run in own], ddof=1))
    left = min((_left(own, work) for work in candidates), key=lambda known: known.typical)
    if left.typical > WORTH * before:
        return None
    old, new = (left.figure(run) for run in (baseline, current))
    return Correction(
        log_ratio=_mean(current) - _mean(baseline) - (new.level - old.level),
        error=math.sqrt(
            2 * left.between**2
            + old.error**2
            + new.error**2
            + left.typical**2 * left.unknown(baseline, current)
        ),
        between=left.typical,
        before=before,
        runs=len(own),
    )


class _Figure(NamedTuple):
    """A log time of a run, and its own standard error."""

    level: float
    error: float


@dataclasses.dataclass(frozen=True)
class _Left:
    """What is left of the spread of runs: between them, and typically of a single run in all."""

    kinds: tuple[str, ...]
    call: float
    processes: Logs
    usual: Floats
    between: float
    typical: float

    @property
    def weights(self) -> Floats:
        """The weights of the reference work, from all of the runs."""
        return _process_weights(self.processes)

    def unknown(self, old: PastRun, new: PastRun) -> float:
        """Return what the weights' own error adds, as a share of a process's variance.

        What moves further than it ever did is weighted by little knowledge.
        """
        if not self.kinds:
            return 0.0
        work = _above(self.processes)
        known = work.work.T @ work.work + ridge(work, PROCESS_WORTH) * np.eye(len(self.kinds))
        means = [_processes(run, self.kinds, self.call).work.mean(axis=0) for run in (old, new)]
        moved = means[1] - means[0]
        return float(moved @ np.linalg.solve(known, moved))

    def figure(self, run: PastRun) -> _Figure:
        """Return the figure of another run of the target."""
        return _figure(_processes(run, self.kinds, self.call), self.weights, self.usual)


def _left(own: Sequence[PastRun], kinds: tuple[str, ...]) -> _Left:
    """Return the spread of the runs' figures, each by weights of all others."""
    call = float(np.quantile(np.concatenate([run.medians for run in own]), FAST))
    processes = [_processes(run, kinds, call) for run in own]
    usual = np.quantile(np.concatenate([logs.work for logs in processes]), FAST, axis=0)
    figures = []
    for at, logs in enumerate(processes):
        weights = _process_weights(_together(processes[:at] + processes[at + 1 :]))
        figures.append(_figure(logs, weights, usual))
    between = _paule_mandel(figures)
    error = statistics.median(figure.error for figure in figures)
    return _Left(kinds, call, _together(processes), usual, between, math.hypot(between, error))


def _together(processes: Sequence[Logs]) -> Logs:
    return Logs(*(np.concatenate(part) for part in zip(*processes, strict=True)))


def _above(processes: Logs) -> Logs:
    """Return by how much each process is above the fast ones."""
    return Logs(*(part - np.quantile(part, FAST, axis=0) for part in processes))


def _process_weights(processes: Logs) -> Floats:
    return weights_of(_above(processes), PROCESS_WORTH)


def _figure(logs: Logs, weights: Floats, usual: Floats) -> _Figure:
    fastest = np.sort(logs.medians - (logs.work - usual) @ weights)[:FASTEST]
    return _Figure(float(fastest.mean()), max(float(np.ptp(fastest)) / 2, LEAST_ERROR))


def _paule_mandel(figures: Sequence[_Figure]) -> float:
    """Return the standard deviation of runs that explains what their own errors do not."""
    levels, errors = (np.array(part) for part in zip(*figures, strict=True))

    def excess(between: float) -> float:
        weights = 1 / (between**2 + errors**2)
        centre = (weights @ levels) / weights.sum()
        return float(weights @ (levels - centre) ** 2) - (len(levels) - 1)

    low, high = 0.0, float(np.ptp(levels)) + 1.0
    if excess(low) <= 0:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _processes(run: PastRun, kinds: tuple[str, ...], call: float) -> Logs:
    work = [log_work(yardstick, kinds, call) for yardstick in run.yardsticks]
    shape = (len(run.medians), len(kinds))
    return Logs(np.log(run.medians), np.array(work if kinds else []).reshape(shape))


def _usable(run: PastRun, kinds: tuple[str, ...]) -> bool:
    if len(run.medians) < FASTEST or min(run.medians) <= 0:
        return False
    return not kinds or (
        len(run.yardsticks) == len(run.medians)
        and all(is_known(yardstick, kind) for yardstick in run.yardsticks for kind in kinds)
    )


def _kinds_of(run: PastRun) -> tuple[str, ...]:
    """Return the reference work that all processes of a run timed, but not how long they waited.

    A process that waited for a core did so in its calls, or between them.
    """
    kinds = sorted(set.intersection(*map(set, run.yardsticks)) if run.yardsticks else ())
    return tuple(kind for kind in kinds if kind != WAITING) if _usable(run, tuple(kinds)) else ()


def _mean(run: PastRun) -> float:
    return float(np.log(run.medians).mean())
