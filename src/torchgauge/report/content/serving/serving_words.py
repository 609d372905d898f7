"""Words of load's report, shared by all formats: server, goals, fates, capacity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from torchgauge import units
from torchgauge.records.record import Interval
from torchgauge.records.serving.capacity_plan import PlannedSetting
from torchgauge.records.serving.level import Arrivals, EarlyStopping, Level
from torchgauge.records.serving.requests import Distribution, Fate, Goal, Percentile
from torchgauge.records.serving.serving import ServedBy, Serving
from torchgauge.report.content.document import Detailed
from torchgauge.report.tables.target_facts import hardware, software

FATES: dict[Fate, str] = {
    "done": "done",
    "timeout": "timed out",
    "refused": "refused",
    "reset": "reset",
    "status": "answered by an error",
    "protocol": "no answer of the protocol",
    "stream": "stream ended early",
    "answer": "no answer of the API",
    "tls": "no secure connection",
    "redirect": "redirected to another host",
    "local": "no port, descriptor or memory here",
    "failed": "raised",
    "unsent": "never sent",
    "unfinished": "unfinished",
}
METRICS = {
    "latency": "latency",
    "service": "service",
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "errors": "errors",
}

# What a user waits for: of streams the first token and gaps, else the whole answer.
SHORT = (("p99", "latency", 0.99), ("TTFT p95", "ttft", 0.95), ("ITL p99", "itl", 0.99))


def facts(serving: Serving) -> list[tuple[str, str]]:
    """Return what was under load, by whom, how, and on which machine."""
    environment = serving.environment
    pairs = [
        ("target", serving.target.spec),
        ("server", server(serving.served_by)),
        ("goals", ", ".join(map(goal, serving.goals))),
        ("load", loads(serving)),
        ("machine", hardware(environment.machine)),
        ("software", software(environment, serving.target.runtime)),
    ]
    return [(label, text) for label, text in pairs if text]


def server(served_by: ServedBy) -> str:
    """Return what answered, and how it batches: "reference server, batches of 8 within 5 ms"."""
    if served_by.kind == "call":
        return "the target itself, called in the client's process"
    name = "reference server" if served_by.kind == "reference" else served_by.address
    api = f"{served_by.api} {served_by.content}".strip()
    parts = [name, api] if served_by.kind == "endpoint" else [name]
    parts += [served_by.version] * bool(served_by.version)
    parts += [served_by.software] * (bool(served_by.software) and served_by.kind == "endpoint")
    if served_by.max_batch is not None:
        delay = served_by.max_delay
        within = "" if delay is None else f" within {units.time(delay, 3)}"
        parts.append(f"batches of {served_by.max_batch:,}{within}")
    if served_by.workers is not None:
        parts.append(f"{served_by.workers:,} worker{'s' * (served_by.workers != 1)}")
    return ", ".join(parts)


def loads(serving: Serving) -> str:
    """Return how requests arrived, and for how long: "Poisson arrivals, 3 levels of 60 s"."""
    levels = serving.levels
    if not levels:
        return "none"
    kinds = ", ".join(dict.fromkeys(arrivals(level.arrivals) for level in levels))
    seconds = sorted(level.duration for level in levels)
    low, high = (units.duration(seconds[index]) for index in (0, -1))
    duration_text = high if low == high else f"{low} to {high}"
    count = sum(len(level.requests) or level.count for level in levels)
    of_levels = f"{len(levels)} level{'s' * (len(levels) != 1)} of {duration_text}"
    return f"{kinds}; {of_levels}; {count:,} request{'s' * (count != 1)}"


def arrivals(schedule: Arrivals) -> str:
    """Return how requests arrive in words."""
    if schedule.kind == "closed":
        users = schedule.users or 1
        return f"{users:,} user{'s' * (users != 1)}, one request after the other"
    if schedule.kind == "gamma":
        variation = "" if schedule.variation is None else f" of variation {schedule.variation:g}"
        return f"gamma arrivals{variation}"
    named = {
        "poisson": "Poisson arrivals",
        "constant": "even arrivals",
        "file": f"arrivals of {schedule.file or 'a file'}",
        "at once": "all at once",
    }
    return named[schedule.kind]


def goal(limited: Goal) -> str:
    """Return a goal in words: "TTFT p95 < 300 ms"."""
    name = METRICS[limited.metric]
    share = "" if limited.fraction is None else f" p{100 * limited.fraction:g}"
    mean = " mean" if limited.fraction is None and limited.metric != "errors" else ""
    return f"{name}{share}{mean} < {goal_amount(limited, limited.limit)}"


def goal_amount(limited: Goal, value: float | None) -> str:
    """Return a value of what a goal limits: a time or a share."""
    if value is None:
        return ""
    return units.share(value) if limited.metric == "errors" else units.time(value, 3)


def interval(bounds: Interval | None, limited: Goal) -> str:
    """Return the interval of what a goal limits."""
    if bounds is None or limited.metric != "errors":
        return times(bounds)
    return f"{units.share(bounds.low)} … {units.share(bounds.high)}"


def times(bounds: Interval | None) -> str:
    """Return an interval of times: "12.2 … 12.5 ms"."""
    return "" if bounds is None else units.times(bounds.low, bounds.high, 3)


def estimate_of(
    measured: Level | PlannedSetting, metric: str, fraction: float
) -> Percentile | None:
    """Return a percentile of a time of a level or of a planned setting; None where unknown."""
    distribution: Distribution | None = getattr(measured, metric)
    return None if distribution is None else distribution.percentile(fraction)


def time_text(metric: str, fraction: float) -> Callable[[Level | PlannedSetting], str]:
    """Return what formats a percentile."""

    def text(measured: Level | PlannedSetting) -> str:
        estimate = estimate_of(measured, metric, fraction)
        return "" if estimate is None else units.time(estimate.value, 3)

    return text


def interval_text(metric: str, fraction: float) -> Callable[[Level | PlannedSetting], str]:
    """Return what formats the interval of a percentile."""

    def text(measured: Level | PlannedSetting) -> str:
        estimate = estimate_of(measured, metric, fraction)
        return "" if estimate is None else times(estimate.interval)

    return text


def rate(per_second: float) -> str:
    """Format a rate without its unit: 75.3, "1.2 M"."""
    return units.rate(per_second, "", 3).removesuffix("/s").strip()


def outcome(level: Level) -> str:
    """Return what came of a level: goals, saturation; of a client that was too slow that alone."""
    left_out = {"": "", "probe": "probe"}.get(level.left_out, "left out")
    if level.client is not None and level.client.limited:
        return ", ".join(["client-limited", *[left_out] * bool(left_out)])
    texts = [text for text in (level.verdict, left_out) if text]
    texts += ["saturated"] * (level.saturation is not None and bool(level.saturation.saturated))
    texts += ["interrupted"] * level.interrupted
    return ", ".join(texts)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of a column; None of an empty one."""
    return statistics.fmean(values) if values else None


