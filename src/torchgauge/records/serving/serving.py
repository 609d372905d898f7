"""The record of serving: levels of load on a model or an endpoint, and its capacity."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.serving.capacity_plan import CapacityPlan, ServiceTimes
from torchgauge.records.serving.level import Level, ServerUse
from torchgauge.records.serving.requests import Capacity as Capacity
from torchgauge.records.serving.requests import Distribution, Goal, Requests
from torchgauge.records.target import InputDescription, TargetDescription

SCHEMA = "torchgauge.serving/1"


class ServedBy(Record, frozen=True, kw_only=True):
    """What answered: an endpoint of somebody's, or the reference server around a target.

    Attributes:
        kind: "endpoint": a URL; "reference": torchgauge's own batching server; "call": the target
            called in the client's process (single-stream, multi-stream, offline).
        api: As `--api`, or "grpc"; "torchgauge" for the reference server.
        content: The path of the contents in a stream, where one was given.
        address: The URL without user, password, query or fragment; empty for a call.
        model: The model that requests name; empty where they name none.
        software: What the server calls itself (the `Server` header).
        version: HTTP/1.1, HTTP/2 or gRPC.
        max_batch: Requests that the server computes at once at most; None: unknown.
        max_delay: Seconds that it waits for a batch to fill at most, likewise.
        workers: Its workers, likewise. Of an endpoint these are as was said.
    """

    kind: Literal["endpoint", "reference", "call"]
    api: str = "json"
    content: str = ""
    address: str = ""
    model: str = ""
    software: str = ""
    version: str = "HTTP/1.1"
    max_batch: int | None = None
    max_delay: float | None = None
    workers: int | None = None


class Serving(Exported, frozen=True, kw_only=True):
    """What requests wait at a model or an endpoint, by offered rate.

    Attributes:
        target: The model, or the endpoint (`kind` "endpoint", `spec` its address).
        environment: The client's machine and software.
        served_by: What answered.
        goals: The limits.
        levels: In the order in which they ran.
        capacity: The highest rate within the goals; None without goals.
        service_times: Of the reference server or as a server said, by batch.
        findings: What to know of it, what is worth most first.
        interrupted: Whether Ctrl-C ended it.
        warnings: Reasons to doubt a figure.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    served_by: ServedBy
    goals: tuple[Goal, ...] = ()
    levels: tuple[Level, ...] = ()
    capacity: Capacity | None = None
    service_times: ServiceTimes | None = None
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its levels, which they name."""
        of_levels = (
            msgspec.structs.replace(warning, message=f"{name}: {warning.message}")
            for name, level in self.named_levels
            for warning in level.warnings
        )
        return (*self.warnings, *of_levels)

    @property
    def client_limited(self) -> bool:
        """Whether the client was too slow at a level: such a level measured the client.

        A search leaves such levels out, or keeps them where their goals are far above: only one
        without a capacity that left most levels out is limited by its client.
        """
        if self.capacity is not None and self.capacity.searched:
            late = sum(level.left_out == "late client" for level in self.levels)
            used = sum(not level.left_out for level in self.levels)
            return self.capacity.rate is None and late > used
        return any(level.client is not None and level.client.limited for level in self.levels)

    @property
    def level_names(self) -> tuple[str, ...]:
        """What the levels are called: a second one of the same load "50 requests/s, again"."""
        labels = [level.label for level in self.levels]
        return tuple(
            label + ", again" * labels[:index].count(label) for index, label in enumerate(labels)
        )

    @property
    def named_levels(self) -> tuple[tuple[str, Level], ...]:
        """The levels with their names."""
        return tuple(zip(self.level_names, self.levels, strict=True))

    def profile(self, level: Level | None = None) -> Profile:
        """Return a level as a profile, for what reads profiles; without one the capacity.

        Its target's name and inputs have the load or the goals, so that no other is compared with
        it.
        """
        kind = "goals"
        label = ", ".join(goal.text for goal in self.goals) or "no goals"
        if level is not None:
            label, kind = level.label, level.load["arrivals"] + level.load.get("variation", "")
            sent = {} if level.sending is None else level.sending.facts
            kind += "".join(f", {name} {fact}" for name, fact in sent.items())
        target = msgspec.structs.replace(
            self.target,
            name=f"{self.target.name}, {label}",
            inputs=(InputDescription(name=label, dtype=kind),),
        )
        return Profile(
            target=target,
            environment=self.environment,
            serving=level,
            capacity=self.capacity if level is None else None,
        )

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The levels as profiles, and the capacity where it is known."""
        has_capacity = self.capacity is not None and self.capacity.rate is not None
        return (*map(self.profile, self.levels), *[self.profile()] * has_capacity)


Disagreements = Iterator[tuple[str, str]]

_ORDERED = ("scheduled", "sent", "first", "last")
_DISTRIBUTIONS = ("latency", "service", "wait", "ttft", "itl", "tpot")
# Rounding to microseconds may swap times that are as near.
_SLACK = 1e-6


