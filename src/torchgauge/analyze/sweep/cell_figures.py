"""The figures of a sweep's cells by metric: what is known, and in which range each lies."""

from __future__ import annotations

from torchgauge.analyze.gate.evidence import percentile_is_known
from torchgauge.analyze.statistics.percentiles import PERCENTILES
from torchgauge.records.environment import Environment
from torchgauge.records.headline.figure import Figure
from torchgauge.records.metric import Metric, figure_of
from torchgauge.records.record import Interval
from torchgauge.records.sweep import Cell


def cell_figure(cell: Cell, metric: Metric, environment: Environment) -> Figure:
    """Return a cell's figure; its value is None where it is unknown.

    So is a percentile of too few samples. Throughput is in calls where the inputs do not say their
    batch size.
    """
    profile = cell.profile(environment)
    if profile is None or not has_enough_samples(cell, metric.name):
        return Figure(metric.figure, "", "measured", "", None)
    figure = figure_of(profile, metric)
    if figure.value is None and metric.name == "throughput":
        return figure_of(profile, metric._replace(figure="throughput_calls"))
    return figure


def has_enough_samples(cell: Cell, name: str) -> bool:
    """Return whether a percentile of that name is known; True for other figures."""
    if name not in PERCENTILES:
        return True
    return cell.latency is not None and percentile_is_known(cell.latency, name)


def is_bounded(figure: Figure, metric: Metric) -> bool:
    """Return whether a figure is exact or has an interval, so that it can be called the best."""
    return metric.kind != "timing" or figure.interval is not None


def figure_range(cell: Cell, figure: Figure, metric: Metric) -> Interval:
    """Return the figure's interval; without one the range of the cell's samples, or the value."""
    value = figure.value or 0.0
    if figure.interval is not None:
        return figure.interval
    latency = cell.latency
    if latency is not None and metric.name in ("latency", "p50"):
        return Interval(low=latency.min, high=latency.max)
    if latency is not None and metric.name == "throughput" and latency.min > 0:
        calls = value * latency.median
        return Interval(low=calls / latency.max, high=calls / latency.min)
    return Interval(low=value, high=value)
