"""The tables of a recorded trace: where devices' time went, the ranks, and what else is known."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.model.breakdown import Breakdown
from torchgauge.model.critical_path import CriticalPath
from torchgauge.model.trace import Job, RankTrace, Trace
from torchgauge.report.bar import bar
from torchgauge.report.sheet import Sheet
from torchgauge.report.sparkline import stepped
from torchgauge.report.visible import visible

BAR = 10
MOST = 8  # rows of a table of details
_PARTS = ("compute", "comm.", "copies", "idle", "host", "device", "other")


def devices(rank: RankTrace) -> Sheet:
    """Return where the time of each device and of its streams went."""
    rows: list[tuple[str, ...]] = []
    strong = set()
    for device in rank.times:
        window = units.time(device.breakdown.window, 3)
        strong.add(len(rows))
        rows.append((rank.called(device.device), window, *_shares(device.breakdown)))
        if len(device.streams) > 1:
            for stream in device.streams:
                of = "unknown" if stream.stream is None else f"{stream.stream}"
                rows.append((f"  stream {of}", "", *_shares(stream.breakdown)))
    note = (
        "comm. and copies: beside no computation. Idle, by what it waited for: the host, the "
        "device's own pause of 5 µs at most, other."
    )
    return Sheet(
        "Where the time of devices went", "measured", ("window", *_PARTS), rows,
        strong=frozenset(strong), notes=(note,),
    )  # fmt: skip


def _shares(one: Breakdown) -> Iterator[str]:
    idle = one.idle
    for part in (
        one.compute,
        one.exposed_communication,
        one.exposed_copies,
        idle.total,
        idle.host_wait,
        idle.kernel_wait,
        idle.other + idle.outside,
    ):
        yield units.percent(part / one.window) if part and one.window else "–"


def ranks(trace: Trace) -> Sheet:
    """Return the ranks beside each other, the straggler standing out."""
    waits = {one.rank: one for one in trace.job.waits} if trace.job is not None else {}
    late = trace.job.straggler if trace.job is not None else None
    rows = []
    for one in trace.ranks:
        whole = one.times[0].breakdown if one.times else None
        shares = list(_shares(whole)) if whole is not None else ["–"] * len(_PARTS)
        wait = waits.get(one.rank if one.rank is not None else -1)
        times = (wait.waits, wait.waited_for) if wait is not None else (None, None)
        rows.append(
            (
                f"{one.rank}",
                units.time(one.window, 3),
                *(shares[0], shares[1], shares[3]),
                *("–" if time is None else units.time(time, 3) for time in times),
            )
        )
    names = ("window", "compute", "comm.", "idle", "waits", "waited for")
    strong = frozenset(at for at, one in enumerate(trace.ranks) if one.rank == late)
    notes = tuple(_job(trace.job))
    return Sheet("Ranks", "measured", names, rows, first="rank", strong=strong, notes=notes)


def _job(job: Job | None) -> Iterator[str]:
    if job is None:
        return
    yield f"{job.calls:,} collective{'s' * (job.calls != 1)} of all ranks put side by side."
    if job.unmatched:
        yield f"{job.unmatched} kinds of collectives are not equally often on all ranks."


def details(rank: RankTrace) -> Iterator[Sheet]:
    """Yield what is known of a rank besides its devices' time and its tree."""
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
