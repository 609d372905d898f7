"""Tables of a recorded trace: its tree, host and device interaction, the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.records.trace.breakdown import CriticalPath
from torchgauge.records.trace.trace import Job, RankTrace
from torchgauge.report.page.page_shorter import shortened_table
from torchgauge.report.page.page_tables import (
    Column,
    records_table,
    table,
    tree_tables,
    with_kernel_labels,
)
from torchgauge.report.tables.category_table import roofs_of
from torchgauge.report.tables.trace_tables import (
    HOST_MEMORY,
    SERVING_NOTE,
    UNKNOWN_NOTE,
    sequence_name,
)

MAX_ROWS = 1_000  # of a table that is not the tree's
LINKS = ("compute", "communication", "wait", "copy", "host", "launch", "pause")
_PATH = (
    Column("name", "name", "text"),
    Column("link", "link", "text"),
    Column("time", "time", "time"),
    Column("share", "share of the path", "share"),
    Column("count", "links", "count"),
)
_COLLECTIVES = (
    Column("name", "collective", "text"),
    Column("dtype", "type", "text"),
    Column("bytes", "size", "bytes"),
    Column("group", "ranks", "count"),
    Column("calls", "calls", "count"),
    Column("time", "time", "time"),
    Column("exposed", "exposed", "time"),
    Column("wait", "waited", "time"),
    Column("transfer", "transfer", "time"),
    Column("bus_bandwidth", "bus", "bytes/s"),
)
_UNKNOWN_ROLES = (
    Column("name", "kernel", "text"),
    Column("stream", "stream", "text"),
    Column("count", "calls", "count"),
    Column("time", "time", "time"),
)
_SENT = (
    Column("rank", "to rank", "count"),
    Column("bytes", "sent", "bytes"),
    Column("share", "share", "share"),
)
_COPIES = (
    Column("kind", "copy", "text"),
    Column("pageable", "host memory", "text", lambda copy: HOST_MEMORY[copy.pageable]),
    Column("count", "count", "count"),
    Column("time", "time", "time"),
    Column("bytes", "bytes", "bytes"),
    Column("bandwidth", "B/s", "bytes/s"),
)
_SEQUENCES = (
    Column("name", "begins with", "text", sequence_name),
    Column("kernels", "kernels", "count", lambda sequence: len(sequence.names)),
    Column("repeats", "repeats", "count"),
    Column("runs", "series", "count"),
    Column("time", "time", "time"),
    Column("share", "share of device", "share"),
    Column("each", "each", "time", lambda sequence: sum(sequence.durations)),
    Column("span", "apart", "time"),
)
_QUEUES = (
    Column("stream", "stream", "text"),
    Column("mean", "mean", "number"),
    Column("max_length", "most", "count"),
    Column("empty", "found empty", "share"),
    Column("delay_median", "delay, median", "time"),
    Column("delay_p99", "delay, p99", "time"),
)
_SYNCHRONISATIONS = (
    Column("call", "call", "text"),
    Column("operator", "operator", "text"),
    Column("layer", "layer", "text"),
    Column("count", "calls", "count"),
    Column("time", "time", "time"),
    Column("idle", "device waited after it", "time"),
    Column("function", "function", "text"),
)
_DELAYS = (
    Column("cause", "cause", "text"),
    Column("name", "span", "text"),
    Column("calls", "calls", "count"),
    Column("time", "time", "time"),
    Column("longest", "longest", "time"),
    Column("idle", "device waited", "time"),
)
_SLOW = (
    Column("name", "collective", "text"),
    Column("bytes", "size", "bytes"),
    Column("number", "call", "count"),
    Column("time", "at", "time"),
    Column("transfer", "transfer", "time"),
    Column("usual", "usual", "time"),
)
_UNCOUNTED = (
    Column("category", "category", "text"),
    Column("count", "events", "count"),
    Column("time", "time", "time"),
)
_SERVING = (
    Column("phase", "phase", "text"),
    Column("steps", "steps", "count"),
    Column("requests", "requests", "count"),
    Column("tokens", "tokens", "count"),
    Column("step_host", "host", "time"),
    Column("step_device", "device", "time"),
    Column("distance", "apart", "time"),
    Column("device", "device, all steps", "time"),
)
_NOTES = {
    "uncounted": "Recorded events of categories that no figure here counts.",
    "serving": SERVING_NOTE,
    "sequences": "Kernels that ran in the same order again and again. Each: the sum of their "
    "median times; apart: from one begin to the next.",
    "queues": "Pieces of work that were launched and had not begun, over the stream's time. Empty: "
    "none waited behind the piece that began. Delay: from the launch to the begin of the work.",
    "synchronisations": "Calls in which the host waited for a device, with the operator around.",
    "host_delays": "Spans that keep the host from launching work, by cause; how long the device "
    "waited for the host in them.",
    "unknown role": UNKNOWN_NOTE,
    "sent": "What this rank sent to each rank in all-to-alls, itself included.",
    "least": "At least the bandwidth of the bus: the time of one rank's file includes waiting.",
}


def tables(rank: RankTrace, max_rows: int, node_map: Sequence[int]) -> list[dict[str, Any]] | None:
    """Return the tables that have rows, of `most` rows in all; `at` is where nodes are shown."""
    listed_tables = [
        shortened_table(tree_table, max(max_rows // 4, 25), node_map)
        for tree_table in tree_tables(rank.tree, roofs_of(rank))
        # A trace without layers has only the model's row, which the first screen covers.
        if tree_table["name"] != "containers" or tree_table["rows"] > 1
    ]
    for name, columns, rows in (
        ("serving", _SERVING, rank.serving),
        ("sequences", _SEQUENCES, rank.sequences),
        ("collectives", _COLLECTIVES, rank.collectives),
        ("unknown role", _UNKNOWN_ROLES, rank.unknown_roles),
        ("copies", _COPIES, rank.copies),
        ("queues", _QUEUES, rank.queues),
        ("synchronisations", _SYNCHRONISATIONS, rank.synchronisations),
        ("uncounted", _UNCOUNTED, rank.contents.uncounted),
        ("host_delays", _DELAYS, rank.host_delays),
    ):
        if rows:
            row_limit = min(max_rows // 4, MAX_ROWS)
            listed_tables.append(_record_table(rank, name, columns, rows, row_limit))
    if rank.sent:
        total = sum(rank.sent.values())
        cells: dict[str, list[Any]] = {
            "rank": list(rank.sent),
            "bytes": list(rank.sent.values()),
            "share": [size / total if total else None for size in rank.sent.values()],
        }
        sent = shortened_table(table("all-to-all", _SENT, cells), min(max_rows // 4, MAX_ROWS))
        listed_tables.append({**sent, "nodes": [], "note": _NOTES["sent"]})
    return listed_tables or None


def _record_table(
    rank: RankTrace, name: str, columns: Sequence[Column], rows: Sequence[Any], max_rows: int
) -> dict[str, Any]:
    """Return a table of records; its rows are of no node."""
    cells: dict[str, Any] = {}
    if "stream" in (column.key for column in columns):
        cells["stream"] = [rank.stream_name(record.device, record.stream) for record in rows]
    full_table = records_table(name, columns, rows, **cells)
    page_table = shortened_table(full_table, max(max_rows, 25))
    is_lower_bound = (
        name == "collectives"
        and not any(collective.wait for collective in rank.collectives)
        and any(collective.bus_bandwidth for collective in rank.collectives)
    )
    return {
        **page_table,
        "nodes": [],
        "note": _NOTES["least"] if is_lower_bound else _NOTES.get(name, ""),
    }


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
