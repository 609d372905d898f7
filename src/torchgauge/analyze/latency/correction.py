"""The part of a difference between runs that the machine explains.

Others disturb some processes of a run more than the rest, so that its fastest ones tell most of
the target. The logarithm of their time follows those of the reference work, and of the page faults
of the calls, with weights that depend on what the target is bound by. All is learnt from the
host's earlier runs of the target, never from the runs that are corrected.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.latency.noise import FAULTING, WAITING
from torchgauge.imports import imported
from torchgauge.records.latency.latency import PastRun

Floats = npt.NDArray[np.float64]


class Logs(NamedTuple):
    """Runs or processes: log medians, and log times of reference work, a column to each kind."""

    medians: Floats
    work: Floats

    def moves(self) -> Logs:
        """Return what changed from run to run, at the scale of a single run.

        A change of the target that stays is in one of them, and in half of the centred runs.
        """
        return Logs(*(np.diff(part, axis=0) / math.sqrt(2) for part in self))

    def without(self, row: int) -> Logs:
        """Return all rows but one."""
        return Logs(np.delete(self.medians, row), np.delete(self.work, row, axis=0))


def has_kind(yardstick: Mapping[str, float], kind: str) -> bool:
    """Tell whether a process or a run has the figure of this kind."""
    return kind in yardstick and (kind == FAULTING or yardstick[kind] > 0)


def log_work(yardstick: Mapping[str, float], kinds: Sequence[str], call: float) -> list[float]:
    """Return the logs of reference work, and of what page faults add to a `call` of so long."""
    return [
        math.log1p(yardstick[kind] / call) if kind == FAULTING else math.log(yardstick[kind])
        for kind in kinds
    ]


def fitted_weights(logs: Logs, prior_count: float) -> Floats:
    """Return the weights, none negative, at which centred logs follow the work.

    The ridge towards no weight counts for `prior_count` runs or processes.

    Source: Hoerl and Kennard (1970) for the ridge; Lawson and Hanson (1974) for the solution.
    """
    nnls = imported("scipy.optimize").nnls

    kinds = logs.work.shape[1]
    if kinds == 0:
        return np.zeros(0)
    rows = np.vstack([logs.work, math.sqrt(ridge(logs, prior_count)) * np.eye(kinds)])
    solution, _ = nnls(rows, np.concatenate([logs.medians, np.zeros(kinds)]))
    return np.asarray(solution, dtype=np.float64)


def ridge(logs: Logs, prior_count: float) -> float:
    """Return the ridge penalty that keeps weights small where there are few rows."""
    return max(prior_count * float((logs.work**2).mean()), 1e-12)


MIN_RUNS = 6
FASTEST_PROCESSES = 3
"""The number of a run's fastest processes that stand for its undisturbed time."""
MIN_ERROR = 0.001
FAST_QUANTILE = 0.25
"""The quantile of processes above which others are thought to have disturbed them."""
MAX_RESIDUAL_SHARE = 0.8
"""A correction must leave this share of the spread at most, in runs that it was not learnt from."""
PRIOR_PROCESSES = 5.0
"""The ridge towards no correction weighs as much as this many processes."""
BISECTIONS = 60


@dataclasses.dataclass(frozen=True)
class Correction:
    """The machine's effect on one run relative to another.

    Attributes:
        log_ratio: The part of ln(current ÷ baseline) that the machine explains, to be subtracted.
        error: Standard error of the corrected difference.
        between: Standard deviation of a typical run's log time after the correction.
        before: The same without a correction.
        runs: Earlier runs of the target that this rests on.
    """

    log_ratio: float
    error: float
    between: float
    before: float
    runs: int


