"""OpenMetrics text, read by the parsers of Prometheus's own client."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from tests.support import exported_records as records

from torchgauge.records.figures import figures


def families(record):
    return {family.name: family for family in openmetrics(record.to_openmetrics())}


@pytest.mark.parametrize("kind", records.every())
def test_every_known_figure_is_a_series_and_no_other(kind):
    record = records.every()[kind]
    known = [figure for figure in figures(record) if figure.value is not None]
    ends = [figure for figure in known if figure.interval is not None]
    found = families(record)
    values = [s.value for f in found.values() for s in f.samples]
    when = "torchgauge_run_time_seconds" in found
    assert len(values) == len(known) + 2 * len(ends) + when
    assert {figure.value for figure in known} <= set(values)


@pytest.mark.parametrize("kind", records.every())
def test_the_older_text_format_has_the_same(kind):
    text = records.every()[kind].to_openmetrics()
    new = {(s.name, *s.labels.items()): s.value for f in openmetrics(text) for s in f.samples}
    old = {(s.name, *s.labels.items()): s.value for f in prometheus(text) for s in f.samples}
    assert old == new


def test_a_figure_has_its_base_unit_its_kind_and_its_interval():
    found = families(records.profile())
    family = found["torchgauge_latency_median_seconds"]
    assert (family.type, family.unit) == ("gauge", "seconds")
    assert family.documentation == "Median time of a call."
    (sample,) = family.samples
    assert sample.value == 0.010
    assert sample.labels == {
        "target": records.ODD, "model": "Net", "device": "cpu", "precision": "fp32",
        "batch_size": "2", "how": "measured",
    }  # fmt: skip
    (low,) = found["torchgauge_latency_median_low_seconds"].samples
    (high,) = found["torchgauge_latency_median_high_seconds"].samples
    assert (low.value, high.value) == (0.0099, 0.0101)
    assert low.labels == sample.labels | {"confidence": "0.95"}
    (size,) = found["torchgauge_parameters"].samples
    assert (size.value, size.labels["how"]) == (100, "counted")


def test_units_are_those_of_the_names():
    for family in families(records.profile()).values():
        assert not family.unit or family.name.endswith("_" + family.unit)
    assert families(records.profile())["torchgauge_machine_busy_ratio"].unit == "ratio"


def test_what_is_unknown_has_no_series():
    found = families(records.profile(latency=None))
    assert not any("latency" in name for name in found)
    assert "torchgauge_memory_peak_bytes" in found


def test_ranks_are_labels():
    samples = families(records.ranks())["torchgauge_rank_work_seconds"].samples
    assert {s.labels["rank"]: s.value for s in samples} == {"0": 0.008, "1": 0.01}


def test_the_age_of_a_run_can_be_told():
    (sample,) = families(records.profile())["torchgauge_run_time_seconds"].samples
    assert sample.value == 1767323045  # 2026-01-02T03:04:05 UTC
