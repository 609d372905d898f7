"""The ranges that a program marked, from the begins and ends that a memory snapshot holds.

torch writes the begin and the end of each `record_function` as two moments with the same name, and
says neither which begin an end belongs to nor which thread it was. Ranges of one name that overlap
are therefore one range: any way to pair their moments covers the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchgauge.model.snapshot import Mark

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
    mine = [one for one in marks if one.device in (device, None)]
    timed = sorted((one for one in mine if one.at is not None), key=lambda one: one.at or 0.0)
    found: list[MarkedRange] = []
    open_: dict[str, tuple[int, int]] = {}  # by name: where its range is in `found`, how many deep
    for one in timed:
        place, depth = open_.pop(one.name, (len(found), 0))
        if one.stage == BEGIN:
            if depth:
                found[place] = replace(found[place], calls=found[place].calls + 1)
            else:
                found.append(MarkedRange(one.name, one.at, None))
            open_[one.name] = place, depth + 1
        elif one.stage == END:
            if depth > 1:
                open_[one.name] = place, depth - 1
            elif depth:
                found[place] = replace(found[place], end=one.at)
            else:
                found.append(MarkedRange(one.name, None, one.at))
        else:
            if depth:
                open_[one.name] = place, depth
            found.append(MarkedRange(one.name, one.at, one.at))
    return found + [MarkedRange(one.name, None, None) for one in mine if one.at is None]
