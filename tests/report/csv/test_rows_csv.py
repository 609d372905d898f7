"""Load as rows and as OpenMetrics: every level with its figures, every request, none made up."""

import csv
import io

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support import records, servings

from torchgauge.errors import InputError
from torchgauge.records.headline.figure import level_figures
from torchgauge.records.serving.level import Sending
from torchgauge.records.serving.requests import FATES
from torchgauge.report.csv.rows_csv import LOAD

FOUND = servings.capacity_found()


def rows(record, **options):
    return list(csv.DictReader(io.StringIO(record.to_csv(**options))))


def test_every_level_is_a_row_with_its_figures():
    first, *_, last = rows(FOUND)
    level = FOUND.levels[0]
    assert (first["level"], first["rate"], first["arrivals"]) == ("25 requests/s", "25", "poisson")
    assert float(first["latency_p50_s"]) == level.latency.percentile(0.5).value
    assert float(first["completed_low_per_s"]) == level.completed.interval.low
    assert (first["latency_p99_low_s"], first["ttft_p50_s"]) == ("", "")
    assert int(first["done"]) == level.count
    assert (last["goals"], last["saturated"]) == ("missed", "True")
    assert float(last["backlog_slope_per_s"]) == FOUND.levels[3].saturation.slope


def test_every_request_is_a_row():
    listed = rows(FOUND, table="requests")
    assert len(listed) == sum(len(level.requests) for level in FOUND.levels)
    requests = FOUND.levels[0].requests
    assert float(listed[7]["last_s"]) == requests.last[7]
    assert (listed[7]["level"], listed[7]["fate"]) == ("25 requests/s", "done")
    assert "tokens_out" not in listed[0]
    failed = rows(servings.with_errors(), table="requests")[120]
    assert (failed["fate"], failed["status"], failed["last_s"]) == ("status", "503", "")


def test_tables_of_a_tree_are_refused():
    with pytest.raises(InputError) as caught:
        FOUND.to_csv(table="layers")
    assert caught.value.id == "format-unfit"


def test_requests_are_of_load_alone():
    with pytest.raises(InputError) as caught:
        records.profile().to_csv(table="requests")
    assert caught.value.id == "format-unfit"


def test_openmetrics_has_a_series_for_each_level():
    families = {f.name: f for f in text_string_to_metric_families(FOUND.to_openmetrics())}
    samples = families["torchgauge_serving_latency_p99_seconds"].samples
    assert [sample.labels["rate"] for sample in samples] == ["25", "50", "100", "150"]
    capacity = families["torchgauge_serving_capacity_per_second"].samples
    assert [sample.value for sample in capacity] == [104.0]
    assert families["torchgauge_serving_capacity_low_per_second"].samples[0].value == 100.0


def test_a_load_that_ran_twice_has_two_series():
    level = servings.capacity_found().levels[2]
    record = servings.serving([level, level])
    assert record.level_names == ("100 requests/s", "100 requests/s, again")
    families = {f.name: f for f in text_string_to_metric_families(record.to_openmetrics())}
    samples = families["torchgauge_serving_completed_per_second"].samples
    assert [sample.labels.get("again") for sample in samples] == [None, "1"]


def test_a_lower_bound_is_at_least():
    families = text_string_to_metric_families(servings.healthy().to_openmetrics())
    capacity = next(f for f in families if f.name == "torchgauge_serving_capacity_per_second")
    assert capacity.samples[0].labels["how"] == "at_least"


def test_a_summary_has_a_key_for_each_level():
    key = "serving_latency_p99_scenarioserver_arrivalspoisson_rate100_ms"
    assert FOUND.summary()[key] == 1e3 * FOUND.levels[2].latency.percentile(0.99).value


def test_a_column_is_of_one_thing():
    level = FOUND.levels[0]
    figures = {figure.name.removeprefix("serving_") for figure in level_figures(level)}
    assert not {*LOAD} & {*FATES}
    assert not {*LOAD, *FATES} & figures - {"errors", "tokens"}  # figures with a unit's suffix
    fates = {"done": level.count - 2, "timeout": 2}
    limited = msgspec.structs.replace(level, fates=fates, sending=Sending(timeout=3.0))
    (row,) = rows(servings.serving([limited]))
    assert (row["timeout_s"], row["timeout"]) == ("3", "2")


def test_what_the_server_did_is_in_every_form():
    level = FOUND.levels[3]
    row = rows(FOUND)[3]
    assert float(row["service_p99_s"]) == level.service.percentile(0.99).value
    assert float(row["latency_mean_s"]) == level.latency.mean.value
    assert float(row["machine_received_bytes_per_s"]) == pytest.approx(160_000)
    assert (row["first_saturated"], row["server_gpu_fraction"]) == ("cpu", "")
    assert float(row["server_memory_bytes"]) == 439e6
    families = {f.name: f for f in text_string_to_metric_families(FOUND.to_openmetrics())}
    shown = families["torchgauge_serving_saturated"].samples
    assert [sample.value for sample in shown] == [0, 0, 0, 1]
    wait = families["torchgauge_serving_wait_p50_seconds"].samples[3]
    assert wait.value == level.wait.percentile(0.5).value
    cores = families["torchgauge_serving_server_cores"].samples[3]
    assert cores.value == pytest.approx(4, rel=0.05)


def test_the_rule_of_mlperf_has_its_percentile():
    record = servings.single_stream()
    stopping = record.levels[0].early_stopping
    families = {f.name: f for f in text_string_to_metric_families(record.to_openmetrics())}
    (sample,) = families["torchgauge_serving_mlperf_estimate_seconds"].samples
    assert sample.value == stopping.estimate
    assert sample.labels["fraction"] == f"{stopping.fraction:g}"
