"""The columns of the table of layers: each report has those of the one list, with its values."""

import csv
import io

import pytest
from tests.support import records
from tests.support.markdown_reader import tables as markdown_tables

from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.quantity import PYTHON_COLUMNS, REPORT_COLUMNS, RepeatedLayers
from torchgauge.records.timeline.tree import Tree
from torchgauge.report.page import page_tables
from torchgauge.report.tables import tree_tables


def row(name, kind, parent, **figures):
    return TreeRow(name=name, kind=kind, parent=parent, calls=1, path=name, **figures)


@pytest.fixture
def tree():
    """Two layers on a device, 300 and 100 ns, one of them with an operator of 200 ns of it."""
    known = {"host": 10, "allocations": 64, "allocated": 32, "retained": 8, "parameters": 5}
    work = {"flops": 400, "bytes": 100, "lower_bound": 50, "bound": "memory"}
    return Tree(
        rows=(
            row("Net", "model", -1, host=1, type="Net"),
            row("0", "layer", 0, device=100, peak=70, type="Block", **known, **work),
            row("1", "layer", 0, device=100, peak=90, type="Block", **known, **work),
            row("aten::mm", "operator", 1, device=200, host=7),
        )
    )


def test_several_layers_are_one_line_of_sums_rates_and_the_largest_peak(tree):
    both = RepeatedLayers("0–1 ×2", (tree.nodes[1], tree.nodes[2]), tree.root)
    values = {column.title: column.get(both) for column in REPORT_COLUMNS}
    assert values == {
        "layer": "0", "type": "Block", "calls": 2, "time": pytest.approx(400e-9),
        "self": pytest.approx(400e-9), "share": pytest.approx(1), "host": pytest.approx(27e-9),
        "FLOPs": 800, "bytes": 200, "FLOP/s": pytest.approx(800 / 400e-9),
        "B/s": pytest.approx(200 / 400e-9), "FLOP/B": 4, "bound": "memory",
        "efficiency": pytest.approx(100 / 400), "allocated": 128, "peak": 90, "kept": 16,
        "parameters": 10,
    }  # fmt: skip


def test_a_layer_without_work_on_the_device_has_no_time_there(tree):
    rows = (*tree.rows, row("head", "layer", 0, host=5))
    lines = tree_tables.layers(Tree(rows=rows), None).rows
    (head,) = [line for line in lines if line.name == "head"]
    assert (head.cells["time"], head.cells["share"], head.cells["bar"]) == ("–", "–", 0.0)
    assert head.cells["host"] == "5.00 ns"


def test_every_report_has_the_columns_of_the_list_in_its_order(tree):
    titles = [column.title for column in REPORT_COLUMNS]
    console = tree_tables.layers(tree, None)
    (page,) = [table for table in page_tables.all_tables(tree) if table["name"] == "layers"]
    shown = [column.key for column in console.columns if not column.drawn]
    assert [console.first, *shown] == [column["title"] for column in page["columns"]] == titles
    profile = records.profile(tree=tree)
    layers = next(one for one in markdown_tables(profile.to_markdown()) if one[0][0] == "layer")
    assert [title for title in titles if title in layers[0]] == layers[0]
    (head, *_) = csv.reader(io.StringIO(profile.to_csv(table="layers")))
    keys = [column.key for column in PYTHON_COLUMNS]
    assert head == list(tables.layers(tree).columns) == keys


def test_python_and_page_have_the_same_values(tree):
    python = tables.layers(tree).columns
    (page,) = [table for table in page_tables.all_tables(tree) if table["name"] == "layers"]
    shown = {column["title"]: column for column in page["columns"]}
    for column in (column for column in REPORT_COLUMNS if column.key in python):
        values = python[column.key]
        if column.unit not in ("text", "time"):
            assert shown[column.title]["values"] == pytest.approx(values[1:], rel=1e-5)
    assert shown["time"]["values"] == [300, 100]
    assert shown["self"]["values"] == [300, 100]
