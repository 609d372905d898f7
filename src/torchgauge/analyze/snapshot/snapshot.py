"""Build the record of a memory snapshot: each device's state and the history of its events."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from torchgauge.analyze.snapshot import growth as layout
from torchgauge.analyze.snapshot.replay import UNKNOWN, Replay, failed_allocations, replay
from torchgauge.analyze.snapshot.snapshot_findings import findings
from torchgauge.readers.snapshot.snapshot_contents import (
    Events,
    RecordedFrame,
    RecordedSegment,
    Recording,
)
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.snapshot import (
    Category,
    DeviceMemory,
    Frame,
    HeldOverTime,
    Holding,
    Mark,
    Oom,
    Peak,
    PossibleLeak,
    Snapshot,
    Stack,
    TimelinePoint,
    Window,
)

MAX_FRAMES = 4
# Installed code, torch's and the interpreter's own, and what has no file that one could open.
_FOREIGN = re.compile(
    r"/(site|dist)-packages/|/lib/python[\d.]+/|^torch/|/torch/(csrc|nn|optim|autograd|_\w+|utils)/"
    r"|^<(?!ipython)|^\?*$|\.(cpp|cc|c|h|hpp|cu|cuh|so)(\.\d+)*$"
)
# Files and functions that tell what an allocation is for; the first that fits a frame decides.
_RULES: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"(^|/)torch/optim/.*\n")),
    ("gradients", re.compile(r"(^|/)torch/(autograd/.*|_tensor\.py)\n.*backward")),
    ("gradients", re.compile(r"\n(torch::autograd::Engine::.*|backward$)")),
    (
        "parameters",
        re.compile(
            r"(^|/)torch/nn/.*\n"
            r"(__init__|reset_parameters|_apply|to|cuda|convert|load_state_dict)$"
        ),
    ),
    ("activations", re.compile(r"(^|/)torch/nn/.*\n_call_impl$|\nforward$")),
)


class Stacks:
    """The rows of a snapshot's stacks; recorded ones that show the same frames share a row."""

    def __init__(self, recorded: Sequence[tuple[RecordedFrame, ...]]) -> None:
        self._recorded = recorded
        self._row_of: dict[int | None, int] = {}
        self._rows: dict[Stack, int] = {}
        self._kinds: dict[RecordedFrame, tuple[bool, int]] = {}

    def row(self, recorded: int | None) -> int:
        """Return the row of a recorded stack; None is one without frames."""
        row = self._row_of.get(recorded)
        if row is None:
            stack = self._stack(() if recorded is None else self._recorded[recorded])
            row = self._row_of[recorded] = self._rows.setdefault(stack, len(self._rows))
        return row

    @property
    def rows(self) -> tuple[Stack, ...]:
        """All requested rows, in order."""
        return tuple(self._rows)

    def _stack(self, recorded: Sequence[RecordedFrame]) -> Stack:
        kinds = [self._kind(frame) for frame in recorded]
        own = [frame for frame, (foreign, _) in zip(recorded, kinds, strict=True) if not foreign]
        rule = min((rule for _, rule in kinds), default=len(_RULES))
        return Stack(
            frames=tuple(
                Frame(name=frame.name, file=frame.file, line=frame.line)
                for frame in (own or recorded)[:MAX_FRAMES]
            ),
            own=bool(own),
            category=_RULES[rule][0] if rule < len(_RULES) else "unknown",
        )

    def _kind(self, frame: RecordedFrame) -> tuple[bool, int]:
        """Return whether a frame is not the user's, and the first rule that fits it."""
        kind = self._kinds.get(frame)
        if kind is None:
            text = f"{frame.file}\n{frame.name}"
            fits = (rule for rule, (_, pattern) in enumerate(_RULES) if pattern.search(text))
            kind = bool(_FOREIGN.search(frame.file)), next(fits, len(_RULES))
            self._kinds[frame] = kind
        return kind


MIN_BLOCKS = 8
MAX_FREED_SHARE = 0.1
# What was allocated in one go, as a model or an optimizer's state is, is no leak.
MIN_SPREAD = 0.5
_LASTING = ("parameters", "optimizer")

MAX_POINTS = 2000
MAX_STACKS = 7  # over time


