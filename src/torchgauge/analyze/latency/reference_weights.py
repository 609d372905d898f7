"""How much of a target's log time follows each kind of reference work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.latency.yardstick import FAULTING
from torchgauge.imports import imported

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
