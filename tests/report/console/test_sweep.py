"""A sweep as text, Markdown, CSV and data for the page: the same facts, at any width."""

import csv
import io

import msgspec
import pytest
from rich.console import Console
from tests.support import records
from tests.support.exported_records import ODD
from tests.support.markdown_reader import tables
from tests.support.sweeps import cell, sweep

from torchgauge.records.record import MeasurementWarning
from torchgauge.report.console.console import view
from torchgauge.report.page import page_sweep


def lines(found, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(view(found, width=width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_and_says_what_there_is(width):
    text = lines(sweep(constraints="latency<5ms"), width)
    assert max(map(len, text)) <= width
    whole = "\n".join(text)
    assert "  grid           batch 1, 2, 4, 8, 16 × precision fp32, bf16" in whole
    assert "5 done, 1 crashed, 1 out of memory, 1 skipped" in whole
    assert "Best where latency<5ms" in whole
    row = next(line for line in text if "2.00 ms" in line)
    expected = ["batch", "1", "2.00", "ms", "1.0", "%", "500", "1.00", "kB", "4.00", "ms"]
    assert row.split() == [*expected, "◆", "★"]


def test_ends_without_figures_are_grouped_by_their_reason():
    text = "\n".join(lines(sweep(), 120))
    assert "  crashed        bf16, batch 4: killed by SIGABRT" in text
    assert "  out of memory  fp32, batch 8: 64 GB were requested" in text
    assert "  skipped        fp32, batch 16: batch 8 ran out of memory" in text


def test_the_fit_is_told_in_words():
    text = "\n".join(lines(sweep(), 120))
    # fp32: 3, 4 and 6 ms at 1, 2 and 4 are 2 ms + 1 ms × batch; memory is 2 kB + 1 kB × batch.
    assert "  latency        2.00 ms (±" in text
    assert "+ 1.00 ms (±" in text
    assert "  memory         2.00 kB + 1.00 kB per sample" in text
    assert (
        "  fits           up to batch 8 into 10.0 kB, estimated, batch 8 ran out of memory" in text
    )
    assert "no line proven: two batches always lie on a line" in text


def test_what_is_the_same_in_every_cell_is_not_repeated():
    found = sweep([cell(1, precision="bf16", threads=1), cell(2, precision="bf16", threads=1)])
    text = "\n".join(lines(found, 80))
    assert "1 thread" not in text
    eager = sweep([cell(2, compile="none", channels_last=last) for last in (True, False)])
    assert "  channels last  " in "\n".join(lines(eager, 80))
    assert "as given" in "\n".join(lines(sweep([cell()], axes={}), 80))


def test_unknown_is_said_and_never_nought():
    text = "\n".join(lines(sweep([cell(1, memory=None)]), 80))
    assert "unknown" in text
    assert "memory         no cell is known" in text


def test_markdown_has_a_row_for_each_cell():
    text = sweep().to_markdown()
    (rows,) = tables(text)
    assert [row[0] for row in rows[1:]] == [
        "fp32", *(f"batch {size}" for size in (1, 2, 4, 8, 16)),
        "bf16", *(f"batch {size}" for size in (1, 2, 4)),
    ]  # fmt: skip
    assert rows[8] == ["batch 1", "2.00 ms", "1.0 %", "500", "1.00 kB", "4.00 ms", "◆ ★"]
    assert rows[10] == ["batch 4", *[""] * 5, "crashed"]
    assert "- latency: batch 1, bf16: 2.00 ms, 95 % in 1.980 … 2.020 ms" in text
    assert "**Scaling with the batch** (estimated)\n\n**fp32**" in text


def test_no_cell_is_the_best_where_intervals_overlap():
    close = sweep([cell(1, 0.0100, 2000), cell(2, 0.0101, 1000), cell(4, 0.0300, 3000)])
    text = "\n".join(lines(close, 200))
    assert (
        "  latency        not distinguishable: batch 1: 10.0 ms, 95 % in 9.900 … 10.10 ms; "
        "batch 2: 10.1 ms, 95 % in 9.999 … 10.20 ms\n" in text
    )
    rows = {line.strip()[:7]: line.split()[-3:] for line in text.splitlines() if "kB" in line}
    assert rows["batch 1"][-2:] == ["◆", "≈"]
    assert rows["batch 2"] == ["◆", "★", "≈"]
    assert "≈ not distinguishable from the best" in text
    assert "not distinguishable: batch 1: 10.0 ms" in close.to_markdown()
    by_cell = list(csv.DictReader(io.StringIO(close.to_csv())))
    assert [row["best"] for row in by_cell] == ["", "throughput, memory", ""]
    tied = [row["not_distinguishable_from_best"] for row in by_cell]
    assert tied == ["latency", "latency", ""]
    on_page = page_sweep.cells(close)["rows"]
    assert [row["best"] for row in on_page] == [[], ["throughput", "memory"], []]
    assert [row["tied"] for row in on_page] == [["latency"], ["latency"], []]


def test_a_best_cell_of_unknown_interval_is_not_marked():
    text = "\n".join(lines(sweep([cell(1, 0.010, 1000, error=None), cell(2, 0.030, 900)]), 200))
    assert "  latency        batch 1: 10.0 ms, its interval is unknown" in text
    (row,) = [line for line in text.splitlines() if line.startswith("  batch 1")]
    assert row.split()[-1] == "◆"
    unbounded = sweep([cell(1, 0.010, 1000, error=None), cell(2, 0.030, 900)])
    assert page_sweep.cells(unbounded)["rows"][0]["best"] == []


def test_percentiles_of_too_few_samples_are_not_shown():
    known, unknown = cell(1, 0.01, p99=0.02), cell(2, 0.01)
    text = "\n".join(lines(sweep([known, unknown]), 120))
    (first, second) = [line for line in text.splitlines() if line.startswith("  batch")]
    assert "20.0 ms" in first
    assert second.count(" ms") == 2  # the median and the first call
    assert " p99 " not in "\n".join(lines(sweep([unknown]), 120))
    rows = list(csv.DictReader(io.StringIO(sweep([known, unknown]).to_csv())))
    assert [row["latency_p99_s"] for row in rows] == ["0.02", ""]
    on_page = page_sweep.cells(sweep([known, unknown]))["rows"]
    assert [row["p99"] for row in on_page] == [20_000_000, None]


def test_the_warnings_of_cells_are_listed_and_those_of_the_best_named():
    warned = [
        msgspec.structs.replace(
            cell(batch, 0.01 * batch, 1000 * batch),
            warnings=(MeasurementWarning(id="other-load", message=f"{batch} others ran."),),
        )
        for batch in (1, 2)
    ]
    found = sweep([*warned, cell(4, 0.09, 9000)])
    text = "\n".join(lines(found, 120))
    assert "  other-load     batches 1, 2: 1 others ran. (of the first)" in text
    assert "9.900 … 10.10 ms, with the warning other-load" in text
    (first, second, third) = [line for line in text.splitlines() if line.startswith("  batch ")]
    assert [line.split()[-1] for line in (first, second)] == ["!", "!"]
    assert "!" not in third
    assert "**Warnings of cells**" in found.to_markdown()


def test_csv_has_all_figures_in_si_units():
    rows = list(csv.DictReader(io.StringIO(sweep().to_csv())))
    assert len(rows) == 8
    assert float(rows[0]["latency_median_s"]) == 0.003
    assert (rows[0]["batch"], rows[0]["precision"], rows[0]["threads"]) == ("1", "fp32", "")
    assert float(rows[1]["throughput_samples_per_s"]) == 500
    assert rows[1]["best"] == "latency, memory"
    assert (rows[5]["status"], rows[5]["latency_median_s"]) == ("crashed", "")


def test_the_page_gets_plain_data_that_adds_up():
    found = sweep()
    data = msgspec.json.decode(
        msgspec.json.encode(
            {
                "overview": page_sweep.overview(found),
                "cells": page_sweep.cells(found),
                "pareto": page_sweep.pareto(found),
                "scaling": page_sweep.scaling(found),
            }
        )
    )
    rows = data["cells"]["rows"]
    assert data["cells"]["axes"] == ["batch", "precision"]
    assert [row["median"] for row in rows[:3]] == [3_000_000, 2_000_000, 4_000_000]
    assert rows[5]["median"] is None
    assert [rows[place]["front"] for place in data["pareto"]["cells"]] == [True] * 2
    assert sum(row["front"] for row in rows) == 2
    assert data["pareto"]["cells"] == [1, 3]
    fit = data["scaling"][0]["latency"]
    assert fit["points"] == [[1, 3e6], [2, 4e6], [4, 6e6]]
    assert fit["line"][0][:2] == [1, pytest.approx(3e6)]
    assert fit["line"][-1][:2] == [8, pytest.approx(10e6)]
    assert fit["line"][0][2] < 3e6 < fit["line"][0][3]
    assert data["scaling"][1]["latency"]["line"][0][2:] == [None, None]
    card = data["overview"]["figures"][1]
    assert card["value"] == "667 samples/s"  # which a card sets large; what else is said is a note
    assert card["note"].startswith("not distinguishable: batch 2, bf16: 667 samples/s, 95 % in ")
    empty = sweep([cell(1)])
    assert page_sweep.scaling(empty) is None


def test_names_command_no_terminal():
    odd = msgspec.structs.replace(
        sweep(), target=msgspec.structs.replace(sweep().target, name=ODD, spec=ODD),
        constraints=ODD, environment=records.environment(),
    )  # fmt: skip
    for text in ("\n".join(lines(odd, 80)), odd.to_markdown()):
        assert "\u202e" not in text
        assert "\r" not in text
