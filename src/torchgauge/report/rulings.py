"""What is said of a verdict and its rulings, before any format decides how it looks."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.comparison import Comparison, Side
from torchgauge.model.record import Interval
from torchgauge.model.verdict import Outcome, Ruling, Verdict
from torchgauge.report.comparison import corrected, relative
from torchgauge.visible import one_line

SIGNS: dict[Outcome, str] = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not comparable": "≠"}
MOST_BLOCKS = 1_000


def figure(ruling: Ruling) -> str:
    """Return the figure, behind the baseline's where there is one: '10.20 ms → 11.40 ms'."""
    sign = "≥ " if ruling.at_least else ""
    if ruling.baseline is None and ruling.limit is not None:
        return sign + _amount(ruling, ruling.current)
    old, new = _amount(ruling, ruling.baseline), _amount(ruling, ruling.current)
    if ruling.how == "counted":
        old, new = units.amounts(ruling.baseline, ruling.current, ruling.unit)
    return f"{old} → {sign}{new}"


def change(ruling: Ruling) -> str:
    """Return the change, for the worse where positive: '+11.8 %'."""
    return relative(ruling.change)


def interval(ruling: Ruling) -> str:
    """Return the interval of the change (worse where positive), or of the value under a limit."""
    found = ruling.interval
    if found is None:
        return ""
    if ruling.limit is None:
        return f"{relative(found.low).removesuffix(' %')} … {relative(found.high)}"
    return _between(ruling, found) + (", this process" if _of_calls(ruling) else "")


def _of_calls(ruling: Ruling) -> bool:
    """True where the interval is of one process's calls, and by how much runs differ is unknown."""
    found = ruling.interval
    return ruling.limit is not None and found is not None and found.scope == "process"


def _between(ruling: Ruling, found: Interval) -> str:
    if ruling.unit == "s":
        return units.times(found.low, found.high)
    low, high = _amount(ruling, found.low), _amount(ruling, found.high)
    if ruling.unit == "1/s":
        low, high = (units.significant(end, 4) for end in (found.low, found.high))
    return f"{low} … {high}"


def allowed(ruling: Ruling) -> str:
    """Return what the ruling was made by: '≤ 100 ms', '+1 … +3 %'."""
    if ruling.limit is not None:
        if ruling.limit.least:  # the figure beside it says of what
            return f"≥ {units.rate(ruling.limit.value, '')}"
        return f"≤ {_amount(ruling, ruling.limit.value)}"
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
        return units.rate(number, ruling.limit.of if ruling.limit is not None else "")
    return units.amount(number, ruling.unit)


def why(ruling: Ruling) -> str:
    """Return why the outcome is what it is, as far as the figures do not say it."""
    parts = [one_line(ruling.reason.rstrip("."))] if ruling.reason else []
    parts += [corrected(ruling)] if ruling.corrected is not None else []
    if ruling.borderline:
        parts.insert(0, "borderline, the limit lies in the interval")
    if _of_calls(ruling):
        parts.append("between runs unknown")
    if ruling.outcome == "inconclusive" and ruling.needed is not None:
        parts.append(f"about {ruling.needed:,} blocks would decide")
    return "; ".join(parts)


def line(ruling: Ruling) -> str:
    """Return the whole ruling as one line of plain text."""
    found, bounds, reason = interval(ruling), allowed(ruling), why(ruling)
    inside = f"{'' if _of_calls(ruling) else '95 % in '}{found}" if found else ""
    known = ", ".join(filter(None, (change(ruling), inside)))
    parts = [figure(ruling) + (f" ({known})" if known else "")]
    parts += [f"allowed {bounds}"] if bounds else []
    parts += [reason] if reason else []
    return f"{one_line(ruling.metric)}: {ruling.outcome}, {', '.join(parts)}"


