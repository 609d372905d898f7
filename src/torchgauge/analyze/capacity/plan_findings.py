"""What to know of a plan of capacity, and what makes it doubtful."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.analyze.capacity.capacity_options import MOST_WORKERS, CapacityOptions
from torchgauge.analyze.capacity.prediction import FULLEST
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.requests import Distribution

# A rate so near to the knee leaves no room for a busy hour.
NEAR = 0.9
# In a server, cores and caches are shared with reading and answering.
OUTSIDE = ("call", "sweep", "profile", "generation")
# Beyond this half-width of its interval p99 is doubtful; so many batches are named as show this.
UNCERTAIN, NARROW = 0.15, 0.1


def with_findings(plan: CapacityPlan, options: CapacityOptions) -> CapacityPlan:
    """Return the plan with its findings and warnings."""
    findings = tuple(_findings(plan, options))
    return msgspec.structs.replace(plan, findings=findings, warnings=tuple(_warnings(plan)))


def _findings(plan: CapacityPlan, options: CapacityOptions) -> Iterator[Finding]:
    worker_rate = plan.highest_rate.value if plan.highest_rate is not None else math.inf
    needed, failure = plan.needed, plan.failure
    rate = options.offered
    if needed is None:
        title, evidence, remedy = _none(plan, options, worker_rate)
        yield Finding(
            id="capacity-none", severity="serious", title=title, evidence=evidence, remedy=remedy
        )
        return
    if needed.knee is not None and rate > NEAR * needed.knee.value:
        yield Finding(
            id="capacity-near-knee",
            severity="warning",
            title="The rate is close to the knee",
            evidence=f"{rate:,.4g} requests/s are {units.percent(rate / needed.knee.value)} of the "
            f"{needed.knee.value:,.4g} that {needed.workers} workers stand within the goals.",
            remedy="Plan for the rate of the busiest minutes, or with --headroom failure:1.",
        )
    if failure is not None and not failure.stable:
        highest = failure.workers * worker_rate
        grows = rate > highest
        yield Finding(
            id="capacity-failure",
            severity="warning",
            title="Without one worker the queue grows without end"
            if grows
            else "Without one worker the queue hardly comes to rest",
            evidence=f"{failure.workers:,} answer {highest:,.4g} requests/s at most: "
            + (
                f"{rate - highest:,.3g} more wait with each second."
                if grows
                else f"{rate:,.5g} are more than {units.percent(FULLEST)} of that."
            ),
            remedy="--headroom failure:1 plans for it.",
        )


def _none(plan: CapacityPlan, options: CapacityOptions, worker_rate: float) -> tuple[str, str, str]:
    """Return why no setting is enough: title, evidence, remedy."""
    rate, count = options.offered, options.workers
    if count is None and 2 * rate / worker_rate + options.failures > MOST_WORKERS:
        return (
            f"{MOST_WORKERS:,} workers are not enough",
            f"One answers {worker_rate:,.4g} requests/s at most, and {rate:,.4g} come.",
            "Plan for a lower rate or fewer that fail, or make the model faster.",
        )
    if count is None:
        return (
            "No number of workers meets the goals for sure",
            "Even where no request waits for a worker, the batch's delay and its seconds are over "
            "a limit, or too uncertain.",
            "Shorten --max-delay, lower --max-batch, make the model faster, or measure longer.",
        )
    workers = f"{count:,} worker{'s' * (count != 1)}"
    setting, remedy = plan.settings[0], "Leave --workers out to find how many it takes."
    evidence = "The settings below have the figures."
    if not setting.stable:
        evidence = (
            f"At most {count * worker_rate:,.4g} requests/s are answered, and {rate:,.5g} come."
        )
        return f"The queue of {workers} does not come to rest", evidence, remedy
    if setting.verdict in ("met", None):  # of those that failures leave it is not
        return f"{workers} are too few where {options.failures:,} fail", evidence, remedy
    how = "miss the goals" if setting.verdict == "missed" else "do not meet the goals for sure"
    if count == 1:
        how = how.replace("miss ", "misses ").replace("do not", "does not")
    return f"{workers} {how}", evidence, remedy


def _warnings(plan: CapacityPlan) -> Iterator[MeasurementWarning]:
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if plan.times.source == "answers":
        yield MeasurementWarning(
            id="times-inferred",
            message="The server tells no service times: they are inferred from when it answered. "
            "That other workers are like it is assumed.",
            remedy="Run the load that would refute it: --verify URL, of as many workers.",
        )
    if plan.times.source in OUTSIDE:
        yield MeasurementWarning(
            id="times-outside-server",
            message="The service times were measured outside of a server, where reading requests "
            "and answering them take none of the model's cores.",
            remedy=_in_the_server(plan, setting),
        )
    if setting is not None and setting.latency is not None and plan.times.queues != "unknown":
        yield from _uncertain(setting.latency, sum(len(p.seconds) for p in plan.times.batches))
    if plan.discipline == "continuous":
        cache = [part for part in plan.times.tokens if part.stage == "decode"]
        if cache and cache[0].memory is None:
            yield MeasurementWarning(
                id="cache-unlimited",
                message="How many positions the cache holds is unknown: it is taken as unlimited.",
                remedy="Measure two batches with memory: torchgauge generate TARGET --batch 1,4",
            )


def _in_the_server(plan: CapacityPlan, setting: PlannedSetting | None) -> str:
    """Return how to measure in a server, or where none of ours is, how to hold the plan to one."""
    rate = plan.arrivals.rate or 1.0
    if plan.discipline == "continuous":
        prompt, new = plan.times.shapes[0] if plan.times.shapes else (128, 64)
        return (
            "Hold the plan to your server by --verify URL, or by: torchgauge load URL "
            f"--api openai-chat --tokens {prompt:d}:{new:d} --rate {rate:.4g}"
        )
    rate /= 1 if setting is None else setting.workers
    batch = 1 if setting is None else setting.max_batch
    spec = shlex.quote(plan.target.spec)
    return (
        f"Measure them in a server: torchgauge load {spec} --rate {rate / 2:.3g},{rate:.3g} "
        f"--max-batch {batch:d} -o load.json"
    )


def _uncertain(latency: Distribution, batches: int) -> Iterator[MeasurementWarning]:
    """Warn where the measured batches leave the tail open, with how many would show it."""
    if latency.mean.interval is None:
        yield MeasurementWarning(
            id="no-intervals",
            message=f"Figures have no intervals: {latency.mean.reason}",
            remedy="Measure more batches.",
        )
        return
    tail = latency.percentile(0.99)
    if tail is None or tail.interval is None or not batches:
        return
    reach = math.log(tail.interval.high / tail.interval.low) / 2
    if reach > UNCERTAIN:
        # What the mean of the service times is known to goes as one over the root of their number.
        needed = units.significant(batches * (reach / NARROW) ** 2, 2)
        yield MeasurementWarning(
            id="batches-few",
            message=f"p99 is known to {units.percent(reach)} only: the service times are "
            "uncertain, and the nearer to the highest rate, the more of that is in the wait.",
            remedy=f"Measure longer: some {needed} batches in place of {batches:,} show it to "
            f"{units.percent(NARROW)}, or plan with another worker.",
        )
