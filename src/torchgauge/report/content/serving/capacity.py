"""A plan of capacity: the workers that are needed, settings around them, checks; all estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from torchgauge import units
from torchgauge.analyze.capacity.prediction import FULLEST
from torchgauge.records.serving.capacity_plan import CapacityPlan, Check, PlannedSetting
from torchgauge.records.serving.requests import Estimate
from torchgauge.report.content import document as doc
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.notebook import serving_charts

LABEL = 13
SOURCES = {
    "server": "the server's own clock under load",
    "answers": "when a load was answered, by a server that tells none",
    "call": "calls of the target, one after the other",
    "sweep": "a sweep of batch sizes",
    "profile": "a profile, one call a request",
    "generation": "the fits of a generation",
    "file": "a file",
}
DISCIPLINES = {
    "batches": "workers take batches",
    "one by one": "workers take single requests",
    "continuous": "continuous batching, requests go to the workers in turn",
}
QUEUES = {
    "one": "one queue",
    "bound": "connections are bound to a worker",
    "random": "requests go to the workers at random",
    "unknown": "one queue, or connections are bound to a worker: figures show the latter",
}
TONES: dict[str, doc.Tone] = {"met": "good", "missed": "bad", "unclear": "doubtful"}
NO_END = "queue grows without end"


def setting_name(setting: PlannedSetting) -> str:
    """Return how requests are batched: "batches of 8 within 5 ms"."""
    if setting.max_batch == 1:
        return "one by one"
    delay = f" within {units.time(setting.max_delay, 3)}" if setting.max_delay else ""
    return f"batches of {setting.max_batch:,}{delay}"


def _percentile(metric: str, fraction: float) -> Callable[[PlannedSetting], float | None]:
    """Return what gets a percentile of what requests wait."""
    return lambda setting: getattr(words.estimate_of(setting, metric, fraction), "value", None)


def _knee(end: Literal["low", "high"]) -> Callable[[PlannedSetting], float | None]:
    return lambda setting: getattr(getattr(setting.knee, "interval", None), end, None)


def _off(check: Check) -> str:
    predicted, measured = check.predicted.value, check.measured.value
    return units.with_minus(f"{100 * (predicted / measured - 1):+.1f} %") if measured else ""


WAITS = (
    ("p50", "latency", 0.5),
    ("p99", "latency", 0.99),
    ("TTFT p95", "ttft", 0.95),
    ("TPOT p50", "tpot", 0.5),
)
SETTINGS = (
    doc.Column("workers", get=lambda setting: f"{setting.workers:,}", medium="page"),
    doc.Column("max_batch", "largest batch", "count", medium="page"),
    doc.Column("max_delay", "waits at most", "time", medium="page"),
    doc.Column("rate", "requests/s", "number", medium="page"),
    doc.Column("p50", unit="time", get=_percentile("latency", 0.5)),
    doc.Column("p90", unit="time", get=_percentile("latency", 0.9), medium="page"),
    doc.Column("p99", unit="time", get=_percentile("latency", 0.99), tone="strong"),
    doc.Column("interval", "95 %", "text", words.interval_text("latency", 0.99), 2, tone="faint"),
    doc.Column("TTFT p95", unit="time", get=_percentile("ttft", 0.95), priority=3),
    doc.Column("TPOT p50", unit="time", get=_percentile("tpot", 0.5), priority=3),
    doc.Column("utilization", "busy", "percent"),
    doc.Column("mean_batch", "mean batch", "number", priority=4),
    doc.Column("knee", "knee/s", get=lambda s: s.knee and words.rate(s.knee.value), medium="text"),
    doc.Column("at the knee", "knee/s", "number", lambda s: s.knee and s.knee.value, medium="page"),
    doc.Column("knee_low", "95 % from", "number", _knee("low"), medium="page"),
    doc.Column("knee_high", "95 % to", "number", _knee("high"), medium="page"),
    doc.Column("price", "price/h", "number", priority=5),
    doc.Column("price_per_million", "per million", "number", priority=6),
    doc.Column("goals", left_aligned=True, get=lambda s: s.verdict if s.stable else NO_END),
)
INSIDE = {True: "inside", False: "outside", None: ""}
CHECKS = (
    doc.Column("predicted", unit="time", get=lambda check: check.predicted.value),
    doc.Column("interval", title="95 %", priority=1, tone="faint",
           get=lambda check: words.times(check.predicted.interval)),
    doc.Column("measured", unit="time", get=lambda check: check.measured.value),
    doc.Column("measured_ends", "95 %", medium="page",
               get=lambda check: words.times(check.measured.interval)),
    doc.Column("off", priority=2, get=_off),
    doc.Column("inside", left_aligned=True, get=lambda check: INSIDE[check.inside]),
)  # fmt: skip


def document(plan: CapacityPlan, _options: doc.Options) -> doc.Document:
    """Return the workers needed, the settings around them, the front, and checks."""
    blocks: list[doc.Block] = []
    if plan.refused:
        blocks.append(doc.Note(f"Nothing is predicted. {plan.refused}", "bad"))
    if plan.settings:
        blocks.append(settings(plan.settings, f"At {words.rate(plan.settings[0].rate)} requests/s"))
    if plan.front:
        title = "Settings that no other beats in knee, p99 and workers at once"
        blocks.append(settings(plan.front, title))
    if plan.checks:
        blocks.append(checks_table(plan.checks))
    if plan.findings:
        blocks.append(doc.Findings(plan.findings))
    if plan.warnings:
        blocks.append(doc.Warnings(plan.warnings))
    if plan.interrupted:
        blocks.append(doc.Note("Interrupted before its end.", "doubtful"))
    return doc.Document(
        plan.target.name,
        "capacity, estimated by simulation",
        facts=doc.Facts(list(_facts(plan)), label=LABEL),
        blocks=blocks,
        conclusion=[doc.Facts(list(in_short(plan)), "In short")],
        charts=serving_charts.plan(plan),
        names=(plan.target.name,),
    )


def _facts(plan: CapacityPlan) -> Iterator[tuple[str, str]]:
    times = plan.times
    yield "target", plan.target.spec
    count = sum(len(part.seconds) for part in times.batches)
    parts = [SOURCES[times.source]]
    parts += [f"{count:,} of batches up to {times.batches[-1].batch:,}"] if times.batches else []
    parts += [times.settings] * bool(times.settings)
    yield "service times", ", ".join(parts)
    budget = "" if plan.token_budget is None else f", {plan.token_budget:,} positions at once"
    collects = ", a delay begins when a worker takes the first" if times.collects else ""
    yield "server", discipline_text(plan) + budget + collects
    if plan.idle_latency is not None and plan.highest_rate is not None:
        bounds, rate_text = plan.highest_rate.interval, words.rate(plan.highest_rate.value)
        within = "" if bounds is None else f"  {words.rate(bounds.low)} … {words.rate(bounds.high)}"
        latency_text = f"{units.time(plan.idle_latency.value, 3)}{_within(plan.idle_latency)}"
        yield (
            "a worker",
            f"{latency_text} of a request alone, {rate_text}{within} requests/s at most",
        )
    if plan.failures:
        yield "headroom", f"{plan.failures:,} worker{'s' * (plan.failures != 1)} may fail"
    rate = "" if plan.arrivals.rate is None else f"{words.rate(plan.arrivals.rate)} requests/s, "
    yield "load", rate + words.arrivals(plan.arrivals)
    if times.shapes:
        yield "requests", _shapes(times.shapes)
    if plan.goals:
        yield "goals", ", ".join(map(words.goal, plan.goals))
    machine = plan.environment.machine
    yield "machine", f"{machine.cpu}, {machine.cpu_quota or machine.usable_cores:g} cores"


def discipline_text(plan: CapacityPlan) -> str:
    """Return in which order requests are taken: "one queue, workers take batches"."""
    text = DISCIPLINES[plan.discipline]
    if plan.discipline == "continuous":
        return text
    at_once = f", {plan.times.at_once:,} at once each" * (plan.times.at_once > 1)
    return f"{QUEUES[plan.times.queues]}, {text}{at_once}"


def _shapes(shapes: Sequence[tuple[int, int]]) -> str:
    texts = [f"{prompt:,} + {answer:,}" for prompt, answer in shapes]
    return f"{', '.join(texts)} tokens of prompt and answer{', in turn' * (len(shapes) > 1)}"


def workers_text(plan: CapacityPlan) -> str:
    """Return how many workers are needed, from those that may be enough: "2 to 3"."""
    enough = plan.needed.workers if plan.needed is not None else 0
    return (
        f"{plan.fewest_workers:,} to {enough:,}"
        if (plan.fewest_workers or enough) < enough
        else f"{enough:,}"
    )


def in_short(plan: CapacityPlan) -> Iterator[tuple[str, doc.Detailed]]:
    """Yield the workers needed, their latency and knee, and what a lost one does."""
    needed = plan.needed
    if needed is None:
        reason = plan.refused or next((finding.title for finding in plan.findings), "")
        yield "workers", doc.Detailed("unknown" if plan.refused else "none", f"  {reason}")
        return
    yield "workers", doc.Detailed(workers_text(plan), f"  {setting_name(needed)}")
    for label, metric, fraction in WAITS:
        if (figure := words.estimate_of(needed, metric, fraction)) is not None:
            yield label, doc.Detailed(units.time(figure.value, 3), _within(figure))
    if needed.utilization is not None:
        yield "busy", doc.Detailed(units.percent(needed.utilization), "  of the time, each worker")
    if needed.knee is not None:
        bounds = needed.knee.interval
        within = "" if bounds is None else f"  {words.rate(bounds.low)} … {words.rate(bounds.high)}"
        yield "knee", doc.Detailed(f"{words.rate(needed.knee.value)} requests/s", within)
    if plan.failure is not None:
        yield (
            f"with {plan.failure.workers:,}",
            doc.Detailed(_failed(plan.failure), "  one worker lost"),
        )
    if needed.price is not None:
        million = needed.price_per_million or 0.0
        detail = f"  {units.significant(million, 3)} for a million requests"
        yield "price/h", doc.Detailed(units.significant(needed.price, 3), detail)


def _within(figure: Estimate) -> str:
    """Return an interval behind a figure, or why it has none."""
    if figure.interval is not None:
        return f"  {words.times(figure.interval)}"
    return f"  {figure.reason}" if figure.reason else ""


def _failed(setting: PlannedSetting) -> str:
    if setting.latency is None:
        return NO_END
    figure = setting.latency.percentile(0.99)
    p99 = "" if figure is None else f"p99 {units.time(figure.value, 3)}"
    return f"{p99}, goals {setting.verdict}" if setting.verdict else p99


def settings(planned: Sequence[PlannedSetting], title: str) -> doc.Table:
    """Return settings with what requests wait, how busy workers are, and the knee."""
    has_one_batching = len({setting_name(setting) for setting in planned}) == 1
    rows = [
        doc.Row(
            f"{setting.workers:,} worker{'s' * (setting.workers != 1)}"
            + ("" if has_one_batching else f", {setting_name(setting)}"),
            doc.cells(SETTINGS, setting),
            tone=TONES[setting.verdict] if setting.verdict else "",
        )
        for setting in planned
    ]
    notes = ["Knee: the highest rate within the goals. Busy: share of a worker's time."]
    if not all(setting.stable for setting in planned):
        share = units.percent(FULLEST)
        notes.append(f"{NO_END.capitalize()}: at over {share} of the highest rate of its workers.")
    if has_one_batching:
        notes.insert(0, f"All: {setting_name(planned[0])}.")
    return doc.Table(
        title=title, how="estimated", columns=SETTINGS, rows=rows, layout="fitted", notes=notes
    )


def checks_table(checks: Sequence[Check]) -> doc.Table:
    """Return predictions beside measurements of the same requests."""
    rows = [doc.Row(f"{c.figure} at {words.rate(c.rate)}/s", doc.cells(CHECKS, c)) for c in checks]
    judged = [check.inside for check in checks if check.inside is not None]
    notes = [f"{sum(judged)} of {len(judged)} measurements lie in their interval."] * bool(judged)
    return doc.Table(
        title="Predictions beside measurements of the same requests",
        columns=CHECKS,
        rows=rows,
        layout="fitted",
        notes=notes,
    )
