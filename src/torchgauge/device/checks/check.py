"""A check: the function that looks at the readings, with the name of what it looks at."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import NamedTuple

from torchgauge.device.checks.readings import Readings
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding


class Observation(NamedTuple):
    """What is there in words, and what could not be read and why."""

    observed: str = ""
    unknown: str = ""


Looking = Generator[Finding, None, Observation]
Look = Callable[[Readings], Looking]


def check(id: str, title: str) -> Callable[[Look], Callable[[Readings], Check]]:
    """Return the decorator of a function that yields findings and returns what it has seen."""

    def decorate(look: Look) -> Callable[[Readings], Check]:
        @functools.wraps(look)
        def checked(now: Readings) -> Check:
            looking, findings = look(now), []
            while True:
                try:
                    findings.append(next(looking))
                except StopIteration as end:
                    observation = end.value
                    return Check.from_findings(
                        id, title, observation.observed, tuple(findings), observation.unknown
                    )

        return checked

    return decorate
