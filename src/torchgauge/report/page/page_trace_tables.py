"""Tables of a recorded trace: its tree, host and device interaction, the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.records.trace.breakdown import CriticalPath
from torchgauge.records.trace.trace import Job, RankTrace
from torchgauge.report.content.document import AtLeast, Column
from torchgauge.report.page.page_shorter import shortened_table
from torchgauge.report.page.page_tables import (
    all_tables,
    document_table,
    records_table,
    table,
    with_kernel_labels,
)
from torchgauge.report.tables.category_table import roofs_of
from torchgauge.report.tables.trace_tables import details

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
