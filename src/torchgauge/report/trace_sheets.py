"""The tables of one rank's trace, besides where its devices' time went and its tree."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.model.critical_path import CriticalPath
from torchgauge.model.trace import RankTrace
from torchgauge.report.bar import bar
from torchgauge.report.sheet import Sheet
from torchgauge.report.sparkline import stepped
from torchgauge.visible import visible

BAR = 10
MOST = 8  # rows of a table of details


def details(rank: RankTrace) -> Iterator[Sheet]:
    """Yield what is known of a rank, most telling first."""
    if rank.critical_path is not None:
        yield _path(rank.critical_path)
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


def _path(path: CriticalPath) -> Sheet:
    rows = []
    for name in ("compute", "communication", "copy", "host", "launch", "pause"):
        time: float = getattr(path, name)
        if time:
            share = time / path.length
            rows.append((name, units.time(time), units.percent(share), bar(share, BAR)))
    most = [one for one in path.items if one.link != "pause"][:3]
    said = "; ".join(f"{units.time(one.time, 3)} {_short(one.name)}" for one in most)
    names = ("time", "share", "")
    return Sheet("Critical path", "estimated", names, rows, notes=(f"Most of it: {said}.",))


def _short(name: str, most: int = 40) -> str:
    text = visible(name)
    return text if len(text) <= most else text[: most - 1] + "…"


def _collectives(rank: RankTrace) -> Sheet:
    rows = []
    for one in rank.collectives[:MOST]:
        least = "≥ " if one.wait is None else ""
        rate = one.bus_bandwidth
        rows.append(
            (
                one.name,
                "–" if one.bytes is None else units.size(one.bytes, 3),
                "–" if one.group is None else str(one.group),
                f"{one.calls:,}",
                units.time(one.time, 3),
                units.time(one.exposed, 3),
                "–" if one.wait is None else units.time(one.wait, 3),
                "–" if rate is None else f"{least}{units.size(rate, 3)}/s",
            )
        )
    names = ("size", "ranks", "calls", "time", "exposed", "waited", "bus")
    count = len(rank.collectives)
    return Sheet("Collectives", "measured", names, rows, recorded=True, of=count)


def _copies(rank: RankTrace) -> Sheet:
    kinds = {True: "pageable", False: "pinned", None: ""}
    rows = [
        (
            one.kind,
            kinds[one.pageable],
            f"{one.count:,}",
            units.time(one.time, 3),
            "–" if one.bytes is None else units.size(one.bytes, 3),
            "–" if one.bandwidth is None else f"{units.size(one.bandwidth, 3)}/s",
        )
        for one in rank.copies
    ]
    names = ("host memory", "count", "time", "bytes", "rate")
    return Sheet("Copies", "measured", names, rows, recorded=True)


def _queues(rank: RankTrace) -> Sheet:
    rows = [
        (
            f"GPU {one.device} stream {one.stream}".replace("None", "?"),
            units.significant(one.mean),
            f"{one.most:,}",
            units.percent(one.empty),
            units.time(one.delay_median, 3),
            units.time(one.delay_p99, 3),
        )
        for one in rank.queues[:MOST]
    ]
    note = "empty: pieces of work behind which none waited. delay: from launch to begin, median."
    return Sheet(
        "Launched and not begun", "measured", ("mean", "most", "empty", "delay", "p99"), rows,
        notes=(note,), of=len(rank.queues),
    )  # fmt: skip


def _synchronisations(rank: RankTrace) -> Sheet:
    rows = []
    for one in rank.synchronisations[:MOST]:
        parts = [part for part in (one.operator, one.layer and f"in {one.layer}") if part]
        where = f" ({', '.join(parts)})" if parts else ""
        rows.append((one.call + where, f"{one.count:,}", units.time(one.time, 3)))
    return Sheet(
        "The host waited for a device", "measured", ("calls", "time"), rows,
        recorded=True, of=len(rank.synchronisations),
    )  # fmt: skip


def _memory(rank: RankTrace) -> Sheet:
    rows = [
        (
            "host" if one.device is None else f"GPU {one.device}",
            units.size(one.before, 3),
            units.size(one.peak, 3),
            units.time(one.peak_at, 3),
            units.size(one.after, 3),
            "–" if one.reserved is None else units.size(one.reserved, 3),
            stepped(one.timeline, 1, 2 * BAR),
        )
        for one in rank.memory[:MOST]
    ]
    names = ("before", "peak", "at", "after", "reserved", "")
    return Sheet("Memory of tensors", "measured", names, rows, of=len(rank.memory))
