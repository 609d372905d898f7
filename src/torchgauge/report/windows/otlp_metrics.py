"""Windows as OpenTelemetry's metrics, without loss: their buckets are OTLP's own. Needs `otlp`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchgauge.errors import missing_extra
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import FIRST_BYTE, LATENCY, REQUEST, TOKENS, Window
from torchgauge.report.windows.families import TEXTS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

_NS = 1_000_000_000
UNITS = {"s": "s", "B": "By", "": "1"}
# The semantic conventions of generative AI, version 1.37: names by series, and their unit.
GEN_AI = {
    LATENCY: ("gen_ai.client.operation.duration", "s"),
    REQUEST: ("gen_ai.server.request.duration", "s"),
    FIRST_BYTE: ("gen_ai.server.time_to_first_token", "s"),
    TOKENS: ("gen_ai.client.token.usage", "{token}"),
}
# Labels under the names of the conventions, and what they are without such a label.
_GEN_AI_LABELS = {
    "operation": ("gen_ai.operation.name", "text_completion"),
    "provider": ("gen_ai.provider.name", "pytorch"),
    "monitor": ("gen_ai.request.model", ""),
}


def otlp_metrics(
    windows: Iterable[Window], resource: Mapping[str, str], *, gen_ai: bool = False
) -> MetricsData:
    """Return cumulative metrics of windows that begin where their process began.

    With `gen_ai` calls, requests, first bytes and tokens have the names of OpenTelemetry's
    conventions for generative AI. Raises MissingExtraError.
    """
    try:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    except ImportError as error:
        raise missing_extra("opentelemetry-sdk", "otlp", "OTLP") from error
    metrics: dict[str, Metric] = {}
    for window in windows:
        for metric in _metrics(window, gen_ai=gen_ai):
            series: Any = metrics.setdefault(metric.name, metric)
            if series is not metric:
                series.data.data_points.extend(metric.data.data_points)
    scope = ScopeMetrics(InstrumentationScope("torchgauge"), list(metrics.values()), "")
    return MetricsData([ResourceMetrics(Resource(dict(resource)), [scope], "")])


def _metrics(window: Window, *, gen_ai: bool) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        ExponentialHistogram,
        Gauge,
        Metric,
        NumberDataPoint,
        Sum,
    )

    times = int(window.begin * _NS), int(window.end * _NS)
    name, unit = f"torchgauge.{window.series}", UNITS.get(window.unit, window.unit)
    text = TEXTS.get(window.series, "")
    attributes: dict[str, Any] = dict(window.labels)
    if gen_ai and window.series in GEN_AI:
        attributes = _gen_ai_attributes(window)
    if window.last is not None:
        reading = NumberDataPoint(attributes, *times, window.last)
        yield Metric(name, text, unit, Gauge([reading]))
        return
    cumulative = AggregationTemporality.CUMULATIVE
    distribution = ExponentialHistogram([_point(window.histogram, attributes, times)], cumulative)
    if gen_ai and window.series in GEN_AI:
        yield Metric(GEN_AI[window.series][0], text, GEN_AI[window.series][1], distribution)
    else:
        yield Metric(name, text, unit, distribution)
    events = NumberDataPoint(attributes, *times, window.count)
    yield Metric(f"{name}.events", text, "1", Sum([events], cumulative, is_monotonic=True))
    errors = [
        NumberDataPoint(attributes | {"error.type": kind}, *times, number)
        for kind, number in window.errors.items()
    ]
    if errors:
        yield Metric(f"{name}.errors", text, "1", Sum(errors, cumulative, is_monotonic=True))


def _gen_ai_attributes(window: Window) -> dict[str, str]:
    attributes = {
        _GEN_AI_LABELS[name][0] if name in _GEN_AI_LABELS else name: value
        for name, value in window.labels.items()
    }
    for name, default in _GEN_AI_LABELS.values():
        attributes.setdefault(name, default)
    if window.series == TOKENS:
        attributes["gen_ai.token.type"] = attributes.pop("type", "input")
    return attributes


def _point(histogram: Histogram, attributes: dict[str, Any], times: tuple[int, int]) -> Any:
    from opentelemetry.sdk.metrics.export import Buckets, ExponentialHistogramDataPoint

    return ExponentialHistogramDataPoint(
        attributes,
        *times,
        count=histogram.count,
        sum=histogram.sum,
        scale=histogram.scale,
        zero_count=histogram.zero_count,
        positive=Buckets(histogram.offset, list(histogram.counts)),
        negative=Buckets(0, []),
        flags=0,
        min=histogram.min or 0.0,
        max=histogram.max or 0.0,
    )
