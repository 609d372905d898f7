"""Options of a latency measurement, and of the sampling in one of its processes; without torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchgauge.errors import InputError, option_conflict, option_invalid
from torchgauge.measure.effort import USUAL, Effort

if TYPE_CHECKING:
    from torchgauge.targets.training.training import Training

DEFAULT_BUDGET = 30.0
DEFAULT_PRECISION = 0.01


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
    """How long to sample: until the median is known to ±`target_rel_error`, or as the fields say.

    `warmup` samples are left out (None: the data decide). `iterations` steady samples are taken,
    exactly (None: until the precision is reached). `budget` is in seconds and holds for the calls
    after the first; None stands for 30 s, and with `iterations` given for no limit. `independent`
    samples n/τ are taken at least, for the interval of a percentile; the budget still ends it, and
    `iterations` are taken exactly. `short` is for one of several processes: 0.3 s and ten
    calls are enough, because processes differ by more than a longer look at one of them tells.

    Raises InputError `option-invalid`.
    """

    warmup: int | None = None
    iterations: int | None = None
    target_rel_error: float = DEFAULT_PRECISION
    budget: float | None = None
    independent: int = 0
    short: bool = False

    def __post_init__(self) -> None:
        if self.warmup is not None and self.warmup < 0:
            raise _invalid("warmup", self.warmup, "0 samples or more")
        if self.iterations is not None and self.iterations < 1:
            raise _invalid("iterations", self.iterations, "1 sample or more")
        if not 0 < self.target_rel_error < 1:
            raise _invalid("target_rel_error", self.target_rel_error, "between 0 and 1, as in 0.01")
        if self.budget is not None and not self.budget > 0:
            raise _invalid("budget", self.budget, "more than 0 seconds")

    @property
    def time_limit(self) -> float:
        """The seconds after which no further call begins."""
        if self.budget is not None:
            return self.budget
        return DEFAULT_BUDGET if self.iterations is None else math.inf


def _invalid(name: str, value: object, requirement: str) -> InputError:
    return option_invalid(
        f"{name} = {value!r} is not possible.",
        f"Give {name} as {requirement}.",
        cause=f"{name} must be {requirement}.",
    )


@dataclasses.dataclass(frozen=True)
class LatencyOptions:
    """How latency is to be measured; `budget` in seconds, for all processes together.

    `processes` None: as many short ones as `budget` allows, the first of them this one; with
    `iterations` given, this one alone. `target_rel_error` None: ±1 % in a process that is measured
    alone, and nothing is asked of several. `short` is for one of several: see `SamplingPlan`.

    `layers` has each of several processes time its layers as well, when all calls are timed.

    `independent` is the least number of samples n/τ, of all processes together. `effort` is what
    holds where nothing else is given.

    Raises InputError `option-invalid`, `option-conflict`.
    """

    train: Training | None = None
    warmup: int | None = None
    iterations: int | None = None
    processes: int | None = None
    target_rel_error: float | None = None
    budget: float | None = None
    independent: int = 0
    preprocess: Callable[[Any], Any] | None = None
    postprocess: Callable[[Any], Any] | None = None
    cold_cache: bool = False
    layers: bool = False
    short: bool = False
    effort: Effort = USUAL

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise option_invalid(
                f"processes = {self.processes} is not possible.",
                "Give processes as 1 or more.",
                cause="At least one process must measure.",
            )
        if self.train is not None and (self.preprocess or self.postprocess):
            raise option_conflict(
                "A training step has no preprocess and postprocess stages.",
                "Leave train, or preprocess and postprocess, out.",
                cause="Stages are timed end to end for inference.",
            )
        _ = self.plan

    @property
    def plan(self) -> SamplingPlan:
        """The part that the sampling loop needs."""
        return SamplingPlan(
            self.warmup,
            self.iterations,
            DEFAULT_PRECISION if self.target_rel_error is None else self.target_rel_error,
            self.effort.latency if self._quick and self.budget is None else self.budget,
            self.independent,
            self.short or self._quick,
        )

    @property
    def several(self) -> bool:
        """True where as many processes are to be measured as the budget allows."""
        return self.processes is None and self.iterations is None and self.effort.several

    @property
    def _quick(self) -> bool:
        return self.iterations is None and not self.effort.several

    @property
    def total_budget(self) -> float:
        """Seconds for several processes together."""
        return self.effort.latency if self.budget is None else self.budget

    @property
    def asked_precision(self) -> float | None:
        """What the median's interval is held against; None where nothing was asked of it."""
        if self.target_rel_error is None and not (self.several or self._quick):
            return DEFAULT_PRECISION
        return self.target_rel_error

    @property
    def staged(self) -> bool:
        """True where stages around the model are timed."""
        return self.preprocess is not None or self.postprocess is not None

    def shared(self) -> LatencyOptions:
        """Return the options of one of the processes: its share of the time, and no children."""
        budget, processes = self.plan.time_limit, self.processes or 1
        share = None if budget == float("inf") else budget / processes
        samples = math.ceil(self.independent / processes)
        return dataclasses.replace(self, processes=1, budget=share, independent=samples)
