"""The page of serving: the capacity and one level's figures first, then each level by itself.

Times are whole nanoseconds, of single requests whole microseconds; None is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import ClientLoad, Level, ServerUse
from torchgauge.records.serving.requests import FATES, Distribution, Estimate
from torchgauge.records.serving.serving import Capacity, Serving
from torchgauge.report.content.findings import findings_of
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_series as page_method
from torchgauge.report.page.page_document import (
    Choice,
    Option,
    bar,
    figure,
    finding_entry,
    first_screen,
)
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.serving import tail_curves
from torchgauge.report.page.serving.rate_curves import rate_text, rates, state
from torchgauge.report.page.serving.request_times import (
    Times,
    answered,
    latency_goals,
    nanoseconds,
    points_of_level,
    requests,
    stretches,
)

MAX_PARTS = 6  # of a bar of fates
WORDS = (
    ["latency", "from when a request was due until its answer was whole", "TTFT likewise"],
    ["from sent", "the same from when it was sent: without waiting in the client", ""],
    ["steady window", "the time that figures are of, without warm-up and what came after", ""],
    ["offered", "requests per second that were due", ""],
    ["answered", "requests per second that were answered in the window", ""],
    ["goodput", "requests per second within all goals; unanswered ones are not", ""],
    ["saturated", "requests that were due and not answered became more and more", ""],
    ["capacity", "the highest offered rate within the goals", ""],
    ["ITL", "every gap between two contents of a stream, of all requests together", ""],
    ["TPOT", "(last − first) ÷ (tokens − 1) of a request", ""],
    ["fate", "what became of a request: each that was due has one", ""],
)  # fmt: skip


def title(serving: Serving) -> str:
    """Return the page's title."""
    return f"Serving of {serving.target.name}"


def overview(serving: Serving) -> dict[str, Any]:
    """Return the first screen: the capacity, figures of one level, findings and warnings."""
    return first_screen(
        _facts(serving),
        _figures(serving),
        (finding_entry(finding, "rates") for finding in findings_of(serving)),
        serving.all_warnings,
        created=serving.environment.created,
        complete=serving.complete,
        interrupted=serving.interrupted,
        notices=[short(f.title) for f in serving.findings if f.id == "client-limited"],
    )


def headline(serving: Serving) -> int | None:
    """Return the index of the level whose figures stand first.

    That is the highest rate within the goals, else the highest that was not saturated, else the
    first; None without levels.
    """
    indices = range(len(serving.levels))
    met = [i for i in indices if serving.levels[i].verdict == "met"]
    steady = [i for i in indices if not state(serving.levels[i])]
    candidates = met or steady or indices[:1]
    return max(candidates, key=lambda i: serving.levels[i].arrivals.rate or 0.0, default=None)


def _facts(serving: Serving) -> Iterator[list[str]]:
    target = serving.target
    yield ["target", short(target.name), short(target.spec) if target.spec != target.name else ""]
    yield ["server", short(words.server(serving.served_by)), ""]
    if serving.goals:
        yield ["goals", ", ".join(map(words.goal, serving.goals)), ""]
    yield ["load", short(words.loads(serving)), ""]
    index = headline(serving)
    if index is not None:
        level = serving.levels[index]
        window = units.time(level.window[1] - level.window[0], 3)
        name = short(serving.level_names[index])
        yield ["figures of", name, f"{level.count:,} requests in {window}"]


def _figures(serving: Serving) -> Iterator[dict[str, str]]:
    if serving.capacity is not None:
        yield _capacity_card(serving.capacity)
    index = headline(serving)
    if index is None:
        return
    level = serving.levels[index]
    yield from _latency_cards(level)
    yield from _rate_cards(level)
    if level.failed_share is not None:
        yield _errors_card(level, level.failed_share)


def _capacity_card(capacity: Capacity) -> dict[str, str]:
    if capacity.rate is None:
        return figure("capacity", units.UNKNOWN, short(capacity.reason), "", "rates")
    value = f"{'at least ' * (capacity.interval is None)}{rate_text(capacity.rate)}"
    if capacity.interval is None:
        notes = [short(f"no interval: {capacity.reason}")]
    else:
        low, high = (f"{end:,.4g}" for end in (capacity.interval.low, capacity.interval.high))
        rates_text = f"{low} met the goals, {high} did not"
        notes = [f"95 %: {low} … {high}" if capacity.searched else rates_text]
    if capacity.confirmed is not None:
        notes.append(f"{'' if capacity.confirmed else 'not '}confirmed by a second run")
    return figure("capacity", value, "; ".join(notes), "measured", "rates")


