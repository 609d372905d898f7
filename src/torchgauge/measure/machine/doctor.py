"""The whole examination of a machine: every check, then the A/A run."""

from __future__ import annotations

import contextlib
import importlib.util

import msgspec

from torchgauge import units
from torchgauge.analyze.latency.noise import deviation, resolvable
from torchgauge.device import calibration
from torchgauge.device.checks.every import examine, most_other
from torchgauge.device.counters import logical_cores
from torchgauge.device.cpu import SystemFiles
from torchgauge.device.environment import environment
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.folders import STATE_VARIABLE
from torchgauge.measure.latency import noise
from torchgauge.progress import Progress, Silent
from torchgauge.records.doctor import Check, Diagnosis, Noise, NoiseRun
from torchgauge.records.finding import Finding

SCATTERED = 0.01
WILD = 0.05


def diagnose(
    *,
    quick: bool = False,
    files: SystemFiles | None = None,
    block: noise.Block | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examine this machine and process; `quick` leaves out the A/A run of about ten seconds.

    torch is imported where it is installed, so that what it is built with can be checked.
    """
    progress = progress or Silent()
    if importlib.util.find_spec("torch") is not None:
        # A broken torch leaves its checks unknown.
        with contextlib.suppress(ImportError, OSError):
            import torch  # noqa: F401
    progress.start("examining the machine")
    try:
        # First: its load is ours, and environment() would be counted.
        checks = examine(files)
        host_environment = environment()
        fingerprint = host_environment.machine.fingerprint
        measured, check = _noise(quick, fingerprint, checks, block, progress)
    finally:
        progress.close()
    return Diagnosis(
        environment=host_environment,
        fingerprint=fingerprint,
        checks=(*checks, check),
        noise=measured,
    )


def _noise(
    quick: bool,
    fingerprint: str,
    checks: tuple[Check, ...],
    block: noise.Block | None,
    progress: Progress,
) -> tuple[Noise | None, Check]:
    key, title = "noise", "noise floor"
    if quick:
        return None, Check.from_findings(key, title, unknown="left out by --quick")
    warned = tuple(f.id for check in checks for f in check.findings if f.severity != "info")
    progress.start("measuring the noise floor")
    try:
        run = noise.run(block=block, progress=progress, findings=warned)
    except TorchgaugeError as error:
        return None, Check.from_findings(
            key, title, unknown=f"{error.message} {error.cause}".strip()
        )
    measured = floor(run, calibration.runs(fingerprint, run))
    findings = _scatter(measured)
    cores = logical_cores()
    if run.other is not None and run.other > most_other(cores):
        findings += (_disturbed(run, cores),)
    else:
        try:
            kept_in = str(calibration.keep(fingerprint, run))
        except InputError as error:
            findings += (_not_kept(f"{error.message} {error.cause}"),)
        else:
            measured = msgspec.structs.replace(measured, kept_in=kept_in)
    summary = f"±{units.percent(2 * measured.deviation)} between two runs of one build"
    return measured, Check.from_findings(key, title, summary, findings)


def floor(run: NoiseRun, earlier: tuple[NoiseRun, ...] = ()) -> Noise:
    """Return the noise floor of this run and those before it on the same machine."""
    differences = [d for noise_run in (*earlier, run) for d in noise_run.differences]
    s_d, high = deviation(differences)
    return Noise(
        deviation=s_d,
        deviation_high=high,
        blocks=len(differences),
        resolvable=resolvable(s_d),
        run=run,
    )


def _scatter(measured: Noise) -> tuple[Finding, ...]:
    if measured.deviation <= SCATTERED:
        return ()
    return (
        Finding(
            id="noise-floor",
            severity="serious" if measured.deviation > WILD else "warning",
            title="Two runs of the same build differ",
            evidence=f"By {units.percent(measured.deviation)} (standard deviation over "
            f"{measured.blocks} A/A blocks).",
            remedy="Remedy the findings above and run doctor again; compare with more processes.",
        ),
    )


def _disturbed(run: NoiseRun, cores: int) -> Finding:
    return Finding(
        id="calibration-disturbed",
        severity="warning",
        title="The noise floor was measured under other load, and not stored",
        evidence=f"Other processes took {run.other:.2f} of {cores} cores during the A/A run.",
        remedy="Run doctor again when they are done.",
    )


def _not_kept(cause: str) -> Finding:
    return Finding(
        id="calibration-not-kept",
        severity="info",
        title="The noise floor was not stored for gates",
        evidence=cause,
        remedy=f"Set {STATE_VARIABLE} to a folder that can be written.",
    )
