"""The page `/metrics`: what a monitor's processes have recorded, as the reader takes it."""

from __future__ import annotations

import re

from torchgauge.monitoring.monitor import Monitor
from torchgauge.report.windows import metrics_protobuf, metrics_text
from torchgauge.report.windows.families import families

_PROTOBUF = "application/vnd.google.protobuf"


def metrics_page(monitor: Monitor, accept: str = "") -> tuple[str, bytes]:
    """Return the content type and the body for the header `Accept` of a request."""
    rendered = families(monitor.totals_of_processes())
    if takes_protobuf(accept):
        return metrics_protobuf.CONTENT_TYPE, metrics_protobuf.metrics_protobuf(rendered)
    return metrics_text.CONTENT_TYPE, metrics_text.metrics_text(rendered).encode()


def takes_protobuf(accept: str) -> bool:
    """Return whether a reader prefers Prometheus' delimited protobuf to OpenMetrics text."""
    preferences = {"protobuf": 0.0, "text": 0.0}
    for choice in accept.lower().split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        if not re.fullmatch(r"[01](\.\d{0,3})?", weight):
            continue
        if media == _PROTOBUF and "encoding=delimited" in parameters:
            preferences["protobuf"] = max(preferences["protobuf"], float(weight))
        elif media == "application/openmetrics-text":
            preferences["text"] = max(preferences["text"], float(weight))
    return preferences["protobuf"] > 0 and preferences["protobuf"] >= preferences["text"]
