"""Absolute limits: "latency:100ms", "throughput:1000samples/s", and whether a record keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchgauge.analyze.statistics.percentiles import PERCENTILES, samples_needed
from torchgauge.errors import InputError
from torchgauge.quantities import EXAMPLES, amount, meant
from torchgauge.records.figures import COST, SIZE
from torchgauge.records.headline import figure as serving_figures
from torchgauge.records.headline.figure import Figure
from torchgauge.records.metric import METRICS, Metric, figure_of, metric
from torchgauge.records.profile import Profile
from torchgauge.records.serving.level import Level
from torchgauge.records.verdict import Limit, Ruling, Verdict, overall

# What a throughput of requests or of tokens is under load; others are not known there.
_LEVEL_RATES = {"calls": "serving_completed", "tokens": "serving_tokens"}
# Only profiles of a training step have these.
TRAINING_METRICS = ("forward", "backward", "optimizer", "mfu", "hfu")
_SIGN = re.compile("[:=]|<=?|>=?")


def unit_of(limited: Metric) -> str:
    """Return the SI unit that limits of a metric are given in."""
    if limited.name in ("errors", "mfu", "hfu"):
        return "ratio"
    if limited.figure.startswith("energy"):
        return "J"
    if limited.better == "higher":
        return "1/s"
    for named in (SIZE, COST):
        if limited.figure in named:
            return named[limited.figure][0]
    return "B" if limited.kind == "memory" else "s"


def parse_limit(text: str) -> Limit:
    """Return the limit that `text` says, "METRIC:AMOUNT" with the amount's unit.

    In place of the colon "=" may stand, or "<" ("<=") of a most and ">" (">=") of a least. Of rates
    it is a least, of all else a most. Raises InputError `metric-unknown`,
    `threshold-invalid`.
    """
    name, sign, amount_text = limit_parts(text)
    limited = metric(name)
    unit = unit_of(limited)
    if not sign:
        raise _invalid(text, unit, limited, "There is no ':' with an amount after it.")
    parsed = amount(amount_text, unit)
    if parsed is None or (parsed.counted and parsed.counted not in limited.rates):
        raise _invalid(
            text,
            unit,
            limited,
            f"'{amount_text}' is not an amount with a unit that fits.",
            amount_text,
        )
    if parsed.value == 0 and unit not in ("", "ratio"):
        raise _invalid(text, unit, limited, "The amount must be above 0.")
    is_minimum = limited.better == "higher"
    if sign[0] in ("<" if is_minimum else ">"):
        side = "least: more" if is_minimum else "most: less"
        near = f"{limited.name}:{amount_text.strip()}"
        cause = f"A limit of {limited.name} is a {side} is better."
        raise _refused(text, cause, f"Did you mean {near}?")
    return Limit(
        metric=limited.name,
        value=parsed.value,
        text=text,
        is_minimum=is_minimum,
        rate_unit=parsed.counted,
    )


def limit_parts(text: str) -> tuple[str, str, str]:
    """Return metric, sign and amount of a limit's text; sign and amount are "" without a sign."""
    sign = _SIGN.search(text)
    if sign is None:
        return text.strip(), "", ""
    return text[: sign.start()].strip(), sign[0], text[sign.end() :]


def _invalid(
    text: str, unit: str, limited: Metric, cause: str, amount_text: str = ""
) -> InputError:
    near, example = meant(amount_text, unit) or "", f"{limited.name}:{EXAMPLES[unit]}"
    if limited.rates and "samples" not in limited.rates:
        word = "tokens" if "tokens" in limited.rates else "requests"
        near, example = (re.sub(r"[a-z]+/s$", f"{word}/s", text) for text in (near, example))
    remedy = f"Did you mean {limited.name}:{near}?" if near else f"Write it as in {example}."
    return _refused(text, cause, remedy)


def _refused(text: str, cause: str, remedy: str) -> InputError:
    return InputError(
        f"'{text}' is not a limit.", id="threshold-invalid", cause=cause, remedy=remedy
    )


def percentile_of(limits: Iterable[Limit]) -> float | None:
    """Return the highest percentile (0.99) that a limit is on, None where there is none."""
    return max(
        (PERCENTILES[limit.metric] for limit in limits if limit.metric in PERCENTILES), default=None
    )


def judged(limits: Iterable[Limit], profile: Profile) -> Verdict:
    """Return the verdict on a record under limits alone."""
    rulings = tuple(judge_limit(limit, profile) for limit in limits)
    return Verdict(outcome=overall(rulings), rulings=rulings)


def judge_limit(limit: Limit, profile: Profile) -> Ruling:
    """Return the ruling on a limit; the estimate of the record's figure decides.

    An unknown figure is inconclusive, and so is one that is "at least" so much and below the limit.
    """
    limited = METRICS[limit.metric]
    if limited.name == "throughput" and limit.rate_unit:
        limited = limited._replace(
            figure=f"throughput_{limit.rate_unit}", level=_LEVEL_RATES.get(limit.rate_unit, "none")
        )
    figure = figure_of(profile, limited)
    if profile.serving is not None:
        name = limited.figure_in(profile).removeprefix("serving_")
        reason = _of_level(name, profile.serving)
    elif figure.value is None:
        reason = _unknown_reason(limit, profile)
    else:
        reason = _without_interval(limit, profile)
    return judge(limit, figure, at_least=_at_least(limited, profile), reason=reason)


