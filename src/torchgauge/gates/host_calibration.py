"""Calibrate a host for a target: time the same build on both sides and keep the differences."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence

import msgspec

from torchgauge.analyze.latency.noise import deviation, resolvable, workload
from torchgauge.device import calibration
from torchgauge.errors import MeasurementError, option_invalid
from torchgauge.gates.gate_options import LEAST_BLOCKS
from torchgauge.gates.paired_gate import first_look, pace_for
from torchgauge.measure.latency.blocks import Timed, block, run
from torchgauge.measure.latency.noise import watch_others
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Progress
from torchgauge.records.doctor import Noise, NoiseRun


def check_blocks(blocks: int) -> None:
    """Raise InputError `option-invalid` for fewer blocks than show a spread."""
    if blocks < LEAST_BLOCKS:
        raise option_invalid(
            f"{blocks} blocks show no spread.", f"Give --blocks as {LEAST_BLOCKS} or more."
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
        raise MeasurementError(
            "The calibration did not finish.",
            id="calibration-failed",
            cause=done.warnings[0].message,
            remedy="Remedy the cause, then run it again.",
        )
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
