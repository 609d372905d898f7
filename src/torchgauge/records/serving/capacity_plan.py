"""A plan of capacity, with the service times that it rests on."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.record import How, MeasurementWarning, Record
from torchgauge.records.serving import requests
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.target import TargetDescription

LARGEST_BATCH = 65_536
"""Requests of the largest batch that is believed: a server may name any."""


Queues = Literal["one", "bound", "random", "unknown"]
"""Whether workers take from one queue, or each has its own: of the connections bound to it, or of
what comes to it at random."""


class BatchTimes(Record, frozen=True, kw_only=True):
    """Seconds that a batch of `batch` requests took, one value per batch that ran."""

    batch: int
    seconds: tuple[float, ...]


class TokenTimes(Record, frozen=True, kw_only=True):
    """Seconds of a forward of a language model: fixed + token × tokens + pair × pairs.

    `pairs` are positions computed times positions attended to. `noise` is the relative standard
    deviation of the residuals, `cache` the bytes of the cache per position, `memory` what is left
    for it; None where unknown. `window` is how many positions are attended to at most; None where
    all are.
    """

    stage: Literal["prefill", "decode"]
    fixed: float
    per_token: float
    per_pair: float
    noise: float = 0.0
    cache: float | None = None
    memory: int | None = None
    window: int | None = None


class ServiceTimes(Record, frozen=True, kw_only=True):
    """Service times of one worker.

    Attributes:
        source: Where they are from: "server" (its own clock under load), "answers" (when a server
            answered a load that tells none), "call" (the client's clock around calls), "sweep",
            "profile", "generation" or "file".
        batches: By batch size, ascending.
        order: The sizes of all batches in the order in which they ran; empty: size after size.
        tokens: Of prefill and decode, for continuous batching.
        overhead: Seconds per request outside of the batch: reading, HTTP, answering.
        settings: What they were measured with, such as "bf16, compile default"; empty: as given.
        shapes: Prompt and answer of requests in tokens, each as frequent as the others.
        max_batch: As the server was set, or the most that it computed; None if it does not batch.
        max_delay: Seconds that a batch waited to fill at most, likewise.
        collects: Whether these begin when a free worker takes the batch's first request, as in
            LitServe and Ray Serve; else when that came, as in Triton.
        workers: Workers that shared the load when these were measured.
        at_once: Requests that each takes at once, as fast as one alone.
        queues: From which queues several take.
        error: By how much simulations of the levels are off on average, where times are inferred.
    """

    source: Literal["server", "answers", "call", "sweep", "profile", "generation", "file"]
    batches: tuple[BatchTimes, ...] = ()
    order: tuple[int, ...] = ()
    tokens: tuple[TokenTimes, ...] = ()
    overhead: float = 0.0
    settings: str = ""
    shapes: tuple[tuple[int, int], ...] = ()
    max_batch: int | None = None
    max_delay: float | None = None
    collects: bool = False
    workers: int = 1
    at_once: int = 1
    queues: Queues = "one"
    error: float = 0.0
    how: How = "measured"


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
    latency: requests.Distribution | None = None
    ttft: requests.Distribution | None = None
    tpot: requests.Distribution | None = None
    utilization: float | None = None
    mean_batch: float | None = None
    goals: tuple[requests.GoalResult, ...] = ()
    knee: requests.Estimate | None = None
    price: float | None = None
    price_per_million: float | None = None

    @property
    def stable(self) -> bool:
        """Whether the queue stays finite."""
        return self.latency is not None

    @property
    def verdict(self) -> requests.GoalVerdict | None:
        """Whether all goals would be met; None without goals."""
        return requests.verdict_of_all(self.goals)


class Check(Record, frozen=True, kw_only=True):
    """A prediction beside a measurement of the same load: from a record, or from `--verify`.

    `inside` is None where the prediction has no interval.
    """

    figure: str
    rate: float
    predicted: requests.Estimate
    measured: requests.Estimate
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
        fewest_workers: The fewest that may be enough: fewer miss a goal for sure. None where none
            are, and where a number was given.
        idle_latency: Seconds of a request that no other delays.
        highest_rate: Requests per second that a worker answers at most.
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
    goals: tuple[requests.Goal, ...] = ()
    failures: int = 0
    token_budget: int | None = None
    needed: PlannedSetting | None = None
    fewest_workers: int | None = None
    idle_latency: requests.Estimate | None = None
    highest_rate: requests.Estimate | None = None
    settings: tuple[PlannedSetting, ...] = ()
    failure: PlannedSetting | None = None
    front: tuple[PlannedSetting, ...] = ()
    checks: tuple[Check, ...] = ()
    refused: str = ""
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def by_workers(self) -> dict[int, PlannedSetting]:
        """The settings that differ from the needed one (else the first) in workers, ascending."""
        like = self.needed or self.settings[0]
        key = like.max_batch, like.max_delay, like.rate
        settings = (s for s in self.settings if (s.max_batch, s.max_delay, s.rate) == key)
        return {setting.workers: setting for setting in sorted(settings, key=lambda s: s.workers)}
