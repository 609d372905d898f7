"""A generation as rows and as OpenMetrics: every shape with its figures, none made up."""

import csv
import io

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support import generations

GRID = generations.grid()


def rows(record, **options):
    return list(csv.DictReader(io.StringIO(record.to_csv(**options))))


def test_every_shape_is_a_row_with_its_figures():
    first, *_, ended = rows(GRID)
    cell = GRID.cells[0]
    assert (first["batch"], first["prompt"], first["new"], first["cache"]) == (
        "1", "128", "16", "dynamic",
    )  # fmt: skip
    assert float(first["ttft_s"]) == cell.ttft.value
    assert float(first["tpot_low_s"]) == cell.tpot.interval.low
    assert float(first["tokens_high_per_s"]) == cell.tokens_per_second.interval.high
    assert int(first["cache_held_bytes"]) == cell.cache.held == generations.POSITION * 143
    assert int(first["decode_bytes"]) == cell.work_of("decode").bytes
    assert (ended["status"], ended["ttft_s"], ended["cache_held_bytes"]) == (
        "out of memory",
        "",
        "",
    )


def test_tables_of_the_trees_name_the_stage():
    layers = rows(GRID, table="layers")
    assert {row["stage"] for row in layers} == {"prefill", "decode"}
    operators = rows(GRID, table="operators")
    assert len(operators) == 4


def test_openmetrics_has_a_series_for_each_measured_shape():
    families = {f.name: f for f in text_string_to_metric_families(GRID.to_openmetrics())}
    samples = families["torchgauge_generation_ttft_seconds"].samples
    assert [(s.labels["batch"], s.labels["prompt"], s.labels["cache"]) for s in samples] == [
        ("1", "128", "dynamic"), ("1", "1024", "dynamic"), ("4", "128", "dynamic"),
    ]  # fmt: skip
    assert [s.value for s in samples] == [cell.ttft.value for cell in GRID.done]
    assert (
        families["torchgauge_generation_tokens_per_second"].samples[0].labels["how"] == "measured"
    )


def test_a_summary_has_a_key_for_each_shape():
    row = GRID.summary()
    assert row["generation_tpot_batch4_prompt128_new16_beams1_cachedynamic_ms"] == (
        1e3 * GRID.cells[2].tpot.value
    )