def guilty(ruling: Ruling, verdict: Verdict) -> tuple[str, ...]:
    """Return the places that got slower, where it is the time that fails."""
    timed = ruling.outcome == "fail" and ruling.tolerance is not None and ruling.unit != "B"
    found = verdict.guilty if timed and ruling.how == "measured" else ()
    return tuple(map(one_line, found))


def headline(verdict: Verdict) -> str:
    """Return the verdict in one clause: 'latency, memory (2 of 5)'."""
    if not verdict.rulings:
        return "nothing was judged"
    named = [one.metric for one in verdict.rulings if one.outcome == verdict.outcome]
    if verdict.passed:
        rules = {"limit" if one.limit is not None else "tolerance" for one in verdict.rulings}
        kinds = " and ".join(f"{kind}s" for kind in ("tolerance", "limit") if kind in rules)
        if len(named) == 1:
            return f"{one_line(named[0])} is within its {kinds.removesuffix('s')}"
        return f"{len(named)} figures are within their {kinds}"
    each = list(dict.fromkeys(named))  # a metric may have a tolerance and a limit
    more = f" and {len(each) - 4} more" if len(each) > 5 else ""
    shown = each[:4] if more else each
    return f"{one_line(', '.join(shown))}{more} ({len(named)} of {len(verdict.rulings)})"


def sides(comparison: Comparison | None) -> list[tuple[str, Side]]:
    """Return the two runs with their names, nothing where only limits were judged."""
    if comparison is None:
        return []
    return [("baseline", comparison.baseline), ("current", comparison.current)]


def method(verdict: Verdict) -> list[str]:
    """Return how the rulings were reached: blocks, looks, duration, then each method once."""
    said = []
    if verdict.blocks:
        looks = "once" if verdict.looks <= 1 else "twice" if verdict.looks == 2 else "often"
        took = "" if verdict.duration is None else f" in {_duration(verdict.duration)}"
        blocks = f"{len(verdict.blocks)} ABBA block{'s' if len(verdict.blocks) > 1 else ''}"
        said.append(f"{blocks} of four fresh processes{took}, judged {looks}")
    ways = {one_line(one.metric): one.how for one in verdict.rulings}
    counted = [name for name, how in ways.items() if how == "counted"]
    if counted and len(counted) < len(ways):
        said.append(f"{', '.join(counted)} counted, the others measured")
    told = [one for one in verdict.rulings if one.tolerance is not None and one.how != "counted"]
    said += dict.fromkeys(one_line(one.method) for one in told if one.method not in ("", "exact"))
    if any(one.change for one in verdict.rulings):
        said.append("changes are for the worse where positive")
    return said


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else units.time(seconds, 2)


def advice(verdict: Verdict) -> list[str]:
    """Return what to do where nothing was decided, or the two cannot be compared."""
    said = []
    if any(one.outcome == "not comparable" for one in verdict.rulings) or (
        verdict.outcome == "not comparable"
    ):
        said.append(_apart(verdict))
    open_ones = [one for one in verdict.rulings if one.outcome == "inconclusive"]
    needed = [one.needed for one in open_ones if one.needed is not None]
    if needed and max(needed) <= MOST_BLOCKS:
        said.append(f"Run it with --blocks {max(needed)}, or allow more with --tolerance.")
    elif needed:
        said.append(
            "Measure on a quieter machine (torchgauge doctor), or allow more (--tolerance)."
        )
    if any(one.at_least and one.outcome == "inconclusive" for one in open_ones):
        said.append("Give operators without formula one: tg.flop_formula.")
    if any(one.current is None and one.limit is not None for one in open_ones):
        said.append("An unknown figure never passes: leave its limit out, or have it measured.")
    return said


def _apart(verdict: Verdict) -> str:
    """Return how two that cannot be compared could be."""
    found = () if verdict.comparison is None else verdict.comparison.differences
    if {one.part for one in found if one.timing} == {"target"}:
        return "Give both the same inputs (--input), device and precision."
    return (
        "Measure both on one machine with the same software and settings: "
        "torchgauge gate --base-ref REVISION TARGET does it in one run."
    )
