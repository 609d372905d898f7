"""What to know of a plan of capacity, and what makes it doubtful."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import CapacityPlan

# A rate so near to the knee leaves no room for a busy hour.
NEAR = 0.9
# In a server, cores and caches are shared with reading and answering.
OUTSIDE = ("sweep", "profile", "generation")


def with_findings(plan: CapacityPlan, options: CapacityOptions, highest: float) -> CapacityPlan:
    """Return the plan with its findings and warnings; `highest` is the rate of a worker less."""
    findings = tuple(_findings(plan, options, highest))
    return msgspec.structs.replace(plan, findings=findings, warnings=tuple(_warnings(plan)))


def _findings(plan: CapacityPlan, options: CapacityOptions, highest: float) -> Iterator[Finding]:
    needed, failure = plan.needed, plan.failure
    rate = options.offered
    if needed is None:
        yield Finding(
            id="capacity-none",
            severity="serious",
            title=f"{options.workers} workers do not meet the goals for sure"
            if options.workers is not None
            else "No number of workers meets the goals",
            evidence="Even where no request waits for a worker, the batch's delay and its seconds "
            "are over a limit, or too uncertain."
            if options.workers is None
            else "The settings below have the figures.",
            remedy="Shorten --max-delay, lower --max-batch, or make the model faster."
            if options.workers is None
            else "Leave --workers out to find how many do.",
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
        growth = rate - highest
        yield Finding(
            id="capacity-failure",
            severity="warning",
            title="Without one worker the queue grows without end",
            evidence=f"{failure.workers} answer {highest:,.4g} requests/s at most: "
            f"{max(0.0, growth):,.3g} more wait with each second.",
            remedy="--headroom failure:1 plans for it.",
        )


def _warnings(plan: CapacityPlan) -> Iterator[MeasurementWarning]:
    if plan.times.source in OUTSIDE:
        yield MeasurementWarning(
            id="times-outside-server",
            message="The service times were measured outside of a server, where reading requests "
            "and answering them take none of the model's cores.",
            remedy="Measure them in the server: torchgauge load TARGET --rate auto -o load.json",
        )
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if setting is not None and setting.latency is not None and not setting.latency.mean.interval:
        yield MeasurementWarning(
            id="no-intervals",
            message=f"Figures have no intervals: {setting.latency.mean.reason}",
            remedy="Measure more batches.",
        )
    if plan.discipline == "continuous":
        cache = [part for part in plan.times.tokens if part.stage == "decode"]
        if cache and cache[0].memory is None:
            yield MeasurementWarning(
                id="cache-unlimited",
                message="How many positions the cache holds is unknown: it is taken as unlimited.",
                remedy="Measure two batches with memory: torchgauge generate TARGET --batch 1,4",
            )
