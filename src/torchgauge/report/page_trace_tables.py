"""Tables of a recorded trace: its tree's, what lies between host and devices, the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.model.critical_path import CriticalPath
from torchgauge.model.record import Record
from torchgauge.model.trace import Job, RankTrace
from torchgauge.report.page_shorter import shorter
from torchgauge.report.page_tables import Column, of_tree, table

MOST = 1_000  # rows of what no tree has
LINKS = ("compute", "communication", "copy", "host", "launch", "pause")
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
    Column("exposed", "beside nothing", "time"),
    Column("wait", "waited", "time"),
    Column("transfer", "transfer", "time"),
    Column("bus_bandwidth", "bus", "bytes/s"),
)
_COPIES = (
    Column("kind", "copy", "text"),
    Column("pageable", "host memory", "text"),
    Column("count", "count", "count"),
    Column("time", "time", "time"),
    Column("bytes", "bytes", "bytes"),
    Column("bandwidth", "B/s", "bytes/s"),
)
_QUEUES = (
    Column("stream", "stream", "text"),
    Column("mean", "mean", "number"),
    Column("most", "most", "count"),
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
)
_SLOW = (
    Column("name", "collective", "text"),
    Column("bytes", "size", "bytes"),
    Column("number", "call", "count"),
    Column("at", "at", "time"),
    Column("transfer", "transfer", "time"),
    Column("usual", "usual", "time"),
)
_NOTES = {
    "queues": "Pieces of work that were launched and had not begun, over the stream's time. Empty: "
    "none waited behind the piece that began. Delay: from the launch to the begin of the work.",
    "synchronisations": "Calls in which the host waited for a device, with the operator around.",
    "least": "The bus carried at least so much: waiting is in the time, as one rank's file has it.",
}


def tables(one: RankTrace, most: int, at: Sequence[int]) -> list[dict[str, Any]] | None:
    """Return the tables that have rows, of `most` rows in all; `at` is where nodes are shown."""
    found = [
        shorter(each, max(most // 4, 25), at)
        for each in of_tree(one.tree)
        # A trace without layers has the model itself alone, of which the first screen says all.
        if each["name"] != "layers" or each["rows"] > 1
    ]
    for name, columns, rows in (
        ("collectives", _COLLECTIVES, one.collectives),
        ("copies", _COPIES, one.copies),
        ("queues", _QUEUES, one.queues),
        ("synchronisations", _SYNCHRONISATIONS, one.synchronisations),
    ):
        if rows:
            found.append(_alone(name, columns, rows, min(most // 4, MOST)))
    return found or None


def _alone(
    name: str, columns: Sequence[Column], rows: Sequence[Record], most: int
) -> dict[str, Any]:
    """Return a table of records; its rows are of no node."""
    found: dict[str, list[Any]] = {
        column.key: [_cell(one, column.key) for one in rows] for column in columns
    }
    made = shorter(table(name, columns, found), max(most, 25))
    least = name == "collectives" and not any(found["wait"]) and any(found["bus_bandwidth"])
    return {**made, "nodes": [], "note": _NOTES["least"] if least else _NOTES.get(name, "")}


def _cell(one: Any, key: str) -> Any:
    if key == "pageable":
        return {True: "pageable", False: "pinned", None: ""}[one.pageable]
    if key == "stream":
        device, stream = ("?" if each is None else each for each in (one.device, one.stream))
        return f"GPU {device} stream {stream}"
    return getattr(one, key)


def path(found: CriticalPath | None) -> dict[str, Any] | None:
    """Return the critical path by kind of link and by name."""
    if found is None or not found.length:
        return None
    times = {link: getattr(found, link) for link in LINKS}
    columns: dict[str, list[Any]] = {
        name: [getattr(one, name) for one in found.items]
        for name in ("name", "link", "time", "count")
    }
    columns["share"] = [one.time / found.length for one in found.items]
    return {
        "length": round(found.length * 1e9),
        "parts": [[link, round(time * 1e9)] for link, time in times.items() if time],
        "table": {**shorter(table("the critical path", _PATH, columns), MOST), "nodes": []},
    }


def slow(job: Job | None) -> dict[str, Any] | None:
    """Return the collectives that took much longer than usual; None without any."""
    if job is None or not job.slow:
        return None
    found = {column.key: [getattr(one, column.key) for one in job.slow] for column in _SLOW}
    return shorter(table("slow collectives", _SLOW, found), MOST)
