"""The detail tables of one rank's trace: critical path, collectives, copies, queues, memory."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.trace.critical_path import CriticalPath
from torchgauge.records.trace.trace import RankTrace
from torchgauge.report.console.bar import bar
from torchgauge.report.console.sparkline import stepped
from torchgauge.report.content.sheet import Sheet
from torchgauge.visible import visible

BAR = 10
MAX_ROWS = 8  # rows of a table of details


def details(rank: RankTrace) -> Iterator[Sheet]:
    """Yield the detail tables of a rank, most telling first."""
    if rank.critical_path is not None:
        yield _critical_path(rank.critical_path)
    if rank.collectives:
        yield _collectives(rank)
    if rank.copies:
        yield _copies(rank)
    if rank.queues:
        yield _queues(rank)
    if rank.synchronisations:
        yield _synchronisations(rank)
    if rank.memory:
        yield _memory(rank)


def _critical_path(path: CriticalPath) -> Sheet:
    rows = []
    for name in ("compute", "communication", "copy", "host", "launch", "pause"):
        time: float = getattr(path, name)
        if time:
            share = time / path.length
            rows.append((name, units.time(time), units.percent(share), bar(share, BAR)))
    longest = [segment for segment in path.items if segment.link != "pause"][:3]
    longest_text = "; ".join(
        f"{units.time(segment.time, 3)} {_short(segment.name)}" for segment in longest
    )
    names = ("time", "share", "")
    return Sheet("Critical path", "estimated", names, rows, notes=(f"Most of it: {longest_text}.",))


def _short(name: str, max_length: int = 40) -> str:
    text = visible(name)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _collectives(rank: RankTrace) -> Sheet:
    rows = []
    for collective in rank.collectives[:MAX_ROWS]:
        prefix = "≥ " if collective.wait is None else ""
        rate = collective.bus_bandwidth
        rows.append(
            (
                collective.name,
                "–" if collective.bytes is None else units.size(collective.bytes, 3),
                "–" if collective.group is None else str(collective.group),
                f"{collective.calls:,}",
                units.time(collective.time, 3),
                units.time(collective.exposed, 3),
                "–" if collective.wait is None else units.time(collective.wait, 3),
                "–" if rate is None else f"{prefix}{units.size(rate, 3)}/s",
            )
        )
    names = ("size", "ranks", "calls", "time", "exposed", "waited", "bus")
    count = len(rank.collectives)
    return Sheet("Collectives", "measured", names, rows, recorded=True, total_rows=count)


def _copies(rank: RankTrace) -> Sheet:
    kinds = {True: "pageable", False: "pinned", None: ""}
    rows = [
        (
            copy.kind,
            kinds[copy.pageable],
            f"{copy.count:,}",
            units.time(copy.time, 3),
            "–" if copy.bytes is None else units.size(copy.bytes, 3),
            "–" if copy.bandwidth is None else f"{units.size(copy.bandwidth, 3)}/s",
        )
        for copy in rank.copies
    ]
    names = ("host memory", "count", "time", "bytes", "rate")
    return Sheet("Copies", "measured", names, rows, recorded=True)


def _queues(rank: RankTrace) -> Sheet:
    rows = [
        (
            f"GPU {queue.device} stream {queue.stream}".replace("None", "?"),
            units.significant(queue.mean),
            f"{queue.max_length:,}",
            units.percent(queue.empty),
            units.time(queue.delay_median, 3),
            units.time(queue.delay_p99, 3),
        )
        for queue in rank.queues[:MAX_ROWS]
    ]
    note = "empty: pieces of work behind which none waited. delay: from launch to begin, median."
    return Sheet(
        "Launched and not begun", "measured", ("mean", "most", "empty", "delay", "p99"), rows,
        notes=(note,), total_rows=len(rank.queues),
    )  # fmt: skip


def _synchronisations(rank: RankTrace) -> Sheet:
    rows = []
    for synchronisation in rank.synchronisations[:MAX_ROWS]:
        parts = [
            part
            for part in (
                synchronisation.operator,
                synchronisation.layer and f"in {synchronisation.layer}",
            )
            if part
        ]
        location = f" ({', '.join(parts)})" if parts else ""
        rows.append(
            (
                synchronisation.call + location,
                f"{synchronisation.count:,}",
                units.time(synchronisation.time, 3),
            )
        )
    return Sheet(
        "The host waited for a device", "measured", ("calls", "time"), rows,
        recorded=True, total_rows=len(rank.synchronisations),
    )  # fmt: skip


def _memory(rank: RankTrace) -> Sheet:
    rows = [
        (
            "host" if memory.device is None else f"GPU {memory.device}",
            units.size(memory.before, 3),
            units.size(memory.peak, 3),
            units.time(memory.peak_at, 3),
            units.size(memory.after, 3),
            "–" if memory.reserved is None else units.size(memory.reserved, 3),
            stepped(memory.timeline, 1, 2 * BAR),
        )
        for memory in rank.memory[:MAX_ROWS]
    ]
    names = ("before", "peak", "at", "after", "reserved", "")
    return Sheet("Memory of tensors", "measured", names, rows, total_rows=len(rank.memory))
