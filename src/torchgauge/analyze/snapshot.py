"""A recorded memory snapshot as a record: each device's state, and what its events tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from torchgauge.analyze import snapshot_layout as layout
from torchgauge.analyze.snapshot_findings import findings
from torchgauge.analyze.snapshot_kept import kept
from torchgauge.analyze.snapshot_ooms import failed
from torchgauge.analyze.snapshot_replay import UNKNOWN, Replay, replay
from torchgauge.analyze.snapshot_stacks import Stacks
from torchgauge.analyze.snapshot_timeline import seconds, timeline
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.snapshot import DeviceMemory, Holding, Mark, Oom, Peak, Snapshot, Window
from torchgauge.trace.snapshot_contents import Events, RecordedSegment, Recording


def snapshot(recording: Recording, name: str) -> Snapshot:
    """Return the record of what was read."""
    stacks = Stacks(recording.stacks)
    by_device: dict[int, list[RecordedSegment]] = {number: [] for number in recording.events}
    for segment in recording.segments:
        by_device.setdefault(segment.device, []).append(segment)
    devices = tuple(
        _device(number, segments, recording.events.get(number), stacks)
        for number, segments in sorted(by_device.items())
    )
    found = Snapshot(
        name=name,
        devices=devices,
        stacks=stacks.rows,
        settings=recording.settings,
        marks=tuple(_marks(recording)),
        warnings=tuple(warning for device in devices for warning in _warnings(device)),
    )
    return msgspec.structs.replace(found, findings=findings(found))


def _device(
    number: int, recorded: Sequence[RecordedSegment], events: Events | None, stacks: Stacks
) -> DeviceMemory:
    filled = layout.segments(recorded)
    blocks = layout.active_blocks(recorded)
    reserved = sum(one.size for one in filled)
    asked = layout.requested(blocks)
    found = DeviceMemory(
        device=number,
        reserved=reserved,
        allocated=sum(one.allocated for one in filled),
        pending=sum(one.pending for one in filled),
        unlisted=reserved - sum(one.allocated + one.pending + one.free for one in filled),
        requested=asked,
        blocks=len(blocks),
        fragmentation=layout.fragmentation(filled, asked),
        segments=filled,
        alive=_held(((block.stack, block.size) for block in blocks), stacks),
    )
    return found if events is None else _with_window(found, recorded, events, stacks)


def _with_window(
    found: DeviceMemory, recorded: Sequence[RecordedSegment], events: Events, stacks: Stacks
) -> DeviceMemory:
    played = replay(events, recorded)
    times = seconds(events)
    return msgspec.structs.replace(
        found,
        window=Window(
            events=dict(Counter(events.action)),
            length=None if times is None else times[-1],
            before=played.alive[0],
            before_blocks=played.before_blocks,
            lost=played.lost,
        ),
        peak=_peak(played, times, stacks),
        timeline=timeline(events, played),
        ooms=tuple(_ooms(events, recorded, played, stacks)),
        kept=kept(played, len(events), stacks),
    )


def _held(allocations: Iterable[tuple[int | None, int]], stacks: Stacks) -> tuple[Holding, ...]:
    """Return bytes and blocks by stack, the most first."""
    held: dict[int | None, list[int]] = {}
    for recorded, size in allocations:
        one = held.setdefault(None if recorded == UNKNOWN else stacks.row(recorded), [0, 0])
        one[0] += size
        one[1] += 1
    found = [Holding(stack=row, bytes=size, blocks=count) for row, (size, count) in held.items()]
    return tuple(sorted(found, key=lambda one: -one.bytes))


def _peak(played: Replay, times: list[float] | None, stacks: Stacks) -> Peak:
    place = max(range(len(played.alive)), key=played.alive.__getitem__)
    event = place - 1
    found = played.allocations
    alive = ((found.stack[at], found.size[at]) for at in found.alive(event))
    return Peak(
        bytes=played.alive[place],
        at=None if times is None else times[max(event, 0)],
        event=event,
        reserved=None if played.reserved is None else played.reserved[place],
        held=_held(alive, stacks),
    )


def _ooms(
    events: Events, recorded: Sequence[RecordedSegment], played: Replay, stacks: Stacks
) -> Iterator[Oom]:
    times = seconds(events)
    for event, free, cause in failed(events, recorded, played):
        yield Oom(
            at=None if times is None else times[event],
            event=event,
            asked=events.size[event],
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
    origins = {number: one.time[0] for number, one in recording.events.items()}
    for one in recording.annotations:
        origin = origins.get(one.device if one.device is not None else -1)
        known = one.time is not None and origin is not None
        at = ((one.time or 0) - (origin or 0)) * 1e-6 if known else None
        yield Mark(name=one.name, stage=one.stage, device=one.device, at=at)


def _warnings(device: DeviceMemory) -> Iterator[MeasurementWarning]:
    if device.unlisted:
        yield MeasurementWarning(
            id="snapshot-blocks",
            message=f"The blocks of device {device.device} are not as large as its segments.",
            cause=f"They differ by {device.unlisted:,} bytes: the file is not as torch wrote it.",
            remedy="What blocks hold is what they say; the rest is shown as unlisted.",
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
