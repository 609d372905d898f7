"""A record of load: what requests waited by rate, goals, tokens, client, server, and capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torchgauge import units
from torchgauge.records.profile import Profile
from torchgauge.records.serving.level import Level, ServerUse
from torchgauge.records.serving.requests import Estimate
from torchgauge.records.serving.serving import ServedBy, Serving
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import most_important
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.content.serving.serving_words import estimate_of, interval_text, time_text
from torchgauge.report.notebook import serving_charts

LABEL = 12


def _half(level: Level) -> str:
    estimate = estimate_of(level, "latency", 0.5)
    if estimate is None or estimate.interval is None or estimate.value <= 0:
        return ""
    return units.percent(estimate.interval.half_width / estimate.value)


def _rate(estimate: Estimate | None) -> str:
    return "" if estimate is None else words.rate(estimate.value)


def _share(share: float | None) -> str:
    return "" if share is None else units.share(share)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else units.time(seconds, 2)


def _cores(use: ServerUse) -> str:
    cpu = words.mean(use.cpu)
    return "" if cpu is None else units.significant(cpu, 3)


def _busy(use: ServerUse) -> str:
    cpu = words.mean(use.cpu)
    return "" if cpu is None or not use.cores else units.share(cpu / use.cores)


def _transfer_rate(*columns: Sequence[float]) -> str:
    """Return the sum of rates of bytes."""
    rates = [rate for rate in map(words.mean, columns) if rate is not None]
    return f"{units.size(sum(rates), 2)}/s" if rates else ""


def _network(use: ServerUse) -> str:
    """Return the larger of both directions: what stays on the machine counts in both."""
    return _transfer_rate(max(use.received, use.sent, key=lambda side: words.mean(side) or 0.0))


LOAD = (
    doc.Column("offered", "offered/s", priority=2,
               get=lambda level: "" if level.offered is None else words.rate(level.offered)),
    doc.Column("answered", title="answered/s", get=lambda level: _rate(level.completed)),
    doc.Column("p50", get=time_text("latency", 0.5)),
    doc.Column("± p50", title="±", priority=4, tone="faint", get=_half),
    doc.Column("p99", tone="strong", get=time_text("latency", 0.99)),
    doc.Column("p99 interval", "95 %", "text", interval_text("latency", 0.99), 2, tone="faint"),
    doc.Column("goodput", title="goodput/s", priority=1, get=lambda level: _rate(level.goodput)),
    doc.Column("errors", priority=3, get=lambda level: _share(level.failed_share or None)),
    doc.Column("outcome", left_aligned=True, get=words.outcome),
)  # fmt: skip
PERCENTILES = (
    doc.Column("p50", get=time_text("latency", 0.5)),
    doc.Column("p90", get=time_text("latency", 0.9)),
    doc.Column("p95", get=time_text("latency", 0.95)),
    doc.Column("p99", get=time_text("latency", 0.99)),
    doc.Column("max", get=lambda level: level.latency and units.time(level.latency.high, 3)),
    doc.Column("service p99", priority=1, get=time_text("service", 0.99)),
    doc.Column("wait p99", title="client's wait p99", priority=2, get=time_text("wait", 0.99)),
)
TOKENS = (
    doc.Column("TTFT p50", get=time_text("ttft", 0.5)),
    doc.Column("TTFT p95", get=time_text("ttft", 0.95)),
    doc.Column("± TTFT", title="95 %", priority=3, tone="faint", get=interval_text("ttft", 0.95)),
    doc.Column("ITL p50", priority=1, get=time_text("itl", 0.5)),
    doc.Column("ITL p99", get=time_text("itl", 0.99)),
    doc.Column("TPOT p50", get=time_text("tpot", 0.5)),
    doc.Column("tokens/s", tone="strong", get=lambda level: _rate(level.tokens)),
    doc.Column("tokens in/s", priority=2, get=lambda level: _rate(level.tokens_in)),
)
GOALS = (
    doc.Column("value", get=lambda result: words.goal_amount(result.goal, result.value)),
    doc.Column("interval", title="95 %", priority=1, tone="faint",
           get=lambda result: words.interval(result.interval, result.goal)),
    doc.Column("verdict", left_aligned=True),
)  # fmt: skip
CLIENT = (
    doc.Column("lateness p50", priority=1, get=lambda client: _seconds(client.lateness)),
    doc.Column("lateness p99", get=lambda client: _seconds(client.lateness_p99)),
    doc.Column("CPU a request", priority=2, get=lambda client: _seconds(client.cpu)),
    doc.Column("waiting for a core", priority=3, get=lambda client: _share(client.waiting)),
    doc.Column("connections", "connections", "count", lambda client: client.connections or None, 4),
)
SERVER = (
    doc.Column("CPU", title="cores", get=_cores),
    doc.Column("busy", title="of its cores", get=_busy),
    doc.Column("memory", get=lambda use: units.size(max(use.memory), 3) if use.memory else ""),
    doc.Column("GPU", priority=1, get=lambda use: _share(words.mean(use.gpu))),
    doc.Column("waiting", title="waiting for a core", priority=2,
           get=lambda use: _share(words.mean(use.waiting))),
    doc.Column("disk", priority=4, get=lambda use: _transfer_rate(use.read, use.written)),
    doc.Column("network", title="machine's network", priority=5, get=_network),
    doc.Column(
        "limit", title="at its limit", left_aligned=True, get=lambda use: use.first_saturated
    ),
)  # fmt: skip
TONES: dict[str | None, doc.Tone] = {
    "met": "good",
    "missed": "bad",
    "unclear": "doubtful",
    None: "",
}


def title(serving: Serving) -> str:
    """Return the model's name, or the endpoint's address."""
    return serving.target.name


def document(serving: Serving, _: doc.Options) -> doc.Document:
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
            blocks.append(doc.Facts(listed, heading, how, label=LABEL))
    if any(level.early_stopping for level in serving.levels):
        blocks.append(
            doc.Note("Early stopping is valid for independent requests only.", tight=True)
        )
    if serving.all_warnings:
        heading = "Warnings" if serving.complete else "Failed and warnings"
        blocks.append(doc.Warnings(serving.all_warnings, heading))
    if serving.interrupted:
        blocks.append(doc.Note("Interrupted before its end.", "doubtful"))
    short_pairs = list(words.in_short(serving))
    in_short = [doc.Facts(short_pairs, "In short", label=LABEL)] if short_pairs else []
    return doc.Document(
        title(serving),
        "load",
        facts=doc.Facts(words.facts(serving), label=LABEL),
        blocks=blocks,
        conclusion=[*in_short, *most_important(serving)],
        charts=serving_charts.serving(serving),
        names=(title(serving),),
    )


def of_profile(profile: Profile) -> list[doc.Block]:
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
    facts = [] if capacity is None else [doc.Facts([("capacity", capacity)], "Load", label=LABEL)]
    return [*_level_blocks(serving), *facts]


def _level_blocks(serving: Serving) -> list[doc.Block]:
    return [*[load(serving)] * bool(serving.levels), *_tables(serving)]


def load(serving: Serving) -> doc.Table:
    """Return what was asked of the server, what it answered, and what a request waited."""
    rows = [
        doc.Row(name, doc.cells(LOAD, level), 1, _tone(level))
        for name, level in serving.named_levels
    ]
    notes = ["Times count from when a request was due."]
    if any(level.goodput is not None for level in serving.levels):
        notes[0] += " Goodput: requests/s within all goals."
    return doc.Table(
        title="Load", how="measured", columns=LOAD, rows=rows, layout="fitted",
        notes=[*notes, *words.without_intervals(serving)],
    )  # fmt: skip


def _tone(level: Level) -> doc.Tone:
    limited = level.client is not None and level.client.limited
    return "doubtful" if limited else TONES[level.verdict]


def _tables(serving: Serving) -> Iterator[doc.Block]:
    """Yield the tables of which any level has figures."""
    parts: tuple[tuple[str, Sequence[doc.Column], Callable[[Level], object]], ...] = (
        ("Latency", PERCENTILES, lambda level: level),
        ("Tokens", TOKENS, lambda level: level),
        ("Server", SERVER, lambda level: level.server),
        ("Client", CLIENT, lambda level: level.client),
    )
    notes = {"Tokens": words.several_tokens, "Server": words.server_processes}
    for name, columns, part_of in parts:
        rows = [
            doc.Row(label, {} if (part := part_of(level)) is None else doc.cells(columns, part), 1)
            for label, level in serving.named_levels
        ]
        if any(row.cells for row in rows):
            yield doc.Table(
                title=name, how="measured", columns=columns, rows=rows, layout="fitted",
                notes=notes[name](serving.levels) if name in notes else [],
            )  # fmt: skip
        if name == "Tokens" and (table := _goals(serving)):
            yield table


def _goals(serving: Serving) -> doc.Table | None:
    """Return the goals at each level; None where none was judged."""
    rows = []
    levels_by_reason: dict[str, list[str]] = {}
    for name, level in serving.named_levels:
        if not level.goals:
            continue
        rows.append(doc.Row(name, {}, 1, "strong"))
        for result in level.goals:
            if result.reason:
                levels_by_reason.setdefault(result.reason, []).append(name)
            text = words.goal(result.goal)
            rows.append(doc.Row(text, doc.cells(GOALS, result), 2, TONES[result.verdict]))
    if not rows:
        return None
    notes = [
        f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in levels_by_reason.items()
    ]
    return doc.Table(
        title="Goals", how="measured", columns=GOALS, rows=rows, layout="fitted", notes=notes
    )
