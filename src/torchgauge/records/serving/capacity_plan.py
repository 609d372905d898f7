"""How many workers a rate needs: estimated by simulation, and what would show it wrong."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.serving.distribution import Distribution, Estimate
from torchgauge.records.serving.goal import Goal, GoalResult, GoalVerdict, verdict_of_all
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.service_times import ServiceTimes
from torchgauge.records.target import TargetDescription

SCHEMA = "torchgauge.capacity/1"


class PlannedSetting(Record, frozen=True, kw_only=True):
    """Workers of one setting under one rate: estimated by simulation, all of it.

    Attributes:
        workers: Workers behind one queue.
        max_batch: Requests computed at once at most.
        max_delay: Seconds that a batch waits to fill at most.
        rate: Requests per second that arrive.
        latency: From arrival to answer; None where the queue grows without end.
        ttft: To the first token, of a language model.
        tpot: Per token after the first, of a language model.
        utilization: Share of the time in which a worker computes.
        mean_batch: Requests per batch, on average.
        goals: Whether the goals would be met.
        knee: The highest rate within the goals.
        price: Of an hour.
        price_per_million: Of a million requests.
    """

    workers: int
    max_batch: int = 1
    max_delay: float = 0.0
    rate: float
    latency: Distribution | None = None
    ttft: Distribution | None = None
    tpot: Distribution | None = None
    utilization: float | None = None
    mean_batch: float | None = None
    goals: tuple[GoalResult, ...] = ()
    knee: Estimate | None = None
    price: float | None = None
    price_per_million: float | None = None

    @property
    def stable(self) -> bool:
        """Whether the queue stays finite."""
        return self.latency is not None

    @property
    def verdict(self) -> GoalVerdict | None:
        """Whether all goals would be met; None without goals."""
        return verdict_of_all(self.goals)


class Check(Record, frozen=True, kw_only=True):
    """A prediction beside a measurement of the same load: from a record, or from `--verify`.

    `inside` is None where the prediction has no interval.
    """

    figure: str
    rate: float
    predicted: Estimate
    measured: Estimate
    inside: bool | None = None


class CapacityPlan(Exported, frozen=True, kw_only=True):
    """How many workers meet the goals at a rate, and what happens around that.

    Attributes:
        target: What the service times are of.
        environment: The machine on which they were measured.
        times: The service times.
        discipline: "batches": dynamic batching, "one by one", "continuous": batching by token.
        arrivals: The load.
        goals: The limits.
        failures: Workers that may fail while the goals are met.
        token_budget: Positions that an iteration computes at most, of continuous batching.
        needed: The setting that meets them with the fewest workers; None where none does.
        settings: Every setting that was simulated around it, in order of workers.
        failure: What is left of `needed` with a worker less, at the same rate.
        front: With `--tune`: the settings that no other beats in knee, latency and workers at once.
        checks: Predictions beside measurements.
        refused: Why nothing is predicted, in a sentence; empty where it is.
        findings: What to know of it.
        warnings: Reasons to doubt a figure.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    times: ServiceTimes
    discipline: Literal["batches", "one by one", "continuous"]
    arrivals: Arrivals
    goals: tuple[Goal, ...] = ()
    failures: int = 0
    token_budget: int | None = None
    needed: PlannedSetting | None = None
    settings: tuple[PlannedSetting, ...] = ()
    failure: PlannedSetting | None = None
    front: tuple[PlannedSetting, ...] = ()
    checks: tuple[Check, ...] = ()
    refused: str = ""
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()
