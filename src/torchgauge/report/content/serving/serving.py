"""A record of load: what requests waited by rate, goals, tokens, client, server, and capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torchgauge import units
from torchgauge.records.profile import Profile
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Distribution, Estimate
from torchgauge.records.serving.serving import ServedBy, Serving
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Facts,
    Note,
    Options,
    Row,
    Table,
    Tone,
    Value,
    Warnings,
)
from torchgauge.report.content.findings import most_important
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.notebook import serving_charts

LABEL = 12
LOAD = (
    Column("answered", title="answered/s"),
    Column("p50"),
    Column("± p50", title="±", priority=4, tone="faint"),
    Column("p99", tone="strong"),
    Column("p99 interval", title="95 %", priority=2, tone="faint"),
    Column("goodput", title="goodput/s", priority=1),
    Column("errors", priority=3),
    Column("outcome", left_aligned=True),
)
PERCENTILES = (
    Column("p50"),
    Column("p90"),
    Column("p95"),
    Column("p99"),
    Column("max"),
    Column("service p99", priority=1),
    Column("wait p99", title="client's wait p99", priority=2),
)
TOKENS = (
    Column("TTFT p50"),
    Column("TTFT p95"),
    Column("± TTFT", title="95 %", priority=3, tone="faint"),
    Column("ITL p50", priority=1),
    Column("ITL p99"),
    Column("TPOT p50"),
    Column("tokens/s", tone="strong"),
    Column("tokens in/s", priority=2),
)
GOALS = (
    Column("value"),
    Column("interval", title="95 %", priority=1, tone="faint"),
    Column("verdict", left_aligned=True),
)
CLIENT = (
    Column("lateness p50", priority=1),
    Column("lateness p99"),
    Column("CPU a request", priority=2),
    Column("waiting for a core", priority=3),
    Column("connections", priority=4),
)
SERVER = (
    Column("CPU", title="cores"),
    Column("busy", title="of its cores"),
    Column("memory"),
    Column("GPU", priority=1),
    Column("waiting", title="waiting for a core", priority=2),
    Column("disk", title="disk", priority=4),
    Column("network", title="machine's network", priority=5),
    Column("limit", title="at its limit", left_aligned=True),
)
TONES: dict[str | None, Tone] = {"met": "good", "missed": "bad", "unclear": "doubtful", None: ""}


def title(serving: Serving) -> str:
    """Return the model's name, or the endpoint's address."""
    return serving.target.name


def document(serving: Serving, _: Options) -> Document:
    """Return the load by level, tokens, goals, client and server, and the capacity."""
    blocks = _level_blocks(serving)
    for heading, pairs in (
        ("Without a whole answer", words.failures(serving)),
        ("By a simulation of the same schedule", words.controlled(serving)),
        ("MLPerf's early stopping", words.early_stopping(serving)),
        ("Service times of the server", words.service_times(serving)),
    ):
        if listed := list(pairs):
            how = "estimated" if heading.startswith("By a") else ""
            blocks.append(Facts(listed, heading, how, label=LABEL))
    if any(level.early_stopping for level in serving.levels):
        blocks.append(Note("Early stopping is valid for independent requests only.", tight=True))
    if serving.all_warnings:
        heading = "Warnings" if serving.complete else "Failed and warnings"
        blocks.append(Warnings(serving.all_warnings, heading))
    if serving.interrupted:
        blocks.append(Note("Interrupted before its end.", "doubtful"))
    short_pairs = list(words.in_short(serving))
    in_short = [Facts(short_pairs, "In short", label=LABEL)] if short_pairs else []
    return Document(
        title(serving),
        "load",
        facts=Facts(words.facts(serving), label=LABEL),
        blocks=blocks,
        conclusion=[*in_short, *most_important(serving)],
        charts=serving_charts.serving(serving),
        names=(title(serving),),
    )


def of_profile(profile: Profile) -> list[Block]:
    """Return the level or the capacity of a profile that is a part of a record of load."""
    levels = () if profile.serving is None else (profile.serving,)
    serving = Serving(
        target=profile.target,
        environment=profile.environment,
        served_by=ServedBy(kind="endpoint"),
        levels=levels,
        capacity=profile.capacity,
    )
    capacity = words.capacity(serving)
    facts = [] if capacity is None else [Facts([("capacity", capacity)], "Load", label=LABEL)]
    return [*_level_blocks(serving), *facts]


def _level_blocks(serving: Serving) -> list[Block]:
    return [*[load(serving)] * bool(serving.levels), *_tables(serving)]


def load(serving: Serving) -> Table:
    """Return what was asked of the server, what it answered, and what a request waited."""
    rows = [
        Row(name, _without_empty(_load(level)), 1, _tone(level))
        for name, level in zip(serving.level_names, serving.levels, strict=True)
    ]
    notes = ["Times count from when a request was due."]
    if any(level.goodput is not None for level in serving.levels):
        notes[0] += " Goodput: requests/s within all goals."
    return Table(
        title="Load", how="measured", columns=LOAD, rows=rows, layout="fitted",
        notes=[*notes, *words.without_intervals(serving)],
    )  # fmt: skip


def _tone(level: Level) -> Tone:
    limited = level.client is not None and level.client.limited
    return "doubtful" if limited else TONES[level.verdict]


def _tables(serving: Serving) -> Iterator[Block]:
    """Yield the tables of which any level has figures."""
    parts: tuple[tuple[str, Sequence[Column], Callable[[Level], dict[str, Value]]], ...] = (
        ("Latency", PERCENTILES, _latency),
        ("Tokens", TOKENS, _tokens),
        ("Server", SERVER, _server),
        ("Client", CLIENT, _client),
    )
    for name, columns, figures in parts:
        rows = [
            Row(label, _without_empty(figures(level)), 1)
            for label, level in zip(serving.level_names, serving.levels, strict=True)
        ]
        if any(row.cells for row in rows):
            yield Table(
                title=name, how="measured", columns=columns, rows=rows, layout="fitted",
                notes=words.several_tokens(serving.levels) if name == "Tokens" else [],
            )  # fmt: skip
        if name == "Tokens" and (table := _goals(serving)):
            yield table


def _goals(serving: Serving) -> Table | None:
    """Return the goals at each level; None where none was judged."""
    rows = []
    levels_by_reason: dict[str, list[str]] = {}
    for name, level in zip(serving.level_names, serving.levels, strict=True):
        if not level.goals:
            continue
        rows.append(Row(name, {}, 1, "strong"))
        for result in level.goals:
            cells: dict[str, Value] = {
                "value": words.goal_amount(result.goal, result.value),
                "interval": words.interval(result.interval, result.goal),
                "verdict": result.verdict,
            }
            if result.reason:
                levels_by_reason.setdefault(result.reason, []).append(name)
            text = words.goal(result.goal)
            rows.append(Row(text, _without_empty(cells), 2, TONES[result.verdict]))
    if not rows:
        return None
    notes = [
        f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in levels_by_reason.items()
    ]
    return Table(
        title="Goals", how="measured", columns=GOALS, rows=rows, layout="fitted", notes=notes
    )


def _load(level: Level) -> dict[str, Value]:
    p50, p99 = (_percentile(level.latency, fraction) for fraction in (0.5, 0.99))
    failed = level.failed_share
    return {
        "answered": _rate(level.completed),
        "p50": _time(p50),
        "± p50": _half(p50),
        "p99": _time(p99),
        "p99 interval": "" if p99 is None else words.times(p99.interval),
        "goodput": _rate(level.goodput),
        "errors": "" if not failed else units.share(failed),
        "outcome": words.outcome(level),
    }


def _latency(level: Level) -> dict[str, Value]:
    values: dict[str, Value] = {
        f"p{100 * fraction:.0f}": _time(_percentile(level.latency, fraction))
        for fraction in (0.5, 0.9, 0.95, 0.99)
    }
    values["max"] = "" if level.latency is None else units.time(level.latency.high, 3)
    values["service p99"] = _time(_percentile(level.service, 0.99))
    values["wait p99"] = _time(_percentile(level.wait, 0.99))
    return values


def _tokens(level: Level) -> dict[str, Value]:
    ttft = _percentile(level.ttft, 0.95)
    return {
        "TTFT p50": _time(_percentile(level.ttft, 0.5)),
        "TTFT p95": _time(ttft),
        "± TTFT": "" if ttft is None else words.times(ttft.interval),
        "ITL p50": _time(_percentile(level.itl, 0.5)),
        "ITL p99": _time(_percentile(level.itl, 0.99)),
        "TPOT p50": _time(_percentile(level.tpot, 0.5)),
        "tokens/s": _rate(level.tokens),
        "tokens in/s": _rate(level.tokens_in),
    }


def _client(level: Level) -> dict[str, Value]:
    client = level.client
    if client is None:
        return {}
    return {
        "lateness p50": _seconds(client.lateness),
        "lateness p99": _seconds(client.lateness_p99),
        "CPU a request": _seconds(client.cpu),
        "waiting for a core": "" if client.waiting is None else units.share(client.waiting),
        "connections": f"{client.connections:,}" if client.connections else "",
    }


def _server(level: Level) -> dict[str, Value]:
    use = level.server
    if use is None:
        return {}
    cpu = words.mean(use.cpu)
    busy = None if cpu is None or not use.cores else cpu / use.cores
    gpu, waiting = words.mean(use.gpu), words.mean(use.waiting)
    return {
        "CPU": "" if cpu is None else units.significant(cpu, 3),
        "busy": "" if busy is None else units.share(busy),
        "memory": units.size(max(use.memory), 3) if use.memory else "",
        "GPU": "" if gpu is None else units.share(gpu),
        "waiting": "" if waiting is None else units.share(waiting),
        "disk": _transfer_rate(use.read, use.written),
        # What stays on the machine counts on both sides.
        "network": _transfer_rate(
            max(use.received, use.sent, key=lambda side: words.mean(side) or 0.0)
        ),
        "limit": use.first_saturated,
    }


def _transfer_rate(*columns: Sequence[float]) -> str:
    """Return the sum of rates of bytes."""
    rates = [rate for rate in map(words.mean, columns) if rate is not None]
    return f"{units.size(sum(rates), 2)}/s" if rates else ""


def _percentile(distribution: Distribution | None, fraction: float) -> Estimate | None:
    return None if distribution is None else distribution.percentile(fraction)


def _time(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.time(estimate.value, 3)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else units.time(seconds, 2)


def _half(estimate: Estimate | None) -> str:
    if estimate is None or estimate.interval is None or estimate.value <= 0:
        return ""
    return units.percent(estimate.interval.half_width / estimate.value)


def _rate(estimate: Estimate | None) -> str:
    return "" if estimate is None else words.rate(estimate.value)


def _without_empty(cells: dict[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in cells.items() if value not in (None, "")}
