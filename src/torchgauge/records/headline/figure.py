"""One headline figure, with its unit and how it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from torchgauge.records.record import How, Interval

Unit = Literal["", "s", "B", "1/s", "B/s", "ratio", "W", "J", "Hz"]


class Figure(NamedTuple):
    """One figure in SI units; `value` None is unknown, `text` describes it.

    `bounded` figures have an `interval` where it could be told. `rank` is whose figure it is. With
    `at_least` a part of it is not known, and it is more than so much. `labels` tell the shapes of a
    generation and the levels of load apart.
    """

    name: str
    unit: Unit
    how: How
    text: str
    value: float | int | None
    bounded: bool = False
    interval: Interval | None = None
    rank: int | None = None
    at_least: bool = False
    labels: tuple[tuple[str, int | str], ...] = ()


Named = Mapping[str, tuple[Unit, str]]


def by_name(figures_of_parts: Iterable[Iterable[Figure]]) -> Iterator[Figure]:
    """Yield one figure of all parts after the other: OpenMetrics wants them together."""
    for same_figure in zip(*figures_of_parts, strict=True):
        yield from same_figure
