"""The tree as folded stacks, one line each: what flame graphs are drawn from."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable

from torchgauge.model.exported import Weight
from torchgauge.report.stacks import Stack, stacks
from torchgauge.visible import visible

# What ends a frame or a line in this format, which has no way to quote it.
_ENDS = str.maketrans(dict.fromkeys("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", " ") | {";": ","})


def render(record: object, weight: Weight = "time") -> str:
    """Return a line "frame;frame;frame weight" for each stack that has something of its own."""
    return folded(stacks(record, weight))


def folded(found: Iterable[tuple[Stack, int]]) -> str:
    """Return the lines of stacks with what is their own; the same frames are one line."""
    lines: Counter[str] = Counter()
    written = functools.cache(
        lambda frame: visible(frame.translate(_ENDS))
    )  # a frame is in many stacks
    for stack, own in found:
        lines[";".join(map(written, stack))] += own
    return "".join(f"{line} {own}\n" for line, own in lines.items())