def correction(baseline: PastRun, current: PastRun, past: Sequence[PastRun]) -> Correction | None:
    """Return the part of the difference between two runs of a target that the machine explains.

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
    other_runs = [run for run in past if run.medians not in (baseline.medians, current.medians)]
    own = [run for run in other_runs if run.target == current.target and _usable(run, ())]
    if len(own) < MIN_RUNS or not (_usable(baseline, ()) and _usable(current, ())):
        return None
    with_work = [run for run in own if _usable(run, kinds)] if kinds else []
    candidates: tuple[tuple[str, ...], ...] = ((),)
    if len(with_work) >= MIN_RUNS:
        faulting = (FAULTING,) if FAULTING in kinds else ()
        own, candidates = with_work, ((), faulting, kinds)
    before = float(np.std([_mean(run) for run in own], ddof=1))
    residual = min(
        (_residual_spread(own, work) for work in candidates), key=lambda spread: spread.typical
    )
    if residual.typical > MAX_RESIDUAL_SHARE * before:
        return None
    old, new = (residual.figure(run) for run in (baseline, current))
    return Correction(
        log_ratio=_mean(current) - _mean(baseline) - (new.level - old.level),
        error=math.sqrt(
            2 * residual.between**2
            + old.error**2
            + new.error**2
            + residual.typical**2 * residual.weight_uncertainty(baseline, current)
        ),
        between=residual.typical,
        before=before,
        runs=len(own),
    )


class _Figure(NamedTuple):
    """A log time of a run, and its own standard error."""

    level: float
    error: float


@dataclasses.dataclass(frozen=True)
class _ResidualSpread:
    """The spread of runs after the correction: between runs, and of a typical single run."""

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

    def weight_uncertainty(self, old: PastRun, new: PastRun) -> float:
        """Return the variance from the weights' own error, as a share of a process's variance.

        It is large where the reference work moved further than in any earlier run.
        """
        if not self.kinds:
            return 0.0
        work = _above_fast(self.processes)
        information = work.work.T @ work.work + ridge(work, PRIOR_PROCESSES) * np.eye(
            len(self.kinds)
        )
        means = [_processes(run, self.kinds, self.call).work.mean(axis=0) for run in (old, new)]
        moved = means[1] - means[0]
        return float(moved @ np.linalg.solve(information, moved))

    def figure(self, run: PastRun) -> _Figure:
        """Return the figure of another run of the target."""
        return _figure(_processes(run, self.kinds, self.call), self.weights, self.usual)


def _residual_spread(own: Sequence[PastRun], kinds: tuple[str, ...]) -> _ResidualSpread:
    """Return the spread of the runs' figures, each with weights fitted to all other runs."""
    call = float(np.quantile(np.concatenate([run.medians for run in own]), FAST_QUANTILE))
    processes = [_processes(run, kinds, call) for run in own]
    usual = np.quantile(np.concatenate([logs.work for logs in processes]), FAST_QUANTILE, axis=0)
    figures = []
    for index, logs in enumerate(processes):
        weights = _process_weights(_concatenated(processes[:index] + processes[index + 1 :]))
        figures.append(_figure(logs, weights, usual))
    between = _paule_mandel(figures)
    error = statistics.median(figure.error for figure in figures)
    return _ResidualSpread(
        kinds, call, _concatenated(processes), usual, between, math.hypot(between, error)
    )


def _concatenated(processes: Sequence[Logs]) -> Logs:
    return Logs(*(np.concatenate(part) for part in zip(*processes, strict=True)))


def _above_fast(processes: Logs) -> Logs:
    """Return the excess of each process over the fast ones."""
    return Logs(*(part - np.quantile(part, FAST_QUANTILE, axis=0) for part in processes))


def _process_weights(processes: Logs) -> Floats:
    return fitted_weights(_above_fast(processes), PRIOR_PROCESSES)


def _figure(logs: Logs, weights: Floats, usual: Floats) -> _Figure:
    fastest = np.sort(logs.medians - (logs.work - usual) @ weights)[:FASTEST_PROCESSES]
    return _Figure(float(fastest.mean()), max(float(np.ptp(fastest)) / 2, MIN_ERROR))


def _paule_mandel(figures: Sequence[_Figure]) -> float:
    """Return the standard deviation between runs beyond their own errors (Paule and Mandel)."""
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
    if len(run.medians) < FASTEST_PROCESSES or min(run.medians) <= 0:
        return False
    return not kinds or (
        len(run.yardsticks) == len(run.medians)
        and all(has_kind(yardstick, kind) for yardstick in run.yardsticks for kind in kinds)
    )


def _kinds_of(run: PastRun) -> tuple[str, ...]:
    """Return the reference work that all processes of a run timed, but not how long they waited.

    A process that waited for a core did so in its calls, or between them.
    """
    kinds = sorted(set.intersection(*map(set, run.yardsticks)) if run.yardsticks else ())
    return tuple(kind for kind in kinds if kind != WAITING) if _usable(run, tuple(kinds)) else ()


def _mean(run: PastRun) -> float:
    return float(np.log(run.medians).mean())
