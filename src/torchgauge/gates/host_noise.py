"""How much runs of one build differ on a host, from its calibration or its past runs."""

from __future__ import annotations

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.latency.correction import Correction, correction
from torchgauge.analyze.latency.noise import workload, yardsticks_of
from torchgauge.analyze.latency.run_spread import past_target, run_spread
from torchgauge.device import calibration
from torchgauge.device.calibration import past_runs
from torchgauge.records.latency.latency import PastRun
from torchgauge.records.profile import Profile


def host_noise(baseline: Profile, current: Profile) -> HostNoise | None:
    """Return how runs of the current record's host spread on its work; None where nothing tells.

    A calibration of three sessions comes first, then what the host remembers of earlier runs. What
    the yardsticks explain of the two runs comes with it where that has been seen to help.
    """
    host_fingerprint = current.environment.machine.fingerprint
    old, new = _as_past(baseline), _as_past(current)
    past = past_runs(host_fingerprint)
    explained = _explained(old, new, past) if _one_host(baseline, current) else None
    calibrated = calibration.between_sessions(host_fingerprint, workload(current.target))
    if calibrated is not None and explained is None:
        return calibrated
    return _remembered(old, new, past, explained)


def _remembered(
    old: PastRun | None,
    new: PastRun | None,
    past: tuple[PastRun, ...],
    explained: Correction | None,
) -> HostNoise | None:
    if new is None:
        return None
    compared = [run.medians for run in (old, new) if run is not None]
    other_runs = [run for run in past if run.medians not in compared]
    busy = new.busy or (old is not None and old.busy)
    spread = run_spread(other_runs, new.target, busy=busy)
    if spread is None:
        return None
    return HostNoise(
        spread.between, spread.runs + 1, remembered=True, busy=busy, correction=explained
    )


def _explained(
    old: PastRun | None, new: PastRun | None, past: tuple[PastRun, ...]
) -> Correction | None:
    if old is None or new is None or old.target != new.target:
        return None
    return correction(old, new, past)


def _one_host(baseline: Profile, current: Profile) -> bool:
    machines = {record.environment.machine.fingerprint for record in (baseline, current)}
    return len(machines) == 1


def _as_past(record: Profile) -> PastRun | None:
    """Return a record's latency as the host would remember it; None where it has none."""
    latency = record.latency
    if latency is None:
        return None
    return PastRun(
        target=past_target(
            record.target,
            record.environment,
            parameters=None if record.size is None else record.size.parameters,
            staged=any(stage.name in ("preprocess", "postprocess") for stage in latency.stages),
            cold_cache=latency.cold_cache,
        ),
        created=record.environment.created,
        medians=latency.process_medians,
        yardstick={} if latency.yardstick is None else latency.yardstick.times,
        yardsticks=yardsticks_of(latency.processes),
        busy=any(warning.id == "other-load" for warning in latency.warnings),
    )
