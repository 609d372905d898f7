"""The tree as a speedscope file: one profile for each figure that the record has."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.exported import Weight
from torchgauge.report.export.stacks import Line, Lines, Stack, Stretch, label, stacks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS: dict[Weight, str] = {
    "device": "nanoseconds",
    "host": "nanoseconds",
    "flops": "none",
    "bytes": "bytes",
    "memory": "bytes",
}


def render(record: object) -> str:
    """Return the file's text, the device's time first where it worked."""
    frames: dict[str, int] = defaultdict(itertools.count().__next__)  # numbered as they are met
    profiles: list[dict[str, Any]] = []
    absent: InputError | None = None
    for weight, unit in UNITS.items():
        try:
            weighted_stacks = stacks(record, weight)
        except InputError as error:
            absent = error
            continue
        profiles.append(
            {
                "type": "sampled",
                "name": label(weight),
                "unit": unit,
                "startValue": 0,
                "endValue": sum(own for _, own in weighted_stacks),
                "samples": [[frames[frame] for frame in stack] for stack, _ in weighted_stacks],
                "weights": [own for _, own in weighted_stacks],
            }
        )
    if not profiles and absent is not None:
        raise absent
    content = {
        "$schema": SCHEMA,
        "exporter": "torchgauge",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    return msgspec.json.encode(content).decode() + "\n"


_AT_ONCE = 4096  # events

_encode = msgspec.json.Encoder().encode


def parts(ranks: Iterable[tuple[str, Lines]]) -> Iterator[bytes]:
    """Yield the file in chunks; `ranks` are the ranks' lines, each with a name.

    Times are in ns from the window's begin. Devices come first.
    """
    frames: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    yield _encode({"$schema": SCHEMA, "exporter": "torchgauge"})[:-1] + b',"profiles":['
    between = b""
    for rank, lines in ranks:
        for line in itertools.chain(lines.devices(), lines.threads()):
            name = f"{rank}, {line.name}" if rank else line.name
            yield between
            yield from _trace_speedscope_profile(line._replace(name=name), frames)
            between = b","
    shared = {"frames": [{"name": name} for name in frames]}
    yield b'],"shared":' + _encode(shared) + b"}\n"


def _trace_speedscope_profile(line: Line, frames: dict[str, int]) -> Iterator[bytes]:
    head = {"type": "evented", "name": line.name, "unit": "nanoseconds"}
    yield _encode(head)[:-1] + b',"events":['
    between, first, last = b"", None, 0
    pending_events = _events(line.stretches, frames)
    while events := list(itertools.islice(pending_events, _AT_ONCE)):
        yield between + _encode(events)[1:-1]
        between, last = b",", events[-1]["at"]
        first = events[0]["at"] if first is None else first
    yield b'],"startValue":%d,"endValue":%d}' % (first or 0, last)


def _events(stretches: Iterable[Stretch], frames: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the openings and closings of frames; a frame without a pause stays open."""
    running: Stack = ()
    time = 0
    for stretch in stretches:
        shared_frames = _shared_frame_count(running, stretch.stack) if stretch.begin == time else 0
        yield from _closings(running[shared_frames:], time, frames)
        for name in stretch.stack[shared_frames:]:
            yield {"type": "O", "frame": frames[name], "at": stretch.begin}
        running, time = stretch.stack, stretch.end
    yield from _closings(running, time, frames)


def _shared_frame_count(first: Stack, second: Stack) -> int:
    """Return how many leading frames two stacks share."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _closings(stack: Stack, time: int, frames: dict[str, int]) -> Iterator[dict[str, Any]]:
    for name in reversed(stack):
        yield {"type": "C", "frame": frames[name], "at": time}
