"""The ranges that a program marked, from the begins and ends that a memory snapshot holds.

torch writes the begin and the end of each `record_function` as two moments with the same name, and
says neither which begin an end belongs to nor which thread it was. Ranges of one name that overlap
are therefore one range: any way to pair their moments covers the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchgauge.records.snapshot import Mark

BEGIN, END = "START", "END"


@dataclass(frozen=True, slots=True)
class MarkedRange:
    """`calls` ranges of one name that overlap, in seconds after the window's begin.

    `begin` is None where only an end was kept, `end` where only a begin was; both are None where
    the moment is not known. A moment that is neither begin nor end is one that ends as it begins.
    """

    name: str
    begin: float | None
    end: float | None
    calls: int = 1


def ranges(marks: Sequence[Mark], device: int) -> list[MarkedRange]:
    """Return the ranges marked on a device, and those of no device, by time; unknown times last."""
    device_marks = [mark for mark in marks if mark.device in (device, None)]
    timed = sorted(
        (mark for mark in device_marks if mark.time is not None), key=lambda mark: mark.time or 0.0
    )
    merged: list[MarkedRange] = []
    open_ranges: dict[str, tuple[int, int]] = {}  # by name: index in `merged`, depth
    for mark in timed:
        index, depth = open_ranges.pop(mark.name, (len(merged), 0))
        if mark.stage == BEGIN:
            if depth:
                merged[index] = replace(merged[index], calls=merged[index].calls + 1)
            else:
                merged.append(MarkedRange(mark.name, mark.time, None))
            open_ranges[mark.name] = index, depth + 1
        elif mark.stage == END:
            if depth > 1:
                open_ranges[mark.name] = index, depth - 1
            elif depth:
                merged[index] = replace(merged[index], end=mark.time)
            else:
                merged.append(MarkedRange(mark.name, None, mark.time))
        else:
            if depth:
                open_ranges[mark.name] = index, depth
            merged.append(MarkedRange(mark.name, mark.time, mark.time))
    return merged + [
        MarkedRange(mark.name, None, None) for mark in device_marks if mark.time is None
    ]
