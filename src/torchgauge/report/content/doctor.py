"""Doctor's findings: what distorts timings on a machine, and which checks were made."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.doctor import Check, Diagnosis, Noise, NoiseRun
from torchgauge.records.finding import Finding
from torchgauge.report.content import document as doc
from torchgauge.report.tables.target_facts import hardware, software

SIGNS = {"serious": "✗", "warning": "!", "info": "i", "clear": "✓", "unknown": "?"}


def document(diagnosis: Diagnosis, _options: doc.Options) -> doc.Document:
    """Return findings, the checks behind them, and the noise that was measured."""
    environment = diagnosis.environment
    torch = "" if environment.software.torch else "no torch, "
    facts = doc.Facts(
        [
            ("machine", hardware(environment.machine)),
            ("software", f"{torch}{software(environment)}, {environment.machine.system}"),
        ]
    )
    findings_title = f"Found: {_tally(diagnosis.findings)}"
    blocks: list[doc.Block] = [
        doc.Findings(diagnosis.findings, findings_title, ids=True),
        _checks(diagnosis),
    ]
    if diagnosis.noise is not None:
        blocks.append(_noise_floor(diagnosis.noise))
    return doc.Document("What distorts timings here", facts=facts, blocks=blocks)


def _tally(findings: tuple[Finding, ...]) -> str:
    names = {"serious": "serious", "warning": "warning", "info": "to know"}
    parts = []
    for severity, name in names.items():
        if count := sum(finding.severity == severity for finding in findings):
            plural = "s" if severity == "warning" and count > 1 else ""
            parts.append(f"{count} {name}{plural}")
    return ", ".join(parts) or "nothing"


def _checks(diagnosis: Diagnosis) -> doc.Items:
    entries = []
    for check in diagnosis.checks:
        unknown = f"unknown: {check.unknown}" if check.unknown else ""
        text = doc.Detailed(check.observed + "; " * bool(check.observed and unknown), unknown)
        entries.append((_sign(check), text))
    total, complete = len(diagnosis.checks), sum(not check.unknown for check in diagnosis.checks)
    labels = [check.title for check in diagnosis.checks]
    return doc.Items(f"Checks: {complete} of {total} made in full", entries, labels=labels)


def _sign(check: Check) -> str:
    severities = {finding.severity for finding in check.findings}
    return SIGNS[next((sign for sign in SIGNS if sign in severities), check.status)]


def _noise_floor(noise: Noise) -> doc.Facts:
    figures = (noise.deviation, noise.deviation_high, noise.resolvable)
    deviation, high, resolvable = (units.percent(figure, smallest=1e-5) for figure in figures)
    pairs = [
        ("s_d", f"{deviation} per A/A block, at most {high} (95 %, {noise.blocks} blocks)"),
        ("a gate", f"of ten blocks detects changes of {resolvable} or more"),
        ("others", _other_processes(noise.run)),
        ("kept in", noise.kept_in or "nowhere"),
    ]
    return doc.Facts(pairs, "Noise floor", noise.how)


def _other_processes(run: NoiseRun) -> str:
    """Return how many cores other processes took while a machine's noise was measured."""
    return units.UNKNOWN if run.other is None else f"took {run.other:.2f} cores meanwhile"


def calibration(noise: Noise) -> doc.Document:
    """Return the noise of a target on this host."""
    duration = "" if noise.run.duration is None else f" in {units.time(noise.run.duration, 2)}"
    between_sessions = "needs 3 sessions: calibrate again another day"
    if noise.between is not None:
        between_sessions = f"{units.percent(noise.between)} over {noise.sessions} sessions"
    deviation, high = units.percent(noise.deviation), units.percent(noise.deviation_high)
    pairs = [
        ("target", noise.run.workload),
        ("measured", f"{len(noise.run.differences)} A/A blocks{duration}, {noise.sessions} kept"),
        ("of one block", f"{deviation} (standard deviation of d), at most {high}"),
        ("a gate", f"of 10 blocks detects changes of +{units.percent(noise.resolvable)} or more"),
        ("between sessions", between_sessions),
        ("other processes", _other_processes(noise.run)),
        ("kept in", noise.kept_in),
    ]
    facts = doc.Facts(pairs, label=18)
    return doc.Document("Noise of this host for the target", facts=facts)
