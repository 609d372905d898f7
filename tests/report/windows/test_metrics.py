"""Windows as metrics: Prometheus' own parser takes the text, protobuf's own the messages."""

import pytest
from tests.support.histograms import histogram_of

from torchgauge.monitoring.metrics_page import preferred_form
from torchgauge.records.monitoring.window import Window
from torchgauge.report.windows.families import families, metrics_protobuf, metrics_text

HOSTILE = 'a"b\\c\nd{e}=,é'


def windows():
    return [
        Window(
            series="latency",
            labels={"monitor": "net", "function": HOSTILE},
            begin=0.0,
            end=1.0,
            count=7,
            histogram=histogram_of([0.0, 0.25, 0.252, 0.3, 2.0]),
            errors={"ValueError": 2},
        ),
        Window(series="latency", labels={"monitor": "other"}, begin=0.0, end=1.0),
        Window(
            series="tokens",
            unit="",
            labels={"monitor": "net"},
            begin=0.0,
            end=1.0,
            count=1,
            histogram=histogram_of([7.0]),
        ),
        Window(series="memory", unit="B", labels={"kind": "r"}, begin=0.0, end=1.0, last=5e6),
        # Names that a hostile file may have: they become what readers take, each once.
        Window(series="1 bad\n#name", labels={"le": "x", "0 b": "y"}, begin=0.0, end=1.0),
        Window(series="1_bad__name", labels={"le": "x", "0 b": "y"}, begin=0.0, end=1.0),
    ]


def test_the_text_is_what_prometheus_parses():
    pytest.importorskip("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    parsed = {
        family.name: family
        for family in text_string_to_metric_families(metrics_text(families(windows())))
    }
    assert set(parsed) == {
        *(f"torchgauge_latency_{kind}" for kind in ("seconds", "events", "errors")),
        *("torchgauge_tokens", "torchgauge_tokens_events", "torchgauge_memory_bytes"),
        *("torchgauge__1_bad__name_seconds", "torchgauge__1_bad__name_events"),
    }
    latency = parsed["torchgauge_latency_seconds"]
    assert (latency.type, latency.unit) == ("histogram", "seconds")
    samples = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
        for sample in latency.samples
        if sample.labels["monitor"] == "net"
    }
    # 2 ** -2 is a bound: 0 and 0.25 do not exceed it, 0.252 is in the bucket above it.
    assert (samples["bucket", "0.25"], samples["bucket", "0.5"]) == (2, 4)
    assert (samples["bucket", "1.0"], samples["bucket", "2.0"]) == (4, 5)
    assert samples["bucket", "+Inf"] == samples["count", None] == 5
    assert samples["sum", None] == pytest.approx(2.802)
    assert {sample.labels.get("function") for sample in latency.samples} == {HOSTILE, None}
    (errors,) = parsed["torchgauge_latency_errors"].samples
    assert (errors.labels["kind"], errors.value) == ("ValueError", 2)
    assert parsed["torchgauge_memory_bytes"].samples[0].value == 5e6


def test_the_protobuf_has_native_histograms_without_loss():
    decoded = {family.name: family for family in decoded_families(windows())}
    latency = decoded["torchgauge_latency_seconds"]
    assert (latency.type, latency.unit, len(latency.metric)) == (4, "seconds", 2)
    metric = next(one for one in latency.metric if one.histogram.sample_count)
    histogram = metric.histogram
    assert {pair.name: pair.value for pair in metric.label} == {
        "function": HOSTILE,
        "monitor": "net",
    }
    assert (histogram.sample_count, histogram.zero_count, histogram.schema) == (5, 1, 5)
    # By hand: 0.25 = 2 ** -2 ends bucket -64 of Prometheus, 2 ends its bucket 32.
    index, counts, deltas = 0, {}, iter(histogram.positive_delta)
    count = 0
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            counts[index] = count
            index += 1
    assert counts == {-64: 1, -63: 1, -55: 1, 32: 1}
    (empty,) = (one.histogram for one in latency.metric if not one.histogram.sample_count)
    assert empty.zero_threshold > 0
    assert decoded["torchgauge_latency_errors_total"].metric[0].counter.value == 2
    assert decoded["torchgauge_memory_bytes"].metric[0].gauge.value == 5e6


def decoded_families(windows):
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.internal.decoder import _DecodeVarint32

    kinds = {"u": 4, "d": 1, "s": 9, "z": 18, "t": 17, "e": 13, "m": 11}
    messages = {
        "LabelPair": "1s name,2s value",
        "Value": "1d value",
        "Bucket": "1u cumulative_count,2d upper_bound",
        "Span": "1t offset,2e length",
        "Histogram": "1u sample_count,2d sample_sum,*3m bucket Bucket,5t schema,"
        "6d zero_threshold,7u zero_count,*12m positive_span Span,*13z positive_delta",
        "Metric": "*1m label LabelPair,2m gauge Value,3m counter Value,7m histogram Histogram",
        "Family": "1s name,2s help,3e type,*4m metric Metric,5s unit",
    }
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="p", syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields.split(","):
            repeated, field = field.startswith("*"), field.lstrip("*")
            head, label, *kind = field.split()
            message.field.add(
                name=label,
                number=int(head[:-1]),
                type=kinds[head[-1]],
                label=3 if repeated else 1,
                type_name=f".p.{kind[0]}" if kind else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    family = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Family"))
    data, position = metrics_protobuf(families(windows)), 0
    while position < len(data):
        length, position = _DecodeVarint32(data, position)
        yield family.FromString(data[position : position + length])
        position += length


def test_the_older_text_is_the_same_with_names_of_its_own():
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    text = metrics_text(families(windows()), plain=True)
    parsed = {family.name: family for family in text_string_to_metric_families(text)}
    assert "# TYPE torchgauge_latency_errors_total counter" in text
    assert (parsed["torchgauge_latency_errors"].type, "EOF" in text) == ("counter", False)
    samples = parsed["torchgauge_latency_seconds"].samples
    assert sum(s.value for s in samples if s.name.endswith("_count")) == 5


PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/html, application/openmetrics-text;version=1.0.0;q=0.5", "application/openmetrics"),
        (
            f"{PROTOBUF};encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/vnd",
        ),
        (f"{PROTOBUF};encoding=delimited;q=0.3,text/plain;q=0.8", "text/plain"),
        (f"{PROTOBUF};encoding=text", "text/plain"),
        (f"{PROTOBUF};encoding=delimited;q=nonsense", "text/plain"),
        (f"{PROTOBUF};encoding=delimited;q=0", "text/plain"),
    ],
)
def test_the_reader_chooses_the_form(accept, form):
    assert preferred_form(accept).startswith(form)
