"""The detail tables of one rank's trace: critical path, collectives, copies, queues, memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchgauge import units
from torchgauge.records.trace.breakdown import CriticalPath, KernelSequence
from torchgauge.records.trace.trace import Collectives, RankTrace
from torchgauge.report.content.document import Column, Curve, Row, Table, rows_of
from torchgauge.report.tables.kernel_names import kernel_label
from torchgauge.visible import visible

BAR = 10
MAX_ROWS = 8  # rows of a table of details
PATH = (Column("time"), Column("share", unit="percent"), Column("bar", unit="bar", max_width=BAR))
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
SERVING = (
    Column("steps", unit="count"),
    Column("requests", unit="count"),
    Column("tokens", unit="count"),
    Column("step_host", title="host", unit="time"),
    Column("step_device", title="device", unit="time"),
    Column("distance", title="apart", unit="time", empty="–"),
)
UNKNOWN_ROLES = (
    Column("stream", get=lambda kernel: _stream_name(kernel)),
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
SEQUENCES = (
    Column("kernels", unit="count", get=lambda sequence: len(sequence.names)),
    Column("repeats", unit="count"),
    Column("series", 3, unit="count", get=lambda sequence: sequence.runs),
    Column("time", unit="time"),
    Column("share", unit="percent"),
    Column("each", 1, unit="time", get=lambda sequence: sum(sequence.durations)),
    Column("span", 2, title="apart", unit="time"),
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
UNCOUNTED = (
    Column("events", unit="count", get=lambda uncounted: uncounted.count),
    Column("time", unit="time"),
)
DELAYS = (
    Column("calls", unit="count"),
    Column("time", unit="time"),
    Column("longest", unit="time"),
    Column("idle", title="device waited", unit="time", empty="–"),
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
SERVING_NOTE = (
    "Times are medians of a step: on the host, of the device work that it launched, and from its "
    "begin to that of the next step."
)


def details(rank: RankTrace) -> Iterator[Table]:
    """Yield the detail tables of a rank, most telling first."""

    def queue_name(queue: Any) -> str:
        return rank.stream_name(queue.device, queue.stream)

    def memory_name(memory: Any) -> str:
        return "host" if memory.device is None else rank.called(memory.device)

    if rank.critical_path is not None:
        yield _critical_path(rank.critical_path)
    if rank.sequences:
        yield _sequences(rank)
    empty = "empty: work with nothing waiting behind it. delay: from launch to begin, median."
    kinds = (
        ("Prefill and decode", SERVING, rank.serving, lambda phase: phase.phase, SERVING_NOTE,
         True),
        ("Collectives", COLLECTIVES, rank.collectives, lambda row: row.name, "", True),
        ("Kernels of unknown role", UNKNOWN_ROLES, rank.unknown_roles,
         lambda kernel: kernel.name, UNKNOWN_NOTE, True),
        ("Copies", COPIES, rank.copies, lambda copy: copy.kind, "", True),
        ("Launched and not begun", QUEUES, rank.queues, queue_name, empty, False),
        ("The host waited for a device", SYNCHRONISATIONS, rank.synchronisations,
         _synchronisation_name, "", True),
        ("What kept the host from launching", DELAYS, rank.host_delays, _delay_name, "", True),
        ("Memory of tensors", MEMORY, rank.memory, memory_name, "", False),
        ("Recorded, and counted in no figure", UNCOUNTED, rank.contents.uncounted,
         lambda uncounted: uncounted.category or "no category", "", True),
    )  # fmt: skip
    for title, columns, records, name, note, recorded in kinds:
        if records:
            notes = (note,) if note else ()
            yield Table(
                title=title,
                how="measured",
                columns=columns,
                rows=rows_of(columns, records[:MAX_ROWS], name),
                recorded=recorded,
                notes=notes,
                total_rows=len(records),
            )


def _stream_name(kernel: Any) -> str:
    return f"device {kernel.device} stream {kernel.stream}".replace("None", "?")


def _critical_path(path: CriticalPath) -> Table:
    rows = []
    for name in ("compute", "communication", "wait", "copy", "host", "launch", "pause"):
        time: float | None = getattr(path, name)
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


def _sequences(rank: RankTrace) -> Table:
    rows = rows_of(SEQUENCES, rank.sequences, sequence_name)
    longest = rank.sequences[0]
    parts = sorted(zip(longest.durations, longest.names, strict=True), reverse=True)[:3]
    parts_text = "; ".join(
        f"{units.time(time, 3)} {_short(kernel_label(name))}" for time, name in parts
    )
    return Table(
        title="Kernels that repeat", how="measured", columns=SEQUENCES, rows=rows, recorded=True,
        layout="fitted",
        notes=(f"The longest of the first sequence: {parts_text}.",),
    )  # fmt: skip


def sequence_name(sequence: KernelSequence) -> str:
    """Return what a sequence begins with, and how many more kernels follow."""
    first, *further = sequence.names
    return f"{_short(kernel_label(first), 28)} and {len(further)} more"


def _short(name: str, max_length: int = 40) -> str:
    text = visible(name)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _synchronisation_name(synchronisation: Any) -> str:
    layer = synchronisation.layer and f"in {synchronisation.layer}"
    parts = ", ".join(filter(None, (synchronisation.operator, layer)))
    return f"{synchronisation.call}{f' ({parts})' if parts else ''}"


def _delay_name(delay: Any) -> str:
    return f"{delay.cause}: {delay.name}"