def _latency_cards(level: Level) -> Iterator[dict[str, str]]:
    for label, distribution, fraction, view in (
        ("latency p50", level.latency, 0.5, "distribution"),
        ("latency p99", level.latency, 0.99, "distribution"),
        ("time to first token p95", level.ttft, 0.95, "distribution"),
        ("time per token p50", level.tpot, 0.5, "gaps"),
        (
            f"between {'tokens' if level.content_tokens is None else 'contents'} p99",
            level.itl,
            0.99,
            "gaps",
        ),
    ):
        if distribution is not None:
            yield _time_card(label, distribution, fraction, view)


def _time_card(
    label: str, distribution: Distribution, fraction: float, view: str
) -> dict[str, str]:
    percentile = distribution.percentile(fraction)
    if percentile is None:
        note = f"too few requests show it: {distribution.count:,}"
        return figure(label, units.UNKNOWN, note, "", view)
    return figure(
        label, units.time(percentile.value, 3), _note(percentile), percentile.how, view
    )  # fmt: skip


def _note(estimate: Estimate) -> str:
    """Return the interval of a time, or why it has none and what would give one."""
    if estimate.interval is not None:
        return f"95 %: {units.times(estimate.interval.low, estimate.interval.high, 3)}"
    takes = "" if estimate.needed is None else f" It takes {estimate.needed:,} requests."
    return short(f"no interval: {estimate.reason}{takes}") if estimate.reason else "no interval"


def _rate_cards(level: Level) -> Iterator[dict[str, str]]:
    for label, estimate, unit in (
        ("answered", level.completed, "requests"),
        ("goodput", level.goodput, "requests"),
        ("tokens", level.tokens, "tokens"),
    ):
        if estimate is not None:
            value = units.rate(estimate.value, unit, 3)
            ends = estimate.interval
            note = "" if ends is None else f"95 %: {ends.low:,.4g} … {ends.high:,.4g}"
            if label == "answered" and level.offered is not None:
                note = f"{units.rate(level.offered, unit, 3)} were due"
            yield figure(label, value, note, estimate.how, "rates")


def _errors_card(level: Level, share: float) -> dict[str, str]:
    note = f"{sum(level.failures.values()):,} of {level.count:,} requests"
    ends = None if level.errors is None else level.errors.interval
    if ends is not None:
        note += f"; 95 %: {units.share(ends.low)} … {units.share(ends.high)}"
    return figure("not answered", units.share(share), note, "measured", "fates")


def fates(serving: Serving) -> dict[str, Any] | None:
    """Return what became of the requests of each level, those out of the steady window too."""
    counts = [Counter(level.requests.fate) for level in serving.levels]
    totals = sum(counts, Counter())
    if not totals:
        return None
    fates_by_count = sorted(
        (fate for fate in FATES if totals[fate]), key=lambda fate: -totals[fate]
    )
    named_fates = (
        fates_by_count if len(fates_by_count) <= MAX_PARTS else fates_by_count[: MAX_PARTS - 1]
    )
    other_fates = [fate for fate in fates_by_count if fate not in named_fates]
    return {
        "parts": [
            *(words.FATES[fate] for fate in named_fates),
            *(["others"] if other_fates else []),
        ],
        "more": [],
        "whole": "requests",
        "unit": "count",
        "note": f"Others are: {', '.join(words.FATES[fate] for fate in other_fates)}."
        if other_fates
        else "",
        "rows": [
            bar(
                name,
                count.total(),
                [
                    *(count[fate] for fate in named_fates),
                    *([sum(count[fate] for fate in other_fates)] if other_fates else []),
                ],
                [],
            )
            for name, count in zip(serving.level_names, counts, strict=True)
        ],
    }


def choice(serving: Serving) -> Choice:
    """Return the views of each level, one shown at a time."""
    max_points = points_of_level(len(serving.levels))
    options = [
        Option(
            name,
            {
                "over_time": over_time(level),
                "distribution": tail_curves.distribution(level),
                "requests": requests(level, max_points),
                "gaps": tail_curves.between_tokens(level, max_points),
                "server": server(level),
            },
        )
        for name, level in serving.named_levels
    ]
    return Choice("Load", options or [Option("", {})], headline(serving) or 0)


