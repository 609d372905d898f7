"""The first screen: what was measured on what, the headline figures, what bounds it, warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchgauge import units
from torchgauge.analyze.roof_quality import description
from torchgauge.model.advice import Advice
from torchgauge.model.comparison import Comparison
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.record import MeasurementWarning, Record
from torchgauge.model.roofline import Bottleneck
from torchgauge.model.snapshot import Growth, Snapshot
from torchgauge.model.sweep import Sweep
from torchgauge.model.trace import Trace
from torchgauge.model.trace_diff import TraceDiff
from torchgauge.model.trend import Trend
from torchgauge.model.verdict import Verdict
from torchgauge.report import sections, time_sections
from torchgauge.report.findings import findings
from torchgauge.report.page_series import rows
from torchgauge.report.page_shorter import short

NOT_MEASURED = "not measured in this run"


def title(record: Record) -> str:
    """Return what the page is about."""
    made = _TITLES.get(type(record))
    return type(record).__name__ if made is None else short(made(record))


def _of_comparison(record: Comparison) -> str:
    old, new = record.baseline.target.name, record.current.target.name
    return f"{new}, compared" if old == new else f"{old} → {new}"


def _of_verdict(record: Verdict) -> str:
    compared = record.comparison
    what = "" if compared is None else f": {compared.current.target.name}"
    return f"{record.outcome.upper()}{what}"


def _of_trend(record: Trend) -> str:
    return ", ".join(dict.fromkeys(one.target for one in record.series)) or "No run"


_TITLES: dict[type[Record], Callable[[Any], str]] = {
    Advice: lambda record: f"Advice for {record.target.name}",
    Comparison: _of_comparison,
    Growth: lambda record: f"{record.baseline} → {record.current}",
    Loop: lambda record: f"Loop of {', '.join(record.roots) or 'no module'}",
    Profile: lambda record: record.target.name,
    Snapshot: lambda record: record.name,
    Sweep: lambda record: f"Sweep of {record.target.name}",
    Trace: lambda record: record.name,
    TraceDiff: lambda record: f"{record.baseline.label} → {record.current.label}",
    Trend: _of_trend,
    Verdict: _of_verdict,
}


def overview(profile: Profile) -> dict[str, Any]:
    """Return the first screen of a profile."""
    return {
        "facts": rows(sections.target(profile).rows),
        "created": profile.environment.created,
        "figures": figures(profile),
        "bound": None if profile.bottleneck is None else _bound(profile, profile.bottleneck),
        "phases": _phases(profile),
        "findings": [finding._asdict() for finding in findings(profile)],
        "warnings": warnings(sections.warnings(profile)),
        "complete": profile.complete,
        "interrupted": profile.interrupted,
    }


def figures(profile: Profile) -> list[dict[str, str]]:
    """Return the headline figures; what is unknown stays among them and says so."""
    step = "time of a step" if profile.target.training else "latency"
    found = [
        _of(step, "latency", profile.latency, time_sections.latency, "median"),
        _of("throughput", "latency", profile.throughput, time_sections.throughput),
        _of("peak memory", "memory", profile.memory, sections.memory, "peak"),
        _of("parameters", "figures", profile.size, sections.size, "parameters"),
        _of("FLOPs", "roofline", profile.cost, sections.cost, "FLOPs"),
    ]
    near = profile.roofline
    if near is not None and near.efficiency is not None:
        note = f"at best {units.time(near.lower_bound)} at the roofs ({description(near.roofs)})"
        efficiency = sections.at_least(units.percent(near.efficiency), least=near.at_least)
        found.append(_figure("efficiency", efficiency, note, near.how, "roofline"))
    return found


def _of(label: str, view: str, part: Any, section: Any, row: str | None = None) -> dict[str, str]:
    """Return one row of a part's section, the first where none is named."""
    if part is None:
        return _figure(label, units.UNKNOWN, NOT_MEASURED, "", "")
    made = section(part)
    one = next(one for one in made.rows if row in (None, one.label))
    return _figure(label, one.value, one.note, made.how, view)


def _figure(label: str, value: str, note: str, how: str, view: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note, "how": how, "view": view}


def _bound(profile: Profile, found: Bottleneck) -> dict[str, Any]:
    times = {
        "arithmetic": found.compute_time,
        "memory traffic": found.memory_time,
        "neither": found.unexplained,
    }
    parts = [[name, round(time * 1e9)] for name, time in times.items() if time and time > 0]
    if found.kind is None:
        parts = []
    return {
        "kind": found.kind,
        "confidence": found.confidence,
        "evidence": found.evidence,
        "parts": parts,
        "how": found.how,
        "training": profile.target.training,
    }


def _phases(profile: Profile) -> dict[str, Any] | None:
    """Return the parts of a training step."""
    found = profile.training
    if found is None:
        return None
    return {
        "parts": [[phase.name, round(phase.seconds * 1e9)] for phase in found.phases],
        "step": round(found.step * 1e9),
        "how": found.how,
    }


def warnings(found: Iterable[MeasurementWarning]) -> list[dict[str, Any]]:
    """Return the warnings, what failed first."""
    shown = sorted(found, key=lambda one: not one.failed)
    return [
        {
            "id": one.id,
            "probe": one.probe,
            "failed": one.failed,
            "text": sections.warning_text(one),
        }
        for one in shown
    ]
