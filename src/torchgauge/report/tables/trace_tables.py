"""The detail tables of one rank's trace: critical path, collectives, copies, queues, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.trace.critical_path import CriticalPath
from torchgauge.records.trace.trace import Collectives, RankTrace
from torchgauge.report.content.document import Column, Curve, Row, Table, rows_of
from torchgauge.visible import visible

BAR = 10
MAX_ROWS = 8  # rows of a table of details
PATH = (
    Column("time"),
    Column("share", unit="percent"),
    Column("bar", unit="bar", max_width=BAR),
)
HOST_MEMORY = {True: "pageable", False: "pinned", None: ""}


def _bus(collective: Collectives) -> str | None:
    if collective.bus_bandwidth is None:
        return None
    prefix = "≥ " if collective.wait is None else ""
    return f"{prefix}{units.size(collective.bus_bandwidth, 3)}/s"


def _rate(copy: Any) -> str | None:
    return None if copy.bandwidth is None else f"{units.size(copy.bandwidth, 3)}/s"


COLLECTIVES = (
    Column("size", unit="bytes", get=lambda collective: collective.bytes, empty="–"),
    Column("ranks", unit="count", get=lambda collective: collective.group, empty="–"),
    Column("calls", unit="count"),
    Column("time", unit="time"),
    Column("exposed", unit="time"),
    Column("waited", unit="time", get=lambda collective: collective.wait, empty="–"),
    Column("bus", get=_bus, empty="–"),
)
UNKNOWN_ROLES = (
    Column("stream", get=lambda kernel: _queue_name(kernel)),
    Column("count", unit="count"),
    Column("time", unit="time"),
)
UNKNOWN_NOTE = "On streams that communicate else. They count as computation, and may communicate."
COPIES = (
    Column("host memory", get=lambda copy: HOST_MEMORY[copy.pageable]),
    Column("count", unit="count"),
    Column("time", unit="time"),
    Column("bytes", unit="bytes", empty="–"),
    Column("rate", get=_rate, empty="–"),
)
QUEUES = (
    Column("mean", get=lambda queue: units.significant(queue.mean)),
    Column("most", title="longest", unit="count", get=lambda queue: queue.max_length),
    Column("empty", unit="percent"),
    Column("delay", unit="time", get=lambda queue: queue.delay_median),
    Column("p99", unit="time", get=lambda queue: queue.delay_p99),
)
SYNCHRONISATIONS = (
    Column("calls", unit="count", get=lambda synchronisation: synchronisation.count),
    Column("time", unit="time"),
)
MEMORY = (
    Column("before", unit="bytes"),
    Column("peak", unit="bytes"),
    Column("at", title="peak at", unit="time", get=lambda memory: memory.peak_at),
    Column("after", unit="bytes"),
    Column("reserved", unit="bytes", empty="–"),
    Column(
        "alive", title="", unit="curve", get=lambda memory: Curve(memory.timeline, 1, width=2 * BAR)
    ),
)


def details(rank: RankTrace) -> Iterator[Table]:
    """Yield the detail tables of a rank, most telling first."""
    if rank.critical_path is not None:
        yield _critical_path(rank.critical_path)
    if rank.collectives:
        yield _first_rows("Collectives", COLLECTIVES, rank.collectives)
    if rank.unknown_roles:
        title = "Kernels of unknown role"
        yield _first_rows(
            title, UNKNOWN_ROLES, rank.unknown_roles, lambda kernel: kernel.name, UNKNOWN_NOTE
        )
    if rank.copies:
        rows = rows_of(COPIES, rank.copies, lambda copy: copy.kind)
        yield Table(title="Copies", how="measured", columns=COPIES, rows=rows, recorded=True)
    if rank.queues:
        note = "empty: work with nothing waiting behind it. delay: from launch to begin, median."
        yield _first_rows("Launched and not begun", QUEUES, rank.queues, _queue_name, note)
    if rank.synchronisations:
        title = "The host waited for a device"
        yield _first_rows(title, SYNCHRONISATIONS, rank.synchronisations, _synchronisation_name)
    if rank.memory:
        yield _first_rows("Memory of tensors", MEMORY, rank.memory, _memory_name)


def _first_rows(
    title: str,
    columns: Sequence[Column],
    records: Sequence[Any],
    name: Any = lambda record: record.name,
    *notes: str,
) -> Table:
    """Return a table of the first records; all names but those of memory and queues are theirs."""
    return Table(
        title=title, how="measured", columns=columns,
        rows=rows_of(columns, records[:MAX_ROWS], name),
        recorded=name not in (_queue_name, _memory_name), notes=notes, total_rows=len(records),
    )  # fmt: skip


def _critical_path(path: CriticalPath) -> Table:
    rows = []
    for name in ("compute", "communication", "copy", "host", "launch", "pause"):
        time: float = getattr(path, name)
        if time:
            share = time / path.length
            rows.append(Row(name, {"time": units.time(time), "share": share, "bar": share}))
    longest = [segment for segment in path.items if segment.link != "pause"][:3]
    longest_text = "; ".join(
        f"{units.time(segment.time, 3)} {_short(segment.name)}" for segment in longest
    )
    return Table(
        title="Critical path", how="estimated", columns=PATH, rows=rows,
        notes=(f"Most of it: {longest_text}.",),
    )  # fmt: skip


def _short(name: str, max_length: int = 40) -> str:
    text = visible(name)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _queue_name(queue: Any) -> str:
    return f"GPU {queue.device} stream {queue.stream}".replace("None", "?")


def _synchronisation_name(synchronisation: Any) -> str:
    layer = synchronisation.layer and f"in {synchronisation.layer}"
    parts = ", ".join(filter(None, (synchronisation.operator, layer)))
    return f"{synchronisation.call}{f' ({parts})' if parts else ''}"


def _memory_name(memory: Any) -> str:
    return "host" if memory.device is None else f"GPU {memory.device}"
