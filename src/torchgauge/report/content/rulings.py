"""Words and figures of a verdict and its rulings, shared by all formats."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.comparison import Change, Comparison, Regressions, Side
from torchgauge.records.record import Interval
from torchgauge.records.verdict import Outcome, Ruling, Verdict
from torchgauge.report.console.text import Text
from torchgauge.report.content.comparison import corrected_change, of_process_means, relative
from torchgauge.report.content.comparison import interval as change_interval
from torchgauge.visible import one_line, printable

SIGNS: dict[Outcome, str] = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not comparable": "≠"}
MOST_BLOCKS = 1_000


def figure(ruling: Ruling) -> str:
    """Return the figure, after the baseline's, if there is one: '10.20 ms → 11.40 ms'."""
    sign = "≥ " if ruling.at_least else ""
    if ruling.baseline is None and ruling.limit is not None:
        return sign + _amount(ruling, ruling.current)
    old, new = _amount(ruling, ruling.baseline), _amount(ruling, ruling.current)
    if ruling.how == "counted":
        old, new = units.amounts(ruling.baseline, ruling.current, ruling.unit, ruling.metric)
    return f"{old} → {sign}{new}"


def change(ruling: Ruling) -> str:
    """Return the change, for the worse where positive: '+11.8 %'."""
    return relative(ruling.change)


def interval(ruling: Ruling) -> str:
    """Return the interval of the change (worse where positive), or of the value under a limit."""
    bounds = ruling.interval
    if bounds is None:
        return ""
    if ruling.limit is None:
        return f"{relative(bounds.low).removesuffix(' %')} … {relative(bounds.high)}"
    return _between(ruling, bounds) + (", this process" if _within_one_process(ruling) else "")


def _within_one_process(ruling: Ruling) -> bool:
    """True where the interval covers one process, so the variation between runs is unknown."""
    bounds = ruling.interval
    return ruling.limit is not None and bounds is not None and bounds.scope == "process"


def _between(ruling: Ruling, bounds: Interval) -> str:
    if ruling.unit == "s":
        return units.times(bounds.low, bounds.high)
    low, high = _amount(ruling, bounds.low), _amount(ruling, bounds.high)
    if ruling.unit == "1/s":
        low, high = (units.significant(end, 4) for end in (bounds.low, bounds.high))
    return f"{low} … {high}"


def allowed(ruling: Ruling) -> str:
    """Return what the ruling was made by: '≤ 100 ms', '+1 … +3 %'."""
    if ruling.limit is not None:
        if ruling.limit.is_minimum and ruling.unit != "ratio":  # the figure says of what
            return f"≥ {units.rate(ruling.limit.value, '')}"
        sign = "≥" if ruling.limit.is_minimum else "≤"
        return f"{sign} {_amount(ruling, ruling.limit.value)}"
    if ruling.tolerance is None:
        return ""
    accepted, refused = ruling.tolerance.accepted, ruling.tolerance.refused
    if ruling.how == "counted" or accepted == refused:
        return f"≤ +{_share(accepted)} %" if accepted else "no worse"
    return f"+{_share(accepted)} … +{_share(refused)} %"


def _share(part: float) -> str:
    return f"{100 * part:.3g}"


def _amount(ruling: Ruling, number: float | None) -> str:
    if ruling.unit == "1/s":
        limit = ruling.limit
        if limit is not None and limit.rate_unit == "calls" and "request" in limit.text:
            return units.rate(number, "requests")  # as a server's calls are named in the limit
        return units.rate(number, "" if limit is None else limit.rate_unit)
    return units.amount(number, ruling.unit, ruling.metric)


def explanation(ruling: Ruling) -> str:
    """Return why the outcome is what it is, as far as the figures do not say it."""
    parts = [one_line(ruling.reason.rstrip("."))] if ruling.reason else []
    parts += filter(None, [corrected_change(ruling)])
    if ruling.borderline:
        parts.insert(0, "borderline, the limit lies in the interval")
    if ruling.outcome == "inconclusive" and ruling.needed is not None:
        parts.append(f"about {ruling.needed:,} blocks would decide")
    if _within_one_process(ruling):
        parts.append("between runs unknown")
    return "; ".join(parts)


def line(ruling: Ruling) -> str:
    """Return the whole ruling as one line of plain text."""
    interval_text, bounds, reason = interval(ruling), allowed(ruling), explanation(ruling)
    inside = (
        f"{'' if _within_one_process(ruling) else '95 % in '}{interval_text}"
        if interval_text
        else ""
    )
    change_text = ", ".join(filter(None, (change(ruling), inside)))
    parts = [figure(ruling) + (f" ({change_text})" if change_text else "")]
    parts += [f"allowed {bounds}"] if bounds else []
    parts += [reason] if reason else []
    return f"{one_line(ruling.label)}: {ruling.outcome}, {', '.join(parts)}"


def regressed_layers(ruling: Ruling, verdict: Verdict) -> tuple[str, ...]:
    """Return the layers that got slower, where it is the time that fails."""
    timed = ruling.outcome == "fail" and ruling.tolerance is not None and ruling.unit != "B"
    places = verdict.regressed_layers if timed and ruling.how != "counted" else ()
    return tuple(map(one_line, places))


def failures_first(verdict: Verdict) -> list[Ruling]:
    """Return the rulings, those that did not pass first."""
    return sorted(verdict.rulings, key=lambda ruling: ruling.outcome == "pass")


