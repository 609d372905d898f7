"""A part of a recorded trace for speedscope: a profile of each stream and thread, in real time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchgauge.report.recorded_stacks import Line, Lines, Stretch
from torchgauge.report.speedscope import SCHEMA
from torchgauge.report.stacks import Stack

_AT_ONCE = 4096  # events

_encode = msgspec.json.Encoder().encode


def parts(ranks: Iterable[tuple[str, Lines]]) -> Iterator[bytes]:
    """Yield the file, piece by piece; `ranks` are the ranks' lines with what to call each.

    Times are in ns from the window's begin. Devices come first.
    """
    frames: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    yield _encode({"$schema": SCHEMA, "exporter": "torchgauge"})[:-1] + b',"profiles":['
    between = b""
    for rank, lines in ranks:
        for line in itertools.chain(lines.devices(), lines.threads()):
            name = f"{rank}, {line.name}" if rank else line.name
            yield between
            yield from _profile(line._replace(name=name), frames)
            between = b","
    shared = {"frames": [{"name": name} for name in frames]}
    yield b'],"shared":' + _encode(shared) + b"}\n"


def _profile(line: Line, frames: dict[str, int]) -> Iterator[bytes]:
    head = {"type": "evented", "name": line.name, "unit": "nanoseconds"}
    yield _encode(head)[:-1] + b',"events":['
    between, first, last = b"", None, 0
    every = _events(line.stretches, frames)
    while events := list(itertools.islice(every, _AT_ONCE)):
        yield between + _encode(events)[1:-1]
        between, last = b",", events[-1]["at"]
        first = events[0]["at"] if first is None else first
    yield b'],"startValue":%d,"endValue":%d}' % (first or 0, last)


def _events(stretches: Iterable[Stretch], frames: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the openings and closings of frames: what goes on without a pause stays open."""
    running: Stack = ()
    now = 0
    for one in stretches:
        same = _common(running, one.stack) if one.begin == now else 0
        yield from _closings(running[same:], now, frames)
        for name in one.stack[same:]:
            yield {"type": "O", "frame": frames[name], "at": one.begin}
        running, now = one.stack, one.end
    yield from _closings(running, now, frames)


def _common(one: Stack, other: Stack) -> int:
    """Return how many frames the two begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _closings(stack: Stack, at: int, frames: dict[str, int]) -> Iterator[dict[str, Any]]:
    for name in reversed(stack):
        yield {"type": "C", "frame": frames[name], "at": at}
