"""CSV as spreadsheets and pandas read it."""

import csv
import io

import pandas as pd
import pytest
from tests.support import exported_records as records

from torchgauge.errors import InputError
from torchgauge.report.csv.csv import FORMULA, text


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "kind", sorted({*records.every()} - {"sweep"})
)  # which has one for each cell
def test_figures_are_one_row_under_the_names_of_the_summary(kind):
    record = records.every()[kind]
    (row,) = read(record.to_csv())
    summary = record.summary()
    assert row.keys() == summary.keys()
    numbers = {name: value for name, value in summary.items() if isinstance(value, int | float)}
    assert numbers
    assert {name: float(row[name]) for name in numbers} == numbers
    unknown = [name for name, value in summary.items() if value is None]
    assert {row[name] for name in unknown} <= {""}


def test_a_figure_has_its_interval_beside_it():
    (row,) = read(records.profile().to_csv())
    names = ("latency_median_low_ms", "latency_median_ms", "latency_median_high_ms")
    assert [float(row[name]) for name in names] == pytest.approx([9.9, 10.0, 10.1])
    # 100 calls of a batch of 2 a second, the interval of which is not known.
    assert float(row["throughput_images_per_s"]) == 200
    assert row["throughput_images_low_per_s"] == ""


def test_names_come_back_and_formulas_do_not():
    (row,) = read(records.profile().to_csv())
    assert row["target"] == "'" + records.ODD
    (found,) = [r for r in read(records.profile().to_csv(table="layers")) if r["type"] == "Linear"]
    assert found["path"] == "'" + records.ODD
    assert float(found["host_time"]) == pytest.approx(60e-9)
    (counted,) = [r for r in read(records.count().to_csv(table="layers")) if r["name"] == "odd"]
    assert counted["path"] == "'" + records.ODD


@pytest.mark.parametrize("start", FORMULA)
def test_no_cell_begins_a_formula(start):
    (row,) = read(text(["name", "figure"], [[start + "cmd()", -1.5]]))
    assert row == {"name": "'" + start + "cmd()", "figure": "-1.5"}


@pytest.mark.parametrize("table", ["layers", "operators", "kernels", "categories"])
def test_tables_are_those_of_the_record_to_pandas_too(table):
    profile = records.profile(gpu=True)
    text = profile.to_csv(table=table)
    found, truth = pd.read_csv(io.StringIO(text)), profile.to_pandas(table)
    assert list(found.columns) == list(truth.columns)
    assert len(found) == len(truth) > 0
    figures = {"layers": "host_time", "operators": "Self CPU", "kernels": "device_time"}
    figure = figures.get(table, "time")
    assert found[figure].tolist() == pytest.approx(truth[figure].tolist())


def test_columns_named_percent_hold_percent():
    rows = {row["Name"]: row for row in read(records.profile().to_csv(table="operators"))}
    assert float(rows["aten::addmm"]["Self CPU %"]) == pytest.approx(100 * 40 / 205)


def test_a_launch_is_one_cell():
    (row,) = read(records.profile(gpu=True).to_csv(table="kernels"))
    assert (row["grid"], row["occupancy"]) == ("4×1×1", "")


def test_a_table_without_rows_has_a_header():
    assert records.profile().to_csv(table="kernels") == "name\n"


def test_without_a_tree_the_error_says_what_to_do():
    for record in (records.profile(tree=None), records.ranks()):
        with pytest.raises(InputError) as caught:
            record.to_csv(table="layers")
        assert caught.value.id == "no-tree"
        assert caught.value.remedy
    with pytest.raises(InputError, match="no tree"):
        records.count().to_csv(table="kernels")