def without_intervals(serving: Serving) -> Iterator[str]:
    """Yield why the 99th percentiles of levels have no interval, the same reason once."""
    by_reason: dict[str, list[str]] = {}
    for name, level in serving.named_levels:
        percentile = None if level.latency is None else level.latency.percentile(0.99)
        if percentile is not None and percentile.interval is None:
            needed = (
                "" if percentile.needed is None else f" ({percentile.needed:,} requests would do)"
            )
            by_reason.setdefault(percentile.reason or "too few requests", []).append(name + needed)
    for reason, names in by_reason.items():
        yield f"p99 without an interval: {'; '.join(names)}: {reason.rstrip('.')}."


def several_tokens(levels: Sequence[Level]) -> list[str]:
    """Return that contents of streams hold several tokens, if they do."""
    tokens = max((level.content_tokens or 0.0 for level in levels), default=0.0)
    if not tokens:
        return []
    return [f"ITL is between contents, which hold {units.significant(tokens, 3)} tokens each."]


def server_processes(levels: Sequence[Level]) -> list[str]:
    """Return which processes the server's figures are of, where that was noted."""
    origins = {"named": "were named", "listening": "listen at the address"}
    uses = [level.server for level in levels if level.server and level.server.covers]
    return [
        f"Of {use.processes:,} process{'es' * (use.processes != 1)}: those that "
        f"{origins[use.covers]}, and what they started. Others, such as replicas behind a proxy, "
        "are not in it: --server-pid names them."
        for use in sorted(uses, key=lambda use: -use.processes)[:1]
    ]


