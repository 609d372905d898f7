"""Combine a latency with the host's remembered past runs, and remember this one."""

from __future__ import annotations

import msgspec

from torchgauge.analyze.latency.between_processes import MIN_PROCESSES
from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.latency.run_spread import past_target, run_spread
from torchgauge.analyze.latency.yardstick import with_speed, yardsticks_of
from torchgauge.device.environment import environment
from torchgauge.device.past_runs import past_runs, remember
from torchgauge.measure.description import describe
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.latency_runs import LatencyRuns
from torchgauge.records.latency.latency import Latency
from torchgauge.records.latency.past_run import PastRun
from torchgauge.targets.holdings import ParameterCounts
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement


def combined(runs: LatencyRuns, placement: Placement, options: LatencyOptions) -> Latency:
    """Return the latency of the runs, its interval widened by what runs on this host differ by.

    A run of fewer than three processes, or one that was interrupted, is not remembered.
    """
    host_environment = environment()
    fingerprint = host_environment.machine.fingerprint
    target = past_target(
        describe(placement, training=options.train is not None),
        host_environment,
        parameters=_parameters(placement),
        staged=options.staged,
        cold_cache=options.cold_cache,
    )
    busy = any(warning.id == "other-load" for run in runs.runs for warning in run.warnings)
    past = past_runs(fingerprint)
    latency = combine(
        runs.runs,
        target_rel_error=options.asked_precision,
        cold_cache=options.cold_cache,
        failures=runs.failures,
        spread=run_spread(past, target, busy=busy),
    )
    yardstick = latency.yardstick
    if yardstick is not None:
        latency = msgspec.structs.replace(latency, yardstick=with_speed(yardstick, past, target))
    if latency.stop != "interrupted" and len(latency.processes) >= MIN_PROCESSES:
        medians = latency.process_medians
        run = PastRun(
            target=target,
            created=host_environment.created,
            medians=medians,
            yardstick={} if yardstick is None else yardstick.times,
            yardsticks=yardsticks_of(latency.processes),
            busy=busy,
        )
        remember(fingerprint, run)
    return latency


def _parameters(placement: Placement) -> int | None:
    model = module_of(placement.model)
    return None if model is None else ParameterCounts(model).total(model)