def headline(verdict: Verdict) -> str:
    """Return the verdict in one clause: 'latency, memory (2 of 5)'."""
    if not verdict.rulings:
        return "nothing was judged"
    judged_metrics = [
        ruling.metric for ruling in verdict.rulings if ruling.outcome == verdict.outcome
    ]
    if verdict.passed:
        rules = {"limit" if ruling.limit is not None else "tolerance" for ruling in verdict.rulings}
        kinds = " and ".join(f"{kind}s" for kind in ("tolerance", "limit") if kind in rules)
        if len(judged_metrics) == 1:
            return f"{one_line(judged_metrics[0])} is within its {kinds.removesuffix('s')}"
        return f"{len(judged_metrics)} figures are within their {kinds}"
    metrics = list(dict.fromkeys(judged_metrics))  # a metric may have a tolerance and a limit
    suffix = f" and {len(metrics) - 4} more" if len(metrics) > 5 else ""
    listed = metrics[:4] if suffix else metrics
    return (
        f"{one_line(', '.join(listed))}{suffix} ({len(judged_metrics)} of {len(verdict.rulings)})"
    )


def sides(comparison: Comparison | None) -> list[tuple[str, Side]]:
    """Return the two runs with their names, nothing where only limits were judged."""
    if comparison is None:
        return []
    return [("baseline", comparison.baseline), ("current", comparison.current)]


def method(verdict: Verdict) -> list[str]:
    """Return how the rulings were reached: blocks, looks, duration, then each method once."""
    sentences = []
    if verdict.blocks:
        frequency = "once" if verdict.looks <= 1 else "twice" if verdict.looks == 2 else "often"
        took = "" if verdict.duration is None else f" in {_duration(verdict.duration)}"
        blocks = f"{len(verdict.blocks)} ABBA block{'s' if len(verdict.blocks) > 1 else ''}"
        sentences.append(f"{blocks} of four fresh processes{took}, judged {frequency}")
    ways = {one_line(ruling.metric): ruling.how for ruling in verdict.rulings}
    counted = [name for name, how in ways.items() if how == "counted"]
    if counted and len(counted) < len(ways):
        sentences.append(f"{', '.join(counted)} counted, the others measured")
    measured = [
        ruling
        for ruling in verdict.rulings
        if ruling.tolerance is not None and ruling.how != "counted"
    ]
    sentences += dict.fromkeys(
        one_line(ruling.method) for ruling in measured if ruling.method not in ("", "exact")
    )
    if means := of_process_means(verdict.rulings):
        sentences.append(means)
    if any(ruling.change for ruling in verdict.rulings):
        sentences.append("changes are for the worse where positive")
    return sentences


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else units.time(seconds, 2)


def advice(verdict: Verdict) -> list[str]:
    """Return what to do where nothing was decided, or the two cannot be compared."""
    sentences = []
    if any(ruling.outcome == "not comparable" for ruling in verdict.rulings) or (
        verdict.outcome == "not comparable"
    ):
        sentences.append(_comparability_advice(verdict))
    undecided = [ruling for ruling in verdict.rulings if ruling.outcome == "inconclusive"]
    needed = [ruling.needed for ruling in undecided if ruling.needed is not None]
    if needed and max(needed) <= MOST_BLOCKS:
        sentences.append(f"Run it with --blocks {max(needed)}, or allow more with --tolerance.")
    elif needed:
        sentences.append(
            "Measure on a quieter machine (`torchgauge doctor`), or allow more (--tolerance)."
        )
    if any(ruling.at_least and ruling.outcome == "inconclusive" for ruling in undecided):
        sentences.append("Give operators without formula one: tg.flop_formula.")
    if any(ruling.current is None and ruling.limit is not None for ruling in undecided):
        sentences.append(
            "An unknown figure never passes: leave its limit out, or have it measured."
        )
    return sentences


def _comparability_advice(verdict: Verdict) -> str:
    """Return how to make two runs comparable."""
    differences = () if verdict.comparison is None else verdict.comparison.differences
    if {difference.part for difference in differences if difference.timing} == {"target"}:
        return "Give both the same inputs (--input), device and precision."
    return (
        "Measure both on one machine with the same software and settings: "
        "`torchgauge gate --base-ref REVISION TARGET` does it in one run."
    )


def render(regressions: Regressions) -> str:
    """Return one line for each metric."""
    lines = [f"{change.label} got worse: {_change(change)}" for change in regressions.regressed]
    if not lines:
        lines.append("No regression was found.")
    lines += [
        f"{change.label} is inconclusive: {_change(change)}; {change.reason}"
        for change in regressions.undecided
    ]
    return printable("\n".join(map(one_line, lines)))


def view(regressions: Regressions, *, width: int) -> Text:  # noqa: ARG001 - rich breaks the lines
    """Return the lines as something rich prints."""
    return Text.of_lines(render(regressions))


def _change(change: Change) -> str:
    baseline = units.amount(change.baseline, change.unit, change.metric)
    current = units.amount(change.current, change.unit, change.metric)
    figures = f"{baseline} → {current}"
    interval_text = change_interval(change)
    parts = (
        relative(change.change),
        interval_text and f"95 % in {interval_text}",
        corrected_change(change),
    )
    details = ", ".join(part for part in parts if part)
    return f"{figures} ({details})" if details else figures