def failures(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield what became of the requests of a level that were not answered whole."""
    for name, level in serving.named_levels:
        if level.failures:
            texts = [f"{count:,} {FATES[fate]}" for fate, count in level.failures.items()]
            statuses = ", ".join(map(str, [*level.error_statuses][:3]))
            by_status = f" (status {statuses})" * bool(statuses)
            yield name, f"{', '.join(texts)} of {level.count:,}{by_status}"


def controlled(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield the percentile of a goal as a control variate estimates it, by level."""
    for name, level in serving.named_levels:
        estimate, latency = level.controlled, level.latency
        if estimate is None or latency is None:
            continue
        measured = latency.percentile(estimate.fraction)
        if measured is not None:
            share = f"p{100 * estimate.fraction:g}"
            raw = units.time(measured.value, 3)
            yield name, f"{share} {units.time(estimate.value, 3)} in the long run, measured {raw}"


def early_stopping(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield what MLPerf's rule says, by level."""
    for name, level in serving.named_levels:
        if level.early_stopping is not None:
            yield name, stopping(level.early_stopping)


def stopping(stop: EarlyStopping) -> str:
    """Return what MLPerf's rule says of a level: "passed, 900 queries of 662 needed"."""
    share = f"p{100 * stop.fraction:g}"
    estimate = "" if stop.estimate is None else f", {share} at most {units.time(stop.estimate, 3)}"
    passed = {True: "passed", False: "not passed", None: ""}[stop.passed]
    parts = [passed] * bool(passed) + [f"{stop.queries:,} queries of {stop.needed:,} needed"]
    return f"{', '.join(parts)}{estimate}"


def service_times(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield how long the server computes a batch, by its size."""
    times_by_batch = serving.service_times
    for batch in () if times_by_batch is None else times_by_batch.batches:
        median = statistics.median(batch.seconds)
        runs = f"{len(batch.seconds):,} batch{'es' * (len(batch.seconds) != 1)}"
        yield f"batch {batch.batch:,}", f"{units.time(median, 3)}, median of {runs}"


def in_short(serving: Serving) -> Iterator[tuple[str, Detailed]]:
    """Yield the capacity, and the latency at the lowest and the highest load."""
    if (text := capacity(serving)) is not None:
        yield "capacity", text
    for label, time, fraction in SHORT:
        times_by_level = [
            (name, percentile.value)
            for name, level in serving.named_levels
            if (times_of := getattr(level, time)) is not None
            and (percentile := times_of.percentile(fraction)) is not None
        ]
        for name, seconds in (
            dict([times_by_level[0], times_by_level[-1]]).items() if times_by_level else ()
        ):
            yield label, Detailed(units.time(seconds, 3), f"  at {name}")
    for name, level in serving.named_levels:
        if level.server is not None and level.server.first_saturated:
            yield "at its limit", Detailed(level.server.first_saturated, f"  at {name}")
            break


def capacity(serving: Serving) -> Detailed | None:
    """Return the highest rate within the goals in words; None without goals."""
    found_capacity = serving.capacity
    if found_capacity is None:
        return None
    goals = " and ".join(map(goal, serving.goals))
    reason = found_capacity.reason
    if found_capacity.rate is None:
        return Detailed(units.UNKNOWN, f"  {reason or f'no rate that was tried meets {goals}'}")
    text = f"{rate(found_capacity.rate)} requests/s"
    with_goals = f"  with {goals}" if goals else ""
    bounds = found_capacity.interval
    if bounds is None:
        return Detailed(f"at least {text}", f"{with_goals}, without an interval: {reason}")
    within = f" ({rate(bounds.low)} … {rate(bounds.high)})"
    second = {True: ", confirmed by a second run", False: ", not confirmed by a second run"}
    confirmed = "" if found_capacity.confirmed is None else second[found_capacity.confirmed]
    return Detailed(text + within, with_goals + confirmed)
