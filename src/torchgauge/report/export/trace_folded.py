"""A part of a recorded trace as folded stacks: the self time of each stack, in ns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torchgauge.report.export.folded import folded
from torchgauge.report.export.recorded_stacks import Line, Lines
from torchgauge.report.export.stacks import Stack


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
