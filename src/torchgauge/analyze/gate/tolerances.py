"""Tolerances, how much worse a metric may get: "latency:1%:3%", and the defaults."""

from __future__ import annotations

from torchgauge.errors import InputError
from torchgauge.quantities import fraction
from torchgauge.records.metric import Metric, metric
from torchgauge.records.verdict import Tolerance

ACCEPTED = 0.01
REFUSED = 0.03
# The metrics gated by default.
USUAL_METRICS = ("params", "flops", "memory", "latency")
# Beside these, of generations.
GENERATION_METRICS = ("ttft", "tpot", "tokens")


def default_tolerance(name: str | Metric) -> Tolerance:
    """Return the default tolerance of a metric: 1 % and 3 %, none for a counted one.

    Of a generation 5 % and 25 %: a few calls of one process do not tell less.

    Raises InputError `metric-unknown`.
    """
    gated_metric = metric(name) if isinstance(name, str) else name
    if gated_metric.of_calls:
        return Tolerance(metric=gated_metric.name, accepted=0.05, refused=0.25)
    if gated_metric.kind in ("timing", "memory"):
        return Tolerance(metric=gated_metric.name, accepted=ACCEPTED, refused=REFUSED)
    return Tolerance(metric=gated_metric.name, accepted=0.0, refused=0.0)


def parse_tolerance(text: str) -> Tolerance:
    """Return the tolerance that `text` says: "METRIC:δ0:δ1", or one value, both in percent.

    One value of a timing is δ1, what it must surely stay below; δ0 is then a third of it, as in the
    default. An exact metric has one bound: it fails above the (first) value.

    Raises InputError `metric-unknown`, `threshold-invalid` unless 0 ≤ δ0 < δ1.
    """
    name, _, values_text = text.partition(":")
    gated_metric = metric(name.strip())
    exact = gated_metric.kind != "timing"
    values = [_fraction(text, part) for part in values_text.split(":")]
    if len(values) > 2:
        raise _invalid(text, "A tolerance has two values at most.")
    if len(values) == 1 and exact:
        return Tolerance(metric=gated_metric.name, accepted=values[0], refused=values[0])
    accepted, refused = values if len(values) == 2 else (values[0] / 3, values[0])
    if not accepted < refused:
        raise _invalid(text, "The change accepted (the first) must be below the one refused.")
    return Tolerance(metric=gated_metric.name, accepted=accepted, refused=refused)


def _fraction(text: str, part: str) -> float:
    value = fraction(part)
    if value is None:
        raise _invalid(text, f"'{part}' is not a percentage.")
    if value == float("inf"):
        raise _invalid(text, f"'{part}' is too large.")
    return value


def _invalid(text: str, cause: str) -> InputError:
    return InputError(
        f"'{text}' is not a tolerance.",
        id="threshold-invalid",
        cause=cause,
        remedy="Give METRIC:ACCEPTED:REFUSED in percent, such as latency:1%:3%, or one of them.",
    )