def snapshot(recording: Recording, name: str) -> Snapshot:
    """Return the record of a recording."""
    stacks = Stacks(recording.stacks)
    by_device: dict[int, list[RecordedSegment]] = {number: [] for number in recording.events}
    for segment in recording.segments:
        by_device.setdefault(segment.device, []).append(segment)
    devices = tuple(
        _device(number, segments, recording.events.get(number), stacks)
        for number, segments in sorted(by_device.items())
    )
    record = Snapshot(
        name=name,
        devices=devices,
        stacks=stacks.rows,
        settings=recording.settings,
        marks=tuple(_marks(recording)),
        warnings=tuple(warning for device in devices for warning in _warnings(device)),
    )
    return msgspec.structs.replace(record, findings=findings(record))


def _device(
    number: int, recorded: Sequence[RecordedSegment], events: Events | None, stacks: Stacks
) -> DeviceMemory:
    filled = layout.segments(recorded)
    blocks = layout.active_blocks(recorded)
    reserved = sum(segment.size for segment in filled)
    requested_bytes = layout.requested(blocks)
    memory = DeviceMemory(
        device=number,
        reserved=reserved,
        allocated=sum(segment.allocated for segment in filled),
        pending=sum(segment.pending for segment in filled),
        unlisted=reserved
        - sum(segment.allocated + segment.pending + segment.free for segment in filled),
        requested=requested_bytes,
        blocks=len(blocks),
        fragmentation=layout.fragmentation(filled, requested_bytes),
        segments=filled,
        alive=_held(((block.stack, block.size) for block in blocks), stacks),
    )
    return memory if events is None else _with_window(memory, recorded, events, stacks)


def _with_window(
    device: DeviceMemory, recorded: Sequence[RecordedSegment], events: Events, stacks: Stacks
) -> DeviceMemory:
    played = replay(events, recorded)
    times = _seconds(events)
    points = _points(played)
    peak = _peak(played, times, stacks)
    return msgspec.structs.replace(
        device,
        window=Window(
            events=dict(Counter(events.action)),
            length=None if times is None else times[-1],
            before=played.alive[0],
            before_blocks=played.before_blocks,
            lost=played.lost,
        ),
        peak=peak,
        timeline=_timeline(points, times, played),
        held_over_time=_held_over_time(played, points, peak, stacks),
        ooms=tuple(_ooms(events, recorded, played, stacks)),
        possible_leaks=_possible_leaks(played, len(events), stacks),
    )


def _held(allocations: Iterable[tuple[int | None, int]], stacks: Stacks) -> tuple[Holding, ...]:
    """Return bytes and blocks by stack, the most first."""
    held: dict[int | None, list[int]] = {}
    for recorded, size in allocations:
        counts = held.setdefault(None if recorded == UNKNOWN else stacks.row(recorded), [0, 0])
        counts[0] += size
        counts[1] += 1
    holdings = [Holding(stack=row, bytes=size, blocks=count) for row, (size, count) in held.items()]
    return tuple(sorted(holdings, key=lambda holding: -holding.bytes))


def _peak(played: Replay, times: list[float] | None, stacks: Stacks) -> Peak:
    highest = max(range(len(played.alive)), key=played.alive.__getitem__)
    event = highest - 1
    allocations = played.allocations
    alive = ((allocations.stack[row], allocations.size[row]) for row in allocations.alive(event))
    return Peak(
        bytes=played.alive[highest],
        time=None if times is None else times[max(event, 0)],
        event=event,
        reserved=None if played.reserved is None else played.reserved[highest],
        held=_held(alive, stacks),
    )


def _held_over_time(
    played: Replay, points: Sequence[int], peak: Peak, stacks: Stacks
) -> tuple[HeldOverTime, ...]:
    """Return what the stacks that hold most at the peak hold before the events of these numbers."""
    changes = {holding.stack: [0] * (len(points) + 1) for holding in peak.held[:MAX_STACKS]}
    allocations = played.allocations
    for begin, end, size, recorded in zip(
        allocations.begin, allocations.end, allocations.size, allocations.stack, strict=True
    ):
        change = changes.get(None if recorded == UNKNOWN else stacks.row(recorded))
        if change is not None:
            change[bisect_left(points, begin + 1)] += size
            change[bisect_right(points, end)] -= size
    return tuple(
        HeldOverTime(stack=row, bytes=tuple(accumulate(change[:-1])))
        for row, change in changes.items()
    )


