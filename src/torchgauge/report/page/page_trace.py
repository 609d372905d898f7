"""The page of recorded traces: all ranks side by side, and the details of one at a time.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from torchgauge import units
from torchgauge.records.trace.breakdown import WINDOW_PARTS, Breakdown, CriticalPath
from torchgauge.records.trace.trace import Job, RankTrace, Trace
from torchgauge.report.content.document import AtLeast, Column
from torchgauge.report.content.trace import chosen_rank, facts, rank_findings, rank_warnings
from torchgauge.report.page import page_tree
from torchgauge.report.page.page_document import (
    Choice,
    Option,
    bar,
    figure,
    finding_entry,
    first_screen,
)
from torchgauge.report.page.page_shorter import largest, short, shortened_table
from torchgauge.report.page.page_tables import (
    all_tables,
    document_table,
    records_table,
    table,
    with_kernel_labels,
)
from torchgauge.report.page.timeline.page_timeline import rank_timeline
from torchgauge.report.tables.category_table import roofs_of
from torchgauge.report.tables.trace_devices import side_by_side
from torchgauge.report.tables.trace_tables import details

# Nodes and rows of all ranks together, so that a page of many ranks still opens at once.
NODES = 40_000
ROWS = 30_000
MAX_DETAILED = 64  # ranks with details
MAX_DRAWN = 16  # ranks above each other over time


def choice(trace: Trace) -> Choice:
    """Return the parts of each rank; the straggler, if any, is shown first."""
    first = chosen_rank(trace)
    detailed = _detailed(trace)
    nodes, rows = max(NODES // len(detailed), 100), max(ROWS // len(detailed), 100)
    options = [Option(rank_name(rank), _parts(trace, rank, nodes, rows)) for rank in detailed]
    return Choice(
        "Rank", options, next(index for index, rank in enumerate(detailed) if rank is first)
    )


def _detailed(trace: Trace) -> list[RankTrace]:
    """Return the ranks that there is room for, the one shown first among them."""
    detailed = list(trace.ranks[:MAX_DETAILED])
    first = chosen_rank(trace)
    if not any(rank is first for rank in detailed):
        detailed[-1] = first
    return detailed


def _parts(trace: Trace, rank: RankTrace, nodes: int, rows: int) -> dict[str, Any]:
    reduced = largest(rank.tree, nodes)
    return {
        "overview": overview(trace, rank),
        "devices": devices(rank),
        "path": path(rank.critical_path),
        "course": memory_timeline(rank),
        "timeline": rank_timeline(rank),
        "tree": {
            **page_tree.columns(reduced.tree),
            "note": _tree_note(rank, len(reduced.tree.rows)),
        },
        "tables": tables(rank, rows, reduced.node_map),
        "unrecorded": [short(name) for name in rank.missing] or None,
    }


def memory_timeline(rank: RankTrace) -> dict[str, Any] | None:
    """Return the bytes held over the window by the device that held most; None without any."""
    used = max(rank.memory, key=lambda memory: memory.peak, default=None)
    if used is None or len(used.timeline) < 2:
        return None
    name = "the host" if used.device is None else rank.called(used.device)
    reserved_text = (
        "." if used.reserved is None else f", reserved at most {units.size(used.reserved)}."
    )
    return {
        "x": [round(point[0] * 1e9) for point in used.timeline],
        "timed": True,
        "alive": [point[1] for point in used.timeline],
        "stacked": [],
        "reserved": [point[2] for point in used.timeline] if used.reserved is not None else None,
        "failed": [],
        "peak": used.peak,
        "marks": None,
        "note": "Alive: the allocator's own total at each allocation and free.",
        "summary": f"Tensors of {name}: at most {units.size(used.peak)}{reserved_text}",
    }


def _tree_note(rank: RankTrace, shown_nodes: int) -> str:
    steps, nodes = rank.tree.steps, len(rank.tree.rows)
    steps_note = f"All {steps:,} marked steps together, in the tables too." if steps > 1 else ""
    reduced_note = (
        f"The largest of {nodes:,} nodes; what is smaller is one." if nodes > shown_nodes else ""
    )
    return f"{steps_note} {reduced_note}".strip()


def rank_name(rank: RankTrace) -> str:
    """Return the rank's number, or the file's name if it has none."""
    return short(rank.file) if rank.rank is None else f"{rank.rank}"


def overview(trace: Trace, rank: RankTrace) -> dict[str, Any]:
    """Return the first screen of a rank."""
    several = [["file", short(rank.file), ""]] if len(trace.ranks) > 1 else []
    listed_warnings = rank_warnings(trace, rank)
    return first_screen(
        [*several, *([label, short(text), ""] for label, text in facts(trace, rank))],
        _figures(rank),
        (finding_entry(finding, "devices") for finding in rank_findings(trace, rank)),
        listed_warnings,
        created=_created(rank.contents.begin),
        complete=not any(warning.failed for warning in listed_warnings),
    )


def _created(begin: int | None) -> str:
    if begin is None or not 0 <= begin < 2**62:
        return ""
    return datetime.fromtimestamp(begin // 10**9, UTC).isoformat()


def _figures(rank: RankTrace) -> list[dict[str, str]]:
    figures = [figure("window", units.time(rank.window), f"{rank.contents.events:,} events")]
    totals = _added(device.breakdown for device in rank.times)
    window = sum(device.breakdown.window for device in rank.times)
    if window:
        idle = {name: time for name, time in totals.items() if name.startswith("idle")}
        idle_text = ", ".join(
            f"{name.partition(': ')[2]} {units.percent(time / window)}"
            for name, time in idle.items()
            if time
        )
        for name in ("compute", "communication", "copies"):
            if totals[name]:
                qualifier = "" if name == "compute" else "exposed"
                note = ", ".join(filter(None, (units.time(totals[name]), qualifier)))
                figures.append(_share(name, totals[name] / window, note))
        figures.append(_share("idle", sum(idle.values()) / window, idle_text))
    if flops := rank.tree.root.flops:
        prefix = "at least " * rank.tree.root.at_least
        note = units.amount(rank.tree.root.flops_per_second, "FLOP/s")
        if (utilization := rank.utilization) is not None and utilization.mfu is not None:
            # As the MFU counts them: causal attention whole, and nothing but products.
            qualifier = "at least " * utilization.at_least
            note += (
                f"; model FLOPs {qualifier}{units.count(utilization.model_flops)}, attention whole"
            )
        figures.append(figure("FLOPs", prefix + units.count(flops), note, "counted", "tree"))
    return figures


def _share(label: str, share: float, note: str) -> dict[str, str]:
    return figure(label, units.percent(share), note, view="devices")


def devices(rank: RankTrace) -> dict[str, Any] | None:
    """Return the time breakdown of each device and stream; None without any."""
    rows = []
    for device in rank.times:
        name = rank.called(device.device)
        rows.append(_row(name, [device.breakdown], _hidden(device.breakdown)))
        if len(device.streams) > 1:
            for stream in device.streams:
                number = "unknown" if stream.stream is None else f"{stream.stream}"
                stream_row = _row(f"stream {number}", [stream.breakdown], _hidden(stream.breakdown))
                rows.append({**stream_row, "level": 1})
    extra_titles = ["comm. in all", "beside compute", "copies in all"]
    filled = [
        index
        for index in range(len(extra_titles))
        if any(row["more"][index] != "–" for row in rows)
    ]
    for row in rows:
        row["more"] = [row["more"][index] for index in filled]
    return (
        {"parts": WINDOW_PARTS, "more": [extra_titles[index] for index in filled], "rows": rows}
        if rows
        else None
    )


def _hidden(breakdown: Breakdown) -> list[str]:
    overlap = "–" if breakdown.overlap is None else units.percent(breakdown.overlap)
    return [_time(breakdown.communication or None), overlap, _time(breakdown.copies or None)]


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else units.time(seconds, 3)


def _row(name: str, breakdowns: list[Breakdown], extra_cells: list[str]) -> dict[str, Any]:
    parts = _added(breakdowns)
    total = round(sum(breakdown.window for breakdown in breakdowns) * 1e9)
    return bar(name, total, (round(parts[part] * 1e9) for part in WINDOW_PARTS), extra_cells)


def _added(breakdowns: Iterable[Breakdown]) -> dict[str, float]:
    times = [breakdown.parts for breakdown in breakdowns]
    return {part: sum(parts[part] for parts in times) for part in WINDOW_PARTS}


def ranks(trace: Trace) -> dict[str, Any] | None:
    """Return the ranks side by side, with notes on the job; None for a single rank."""
    if len(trace.ranks) < 2:
        return None
    options = {id(rank): index for index, rank in enumerate(_detailed(trace))}
    rows = []
    for rank in trace.ranks:
        row = _row(
            rank_name(rank), [device.breakdown for device in rank.times], _waits(trace.job, rank)
        )
        late = trace.job is not None and rank.rank in trace.job.lost_by_rank
        rows.append({**row, "note": "straggler" * late, "option": options.get(id(rank))})
    absent = ", ".join(map(str, trace.missing[:MAX_DETAILED]))
    notes = [
        f"Details cover {len(options)} of {len(trace.ranks):,} ranks." * (len(options) < len(rows)),
        f"No file of rank{'s' * (len(trace.missing) > 1)} {absent}." if absent else "",
        *side_by_side(trace.job),
        *_stragglers(trace.job),
    ]
    return {
        "parts": WINDOW_PARTS,
        "more": ["waits", "waited for", "clock ahead"] if trace.job is not None else [],
        "rows": rows,
        "said": [line for line in notes if line],
        "slow": slow(trace.job),
    }


def _waits(job: Job | None, rank: RankTrace) -> list[str]:
    if job is None:
        return []
    wait = next((wait for wait in job.waits if wait.rank == rank.rank), None)
    times = (None,) * 3 if wait is None else (wait.waits, wait.waited_for, wait.skew)
    return [_time(time) for time in times]


def _stragglers(job: Job | None) -> Iterable[str]:
    for rank, lost in job.lost_by_rank.items() if job is not None else ():
        yield f"The others wait for rank {rank}: {units.time(lost, 3)}."


def job(trace: Trace) -> dict[str, Any] | None:
    """Return which ranks are drawn over time on one clock, and when each begins on it, in ns.

    None for a single rank, and where a file does not say when it begins.
    """
    skew = {wait.rank: wait.skew for wait in trace.job.waits} if trace.job is not None else {}
    begins = [
        (index, rank, rank.contents.begin - round(skew.get(rank.rank or 0, 0.0) * 1e9))
        for index, rank in enumerate(_detailed(trace)[:MAX_DRAWN])
        if rank.contents.begin is not None and rank.tree.timeline is not None
    ]
    if len(begins) < 2:
        return None
    first = min(begin for _, _, begin in begins)
    late = set() if trace.job is None else set(trace.job.lost_by_rank)
    unaligned = [rank_name(rank) for _, rank, _ in begins if rank.rank not in skew]
    return {
        "ranks": [
            {"option": index, "begin": begin - first, "late": rank.rank in late}
            for index, rank, begin in begins
        ],
        "note": _clock_note(len(begins), len(trace.ranks), unaligned),
    }


def _clock_note(drawn: int, ranks: int, unaligned: list[str]) -> str:
    clock = (
        "On one clock, which the ends of collectives give."
        if len(unaligned) < drawn
        else "By the clocks of the ranks, which no collective compares."
    )
    is_partly_aligned = 0 < len(unaligned) < drawn
    own_clock = f" Rank {', '.join(unaligned)}: by its own clock." if is_partly_aligned else ""
    part = f" {drawn} of {ranks:,} ranks." if drawn < ranks else ""
    return f"{clock}{own_clock}{part} All move together; a rank's name leads to its details."


PARTS = {"ranks": ranks, "job": job}


MAX_ROWS = 1_000  # of a table that is not the tree's
LINKS = ("compute", "communication", "wait", "copy", "host", "launch", "pause")
_PATH = (
    Column("name", "name", "text"),
    Column("link", "link", "text"),
    Column("time", "time", "time"),
    Column("share", "share of the path", "share"),
    Column("count", "links", "count"),
)
_SENT = (
    Column("rank", "to rank", "count"),
    Column("bytes", "sent", "bytes"),
    Column("share", "share", "share"),
)
_SLOW = (
    Column("name", "collective", "text"),
    Column("bytes", "size", "bytes"),
    Column("number", "call", "count"),
    Column("time", "at", "time"),
    Column("transfer", "transfer", "time"),
    Column("usual", "usual", "time"),
)
_EXPLANATIONS = {
    "host_delays": "Spans that keep the host from launching work, by cause; how long the device "
    "waited for the host in them.",
    "queues": "Pieces of work that were launched and had not begun, over the stream's time.",
    "sequences": "Kernels that ran in the same order again and again. Each: the sum of their "
    "median times; apart: from one begin to the next.",
    "synchronisations": "Calls in which the host waited for a device, with the operator around.",
    "uncounted": "Recorded events of categories that no figure here counts.",
}
_BUS_NOTE = "At least the bandwidth of the bus: the time of one rank's file includes waiting."
_SENT_NOTE = "What this rank sent to each rank in all-to-alls, itself included."


def tables(rank: RankTrace, max_rows: int, node_map: Sequence[int]) -> list[dict[str, Any]] | None:
    """Return the tables that have rows, of `most` rows in all; `at` is where nodes are shown."""
    listed_tables = [
        shortened_table(tree_table, max(max_rows // 4, 25), node_map)
        for tree_table in all_tables(rank.tree, roofs_of(rank))
        # A trace without layers has only the model's row, which the first screen covers.
        if tree_table["name"] != "containers" or tree_table["rows"] > 1
    ]
    row_limit = max(min(max_rows // 4, MAX_ROWS), 25)
    for block in details(rank):
        if block.key:
            bounded = any(isinstance(row.cells.get("bus"), AtLeast) for row in block.rows)
            explanation = _BUS_NOTE if bounded else _EXPLANATIONS.get(block.key)
            note = " ".join(filter(None, (explanation, *block.notes)))
            page_table = shortened_table(document_table(block), row_limit)
            listed_tables.append({**page_table, "nodes": [], "note": note})
    if rank.sent:
        total = sum(rank.sent.values())
        cells: dict[str, list[Any]] = {
            "rank": list(rank.sent),
            "bytes": list(rank.sent.values()),
            "share": [size / total if total else None for size in rank.sent.values()],
        }
        sent = shortened_table(table("all-to-all", _SENT, cells), min(max_rows // 4, MAX_ROWS))
        listed_tables.append({**sent, "nodes": [], "note": _SENT_NOTE})
    return listed_tables or None


def path(critical_path: CriticalPath | None) -> dict[str, Any] | None:
    """Return the critical path by kind of link and by name."""
    if critical_path is None or not critical_path.length:
        return None
    times = {link: getattr(critical_path, link) for link in LINKS}
    shares = [segment.time / critical_path.length for segment in critical_path.items]
    path_table = records_table("the critical path", _PATH, critical_path.items, share=shares)
    return {
        "length": round(critical_path.length * 1e9),
        "parts": [[link, round(time * 1e9)] for link, time in times.items() if time],
        "table": {**shortened_table(with_kernel_labels(path_table), MAX_ROWS), "nodes": []},
    }


def slow(job: Job | None) -> dict[str, Any] | None:
    """Return the collectives that took much longer than usual; None without any."""
    if job is None or not job.slow:
        return None
    return shortened_table(records_table("slow collectives", _SLOW, job.slow), MAX_ROWS)
