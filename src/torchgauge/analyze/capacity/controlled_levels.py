"""Percentiles of levels of load, corrected by a simulation of the server with its own times."""

from __future__ import annotations

from msgspec.structs import replace

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.service_times import service_times
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.analyze.serving.control_variate import with_control
from torchgauge.records.serving.serving import Serving


def with_controls(serving: Serving) -> Serving:
    """Add to each open-loop level its highest percentile, by a simulation of the same schedule.

    Only where the server tells how long its batches take; too few of them draw no service times.
    """
    if serving.service_times is None:
        return serving
    times = service_times(serving)
    model = BatchModel.from_times(times)
    if not (model.uncertain and min(model.means) > 0):
        return serving
    workers = Workers(times.workers, times.max_batch or 1, times.max_delay or 0.0)

    def simulated(arrivals: Floats, seed: int) -> Floats:
        return model.run(arrivals, workers, seed).latency

    levels = [
        level
        if level.client is not None and level.client.limited
        else with_control(level, simulated)
        for level in serving.levels
    ]
    return replace(serving, levels=tuple(levels))
