"""The detail tables of one rank's trace: critical path, collectives, copies, queues, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.trace.breakdown import CriticalPath, KernelSequence
from torchgauge.records.trace.trace import Collectives, RankTrace
from torchgauge.report.content.document import AtLeast, Column, Row, Table, rows_of
from torchgauge.report.notebook.charts import Curve
from torchgauge.report.tables.kernel_names import kernel_label
from torchgauge.visible import visible

BAR = 10
MAX_ROWS = 8  # rows of a table of details
PATH = (Column("time"), Column("share", unit="percent"), Column("bar", unit="bar", max_width=BAR))
HOST_MEMORY = {True: "pageable", False: "pinned", None: ""}


def _bus(collective: Collectives) -> float | None:
    bandwidth = collective.bus_bandwidth
    return AtLeast(bandwidth) if bandwidth and collective.wait is None else bandwidth


COLLECTIVES = (
    Column("name", "collective", medium="page"),
    Column("dtype", "type", medium="page"),
    Column("bytes", "size", "bytes", empty="–"),
    Column("group", "ranks", "count", empty="–"),
    Column("calls", unit="count"),
    Column("time", unit="time"),
    Column("exposed", unit="time"),
    Column("wait", "waited", "time", empty="–"),
    Column("transfer", unit="time", medium="page"),
    Column("bus", unit="bytes/s", get=_bus, empty="–"),
)
SERVING = (
    Column("phase", medium="page"),
    Column("steps", unit="count"),
    Column("requests", unit="count"),
    Column("tokens", unit="count"),
    Column("step_host", "host", "time"),
    Column("step_device", "device", "time"),
    Column("distance", "apart", "time", empty="–"),
    Column("device", "device, all steps", "time", medium="page"),
)
UNKNOWN_ROLES = (
    Column("name", "kernel", medium="page"),
    Column("stream", get=lambda kernel: _stream_name(kernel)),
    Column("count", unit="count"),
    Column("time", unit="time"),
)
COPIES = (
    Column("kind", "copy", medium="page"),
    Column("host memory", get=lambda copy: HOST_MEMORY[copy.pageable]),
    Column("count", unit="count"),
    Column("time", unit="time"),
    Column("bytes", unit="bytes", empty="–"),
    Column("bandwidth", "rate", "bytes/s", empty="–"),
)
SEQUENCES = (
    Column("begins with", get=lambda sequence: sequence_name(sequence), medium="page"),
    Column("kernels", unit="count", get=lambda sequence: len(sequence.names)),
    Column("repeats", unit="count"),
    Column("runs", "series", "count", priority=3),
    Column("time", unit="time"),
    Column("share", unit="percent"),
    Column("each", unit="time", get=lambda sequence: sum(sequence.durations), priority=1),
    Column("span", "apart", "time", priority=2),
)
QUEUES = (
    Column("mean", unit="number"),
    Column("max_length", "longest", "count"),
    Column("empty", unit="percent"),
    Column("delay_median", "delay", "time"),
    Column("delay_p99", "p99", "time"),
)
SYNCHRONISATIONS = (
    Column("call", medium="page"),
    Column("operator", medium="page"),
    Column("layer", medium="page"),
    Column("count", "calls", "count"),
    Column("time", unit="time"),
    Column("idle", "device waited after it", "time", medium="page"),
    Column("function", medium="page"),
)
DELAYS = (
    Column("cause", medium="page"),
    Column("name", "span", medium="page"),
    Column("calls", unit="count"),
    Column("time", unit="time"),
    Column("longest", unit="time"),
    Column("idle", "device waited", "time", empty="–"),
)
MEMORY = (
    Column("before", unit="bytes"),
    Column("peak", unit="bytes"),
    Column("at", "peak at", "time", lambda memory: memory.peak_at),
    Column("after", unit="bytes"),
    Column("reserved", unit="bytes", empty="–"),
    Column("alive", "", "curve", lambda memory: Curve(memory.timeline, 1, width=2 * BAR)),
)
UNCOUNTED = (
    Column("category", medium="page"),
    Column("count", "events", "count"),
    Column("time", unit="time"),
)
NOTES = {
    "serving": "Times are medians of a step: on the host, of the device work that it launched, "
    "and from its begin to that of the next step.",
    "unknown role": "On streams that communicate else. They count as computation, and may "
    "communicate.",
    "queues": "empty: work with nothing waiting behind it. delay: from launch to begin, median.",
}


def details(rank: RankTrace) -> Iterator[Table]:
    """Yield the detail tables of a rank, most telling first; those with a key are the page's too.

    They have all rows, of which a terminal shows the first.
    """

    def queue_name(queue: Any) -> str:
        return rank.stream_name(queue.device, queue.stream)

    def memory_name(memory: Any) -> str:
        return "host" if memory.device is None else rank.called(memory.device)

    if rank.critical_path is not None:
        yield _critical_path(rank.critical_path)
    if rank.sequences:
        yield _sequences(rank)
    tables: tuple[tuple[str, str, Sequence[Column], Sequence[Any], Callable[[Any], str]], ...] = (
        ("serving", "Prefill and decode", SERVING, rank.serving, lambda row: row.phase),
        ("collectives", "Collectives", COLLECTIVES, rank.collectives, lambda row: row.name),
        ("unknown role", "Kernels of unknown role", UNKNOWN_ROLES, rank.unknown_roles,
         lambda kernel: kernel.name),
        ("copies", "Copies", COPIES, rank.copies, lambda copy: copy.kind),
        ("queues", "Launched and not begun", QUEUES, rank.queues, queue_name),
        ("synchronisations", "The host waited for a device", SYNCHRONISATIONS,
         rank.synchronisations, _synchronisation_name),
        ("host_delays", "What kept the host from launching", DELAYS, rank.host_delays, _delay_name),
        ("", "Memory of tensors", MEMORY, rank.memory, memory_name),
        ("uncounted", "Recorded, and counted in no figure", UNCOUNTED, rank.contents.uncounted,
         lambda uncounted: uncounted.category or "no category"),
    )  # fmt: skip
    for key, title, columns, records, name in tables:
        if records:
            yield Table(
                title=title, how="measured", columns=columns, rows=rows_of(columns, records, name),
                first="stream" if key == "queues" else "",
                recorded=key not in ("queues", ""), notes=(NOTES[key],) if key in NOTES else (),
                top=MAX_ROWS, key=key,
            )  # fmt: skip


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
        layout="fitted", key="sequences",
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