def serving_disagreements(serving: Serving) -> Disagreements:
    """Yield the path and the message of each inconsistency of a record."""
    for index, level in enumerate(serving.levels):
        yield from level_disagreements(f"levels[{index}]", level)
    interval = None if serving.capacity is None else serving.capacity.interval
    if interval is not None and interval.low > interval.high:
        yield "capacity.interval", "its ends are swapped"
    if serving.service_times is not None:
        yield from service_disagreements("service_times", serving.service_times)


def level_disagreements(path: str, level: Level) -> Disagreements:
    """Yield the path and the message of each inconsistency of a level."""
    begin, end = level.window
    if not 0 <= begin <= end:
        yield f"{path}.window", "it does not end after it begins"
    if level.duration < 0:
        yield f"{path}.duration", "it is below 0"
    if sum(level.fates.values()) != level.count or min(level.fates.values(), default=0) < 0:
        yield f"{path}.fates", "they do not add up to `count`"
    if level.requests.scheduled and level.count > len(level.requests):
        yield f"{path}.count", "there are not as many requests"
    answered = None if level.completed is None else level.completed.value
    for name, rate, limit in (
        ("goodput", None if level.goodput is None else level.goodput.value, answered),
        ("completed", answered, level.offered),
    ):
        if rate is not None and limit is not None and rate > limit * (1 + _SLACK):
            yield f"{path}.{name}", "it is above what was answered or due per second"
    for name in _DISTRIBUTIONS:
        distribution = getattr(level, name)
        if distribution is not None:
            yield from _distribution(f"{path}.{name}", distribution)
    yield from _requests(f"{path}.requests", level.requests)
    if level.server is not None:
        yield from _server(f"{path}.server", level.server)


def _distribution(path: str, distribution: Distribution) -> Disagreements:
    if distribution.count < 1:
        yield f"{path}.count", "it is below 1"
    if distribution.low > distribution.high:
        yield f"{path}.low", "it is above `high`"
    fractions = [0.0, *(percentile.fraction for percentile in distribution.percentiles), 1.0]
    if any(first >= second for first, second in itertools.pairwise(fractions)):
        yield f"{path}.percentiles", "their fractions do not rise from above 0 to below 1"


def _requests(path: str, requests: Requests) -> Disagreements:
    count = len(requests)
    for name in requests.__struct_fields__:
        column = getattr(requests, name)
        if name != "gaps" and len(column) != count and (column or name == "fate"):
            yield f"{path}.{name}", "it is not as long as `scheduled`"
            return
    if len(requests.gaps) != sum(max(0, chunks - 1) for chunks in requests.chunks):
        yield f"{path}.gaps", "they are not one less than the chunks of each request"
    if any(before > due for before, due in itertools.pairwise(requests.scheduled)):
        yield f"{path}.scheduled", "it falls"
    columns = [column for name in _ORDERED if (column := getattr(requests, name))]
    for index, times in enumerate(zip(*columns, strict=True)):
        if not _rise([time for time in times if time is not None]):
            yield f"{path}.scheduled[{index}]", "not scheduled ≤ sent ≤ first ≤ last"
            return


def _rise(times: Sequence[float]) -> bool:
    return all(first <= second + _SLACK for first, second in itertools.pairwise(times))


def _server(path: str, use: ServerUse) -> Disagreements:
    for name in use.__struct_fields__:
        column = getattr(use, name)
        if isinstance(column, tuple) and column and len(column) != len(use.time):
            yield f"{path}.{name}", "it is not as long as `time`"


def service_disagreements(path: str, times: ServiceTimes) -> Disagreements:
    """Yield the path and the message of each inconsistency of service times."""
    before = 0
    for index, batch in enumerate(times.batches):
        if batch.batch <= before:
            yield f"{path}.batches[{index}].batch", "they do not rise from above 0"
        if not batch.seconds:
            yield f"{path}.batches[{index}].seconds", "it is empty"
        before = batch.batch
    counts = {batch.batch: len(batch.seconds) for batch in times.batches}
    if times.order and Counter(times.order) != counts:
        yield f"{path}.order", "it does not have each batch once"


def plan_disagreements(plan: CapacityPlan) -> Disagreements:
    """Yield the path and the message of each inconsistency of a plan of capacity."""
    yield from service_disagreements("times", plan.times)
    named = {"needed": plan.needed, "failure": plan.failure}
    named |= {f"settings[{index}]": setting for index, setting in enumerate(plan.settings)}
    named |= {f"front[{index}]": setting for index, setting in enumerate(plan.front)}
    for path, setting in named.items():
        if setting is not None and min(setting.workers, setting.max_batch) < 1:
            yield path, "it has no worker, or batches of none"
        if setting is not None and setting.rate <= 0:
            yield f"{path}.rate", "it is not above 0"
