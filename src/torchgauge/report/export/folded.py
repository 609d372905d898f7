"""The tree as folded stacks, one line each: what flame graphs are drawn from."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator

from torchgauge.records.exported import Weight
from torchgauge.report.export.stacks import Line, Lines, Stack, stacks
from torchgauge.visible import visible

# Characters that end a frame or a line in this format, which cannot quote them.
_ENDS = str.maketrans(dict.fromkeys("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", " ") | {";": ","})


def render(record: object, weight: Weight = "time") -> str:
    """Return a line "frame;frame;frame weight" for each stack with a weight of its own."""
    return folded(stacks(record, weight))


def folded(weighted_stacks: Iterable[tuple[Stack, int]]) -> str:
    """Return the lines of stacks with their own weights; equal stacks are one line."""
    lines: Counter[str] = Counter()
    # Cached, as a frame is in many stacks.
    escaped = functools.cache(lambda frame: visible(frame.translate(_ENDS)))
    for stack, own in weighted_stacks:
        lines[";".join(map(escaped, stack))] += own
    return "".join(f"{line} {own}\n" for line, own in lines.items())


def parts(ranks: Iterable[tuple[str, Lines]]) -> Iterator[bytes]:
    """Yield the lines: the devices' time, or where none worked the host's.

    `ranks` are the ranks' lines, each with a name, which becomes the outermost frame.
    """
    device: Counter[Stack] = Counter()
    host: Counter[Stack] = Counter()
    for rank, lines in ranks:
        _add(device, rank, lines.devices())
        if not device:
            _add(host, rank, lines.threads())
    yield folded((device or host).items()).encode()


def _add(own: Counter[Stack], rank: str, lines: Iterable[Line]) -> None:
    above = (rank,) if rank else ()
    for line in lines:
        for begin, end, stack in line.stretches:
            own[*above, *stack] += end - begin