def judge(limit: Limit, figure: Figure, *, at_least: bool = False, reason: str = "") -> Ruling:
    """Return whether one figure keeps the limit; `reason` is a note on the figure."""
    value, interval = figure.value, figure.interval
    over = value is not None and (value < limit.value if limit.is_minimum else value > limit.value)
    # What is known in part may be more: above a most it surely is, below a least it may not be.
    sure = value is not None and not (at_least and over == limit.is_minimum)
    if not sure and value is not None:
        reason = reason or "the total lacks operators or parameters that are not known"
    within = interval is not None and interval.low <= limit.value <= interval.high
    return Ruling(
        metric=limit.metric,
        outcome="inconclusive" if not sure else "fail" if over else "pass",
        how=figure.how,
        unit=figure.unit,
        current=value,
        interval=interval,
        limit=limit,
        at_least=at_least and value is not None,
        borderline=within,
        reason=reason,
        method="the estimate against the limit",
    )


def _at_least(limited: Metric, profile: Profile) -> bool:
    if limited.figure.startswith("energy"):
        return profile.energy is not None and profile.energy.at_least
    if limited.name in ("mfu", "hfu"):
        return profile.utilization is not None and profile.utilization.at_least
    if limited.name == "capacity":
        return profile.capacity is not None and profile.capacity.interval is None
    if limited.figure in COST:
        return profile.cost is not None and profile.cost.at_least
    return limited.figure in SIZE and profile.size is not None and bool(profile.size.uninitialized)


def _unknown_reason(limit: Limit, profile: Profile) -> str:
    if limit.metric == "capacity" and profile.capacity is not None:
        return profile.capacity.reason
    if METRICS[limit.metric].of_load:
        return "`torchgauge load` measures it"
    if METRICS[limit.metric].figure.startswith("energy"):
        return energy_reason(profile)
    if METRICS[limit.metric].of_calls:
        cell = profile.generation
        return "`torchgauge generate` measures it" if cell is None else cell.reason or cell.status
    if limit.rate_unit and profile.throughput is not None:
        return f"the input does not say how many {limit.rate_unit} it holds"
    if limit.metric in TRAINING_METRICS and not profile.target.training:
        return "only a training step has it"
    if limit.metric in ("mfu", "hfu") and profile.utilization is not None:
        return profile.utilization.reason
    if limit.metric == "device_time" and profile.latency is not None:
        return "nothing ran on a GPU"
    return "it was not measured"


def _of_level(name: str, level: Level) -> str:
    """Return why a figure of a level is unknown or has no interval, and what speaks against it."""
    if not level.count:
        return "no request was due in its steady window"
    time, _, percentile = name.partition("_")
    is_time = time in serving_figures.TIMES
    if is_time or name in serving_figures.RATES:
        estimate = serving_figures.level_estimate(level, name)
    else:
        estimate = level.errors if name == "errors" else None
    if estimate is None:
        return "" if name == "errors" else _absent(time, percentile, level)
    reasons = []
    if level.client is not None and level.client.limited:
        reasons.append("the client was too slow: it measured itself")
    if is_time and level.saturation is not None and level.saturation.saturated:
        reasons.append("saturated: times are of its window alone")
    if estimate.interval is None:
        needed = f", which takes {estimate.needed:,} requests"
        reasons.append("no interval" + (needed if estimate.needed else f": {estimate.reason}"))
    return "; ".join(reasons)


def _absent(time: str, percentile: str, level: Level) -> str:
    """Return why a level does not have a figure."""
    distribution = getattr(level, time) if time in serving_figures.TIMES else None
    if distribution is None:
        return "it takes goals (--goal)" if time == "goodput" else "no request of this level has it"
    if distribution.count * (1 - serving_figures.PERCENTILES[percentile]) >= 1 - 1e-9:
        return "it lies among the requests that ended without it"
    return f"{distribution.count:,} {'gaps' if time == 'itl' else 'requests'} are too few for it"


def energy_reason(profile: Profile) -> str:
    """Return why the energy of a call, or of a token, is not known."""
    if profile.energy is None:
        return "--energy measures it"
    return profile.energy.reason or "the inputs do not say how many tokens they hold"


def _without_interval(limit: Limit, profile: Profile) -> str:
    """Return why a figure has no interval; of a percentile also what ended the sampling."""
    if limit.metric == "capacity" and profile.capacity is not None:
        return "" if profile.capacity.interval is not None else profile.capacity.reason
    timing = profile.latency
    if timing is None or METRICS[limit.metric].kind != "timing":
        return ""
    if limit.metric in ("latency", "p50", "throughput") and timing.interval is None:
        return f"no interval, {timing.interval_method.removeprefix('none: ')}"
    if limit.metric not in PERCENTILES:
        return ""
    if timing.percentile_intervals.get(limit.metric) is not None:
        return ""
    # Needs NumPy, which the command line does not load to read limits.
    from torchgauge.analyze.statistics.autocorrelation import independent_samples

    share = PERCENTILES[limit.metric]
    worth = sum(independent_samples(run.steady_samples, share) for run in timing.processes)
    needed = samples_needed(share)
    if worth >= needed:
        return f"no interval, a process has too few of its samples ({timing.stop})"
    return f"{worth:.0f} independent samples of the {needed} needed ({timing.stop})"
