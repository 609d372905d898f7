"""Which cells of a sweep meet the conditions, and which no other beats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from torchgauge.analyze.gate.evidence import percentile_is_known
from torchgauge.analyze.gate.limits import judge_limit, parse_limit
from torchgauge.analyze.statistics.percentiles import PERCENTILES
from torchgauge.errors import InputError
from torchgauge.records.environment import Environment
from torchgauge.records.headline.figure import Figure
from torchgauge.records.metric import METRICS, Metric, figure_of, metric
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval
from torchgauge.records.sweep import Best, Cell, Front, Objective
from torchgauge.records.verdict import Limit, Ruling, overall


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


NAMES = (
    *("latency", "p50", "p90", "p95", "p99", "throughput"),
    *("memory", "first_call", "device_time"),
)
"""The metrics that a cell has."""

EXAMPLE = "p99<20ms and memory<2GB"
_AND = re.compile(r"\band\b|,|&&?", re.IGNORECASE)
_CLAUSE = re.compile(r"\s*(\w+)\s*(<=?|>=?|≤|≥)\s*(.+?)\s*")


def parse(text: str) -> tuple[Limit, ...]:
    """Return the limits that `text` says; units are mandatory, none for an empty text.

    Of throughput it is a least (>), of all else a most (<). Raises InputError `metric-unknown`,
    `constraint-invalid`, `threshold-invalid`.
    """
    return tuple(_limit(clause) for clause in _AND.split(text)) if text.strip() else ()


def _limit(clause: str) -> Limit:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise InputError(
            f"'{clause.strip()}' is not a constraint.",
            id="constraint-invalid",
            cause="A constraint is a metric, < or >, and an amount with its unit.",
            remedy=f"Write it as in {EXAMPLE}.",
        )
    name, sign, amount = match.groups()
    limited_metric = cell_metric(name)
    is_minimum = limited_metric.better == "higher"
    if (sign in (">", ">=", "≥")) != is_minimum:
        raise InputError(
            f"'{clause.strip()}' asks for the worse side of {name}.",
            id="constraint-invalid",
            cause=f"Of {name}, {'more' if is_minimum else 'less'} is better.",
            remedy=f"Write {name}{'>' if is_minimum else '<'}{amount}.",
        )
    return parse_limit(f"{name}:{amount}")


def cell_metric(name: str) -> Metric:
    """Return a metric that cells have. Raises InputError `metric-unknown`."""
    if name in METRICS and name not in NAMES:
        raise InputError(
            f"Cells of a sweep have no metric '{name}'.",
            id="metric-unknown",
            cause="They have " + ", ".join(NAMES) + ".",
            remedy="Give one of them.",
        )
    return metric(name)


def best(cells: Sequence[Cell], by: str, limits: Iterable[Limit], environment: Environment) -> Best:
    """Return the cell with the best figure among those that keep all limits.

    Estimates decide. A cell of which a limited figure is unknown does not keep its limit. Raises
    InputError `metric-unknown`.
    """
    objective, limits = cell_metric(by), tuple(limits)
    ruled = {i: _rulings(cell, limits, environment) for i, cell in enumerate(cells) if cell.done}
    outcomes = {i: overall(rulings) for i, rulings in ruled.items()}
    candidates = {
        i: figure
        for i, outcome in outcomes.items()
        if outcome == "pass"
        and (figure := cell_figure(cells[i], objective, environment)).value is not None
    }
    unknown = tuple(i for i, outcome in outcomes.items() if outcome == "inconclusive")
    if not candidates:
        return Best(metric=by, cell=None, unknown=unknown)
    sign = -1 if objective.better == "higher" else 1
    first = min(candidates, key=lambda i: sign * (candidates[i].value or 0.0))
    ranges = {i: figure_range(cells[i], figure, objective) for i, figure in candidates.items()}
    return Best(
        metric=by,
        cell=first,
        ties=tuple(i for i in ranges if i != first and _overlap(ranges[i], ranges[first])),
        borderline=tuple(ruling.metric for ruling in ruled[first] if ruling.borderline),
        unknown=unknown,
    )


def _rulings(cell: Cell, limits: tuple[Limit, ...], environment: Environment) -> tuple[Ruling, ...]:
    profile = cell.profile(environment)
    return () if profile is None else tuple(_ruling(limit, cell, profile) for limit in limits)


def _ruling(limit: Limit, cell: Cell, profile: Profile) -> Ruling:
    ruling = judge_limit(limit, profile)
    if has_enough_samples(cell, limit.metric):
        return ruling
    return msgspec.structs.replace(ruling, outcome="inconclusive")


def _overlap(first: Interval, second: Interval) -> bool:
    return first.low <= second.high and second.low <= first.high


OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def front(cells: Sequence[Cell]) -> Front:
    """Return the Pareto front of the cells that are done, by their estimates.

    An objective of which no cell has a figure is left out; a cell that lacks one of the others is
    not on the front, since nobody knows what it costs.
    """
    costs = {i: _costs(cell) for i, cell in enumerate(cells) if cell.done}
    compared = [k for k in range(len(OBJECTIVES)) if any(c[k] is not None for c in costs.values())]
    complete_costs: dict[int, tuple[float, ...]] = {}
    for i, cost in costs.items():
        values = tuple(value for k in compared if (value := cost[k]) is not None)
        if len(values) == len(compared):
            complete_costs[i] = values
    efficient = [
        i
        for i, cell_costs in complete_costs.items()
        if not any(_dominates(c, cell_costs) for c in complete_costs.values())
    ]
    return Front(objectives=tuple(OBJECTIVES[k] for k in compared), cells=tuple(efficient))


def _costs(cell: Cell) -> tuple[float | None, ...]:
    """Return the objectives in their order, each so that less is better."""
    rate = cell.per_second
    return (
        None if cell.latency is None else cell.latency.median,
        None if rate is None else -rate,
        None if cell.memory is None else float(cell.memory.peak),
    )


def _dominates(other_costs: tuple[float, ...], cell_costs: tuple[float, ...]) -> bool:
    return other_costs != cell_costs and all(
        a <= b for a, b in zip(other_costs, cell_costs, strict=True)
    )
