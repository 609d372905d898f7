"""Whether the fields of a record of serving fit together: columns, windows, sums."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge.records.serving.capacity_plan import CapacityPlan
from torchgauge.records.serving.distribution import Distribution
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Requests
from torchgauge.records.serving.server_use import ServerUse
from torchgauge.records.serving.service_times import ServiceTimes
from torchgauge.records.serving.serving import Serving

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