def _ooms(
    events: Events, recorded: Sequence[RecordedSegment], played: Replay, stacks: Stacks
) -> Iterator[Oom]:
    times = _seconds(events)
    for event, free, cause in failed_allocations(events, recorded, played):
        yield Oom(
            time=None if times is None else times[event],
            event=event,
            requested=events.size[event],
            device_free=events.free[event],
            alive=played.alive[event + 1],
            reserved=None if played.reserved is None else played.reserved[event + 1],
            cached=None if free is None else free.cached,
            largest=None if free is None else free.largest,
            usable=None if free is None else free.usable,
            cause=cause,
            stack=stacks.row(events.stack[event]),
        )


def _marks(recording: Recording) -> Iterator[Mark]:
    origins = {number: events.time[0] for number, events in recording.events.items()}
    for annotation in recording.annotations:
        origin = origins.get(annotation.device if annotation.device is not None else -1)
        timed = annotation.time is not None and origin is not None
        offset = ((annotation.time or 0) - (origin or 0)) * 1e-6 if timed else None
        yield Mark(
            name=annotation.name, stage=annotation.stage, device=annotation.device, time=offset
        )


def _warnings(device: DeviceMemory) -> Iterator[MeasurementWarning]:
    if device.unlisted:
        yield MeasurementWarning(
            id="snapshot-blocks",
            message=f"The blocks of device {device.device} are not as large as its segments.",
            cause=f"They differ by {device.unlisted:,} bytes: the file is not as torch wrote it.",
            remedy="Bytes in blocks are taken from the blocks; the rest is shown as unlisted.",
        )
    window = device.window
    if window is not None and window.lost:
        yield MeasurementWarning(
            id="snapshot-events",
            message=f"{window.lost:,} events of device {device.device} contradict others.",
            cause="Memory is freed twice, given out twice, or in use without its allocation.",
            remedy="Bytes over time are as good as the events; the state at the end is not "
            "touched by them.",
        )


def _possible_leaks(played: Replay, events: int, stacks: Stacks) -> tuple[PossibleLeak, ...]:
    """Return the possible leaks, the most bytes first; `events` is the number of all."""
    by_stack: dict[int, list[int]] = {}  # blocks kept, bytes kept, allocations, first and last kept
    for begin, end, size, stack in zip(
        played.allocations.begin,
        played.allocations.end,
        played.allocations.size,
        played.allocations.stack,
        strict=True,
    ):
        if begin < 0:
            continue
        counts = by_stack.setdefault(stacks.row(stack), [0, 0, 0, begin, begin])
        counts[2] += 1
        if end >= events:
            if not counts[0]:
                counts[3] = begin
            counts[0] += 1
            counts[1] += size
            counts[4] = begin
    rows = stacks.rows
    listed = [
        PossibleLeak(stack=row, bytes=size, blocks=blocks, allocations=count)
        for row, (blocks, size, count, first, last) in by_stack.items()
        if blocks >= max(MIN_BLOCKS, (1 - MAX_FREED_SHARE) * count)
        and last - first >= MIN_SPREAD * events
        and rows[row].frames
        and rows[row].category not in _LASTING
    ]
    return tuple(sorted(listed, key=lambda leak: -leak.bytes))


def _seconds(events: Events) -> list[float] | None:
    """Return each event's time after the first; None where not all have one.

    Threads may record in another order than they looked at the clock: no time is before another's
    that was recorded earlier.
    """
    times = events.time
    if not times or None in times:
        return None
    elapsed, latest = [], times[0] or 0
    origin = latest
    for time in times:
        latest = max(latest, time or 0)
        elapsed.append((latest - origin) * 1e-6)
    return elapsed


def _points(played: Replay) -> list[int]:
    """Return at most 2,000 points: the ends, and of equal stretches the highest and the lowest."""
    count = len(played.alive)
    level = played.alive.__getitem__
    stretches = min(count, (MAX_POINTS - 2) // 2)
    chosen = {0, count - 1}
    bounds = [count * index // stretches for index in range(stretches + 1)]
    for begin, end in pairwise(bounds):
        chosen |= {max(range(begin, end), key=level), min(range(begin, end), key=level)}
    return sorted(chosen)


def _timeline(
    points: Sequence[int], times: list[float] | None, played: Replay
) -> tuple[TimelinePoint, ...]:
    return tuple(
        (
            float(index) if times is None else times[max(index - 1, 0)],
            played.alive[index],
            None if played.reserved is None else played.reserved[index],
        )
        for index in points
    )
