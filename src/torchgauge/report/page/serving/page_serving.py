"""The page of serving: the capacity and one level's figures first, then each level by itself.

Times are whole nanoseconds, of single requests whole microseconds; None is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from torchgauge import units
from torchgauge.records.serving.level import ClientLoad, Level
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
from torchgauge.report.page.serving import load_series, tail_curves
from torchgauge.report.page.serving.rate_curves import rate_text, rates, state
from torchgauge.report.page.serving.request_times import points_of_level, requests

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
                "over_time": load_series.over_time(level),
                "distribution": tail_curves.distribution(level),
                "requests": requests(level, max_points),
                "gaps": tail_curves.between_tokens(level, max_points),
                "server": load_series.server(level),
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
