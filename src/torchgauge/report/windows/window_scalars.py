"""Windows as names and floats, for experiment trackers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchgauge.records.monitoring.window import Window
from torchgauge.report.export.openmetrics import UNITS
from torchgauge.report.export.scalars import GROUP

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def window_scalars(windows: Iterable[Window]) -> dict[str, float]:
    """Return rate, quantiles, mean and share of errors of each series that are known.

    Names are like `torchgauge/latency/p99_seconds`, with the labels between, but for the monitor's.
    """
    scalars: dict[str, float] = {}
    for window in windows:
        labels = [f"{name}={value}" for name, value in window.key[1] if name != "monitor"]
        group = "/".join((GROUP, window.series, *(re.sub(r"[^\w./ -]", "_", p) for p in labels)))
        unit = UNITS[window.unit]
        suffix = f"_{unit}" if unit else ""
        values = {f"{name}{suffix}": window.histogram.quantile(q) for name, q in QUANTILES.items()}
        values |= {f"mean{suffix}": window.histogram.mean, "per_second": window.rate}
        if window.last is not None:
            values = {f"last{suffix}": window.last}
        elif window.errors:
            values["error_share"] = window.error_share
        scalars |= {f"{group}/{name}": v for name, v in values.items() if v is not None}
    return scalars
