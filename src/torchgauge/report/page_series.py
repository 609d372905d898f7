"""What the page draws over time: calls, bytes alive, use of the machine; whole ns and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchgauge.model.latency import Latency, LatencyRun
from torchgauge.model.profile import Profile
from torchgauge.model.record import Interval
from torchgauge.model.system import GpuUse, System
from torchgauge.report import sections, time_sections
from torchgauge.report.section import Row, Section

FLOWS = {
    "disk_read": "Read from disk by the process",
    "disk_write": "Written to disk by the process",
    "io_read": "Read by the process, from caches and pipes too",
    "io_write": "Written by the process, to caches and pipes too",
    "network_sent": "Sent by the whole machine",
    "network_received": "Received by the whole machine",
}


def latency(profile: Profile) -> dict[str, Any] | None:
    """Return every timed call of every process, with what the summary says of them."""
    found = profile.latency
    if found is None:
        return None
    return {
        "runs": [_run(run) for run in found.processes],
        "median": _ns(found.median),
        "interval": _interval(found.interval),
        "interval_title": _interval_title(found),
        "percentiles": {name: _ns(getattr(found, name)) for name in ("p90", "p95", "p99")},
        "mean": _ns(found.mean),
        "steady": found.steady,
        "rows": _rows(time_sections.latency(found, stages=profile.training is None)),
        "how": found.how,
        "summary": _summary(found),
    }


def _interval_title(found: Latency) -> str:
    scope = found.interval_scope
    known = "" if scope == "process" else "95 % "
    return f"Interval of the median, {known}{time_sections.SCOPES[scope]}"


def _run(run: LatencyRun) -> dict[str, Any]:
    return {"samples": [_ns(one) for one in run.samples], "warmup": run.warmup}


def _summary(found: Latency) -> str:
    """Say the two charts in a sentence, for those who do not see them."""
    rows = {row.label: row for row in time_sections.latency(found).rows}
    calls = sum(len(run.samples) for run in found.processes)
    return (
        f"{calls:,} timed calls: median {rows['median'].value}, {rows['median'].note}; "
        f"99 % of steady calls took at most {rows['p99'].value}."
    )


def memory(profile: Profile) -> dict[str, Any] | None:
    """Return the bytes alive over a step, and what was alive at the peak; None without a course."""
    found = profile.memory
    if found is None or not found.timeline:
        return None
    return {
        "time": [point.time for point in found.timeline],
        "live": [point.live for point in found.timeline],
        "peak": found.peak,
        "average": found.average,
        "parts": {name: part for name, part in found.parts.items() if part},
        "rows": _rows(sections.memory(found)),
        "method": found.method,
        "how": found.how,
    }


def system(profile: Profile) -> dict[str, Any] | None:
    """Return the samples of the process's use of the machine; None where memory is unknown."""
    found = profile.system
    if found is None or any(one.rss is None for one in found.samples):
        return None
    return {
        "time": [round(one.time * 1e9) for one in found.samples],
        "cores": [float(f"{one.cores:.4g}") for one in found.samples],
        "rss": [one.rss for one in found.samples],
        "core_count": found.core_count,
        "gpus": [*_flows(found), *(series for gpu in found.gpus for series in _gpu(gpu))],
        "rows": _rows(sections.system(found)),
        "how": found.how,
    }


def _flows(found: System) -> list[dict[str, Any]]:
    """Return what was read, written, sent and received over time; what stayed 0 is no series."""
    times = [_ns(one.time) for one in found.samples]
    made = []
    for name, title in FLOWS.items():
        values = [getattr(one, name) for one in found.samples]
        if any(values):
            made.append({"title": title, "unit": "bytes/s", "time": times, "values": values})
    return made


def _gpu(gpu: GpuUse) -> list[dict[str, Any]]:
    """Return what the driver told of a GPU over time; what it did not tell is no series."""
    samples = gpu.samples
    told: dict[tuple[str, str], list[Any]] = {
        ("in use", "share"): [one.utilization for one in samples],
        ("memory, used by anybody", "bytes"): [one.memory for one in samples],
        ("power", "watt"): [one.power for one in samples],
        ("clock", "hertz"): [one.clock for one in samples],
    }
    times = [_ns(one.time) for one in samples]
    return [
        {"title": f"GPU {gpu.index} {title}", "unit": unit, "time": times, "values": values}
        for (title, unit), values in told.items()
        if any(value is not None for value in values)
    ]


def _rows(section: Section) -> list[list[str]]:
    return rows(section.rows)


def rows(found: Iterable[Row]) -> list[list[str]]:
    """Return label, figure and note of each row; a share becomes part of the note."""
    return [
        [
            row.label,
            row.value,
            row.note if row.share is None else f"{row.share:.1%}".replace("%", " %"),
        ]
        for row in found
    ]


def _interval(interval: Interval | None) -> list[int] | None:
    return None if interval is None else [_ns(interval.low), _ns(interval.high)]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
