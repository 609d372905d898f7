"""Limits on what requests may take: parsed from text, and judged at a level of load."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

import numpy as np
import numpy.typing as npt

from torchgauge import quantities, units
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.errors import InputError
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import (
    Distribution,
    Estimate,
    Goal,
    GoalResult,
    GoalVerdict,
    Timed,
)
from torchgauge.similar import did_you_mean, similar

METRICS: tuple[Timed, ...] = get_args(Timed)
"""What a goal may limit."""

_GOAL = re.compile(r"([A-Za-z_]\w*(?:\.\d+)?)\s*(?:<=?|≤)\s*([^\s,;<≤]+)")
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,4})?)", re.ASCII)
_REMEDY = "Write goals as in 'p99<100ms ttft_p95<300ms tpot_mean<40ms errors<1%'."
# A saturated level fails goals on what grows with the queue.
_FROM_SCHEDULED = ("latency", "ttft")


def parse_goals(text: str) -> tuple[Goal, ...]:
    """Return the goals of a text such as `p99<100ms ttft_p95<300ms errors<1%`.

    A goal is a metric with a percentile or `mean`, `<`, and a limit: a time with its unit, or a
    share for errors. Without a metric it is one on latency, from scheduled to answered. Spaces,
    commas and semicolons separate goals.

    Raises:
        InputError: `goal-invalid` for anything else, with what was probably meant.
    """
    goals = []
    end = 0
    for match in _GOAL.finditer(text):
        _separator(text[end : match.start()])
        goals.append(_goal(match[1], match[2], match[0]))
        end = match.end()
    _separator(text[end:])
    if not goals:
        raise _invalid("There is no goal.")
    return tuple(goals)


def _separator(text: str) -> None:
    if text.strip(" \t\r\n,;"):
        raise _invalid(f"'{text.strip()}' is not a goal.")


def _goal(name: str, amount: str, text: str) -> Goal:
    text = "".join(text.split())
    if name == "errors":
        share = quantities.fraction(amount)
        if share is None or not 0 < share <= 1:
            raise _invalid(f"'{amount}' is not a share of requests between 0 and 100 %.")
        return Goal(metric="errors", limit=share, text=text)
    metric, _, statistic = name.rpartition("_")
    fraction = _fraction(statistic, text)
    metric = metric or "latency"
    if metric not in METRICS or metric == "errors":
        near = similar(metric, METRICS)
        raise _invalid(f"'{metric}' is not a metric of requests.", did_you_mean(near, _REMEDY))
    limit = quantities.amount(amount, "s")
    if limit is None or limit.value <= 0:
        meant = quantities.meant(amount, "s")
        near = [meant] if meant else []
        raise _invalid(f"'{amount}' is not a time above 0.", did_you_mean(near, _REMEDY))
    return Goal(metric=metric, limit=limit.value, fraction=fraction, text=text)


def _fraction(statistic: str, text: str) -> float | None:
    if statistic == "mean":
        return None
    match = _PERCENTILE.fullmatch(statistic)
    if match is None or not 0 < float(match[1]) < 100:
        guess = similar(statistic, ("p50", "p90", "p95", "p99", "mean", *METRICS))
        # A metric alone lacks the percentile.
        near = [f"{name}_p99" if name in METRICS else name for name in guess]
        near = ["errors" if name == "errors_p99" else name for name in near]
        raise _invalid(f"'{text}' has no percentile.", did_you_mean(near, _REMEDY))
    return round(float(match[1]) / 100, 8)


def _invalid(message: str, remedy: str = _REMEDY) -> InputError:
    return InputError(message, id="goal-invalid", remedy=remedy)


def judged(goal: Goal, level: Level, over: Interval | None = None) -> GoalResult:
    """Return whether a level meets a goal: by intervals, never by the figure alone.

    Met where the whole interval is below the limit, missed where it is above. A percentile is also
    judged by the interval of the share of requests above the limit, which exists where few requests
    show no percentile's: met where fewer than the goal allows surely are, missed where more. A
    request without an answer counts as longer
    than any limit. Where the backlog grows, no limit on what is counted from the schedule holds
    for long.

    Args:
        goal: The limit.
        level: The figures.
        over: The interval of the share of requests above the limit, of a percentile's goal.
    """
    if goal.metric == "errors":
        return _by_interval(goal, level.errors, "No request was due in the steady window.")
    distribution: Distribution | None = getattr(level, goal.metric)
    figure = _figure(goal, distribution)
    if level.client is not None and level.client.open_files is not None:
        return goal_result(goal, "unclear", figure, "The client had too few open files.")
    saturation = level.saturation
    if saturation is not None and saturation.saturated and goal.metric in _FROM_SCHEDULED:
        slope = units.significant(saturation.slope or 0.0)
        return goal_result(goal, "missed", figure, f"The backlog grew by {slope} requests/s.")
    if goal.fraction is not None and over is not None:
        ends = f"{units.significant(over.low * 100)} … {units.significant(over.high * 100)} %"
        reason = (
            f"{ends} of the {'gaps' if goal.metric == 'itl' else 'requests'} are above the limit."
        )
        if over.low > 1 - goal.fraction:
            return goal_result(goal, "missed", figure, reason)
        if over.high < 1 - goal.fraction and (figure is None or figure.interval is None):
            return goal_result(goal, "met", figure, reason)
    if distribution is None:
        if level.errors is not None and level.errors.value == 1:
            return goal_result(goal, "missed", None, "No request was answered.")
        return GoalResult(goal=goal, verdict="unclear", reason=_absent(goal))
    if distribution.unanswered and goal.fraction is None:
        return goal_result(
            goal, "missed", None, "Some requests ended without it: there is no mean of all."
        )
    return _by_interval(goal, figure, "Too few requests show this percentile.")


def _figure(goal: Goal, distribution: Distribution | None) -> Estimate | None:
    if distribution is None:
        return None
    if goal.fraction is None:
        return distribution.mean
    return distribution.percentile(goal.fraction)


def goal_result(
    goal: Goal, verdict: GoalVerdict, figure: Estimate | None, reason: str = ""
) -> GoalResult:
    """Return the result of a goal whose figure is this one."""
    value, interval = (None, None) if figure is None else (figure.value, figure.interval)
    return GoalResult(goal=goal, verdict=verdict, value=value, interval=interval, reason=reason)


def _by_interval(goal: Goal, figure: Estimate | None, absent: str) -> GoalResult:
    if figure is None or figure.interval is None:
        return goal_result(goal, "unclear", figure, absent if figure is None else figure.reason)
    if figure.interval.high < goal.limit:
        return goal_result(goal, "met", figure)
    if figure.interval.low >= goal.limit:
        return goal_result(goal, "missed", figure)
    reason = "The limit lies in the interval: more requests would decide it."
    return goal_result(goal, "unclear", figure, reason)


def _absent(goal: Goal) -> str:
    if goal.metric in ("ttft", "itl", "tpot"):
        return f"There is no {goal.metric.upper()}: no request streamed contents."
    return "No request was due in the steady window."


def within_goals(times: RequestTimes, goals: Iterable[Goal]) -> npt.NDArray[np.bool_]:
    """Return which requests were answered within the limit of every goal.

    A goal's percentile is one over requests, so it says nothing of a single one, except of ITL: at
    least that share of a request's own gaps must be within the limit; for `mean` their mean. A
    request without the time that a goal limits (one token has no TPOT) cannot miss it.
    """
    within = times.done.copy()
    for goal in goals:
        if goal.metric == "errors":
            continue
        if goal.metric == "itl":
            within &= _gaps_within(times, goal)
        else:
            own: npt.NDArray[np.float64] = getattr(times, goal.metric)
            within &= np.isnan(own) | (own < goal.limit)
    return within


def _gaps_within(times: RequestTimes, goal: Goal) -> npt.NDArray[np.bool_]:
    requests = times.scheduled.size
    counts = np.bincount(times.gap_owners, minlength=requests)
    if goal.fraction is None:
        sums = np.bincount(times.gap_owners, weights=times.gaps, minlength=requests)
        return sums <= goal.limit * counts
    short = np.bincount(times.gap_owners, weights=times.gaps < goal.limit, minlength=requests)
    return short >= goal.fraction * counts - 1e-9
