"""Markdown as a reader of CommonMark with tables sees it."""

import pytest
from tests.support import exported_records as records
from tests.support.markdown_reader import PLAIN, tables, without_markup

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.timeline.tree_row import TreeRow


def test_figures_come_with_interval_and_kind():
    figures, _ = tables(records.profile().to_markdown())
    assert figures[0] == ["", "figure", "", "how"]
    assert figures[1] == [
        "Latency, median", "10.00 ms", "95 % in 9.900 … 10.10 ms (±1.0 %)", "measured",
    ]  # fmt: skip
    kinds = {row[0]: row[3] for row in figures[1:]}
    assert kinds["Size, parameters"] == "counted"
    assert kinds["Memory of a step (inference), peak"] == "measured"


def test_layers_come_by_their_own_time_and_add_up():
    _, layers = tables(records.profile().to_markdown())
    assert layers[0] == ["layer", "class", "calls", "own time", "share", "own FLOPs"]
    assert layers[1] == ["body.0", "Conv2d", "1", "130 ns", "63.4 %", "2,000"]
    assert layers[2] == [PLAIN, "Linear", "2", "60.0 ns", "29.3 %", "1,000"]
    assert [row[0] for row in layers[3:]] == ["Net", "outside the model"]
    assert sum(float(row[4].split()[0]) for row in layers[1:]) == pytest.approx(100, abs=0.2)


def test_on_a_gpu_it_is_the_gpus_time():
    text = records.profile(gpu=True).to_markdown()
    assert "time on the device" in text
    assert tables(text)[1][1][3:5] == ["700 ns", "100.0 %"]


def test_only_the_first_layers_are_shown():
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0)]
    rows += [
        TreeRow(name=f"l{n}", kind="layer", parent=0, calls=1, path=f"l{n}", host=100 + n)
        for n in range(14)
    ]
    text = records.profile(tree=Tree(rows=tuple(rows))).to_markdown()
    assert [row[0] for row in tables(text)[1][1:]] == [f"l{n}" for n in range(13, 3, -1)]
    assert "… 4 others" in text


@pytest.mark.parametrize("kind", records.every())
def test_no_name_is_markup(kind):
    warning = MeasurementWarning(id="odd", message=records.ODD, probe="latency")
    record = records.every()[kind]
    text = record.to_markdown()
    if kind == "profile":
        text = records.profile(target=records.target(name=records.ODD), warnings=(warning,))
        text = text.to_markdown()
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
        TreeRow(name="x", kind="layer", parent=0, calls=1, path="x" * 5000, host=1)
        for _ in range(1000)
    ]
    text = records.profile(tree=Tree(rows=tuple(rows))).to_markdown()
    assert len(text) < 10_000
    assert "…" in tables(text)[1][1][0]


def test_work_without_formula_is_at_least_so_much():
    figures, layers = tables(records.count().to_markdown())
    assert {row[0]: row[1] for row in figures}["Cost, FLOPs"] == "at least 608"
    assert layers[1][:3] == [PLAIN, "Linear", "≥ 600"]


def test_ranks_say_who_waits_for_whom():
    (table,) = tables(records.ranks().to_markdown())
    assert table[2] == ["1", "10.00 ms", "10.00 ms", "0 s", "3.000 ms"]
    assert "Rank 1 is the straggler" in records.ranks().to_markdown()
