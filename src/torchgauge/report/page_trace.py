"""The page of recorded traces: the ranks beside each other, and the details of one at a time.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from torchgauge import units
from torchgauge.model.breakdown import Breakdown
from torchgauge.model.finding import Finding
from torchgauge.model.trace import Job, RankTrace, Trace
from torchgauge.report import page_trace_tables, page_tree
from torchgauge.report.page_choice import Choice, Option
from torchgauge.report.page_overview import warnings
from torchgauge.report.page_shorter import largest, short
from torchgauge.report.trace import chosen, facts
from torchgauge.report.trace_devices import side_by_side
from torchgauge.report.trace_standing_out import standing_out, warned

# Of all ranks of a page together, so that those of many stay one that opens at once.
NODES = 40_000
ROWS = 30_000
MOST = 64  # ranks with details
PARTS = (
    "compute", "communication", "copies", "idle: host", "idle: device", "idle: other",
    "idle: outside",
)  # fmt: skip
# Which part of the page says more of a finding.
_VIEWS = {
    "straggler": "ranks",
    "slow-collective": "ranks",
    "fp32-products": "tables",
    "pageable-copies": "tables",
    "synchronisation": "tables",
    "launched-before": "tree",
}


def choice(trace: Trace) -> Choice:
    """Return the parts of each rank, those of the straggler first where there is one."""
    first = chosen(trace)
    shown = _detailed(trace)
    nodes, rows = max(NODES // len(shown), 100), max(ROWS // len(shown), 100)
    options = [Option(rank_name(one), _parts(trace, one, nodes, rows)) for one in shown]
    return Choice("Rank", options, next(at for at, one in enumerate(shown) if one is first))


def _detailed(trace: Trace) -> list[RankTrace]:
    """Return the ranks that there is room for, the one shown first among them."""
    found = list(trace.ranks[:MOST])
    first = chosen(trace)
    if not any(one is first for one in found):
        found[-1] = first
    return found


def _parts(trace: Trace, one: RankTrace, nodes: int, rows: int) -> dict[str, Any]:
    kept = largest(one.tree, nodes)
    return {
        "overview": overview(trace, one),
        "devices": devices(one),
        "path": page_trace_tables.path(one.critical_path),
        "course": course(one),
        "tree": {**page_tree.columns(kept.tree), "note": _said_of_tree(one, len(kept.tree.rows))},
        "tables": page_trace_tables.tables(one, rows, kept.at),
        "unrecorded": [short(said) for said in one.missing] or None,
    }


def course(one: RankTrace) -> dict[str, Any] | None:
    """Return the bytes held over the window by the device that held most; None without any."""
    used = max(one.memory, key=lambda each: each.peak, default=None)
    if used is None or len(used.timeline) < 2:
        return None
    name = "the host" if used.device is None else f"GPU {used.device}"
    told = "." if used.reserved is None else f", reserved at most {units.size(used.reserved)}."
    return {
        "x": [round(point[0] * 1e9) for point in used.timeline],
        "timed": True,
        "alive": [point[1] for point in used.timeline],
        "reserved": [point[2] for point in used.timeline] if used.reserved is not None else None,
        "failed": [],
        "peak": used.peak,
        "marks": None,
        "note": "Alive: the allocator's own total at each allocation and free.",
        "summary": f"Tensors of {name}: at most {units.size(used.peak)}{told}",
    }


def _said_of_tree(one: RankTrace, shown: int) -> str:
    steps, nodes = one.tree.steps, len(one.tree.rows)
    whole = f"All {steps:,} marked steps together, in the tables too." if steps > 1 else ""
    less = f"The largest of {nodes:,} nodes; what is smaller is one." if nodes > shown else ""
    return f"{whole} {less}".strip()


def rank_name(one: RankTrace) -> str:
    """Return the rank's number, the file's name where it says none."""
    return short(one.file) if one.rank is None else f"{one.rank}"


def overview(trace: Trace, one: RankTrace) -> dict[str, Any]:
    """Return the first screen of a rank."""
    several = [["file", short(one.file), ""]] if len(trace.ranks) > 1 else []
    found = warned(trace, one)
    return {
        "facts": [*several, *([label, short(said), ""] for label, said in facts(trace, one))],
        "created": _created(one.contents.begin),
        "figures": _figures(one),
        "bound": None,
        "phases": None,
        "findings": [finding(each) for each in standing_out(trace, one)],
        "warnings": warnings(found),
        "complete": not any(each.failed for each in found),
        "interrupted": False,
    }


def _created(begin: int | None) -> str:
    if begin is None or not 0 <= begin < 2**62:
        return ""
    return datetime.fromtimestamp(begin // 10**9, UTC).isoformat()


def finding(one: Finding, views: dict[str, str] = _VIEWS, view: str = "devices") -> dict[str, Any]:
    """Return what stands out as the first screen shows it, with the view that says more."""
    return {
        "title": short(one.title),
        "text": short(f"{one.evidence} {one.remedy}"),
        "view": views.get(one.id, view),
        "node": None,
        "search": "",
    }


def _figures(one: RankTrace) -> list[dict[str, str]]:
    found = [_figure("window", units.time(one.window), f"{one.contents.events:,} events")]
    whole = _added(each.breakdown for each in one.times)
    window = sum(each.breakdown.window for each in one.times)
    if window:
        idle = {name: time for name, time in whole.items() if name.startswith("idle")}
        said = ", ".join(
            f"{name.partition(': ')[2]} {units.percent(time / window)}"
            for name, time in idle.items()
            if time
        )
        for name in ("compute", "communication", "copies"):
            if whole[name]:
                beside = "" if name == "compute" else "beside no computation"
                note = ", ".join(filter(None, (units.time(whole[name]), beside)))
                found.append(_figure(name, units.percent(whole[name] / window), note, "devices"))
        found.append(_figure("idle", units.percent(sum(idle.values()) / window), said, "devices"))
    if flops := one.tree.root.flops:
        least = "at least " * one.tree.root.at_least
        rate = units.amount(one.tree.root.flops_per_second, "FLOP/s")
        found.append(
            _figure("FLOPs", least + units.count(flops), rate, "tree") | {"how": "counted"}
        )
    return found


def _figure(label: str, value: str, note: str, view: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "note": note, "how": "measured", "view": view}


def devices(one: RankTrace) -> dict[str, Any] | None:
    """Return where the time of each device and each of its streams went; None without any."""
    rows = []
    for each in one.times:
        name = one.called(each.device)
        rows.append(_row(name, [each.breakdown], _hidden(each.breakdown)))
        if len(each.streams) > 1:
            for stream in each.streams:
                of = "unknown" if stream.stream is None else f"{stream.stream}"
                found = _row(f"stream {of}", [stream.breakdown], _hidden(stream.breakdown))
                rows.append({**found, "level": 1})
    more = ["comm. in all", "beside compute", "copies in all"]
    known = [at for at in range(len(more)) if any(row["more"][at] != "–" for row in rows)]
    for row in rows:
        row["more"] = [row["more"][at] for at in known]
    return {"parts": PARTS, "more": [more[at] for at in known], "rows": rows} if rows else None


def _hidden(one: Breakdown) -> list[str]:
    overlap = "–" if one.overlap is None else units.percent(one.overlap)
    return [_time(one.communication or None), overlap, _time(one.copies or None)]


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else units.time(seconds, 3).replace("-", "−")


def _row(name: str, found: list[Breakdown], more: list[str]) -> dict[str, Any]:
    parts = _added(found)
    return {
        "name": name,
        "level": 0,
        "whole": round(sum(one.window for one in found) * 1e9),
        "amounts": [round(parts[part] * 1e9) for part in PARTS],
        "more": more,
        "note": "",
        "option": None,
    }


def _added(found: Iterable[Breakdown]) -> dict[str, float]:
    sums = dict.fromkeys(PARTS, 0.0)
    for one in found:
        idle = one.idle
        times = (
            one.compute, one.exposed_communication, one.exposed_copies, idle.host_wait,
            idle.kernel_wait, idle.other, idle.outside,
        )  # fmt: skip
        for part, time in zip(PARTS, times, strict=True):
            sums[part] += time
    return sums


def ranks(trace: Trace) -> dict[str, Any] | None:
    """Return the ranks beside each other, and what they say together; None of a single one."""
    if len(trace.ranks) < 2:
        return None
    shown = {id(one): at for at, one in enumerate(_detailed(trace))}
    rows = []
    for one in trace.ranks:
        found = _row(rank_name(one), [each.breakdown for each in one.times], _waits(trace.job, one))
        late = trace.job is not None and one.rank is not None and one.rank == trace.job.straggler
        rows.append({**found, "note": "straggler" * late, "option": shown.get(id(one))})
    absent = ", ".join(map(str, trace.missing[:MOST]))
    said = [
        f"Details are of {len(shown)} of {len(trace.ranks):,} ranks." * (len(shown) < len(rows)),
        f"No file of rank{'s' * (len(trace.missing) > 1)} {absent}." if absent else "",
        *side_by_side(trace.job),
        *_straggler(trace.job),
    ]
    return {
        "parts": PARTS,
        "more": ["waits", "waited for", "clock ahead"] if trace.job is not None else [],
        "rows": rows,
        "said": [line for line in said if line],
        "slow": page_trace_tables.slow(trace.job),
    }


def _waits(job: Job | None, rank: RankTrace) -> list[str]:
    if job is None:
        return []
    found = next((one for one in job.waits if one.rank == rank.rank), None)
    times = (None,) * 3 if found is None else (found.waits, found.waited_for, found.skew)
    return [_time(time) for time in times]


def _straggler(job: Job | None) -> Iterable[str]:
    if job is not None and job.straggler is not None and job.lost is not None:
        yield f"The others wait for rank {job.straggler}: {units.time(job.lost, 3)}."
