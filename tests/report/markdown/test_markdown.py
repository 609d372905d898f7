"""Markdown as a reader of CommonMark with tables sees it."""

import msgspec
import pytest
from tests.support import exported_records as records
from tests.support.markdown_reader import PLAIN, tables, without_markup

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree


def test_figures_come_with_interval_and_kind():
    figures, *_ = tables(records.profile().to_markdown())
    assert figures[0] == ["", "figure", "", "how"]
    assert figures[3] == [
        "Latency, median", "10.00 ms", "95 % in 9.900 … 10.10 ms (±1.0 %)", "measured",
    ]  # fmt: skip
    kinds = {row[0]: row[3] for row in figures[1:]}
    assert kinds["Size, parameters"] == "counted"
    assert kinds["Memory of a step (inference), peak"] == "measured"


def test_layers_come_as_they_are_called_and_add_up():
    _, layers, *_ = tables(records.profile().to_markdown())
    assert layers[0] == [
        "layer", "type", "calls", "time", "self", "share", "FLOPs", "FLOP/s", "B/s"
    ]  # fmt: skip
    assert layers[1][:7] == ["Net", "", "1", "205 ns", "10.0 ns", "100.0 %", "3,000"]
    assert layers[2][:7] == ["0 Conv2d", "", "1", "130 ns", "130 ns", "63.4 %", "2,000"]
    assert layers[3][:7] == ["odd", "Linear", "2", "60.0 ns", "60.0 ns", "29.3 %", "1,000"]
    assert layers[4] == ["outside the model", "", "", "5.00 ns", "", "2.4 %", "", "", ""]
    own = [row[4] or row[3] for row in layers[1:]]
    assert sum(float(time.split()[0]) for time in own) == pytest.approx(205)


def test_on_a_gpu_it_is_the_gpus_time():
    text = records.profile(gpu=True).to_markdown()
    layers = [dict(zip(tables(text)[1][0], row, strict=True)) for row in tables(text)[1]]
    assert [row["time"] for row in layers[1:]] == ["700 ns", "–", "700 ns", "–"]
    assert [row["host"] for row in layers[1:]] == ["205 ns", "130 ns", "60.0 ns", "5.00 ns"]
    assert [row["share"] for row in layers[1:]] == ["100.0 %", "–", "100.0 %", "–"]


def test_only_the_layers_that_take_most_are_shown():
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0)]
    rows += [
        TreeRow(name=f"l{n}", kind="layer", parent=0, calls=1, type=f"T{n}", host=100 + n)
        for n in range(14)
    ]
    text = records.profile(tree=Tree(rows=tuple(rows))).to_markdown()
    assert [row[0] for row in tables(text)[1][1:]] == ["Net", *(f"l{n}" for n in range(5, 14))]
    assert "… 5 others" in text


@pytest.mark.parametrize("kind", records.every())
def test_no_name_is_markup(kind):
    warning = MeasurementWarning(id="odd", message=records.ODD, probe="latency")
    record = records.every()[kind]
    if kind == "profile":
        record = records.profile(warnings=(warning,))
    if kind == "loop":
        rows = [msgspec.structs.replace(row, name=records.ODD) for row in record.tree.rows]
        record = msgspec.structs.replace(record, tree=Tree(rows=tuple(rows)))
    elif kind == "training run":
        record = msgspec.structs.replace(record, model=records.ODD)
    elif kind != "ranks":
        target = msgspec.structs.replace(record.target, name=records.ODD)
        record = msgspec.structs.replace(record, target=target)
    text = record.to_markdown()
    inline = without_markup(text)
    if kind != "ranks":
        names = [one.content for one in inline if one.type == "code_inline"]
        assert PLAIN in [name.replace("\\|", "|") for name in names]  # a bar ends a cell in code


def test_every_row_has_as_many_cells_as_the_header():
    for record in records.every().values():
        for table in tables(record.to_markdown()):
            assert {len(row) for row in table} == {len(table[0])}


def test_it_fits_a_comment():
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0)]
    rows += [
        TreeRow(name=f"{n}{'x' * 5000}", kind="layer", parent=0, calls=1, type=f"T{n}", host=1)
        for n in range(1000)
    ]
    text = records.profile(tree=Tree(rows=tuple(rows))).to_markdown()
    assert len(text) < 10_000
    assert "…" in tables(text)[1][2][0]


def test_work_without_formula_is_at_least_so_much():
    figures, layers = tables(records.count().to_markdown())
    assert {row[0]: row[1] for row in figures}["Cost, FLOPs"] == "at least 608"
    assert layers[0][:5] == ["layer", "kind", "parameters", "MACs", "FLOPs"]
    assert layers[2][:5] == ["odd", "Linear", "100", "≥ 300", "≥ 600"]


def test_ranks_say_who_waits_for_whom():
    (table,) = tables(records.ranks().to_markdown())
    assert table[2] == ["1", "10.00 ms", "10.00 ms", "0 s", "3.000 ms"]
    assert "Rank 1 is the straggler" in records.ranks().to_markdown()
