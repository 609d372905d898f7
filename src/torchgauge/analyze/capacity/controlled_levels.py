"""Percentiles of levels of load, corrected by a simulation of the server with its own times."""

from __future__ import annotations

from msgspec.structs import replace

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.service_times import of_requests, service_times
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.analyze.serving.control_variate import with_control
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving


def with_controls(serving: Serving) -> Serving:
    """Add to each open-loop level its highest percentile, by a simulation of the same schedule.

    Only where the server tells how long its batches take; too few of them draw no service times.
    They are of levels with a steady state: an overloaded server computes otherwise.
    """
    batches, order = of_requests(level.requests for level in serving.levels if _is_steady(level))
    if serving.service_times is None or not batches:
        return serving
    times = replace(service_times(serving), batches=batches, order=order)
    model = BatchModel.from_times(times)
    if not (model.uncertain and min(model.means) > 0):
        return serving
    workers = Workers(times.workers, times.max_batch or 1, times.max_delay or 0.0)

    def simulated(arrivals: Floats, seed: int) -> Floats:
        return model.run(arrivals, workers, seed).latency

    levels = [
        with_control(level, simulated) if _is_steady(level) else level for level in serving.levels
    ]
    return replace(serving, levels=tuple(levels))


def _is_steady(level: Level) -> bool:
    is_limited = level.client is not None and level.client.limited
    return not is_limited and level.saturation is not None and level.saturation.saturated is False