def method(serving: Serving) -> dict[str, Any]:
    """Return what the words mean, and how each level was sent."""
    parts: list[list[Any]] = [
        ["Serving", [*WORDS]],
        ["How a figure is known", [*page_method.KINDS]],
        ["Intervals", [
            ["percentiles", "ranks of the ordered requests, at the number of requests that are "
             "independent of each other", "requests in a queue resemble their neighbours"],
        ]],
    ]  # fmt: skip
    parts += [[f"Load {name}", list(_sending(level))] for name, level in serving.named_levels]
    return {"parts": parts, "figures": []}


def _sending(level: Level) -> Iterable[list[str]]:
    arrivals, client = level.arrivals, level.client
    yield ["arrivals", short(words.arrivals(arrivals)), f"seed {arrivals.seed}"]
    yield ["steady window", units.times(*level.window, 3),
           f"of {units.time(level.duration, 3)}"]  # fmt: skip
    if level.latency is not None and level.latency.correlation is not None:
        yield ["correlation", f"{level.latency.correlation:,.3g}",
               "requests in a row that count as one at the median"]  # fmt: skip
    if level.saturation is not None and level.saturation.slope is not None:
        ends = level.saturation.interval
        note = "" if ends is None else f"95 %: {ends.low:.3g} … {ends.high:.3g}"
        yield ["backlog", f"{level.saturation.slope:+.3g} requests/s", note]
    if level.early_stopping is not None:
        text = words.stopping(level.early_stopping)
        yield ["MLPerf's early stopping", text, "valid for independent requests only"]
    if client is not None:
        yield from _client(client)


def _client(client: ClientLoad) -> Iterator[list[str]]:
    yield ["client", f"{client.processes:,} process{'es' * (client.processes != 1)}",
           f"{client.connections:,} connections"]  # fmt: skip
    if client.lateness_p99 is not None:
        largest = (
            "" if client.lateness_max is None else f"at most {units.time(client.lateness_max, 3)}"
        )
        yield ["late by", f"{units.time(client.lateness_p99, 3)} (p99)", largest]
    if client.cpu is not None:
        waiting = (
            "" if client.waiting is None else f"{units.percent(client.waiting)} without a core"
        )
        yield ["client CPU", units.time(client.cpu, 3), f"a request{', ' * bool(waiting)}{waiting}"]


PARTS = {
    "overview": overview,
    "rates": rates,
    "fates": fates,
    "method": method,
    "environment": page_method.environment,
}


MAX_BINS = 240
PER_BIN = 10  # requests of a bin on average, at least
Counts = npt.NDArray[np.int64]


def over_time(level: Level) -> dict[str, Any] | None:
    """Return the latency by when a request was due, and what was due, answered and in flight."""
    times = RequestTimes(level.requests)
    is_done = answered(times)
    if len(times.scheduled) < PER_BIN:
        return None
    edges = _edges(level, times)
    middles = (edges[:-1] + edges[1:]) / 2
    number = np.clip(np.searchsorted(edges, times.scheduled, "right") - 1, 0, len(middles) - 1)
    latency, service = times.latency, times.service
    return {
        "time": nanoseconds(middles),
        "median": nanoseconds(_quantiles(number, latency, is_done, len(middles), 0.5)),
        "p90": nanoseconds(_quantiles(number, latency, is_done, len(middles), 0.9)),
        "slowest": nanoseconds(_quantiles(number, latency, is_done, len(middles), 1.0)),
        "service": nanoseconds(_quantiles(number, service, is_done, len(middles), 0.5)),
        "due": _per_second(times.scheduled, edges),
        "answered": _per_second(times.last[is_done], edges),
        "in_flight": _most_in_flight(times.scheduled, _ends(level, times), edges).tolist(),
        "stretches": stretches(level),
        "goals": latency_goals(result.goal for result in level.goals),
        "closed": level.arrivals.kind in ("closed", "at once"),
    }


