"""How much worse a metric may get: "latency:1%:3%", and what holds where nobody says."""

from __future__ import annotations

import re

from torchgauge.errors import InputError
from torchgauge.model.metric import Metric, metric
from torchgauge.model.verdict import Tolerance

ACCEPTED = 0.01
REFUSED = 0.03
# What is gated where nobody says.
USUAL_METRICS = ("params", "flops", "memory", "latency")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def default_tolerance(name: str | Metric) -> Tolerance:
    """Return what a metric may get worse by without a word: 1 % and 3 %, a counted one by nothing.

    Raises InputError `metric-unknown`.
    """
    found = metric(name) if isinstance(name, str) else name
    if found.kind in ("timing", "memory"):
        return Tolerance(metric=found.name, accepted=ACCEPTED, refused=REFUSED)
    return Tolerance(metric=found.name, accepted=0.0, refused=0.0)


def parse_tolerance(text: str) -> Tolerance:
    """Return the tolerance that `text` says: "METRIC:δ0:δ1", or one value, both in percent.

    One value of a timing is δ1, what it must surely stay below; δ0 is then a third of it, as in the
    default. An exact metric has one bound: it fails above the (first) value.

    Raises InputError `metric-unknown`, `threshold-invalid` unless 0 ≤ δ0 < δ1.
    """
    name, _, rest = text.partition(":")
    found = metric(name.strip())
    exact = found.kind != "timing"
    values = [_share(text, part) for part in rest.split(":")]
    if len(values) > 2:
        raise _invalid(text, "A tolerance has two values at most.")
    if len(values) == 1 and exact:
        return Tolerance(metric=found.name, accepted=values[0], refused=values[0])
    accepted, refused = values if len(values) == 2 else (values[0] / 3, values[0])
    if not accepted < refused:
        raise _invalid(text, "The change accepted (the first) must be below the one refused.")
    return Tolerance(metric=found.name, accepted=accepted, refused=refused)


def _share(text: str, part: str) -> float:
    found = _PERCENT.fullmatch(part)
    if found is None:
        raise _invalid(text, f"'{part}' is no percentage.")
    value = float(found[1])
    if value == float("inf"):
        raise _invalid(text, f"'{part}' is too large.")
    return value / 100


def _invalid(text: str, cause: str) -> InputError:
    return InputError(
        f"'{text}' is no tolerance.",
        id="threshold-invalid",
        cause=cause,
        remedy="Give METRIC:ACCEPTED:REFUSED in percent, such as latency:1%:3%, or one of them.",
    )
