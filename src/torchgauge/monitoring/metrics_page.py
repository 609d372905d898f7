"""The page `/metrics`: windows of totals, in the form that its reader takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchgauge.records.monitoring.window import Window
from torchgauge.report.windows import families

_FORMS = {
    "application/vnd.google.protobuf": families.CONTENT_TYPE,
    "application/openmetrics-text": families.OPENMETRICS,
    "text/plain": families.PLAIN,
}


def metrics_page(windows: Iterable[Window], accept: str = "") -> tuple[str, bytes]:
    """Return the content type and the body for the header `Accept` of a request."""
    content_type = preferred_form(accept)
    rendered = families.families(windows)
    if content_type == families.CONTENT_TYPE:
        return content_type, families.metrics_protobuf(rendered)
    plain = content_type == families.PLAIN
    return content_type, families.metrics_text(rendered, plain=plain).encode()


def preferred_form(accept: str) -> str:
    """Return the content type that a reader prefers; Prometheus' older text if it names none.

    Protobuf is only written in its delimited encoding.
    """
    weights: dict[str, float] = {}
    for choice in accept.lower().split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        if media not in _FORMS or not re.fullmatch(r"[01](\.\d{0,3})?", weight):
            continue
        if media == "application/vnd.google.protobuf" and "encoding=delimited" not in parameters:
            continue
        weights[media] = max(weights.get(media, 0.0), float(weight))
    # Of equal ones the first of our own, which holds the most.
    chosen = max(_FORMS, key=lambda media: weights.get(media, 0.0))
    return _FORMS[chosen] if weights.get(chosen) else families.PLAIN
