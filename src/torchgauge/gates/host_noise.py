"""How much runs of one build differ on a host, from its calibration or its past runs."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.latency.correction import Correction, correction
from torchgauge.analyze.latency.noise import deviation, resolvable, workload, yardsticks_of
from torchgauge.analyze.latency.run_spread import past_target, run_spread
from torchgauge.device import calibration
from torchgauge.device.calibration import past_runs
from torchgauge.errors import InputError, MeasurementError
from torchgauge.gates.gate_options import LEAST_BLOCKS
from torchgauge.gates.paired_gate import first_look, pace_for
from torchgauge.measure.latency.blocks import Timed, block, run
from torchgauge.measure.latency.noise import watch_others
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Progress
from torchgauge.records.doctor import Noise, NoiseRun
from torchgauge.records.latency.latency import PastRun

if TYPE_CHECKING:
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


def check_blocks(blocks: int) -> None:
    """Raise InputError `option-invalid` for fewer blocks than show a spread."""
    if blocks < LEAST_BLOCKS:
        raise InputError(
            f"{blocks} blocks show no spread.",
            id="option-invalid",
            remedy=f"Give --blocks as {LEAST_BLOCKS} or more.",
        )


def calibrate(build: Build, blocks: int, progress: Progress) -> Noise:
    """Time a build against itself in ABBA blocks, and keep what they differ by for gates.

    Raises as `api.calibrate`.
    """
    record = first_look(build, progress)
    watched = watch_others()
    progress.start("timing the build against itself")
    pace = pace_for((record, record))
    run_block = functools.partial(block, build, build, pace)
    done = run(run_block, blocks, blocks, lambda _: True, progress)
    if done.interrupted:
        raise KeyboardInterrupt
    if not done.complete:
        raise _cut_short(done.warnings[0].message)
    noise_run = _noise_run(workload(record.target), done.blocks, watched())
    return _stored_noise(record.environment.machine.fingerprint, noise_run)


def _noise_run(name: str, blocks: Sequence[Timed], other: float | None) -> NoiseRun:
    return NoiseRun(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        workload=name,
        torch=blocks[0].torch,
        threads=blocks[0].threads,
        differences=tuple(block.differences()["latency"] for block in blocks),
        medians=tuple(
            sum(visits) / len(visits) for block in blocks for visits in block.figures["latency"]
        ),
        other=other,
        duration=sum(block.duration for block in blocks),
    )


def _stored_noise(fingerprint: str, run: NoiseRun) -> Noise:
    kept_in = str(calibration.keep(fingerprint, run))
    past_sessions = [
        session for session in calibration.runs(fingerprint) if session.workload == run.workload
    ]
    s_d, high = deviation([d for session in past_sessions for d in session.differences])
    noise = Noise(
        deviation=s_d,
        deviation_high=high,
        blocks=sum(len(session.differences) for session in past_sessions),
        resolvable=resolvable(s_d),
        run=run,
        sessions=len(past_sessions),
        kept_in=kept_in,
    )
    between = calibration.between_sessions(fingerprint, run.workload)
    return noise if between is None else msgspec.structs.replace(noise, between=between.between)


def _cut_short(cause: str) -> MeasurementError:
    return MeasurementError(
        "The calibration did not finish.",
        id="calibration-failed",
        cause=cause,
        remedy="Remedy the cause, then run it again.",
    )
