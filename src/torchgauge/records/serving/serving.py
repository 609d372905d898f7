"""The record of serving: levels of load on a model or an endpoint, and its capacity."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.serving.capacity import Capacity as Capacity
from torchgauge.records.serving.goal import Goal
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.service_times import ServiceTimes
from torchgauge.records.target import InputDescription, TargetDescription

SCHEMA = "torchgauge.serving/1"


class ServedBy(Record, frozen=True, kw_only=True):
    """What answered: an endpoint of somebody's, or the reference server around a target.

    Attributes:
        kind: "endpoint": a URL; "reference": torchgauge's own batching server; "call": the target
            called in the client's process (single-stream, multi-stream, offline).
        api: "json", "openai-chat", "openai-completions", "kserve-v2" or "grpc"; "torchgauge" for
            the reference server.
        address: The URL without user, password, query or fragment; empty for a call.
        model: The model that requests name; empty where they name none.
        software: What the server calls itself (the `Server` header).
        version: HTTP/1.1, HTTP/2 or gRPC.
        max_batch: Requests that the reference server computes at once at most.
        max_delay: Seconds that it waits for a batch to fill at most.
        workers: Its workers; of an endpoint as was said, None: unknown.
    """

    kind: Literal["endpoint", "reference", "call"]
    api: str = "json"
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
            for name, level in zip(self.level_names, self.levels, strict=True)
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
    def complete(self) -> bool:
        """True where every level was run to its end and nothing failed."""
        return not self.interrupted and not any(warning.failed for warning in self.all_warnings)

    @property
    def level_names(self) -> tuple[str, ...]:
        """What the levels are called: a second one of the same load "50 requests/s, again"."""
        labels = [level.label for level in self.levels]
        return tuple(
            label + ", again" * labels[:index].count(label) for index, label in enumerate(labels)
        )

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
