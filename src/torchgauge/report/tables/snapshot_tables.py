"""The tables of a memory snapshot: how segments are filled, and which stacks hold memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from torchgauge import units
from torchgauge.records.snapshot import (
    DeviceMemory,
    Frame,
    Holding,
    Oom,
    Peak,
    PossibleLeak,
    Segment,
    Snapshot,
    Stack,
)
from torchgauge.report.content.document import Column, Detailed, Row, Table, rows_of
from torchgauge.report.content.section import Row as Figure
from torchgauge.report.content.section import Section
from torchgauge.report.notebook.charts import Curve
from torchgauge.visible import one_line

BAR = 8
CAUSES = {
    "fragmentation": "fragmentation",
    "full": "really full",
    "elsewhere": "free elsewhere",
    "limit": "a limit",
    "unknown": "unknown",
}


def fill_section(device: DeviceMemory) -> Section:
    """Say how the device's memory is filled."""
    total = device.reserved or 1
    lost = device.fragmentation

    def row(label: str, value: int | None, note: str = "", *, share: bool = True) -> Figure:
        has_share = value is not None and share
        return Figure(label, units.size(value), note, (value or 0) / total if has_share else None)

    segments_text = f"{len(device.segments):,} segment{'s' * (len(device.segments) != 1)}"
    blocks_text = f"{device.blocks:,} block{'s' * (device.blocks != 1)}"
    rows = [
        row("reserved", device.reserved, segments_text, share=False),
        row(
            "in use",
            device.allocated,
            f"{blocks_text} with pending" if device.pending else blocks_text,
        ),
    ]
    if device.pending:
        rows.append(row("pending", device.pending, "freed"))
    rows.append(row("free", lost.cached, f"largest {units.size(lost.largest, 3)}"))
    if device.unlisted:
        rows.append(row("unlisted", device.unlisted))
    rows.append(row("split", lost.split, "between blocks"))
    rows.append(row("rounding", lost.internal, "not asked for"))
    return Section("Memory at the end", "counted", tuple(rows))


def over_time(device: DeviceMemory, peak: Peak) -> Table:
    """Return the largest value of each curve over the window, and the curve."""
    alive = Curve(device.timeline, 1, reserve=30)
    rows = [Row("alive", {"most": units.size(peak.bytes), "curve": alive})]
    reserved = [point[2] for point in device.timeline if point[2] is not None]
    if reserved:
        curve = Curve(device.timeline, 2, reserve=30, tone="faint")
        rows.append(Row("reserved", {"most": units.size(max(reserved)), "curve": curve}))
    columns = (Column("most", "peak"), Column("curve", "", "curve"))
    return Table(
        title="Over the window", how="measured", columns=columns, rows=rows, notes=(_moment(peak),)
    )


def _moment(peak: Peak) -> str:
    time_text = "" if peak.time is None else f", {units.time(peak.time)} after the first"
    position = "before the first event" if peak.event < 0 else f"at event {peak.event:,}{time_text}"
    return f"Peak {position}. Alive: requested sizes, until the free is complete."


def segment_kind(segment: Segment) -> str:
    """Return a segment's kind, its stream, and its pool if it is a private one."""
    private = f"pool {segment.pool}" if segment.pool not in ("", "0.0") else ""
    kind = "expandable" if segment.expandable else ""
    return ", ".join(filter(None, (segment.kind, kind, f"stream {segment.stream}", private)))


def _sum(name: str) -> Callable[[Sequence[Segment]], int]:
    return lambda segments: sum(getattr(segment, name) for segment in segments)


def _fill(segments: Sequence[Segment]) -> float:
    used = sum(segment.allocated + segment.pending for segment in segments)
    size = sum(segment.size for segment in segments)
    return used / size if size else 0.0


SEGMENTS = (
    Column("count", unit="count", get=len),
    Column("size", unit="bytes", get=_sum("size")),
    Column("in use", unit="percent", get=_fill),
    Column("bar", unit="bar", get=_fill, max_width=BAR),
    Column("free", unit="bytes", get=_sum("free")),
    Column("largest", unit="bytes", get=lambda s: max(segment.largest_free for segment in s)),
)
OOMS = (
    Column("requested", unit="bytes"),
    Column("device_free", "device left", "bytes", empty="–"),
    Column("cached", "free", "bytes", empty="–"),
    Column("largest", unit="bytes", empty="–"),
    Column("cause", get=lambda oom: CAUSES[oom.cause]),
    Column("time", "at", "time", medium="page"),
    Column("event", unit="count", medium="page"),
    Column("usable", "largest it may use", "bytes", medium="page"),
    Column("alive", unit="bytes", medium="page"),
    Column("reserved", unit="bytes", medium="page"),
)
PERSISTENT = (
    Column("bytes", unit="bytes"),
    Column("blocks", "not freed", "count"),
    Column("allocations", "allocated", "count"),
)


