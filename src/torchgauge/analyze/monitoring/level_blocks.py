"""Blocks of a monitored series: calls next to each other, with the level of their logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.records.monitoring.histogram import PER_OCTAVE, Histogram
from torchgauge.records.monitoring.window import Window

HOUR = 3600.0
# Calls of a block: fewer are joined with those that follow, within an hour.
BLOCK_CALLS = 50
# Of the logarithms at either end, which the level leaves out.
TRIMMED = 0.1

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Calls next to each other, until `end` (seconds since 1970).

    `level` is their trimmed mean logarithm, `variance` its variance times the calls.
    """

    end: float
    calls: int
    level: float
    variance: float


def blocks_of(windows: Iterable[Window]) -> list[Block]:
    """Return the blocks of one series: windows in order, small ones joined."""
    blocks: list[Block] = []
    parts: list[Histogram] = []
    calls, begin = 0, 0.0
    for window in sorted(windows, key=lambda window: window.begin):
        if not window.histogram.counts:
            continue
        if parts and window.end - begin > HOUR:
            parts, calls = [], 0  # too few calls in an hour: of these nothing is told
        if not parts:
            begin = window.begin
        parts.append(window.histogram)
        calls += window.histogram.count
        if calls >= BLOCK_CALLS:
            blocks.append(Block(window.end, calls, *_location(parts)))
            parts, calls = [], 0
    return sorted(blocks)


def _location(parts: Sequence[Histogram]) -> tuple[float, float]:
    """Return the trimmed mean of the logarithms, and its variance times the calls."""
    low = min(part.offset for part in parts)
    high = max(part.offset + len(part.counts) for part in parts)
    counts = np.zeros(high - low, np.int64)
    for part in parts:
        counts[part.offset - low : part.offset - low + len(part.counts)] += part.counts
    middles: _Floats = low + 0.5 + np.arange(len(counts), dtype=np.float64)
    return trimmed_mean(middles * (math.log(2.0) / PER_OCTAVE), counts)


def trimmed_mean(values: _Floats, counts: _Integers) -> tuple[float, float]:
    """Return the trimmed mean of counted values in ascending order, and its variance times n.

    Source of the variance: Tukey and McLaughlin (1963), from winsorized deviations.
    """
    total = float(counts.sum())
    ends = np.cumsum(counts)
    low, high = TRIMMED * total, (1 - TRIMMED) * total
    inside = np.maximum(np.minimum(ends, high) - np.maximum(ends - counts, low), 0.0)
    level = float((inside * values).sum() / inside.sum())
    lowest = int(np.searchsorted(ends, low, side="right"))
    highest = min(int(np.searchsorted(ends, high)), len(values) - 1)
    winsorized = np.clip(values, values[lowest], values[highest])
    mean = float((counts * winsorized).sum() / total)
    variance = float((counts * (winsorized - mean) ** 2).sum() / total)
    return level, variance / (1 - 2 * TRIMMED) ** 2
