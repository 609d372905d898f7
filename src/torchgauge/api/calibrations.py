"""The calibration of a host for a target: the same build on both sides, and what differs still."""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.noise import deviation, resolvable, workload
from torchgauge.api.gate_options import LEAST_BLOCKS
from torchgauge.api.gates import GateRequest, request_build
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.device import calibration
from torchgauge.errors import InputError, MeasurementError
from torchgauge.model.doctor import Noise, NoiseRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchgauge.measure.blocks import Timed

BLOCKS = 10


def calibrate(request: GateRequest, *, blocks: int = BLOCKS, progress: bool | None = None) -> Noise:
    """Time a target against itself in ABBA blocks, and keep what they differ by for gates.

    Raises what loading and running raise; KeyboardInterrupt: half a calibration is none.
    InputError `option-invalid`, `output-unwritable`.
    """
    require_torch()
    if blocks < LEAST_BLOCKS:
        raise InputError(
            f"{blocks} blocks show no spread.",
            id="option-invalid",
            remedy=f"Give --blocks as {LEAST_BLOCKS} or more.",
        )
    from torchgauge.api.paired_gate import first_look, pace_for
    from torchgauge.measure.blocks import block
    from torchgauge.measure.noise import watch_others
    from torchgauge.measure.paired_run import run

    build = request_build(request)
    with measuring(progress) as shown:
        record = first_look(build, shown)
        watched = watch_others()
        shown.start("timing the build against itself")
        pace = pace_for((record, record))
        one = functools.partial(block, build, build, pace)
        done = run(one, blocks, blocks, lambda _: True, shown)
    if done.interrupted:
        raise KeyboardInterrupt
    if not done.whole:
        raise _cut_short(done.warnings[0].message)
    found = _noise_run(workload(record.target), done.blocks, watched())
    return _kept(record.environment.machine.fingerprint, found)


def _noise_run(name: str, blocks: Sequence[Timed], other: float | None) -> NoiseRun:
    return NoiseRun(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        workload=name,
        torch=blocks[0].torch,
        threads=blocks[0].threads,
        differences=tuple(one.differences()["latency"] for one in blocks),
        medians=tuple(
            sum(visits) / len(visits) for one in blocks for visits in one.figures["latency"]
        ),
        other=other,
        duration=sum(one.duration for one in blocks),
    )


def _kept(fingerprint: str, run: NoiseRun) -> Noise:
    kept_in = str(calibration.keep(fingerprint, run))
    kept = [one for one in calibration.runs(fingerprint) if one.workload == run.workload]
    s_d, high = deviation([d for one in kept for d in one.differences])
    found = Noise(
        deviation=s_d,
        deviation_high=high,
        blocks=sum(len(one.differences) for one in kept),
        resolvable=resolvable(s_d),
        run=run,
        sessions=len(kept),
        kept_in=kept_in,
    )
    between = calibration.between_sessions(fingerprint, run.workload)
    return found if between is None else msgspec.structs.replace(found, between=between.between)


def _cut_short(cause: str) -> MeasurementError:
    return MeasurementError(
        "The calibration did not come to its end.",
        id="calibration-failed",
        cause=cause,
        remedy="Run it again when what it says is remedied.",
    )