def _edges(level: Level, times: RequestTimes) -> Times:
    end = max(level.duration, float(times.scheduled.max()), 1e-6)
    count = min(MAX_BINS, max(1, len(times.scheduled) // PER_BIN))
    return np.linspace(0.0, end, count + 1)


def _quantiles(
    number: Counts, values: Times, is_shown: npt.NDArray[np.bool_], bins: int, fraction: float
) -> Times:
    """Return the value of each bin that a fraction of its values do not exceed; NaN without any."""
    is_counted = is_shown & np.isfinite(values)
    number, values = number[is_counted], values[is_counted]
    order = np.lexsort((values, number))
    begins = np.searchsorted(number[order], np.arange(bins))
    counts = np.bincount(number, minlength=bins)
    ranks = begins + np.maximum(np.ceil(fraction * counts).astype(np.int64) - 1, 0)
    quantiles = np.full(bins, np.nan)
    filled = counts > 0
    quantiles[filled] = values[order][ranks[filled]]
    return quantiles


def _per_second(moments: Times, edges: Times) -> list[float]:
    counts, _ = np.histogram(moments[np.isfinite(moments)], edges)
    return [float(f"{rate:.4g}") for rate in (counts / np.diff(edges)).tolist()]


def _ends(level: Level, times: RequestTimes) -> Times:
    """Return when the client no longer waited for a request: of most, when it was answered.

    That is the end of the client's time for it, else that of the level. One that ended otherwise
    without an answer has not waited.
    """
    limit = np.inf if level.sending is None else level.sending.timeout
    ended = np.nanmax([level.duration, *times.scheduled[-1:], *times.last])
    given_up = np.minimum(times.scheduled + limit, ended)
    unanswered = np.where(times.waiting, given_up, times.scheduled)
    return np.where(np.isnan(times.last), unanswered, times.last)


def _most_in_flight(due: Times, ended: Times, edges: Times) -> Counts:
    """Return the most requests in each bin that were due and still waited for."""
    moments = np.concatenate([due, ended])
    changes = np.concatenate([np.ones(len(due), np.int64), -np.ones(len(due), np.int64)])
    order = np.lexsort((changes, moments))
    moments, waiting = moments[order], np.append(0, np.cumsum(changes[order]))
    most_waiting: Counts = waiting[np.searchsorted(moments, edges[:-1], "left")]
    number = np.searchsorted(edges, moments, "right") - 1
    inside = (number >= 0) & (number < len(most_waiting))
    np.maximum.at(most_waiting, number[inside], waiting[1:][inside])
    return most_waiting


def server(level: Level) -> dict[str, Any] | None:
    """Return what the server's processes used over time; None without readings."""
    use = level.server
    if use is None or len(use.time) < 2:
        return None
    series = [entry for entry in _readings(use) if len(entry["values"]) == len(use.time)]
    requests = over_time(level)
    return {
        "time": [round(second * 1e9) for second in use.time],
        "series": series,
        "requests": None
        if requests is None
        else {name: requests[name] for name in ("time", "due", "answered")},
        "stretches": stretches(level),
        "rows": _server_facts(use),
    }  # fmt: skip


def _readings(use: ServerUse) -> list[dict[str, Any]]:
    limit = [] if use.cores is None else [[use.cores, f"{use.cores:g} cores"]]
    readings: list[tuple[str, str, Any, list[list[Any]]]] = [
        ("Processor cores in use", "number", use.cpu, limit),
        ("Cores in use by the busiest process or thread", "number", use.busiest, [[1, "one core"]]),
        ("Threads that had no core", "share", use.waiting, []),
        ("Memory", "bytes", use.memory, []),
        ("Read from disks", "bytes/s", use.read, []),
        ("Written to disks", "bytes/s", use.written, []),
        ("Sent by the machine", "bytes/s", use.sent, []),
        ("Received by the machine", "bytes/s", use.received, []),
        ("GPU in use", "share", use.gpu, [[1.0, "always"]]),
        ("GPU memory", "bytes", use.gpu_memory, []),
    ]
    return [
        {
            "title": title,
            "unit": unit,
            "values": [float(f"{value:.5g}") for value in values],
            "levels": levels,
        }
        for title, unit, values, levels in readings
        if any(values)
    ]


def _server_facts(use: ServerUse) -> list[list[str]]:
    cores = "" if use.cores is None else f"may use {use.cores:g} cores"
    rows = [["processes", f"{use.processes:,}", cores]]
    if use.cpu:
        rows.append(["cores in use", f"{max(use.cpu):.2f}", "at most"])
    if use.memory:
        rows.append(["memory", units.size(max(use.memory), 3), "at most"])
    limit = use.first_saturated or "none"
    rows.append(["at its limit", limit, "of cores, one core, memory and GPU"])
    return rows
