"""Constraints on cells, "p99<20ms and memory<2GB", and the best cell that keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from torchgauge.analyze.gate.limits import judge_limit, parse_limit
from torchgauge.analyze.sweep.cell_figures import cell_figure, figure_range, has_enough_samples
from torchgauge.errors import InputError
from torchgauge.records.environment import Environment
from torchgauge.records.metric import METRICS, Metric, metric
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval
from torchgauge.records.sweep import Best, Cell
from torchgauge.records.verdict import Limit, Ruling, overall

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
