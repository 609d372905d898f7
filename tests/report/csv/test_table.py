"""Flat tables as print and notebooks show them."""

import re

import pytest
from tests.support import exported_records as records

from torchgauge.records.timeline.quantity import quantity_of
from torchgauge.records.timeline.table import Table
from torchgauge.report.csv.table import MAX_ROWS

OPERATORS = {
    "Name": ["aten::conv2d", "aten::<b>"],
    "Self CPU %": [62.5, None],
    "Self CPU": [0.0025, 1e-6],
    "CPU Mem": [3_000_000, -4],
    "flops": [None, 0],
    "grid": [(4, 1, 1), None],
    "bytes_per_second": [None, None],
}


def lines(table):
    return [line.split() for line in str(table).splitlines()]


def test_print_shows_columns_with_units():
    heads, first, second = map(" ".join, lines(Table(OPERATORS)))
    assert heads == "Name Self CPU % Self CPU CPU Mem flops grid"
    assert first == "aten::conv2d 62.5 2.50 ms 3.00 MB 4×1×1"
    assert second == "aten::<b> 1.00 µs −4 B 0"


def test_columns_that_do_not_fit_are_named(monkeypatch):
    wide = Table({"path": ["", "a"], **{f"column {n}": ["x" * 12] * 2 for n in range(12)}})
    narrow = str(wide)
    assert "(the whole model)" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "no room for" in narrow
    assert "column 11; .columns has them" in narrow.replace("\n", " ")
    monkeypatch.setenv("COLUMNS", "220")
    assert "no room for" not in str(wide)


def test_where_there_is_little_room_figures_come_before_texts():
    table = Table({"path": ["a" * 48], "type": ["B" * 30], "calls": [1], "host_time": [0.5]})
    assert lines(table)[0] == ["path", "calls", "host_time"]
    assert lines(table)[1][1:] == ["1", "500", "ms"]


def test_many_rows_end_with_their_number():
    many = Table(
        {"Name": [f"op{n}" for n in range(MAX_ROWS + 7)], "# of Calls": [1] * (MAX_ROWS + 7)}
    )
    shown = lines(many)
    assert len(shown) == 1 + MAX_ROWS + 1
    assert shown[-1][:4] == ["…", "7", "other", "rows;"]
    assert f"op{MAX_ROWS - 1}</th>" in many._repr_html_()
    assert f"op{MAX_ROWS}</th>" not in many._repr_html_()


def test_a_notebook_shows_every_column_and_no_markup_of_names():
    html = Table(OPERATORS)._repr_html_()
    head = html.split("<thead>")[1].split("</thead>")[0]
    columns = ["Name", "Self CPU %", "Self CPU", "CPU Mem", "flops", "grid"]
    assert re.findall(r"<th[^>]*>([^<]+)</th>", head) == columns
    assert '<th scope="row">aten::&lt;b&gt;</th>' in html
    assert "<td>62.5</td>" in html


def test_a_table_without_rows_says_so():
    assert str(Table({})) == "a table without rows"
    assert "without rows" in Table({})._repr_html_()


def test_shapes_stand_behind_the_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shapes = ["[[2, 3], [3, 4], []]", "[[5, 3], [3, 4], []]"]
    table = Table({"Name": ["mm", "mm"], "Input Shapes": shapes, "# of Calls": [1, 2]})
    assert lines(table)[1:] == [["mm", "2×3,", "3×4", "1"], ["mm", "5×3,", "3×4", "2"]]


@pytest.mark.parametrize("kind", ["layers", "operators", "kernels", "categories"])
def test_every_figure_of_a_records_table_has_a_unit(kind):
    table = records.profile(gpu=True).table(kind)
    figures = {
        name for name, values in table.columns.items()
        if any(isinstance(value, float | int) for value in values)
    }  # fmt: skip
    assert figures
    assert {name for name in figures if quantity_of(name) == "text"} == set()
    assert repr(table).startswith(f"<Table: {len(table)} rows of ")
    assert len(repr(table)) <= 120
    assert str(table).splitlines()[0].startswith(next(iter(table.columns)))
