"""Small drawings of a record's figures, for the formats that draw."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from torchgauge import units
from torchgauge.records.latency.latency import Latency, TrainingTime
from torchgauge.records.memory.memory import Memory
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.report.content import sweep_words

BINS = 40
MAX_BARS = 120
MAX_LINES = 4  # of a sweep
PERCENTILE = 0.99  # beyond it a few calls would take all of the room


@dataclasses.dataclass(frozen=True)
class Chart:
    """A drawing of a few numbers, none of them negative.

    Attributes:
        title: What is drawn.
        kind: "bars" and "line" have their values at equal distances, "area" at its `positions`;
            "parts" is one bar, divided; "map" has a row of values for each of `rows`.
        values: The heights, or the parts' sizes.
        labels: Of "parts" and "line" one for each value, of "map" one for each column; else those
            of both ends.
        top: What the largest value is.
        note: What is not drawn.
        positions: Where the values of an area begin, as shares (0…1) of the width.
        texts: What is written for each value of a map.
        rows: The labels of its rows.
    """

    title: str
    kind: Literal["bars", "line", "area", "parts", "map"]
    values: Sequence[float]
    labels: Sequence[str] = ()
    top: str = ""
    note: str = ""
    positions: Sequence[float] = ()
    texts: Sequence[str] = ()
    rows: Sequence[str] = ()


class Curve(NamedTuple):
    """Values for a drawing of a line.

    Attributes:
        values: In their order, or as points over time.
        column: That of the values in points, whose first is the time; None: values alone.
        width: Columns of a terminal that it takes at most.
        reserve: Columns of the terminal that it leaves to others; 0: it takes `width` always.
        tone: How it stands out.
    """

    values: Sequence[Any]
    column: int | None = None
    width: int = 90
    reserve: int = 0
    tone: Literal["mark", "faint"] = "mark"


def latency(record: Latency) -> list[Chart]:
    """Return how the samples are distributed, without the slowest percent."""
    samples = sorted(record.samples)
    shown_samples = samples[: max(round(PERCENTILE * len(samples)), 1)]
    if len(samples) < 2 or shown_samples[0] == shown_samples[-1]:
        return []
    low, high = shown_samples[0], shown_samples[-1]
    counts = [0] * min(BINS, len(shown_samples))
    for sample in shown_samples:
        counts[min(int((sample - low) / (high - low) * len(counts)), len(counts) - 1)] += 1
    omitted_count = len(samples) - len(shown_samples)
    note = f"{omitted_count:,} longer, up to {units.time(samples[-1], 3)}" * bool(omitted_count)
    labels = (units.time(low, 3), units.time(high, 3))
    return [Chart("Samples by duration", "bars", counts, labels, f"up to {max(counts):,}", note)]


def memory(record: Memory) -> list[Chart]:
    """Return what the peak consists of, and the memory over the step."""
    parts = {name: size for name, size in record.parts.items() if size > 0}
    charts = [divided("Memory at the peak", parts, units.size)] if parts else []
    points = record.timeline
    if len(points) > 1 and points[-1].time > points[0].time:
        begin, length = points[0].time, points[-1].time - points[0].time
        labels = ("0", units.time(length * 1e-9, 3))
        positions = [min(max((point.time - begin) / length, 0.0), 1.0) for point in points]
        live = [max(point.live, 0) for point in points]
        top = units.size(max(live), 3)
        charts.append(Chart("Memory over the step", "area", live, labels, top, "", positions))
    return charts


def training(record: TrainingTime) -> list[Chart]:
    """Return how a training step is divided."""
    phases = {phase.name: phase.seconds for phase in record.phases if phase.seconds > 0}
    return [divided("Time of a training step", phases, units.time)] if phases else []


def loop(record: Loop) -> list[Chart]:
    """Return the durations of the steps; where there are many, of some the median."""
    durations = record.steps
    if len(durations) < 2:
        return []
    columns = min(len(durations), MAX_BARS)
    ends = [len(durations) * column // columns for column in range(columns + 1)]
    medians = [statistics.median(durations[begin:end]) for begin, end in itertools.pairwise(ends)]
    labels = ("step 1", f"step {len(durations):,}")
    return [Chart("Time of each step", "bars", medians, labels, units.time(max(medians), 3))]


def sweep(record: Sweep) -> list[Chart]:
    """Return the throughput by batch, a chart for each of the first rows of cells."""
    return list(_throughputs(record))[:MAX_LINES]


def _throughputs(record: Sweep) -> Iterator[Chart]:
    unit = sweep_words.rate(record)
    for series, indices in sweep_words.rows(record).items():
        rates = {
            f"{cell.settings.batch}": rate
            for cell in (record.cells[index] for index in indices)
            if cell.settings.batch is not None and (rate := cell.per_second) is not None
        }
        if len(rates) > 1:
            title = f"{unit} per second by batch".capitalize()
            row_name = sweep_words.named(record, series)
            values, top = list(rates.values()), units.rate(max(rates.values()), unit, 3)
            yield Chart(
                f"{title}, {row_name}" if row_name else title, "line", values, [*rates], top
            )


def divided(title: str, sizes: Mapping[str, float], text: Callable[[float], str]) -> Chart:
    """Return a bar divided into parts, the largest first."""
    largest_first = sorted(sizes.items(), key=lambda item: -item[1])
    labels = [f"{name} {text(size)}" for name, size in largest_first]
    return Chart(title, "parts", [size for _, size in largest_first], labels)