def segments(device: DeviceMemory, top: int) -> Table:
    """Return how the segments of each kind are filled, the largest kind first."""
    kinds: dict[str, list[Segment]] = {}
    for segment in device.segments:
        kinds.setdefault(segment_kind(segment), []).append(segment)
    ordered = sorted(kinds.values(), key=lambda kind: -sum(segment.size for segment in kind))
    rows = rows_of(SEGMENTS, ordered, lambda kind: segment_kind(kind[0]))
    return _stack_table("Segments", "counted", SEGMENTS, rows, top, "")


def _stack_table(
    title: str,
    how: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    top: int,
    first: str = "allocated by",
    *notes: str,
) -> Table:
    return Table(
        title=title, how=how, first=first, columns=columns, rows=rows, recorded=True, notes=notes,
        top=top, layout="names last",
    )  # fmt: skip


def stack_tables(snapshot: Snapshot, device: DeviceMemory, top: int) -> Iterator[Table]:
    """Yield the stacks that held memory at the peak and the end, ran out of it, or kept it."""

    def stack(holder: Holding | Oom | PossibleLeak) -> Detailed:
        return stack_text(None if holder.stack is None else snapshot.stacks[holder.stack])

    category = Column("category", get=lambda holder: _category(snapshot, holder), medium="page")

    def holders(title: str, held: Sequence[Holding], total: int) -> Table:
        def share(holding: Holding) -> float | None:
            return holding.bytes / total if total else None

        columns = (
            Column("bytes", unit="bytes"),
            Column("share", unit="percent", get=share),
            Column("bar", unit="bar", get=share, max_width=BAR),
            Column("blocks", unit="count"),
            category,
        )
        rows = rows_of(columns, held, stack)
        notes = _category_note(categories(snapshot, held), total)
        return _stack_table(title, "measured", columns, rows, top, "allocated by", *notes)

    if device.peak is not None and device.peak.held:
        yield holders("Alive at the peak", device.peak.held, device.peak.bytes)
    if device.ooms:
        rows = rows_of(OOMS, device.ooms[::-1], stack)
        note = "The last first. free: in segments, and the largest such piece, by the events."
        yield _stack_table("Allocations that failed", "estimated", OOMS, rows, top, "by", note)
    if device.alive:
        total = device.allocated + device.pending
        yield holders("Alive at the end", device.alive, total)
    if device.possible_leaks:
        columns = (*PERSISTENT, category)
        rows = rows_of(columns, device.possible_leaks, stack)
        yield _stack_table("Kept all through the window", "measured", columns, rows, top)


def _category(snapshot: Snapshot, holder: Holding | PossibleLeak) -> str:
    return "unknown" if holder.stack is None else snapshot.stacks[holder.stack].category


def categories(snapshot: Snapshot, held: Sequence[Holding]) -> dict[str, int]:
    """Return bytes by category, estimated from the stacks, most first; empty if all is unknown."""
    sizes: Counter[str] = Counter()
    for holding in held:
        sizes[_category(snapshot, holding)] += holding.bytes
    return {} if set(sizes) <= {"unknown"} else dict(sizes.most_common())


def _category_note(sizes: dict[str, int], total: int) -> list[str]:
    parts = [f"{name} {units.percent(size / (total or 1))}" for name, size in sizes.items()]
    text = f"By category, from the stacks (estimated): {', '.join(parts)}."
    return [text] if parts else []


def stack_text(stack: Stack | None) -> Detailed:
    """Return a stack as text: the innermost frame, then its callers."""
    if stack is None:
        return Detailed("", "before the first event")
    if not stack.frames:
        return Detailed("", "without a stack")
    first, *callers = map(frame_text, stack.frames)
    return Detailed(first, "".join(f" ← {caller}" for caller in callers))


def frame_text(frame: Frame) -> str:
    """Return a frame as file:line and function; C++ has no lines."""
    file = one_line(frame.file).rstrip("/").rsplit("/", 1)[-1]
    place = f"{file}:{frame.line}" if frame.line > 0 else file
    return f"{place} {one_line(frame.name)}".strip()
