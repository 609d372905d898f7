"""The report of a generation: figures by shape, what a step consists of, fits in words."""

import io

import msgspec
import pytest
import rich.console
from tests.support import generations

from torchgauge.records.generation.cell import Coefficient
from torchgauge.records.record import Interval
from torchgauge.report import kinds
from torchgauge.report.console.console import render, view
from torchgauge.report.content.document import Facts, Table
from torchgauge.report.content.generation import generation_words as words

GRID = generations.grid()


def table(record, title):
    """What a table's rows say by column, by name."""
    blocks = kinds.document(record).blocks
    shown = next(b for b in blocks if isinstance(b, Table) and b.title == title)
    return {
        row.name: {
            column.key: column.text(row) for column in shown.columns if column.key in row.cells
        }
        for row in shown.rows
    }


def facts(record, title):
    document = kinds.document(record)
    blocks = (*document.blocks, *document.conclusion)
    shown = next(b for b in blocks if isinstance(b, Facts) and b.title == title)
    return {label: str(text) for label, text in shown.pairs}


def test_a_shape_has_first_token_later_ones_and_rate_with_intervals():
    cells = table(GRID, "Shapes")["batch 1, prompt 128"]
    first = generations.prefill_seconds(1, 128) + generations.gap_seconds(1) + 1e-3
    assert cells["TTFT"] == f"{1e3 * first:.1f} ms"
    later = generations.step_seconds(1, 135) + generations.gap_seconds(1)
    assert cells["TPOT"] == f"{1e3 * later:.2f} ms"
    assert cells["tokens/s"] == f"{16 / (first + 15 * later):.1f}"
    interval, value = GRID.cells[0].ttft.interval, GRID.cells[0].ttft.value
    assert cells["± TTFT"] == f"{100 * (interval.high - interval.low) / 2 / value:.1f} %"


def test_a_shape_without_figures_says_how_it_ended():
    assert table(GRID, "Shapes")["batch 4, prompt 1,024"] == {"TTFT": "out of memory"}
    reasons = facts(GRID, "Without figures")
    assert reasons == {"batch 4, prompt 1,024": GRID.cells[3].reason}
    assert "batch 4, prompt 1,024" not in table(GRID, "Decode step")


def test_a_step_is_its_forward_and_the_time_between():
    cells = table(GRID, "Decode step")["batch 4, prompt 128"]
    forward, between = generations.step_seconds(4, 135), generations.gap_seconds(4)
    assert cells["forward"] == f"{1e3 * forward:.1f} ms"
    assert cells["between"] == f"{1e3 * between:.2f} ms"
    assert cells["share"] == f"{100 * between / (forward + between):.1f} %"
    assert (cells["bound by"], cells["reached"]) == ("memory", "47 %")
    assert table(GRID, "Prefill")["batch 4, prompt 128"]["bound by"] == "compute"


def test_work_that_lacks_operators_reaches_at_least_so_much():
    cell = GRID.cells[0]
    work = [msgspec.structs.replace(stage, at_least=True) for stage in cell.work]
    record = generations.generation([msgspec.structs.replace(cell, work=tuple(work))])
    assert table(record, "Decode step")["batch 1, prompt 128"]["reached"] == "≥ 60 %"


def test_kinds_of_cache_have_headings_only_where_they_differ():
    names = list(table(generations.by_cache(), "Shapes"))
    assert names == ["dynamic cache", "batch 2, prompt 128", "static cache", "no cache"]
    assert next(iter(table(GRID, "Shapes"))) == "batch 1, prompt 128"


def test_a_cache_that_holds_more_than_is_used_says_why():
    label = "batch 2, prompt 128, static cache"
    assert facts(generations.by_cache(), "Cache") == {
        label: "10.5 MB held, 2.34 MB used: It has room for 640 positions."
    }


def test_fits_are_said_in_words():
    prefill, decode = map(words.fit, GRID.fits)
    assert prefill.text == "5.00 ms + 450 µs per token + 100 µs per 1,000 attended positions"
    assert decode.text == "8.80 ms + 950 µs per sequence + 500 µs per 1,000 cached positions"
    assert decode.detail == "  ±3.0 %, 3.0 %, 3.0 %"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"per_token": Coefficient(value=0.0)}, "8.80 ms + 500 µs per 1,000 cached positions"),
        (
            {"per_token": Coefficient(value=-1e-4)},
            "8.80 ms − 100 µs per sequence + 500 µs per 1,000",
        ),
        (
            {"cache_kind": "none"},
            "8.80 ms + 950 µs per token + 500 µs per 1,000 attended positions",
        ),
        ({"reason": "two shapes"}, "cached positions  ±3.0 %, 3.0 %, 3.0 %; two shapes"),
    ],
)
def test_what_a_fit_lacks_is_left_out(changes, text):
    assert text in str(words.fit(msgspec.structs.replace(GRID.fits[1], **changes)))


def test_predictions_are_marked_as_estimated():
    blocks = kinds.document(GRID).blocks
    predicted = next(b for b in blocks if isinstance(b, Table) and b.title == "Predicted")
    assert predicted.how == "estimated"
    assert predicted.notes[-1] == "Outside of what was measured: batch 8, prompt 4,096."
    bare = generations.generation([], predictions=(generations.prediction(8, 128, bounded=False),))
    cells = table(bare, "Predicted")["batch 8, prompt 128"]
    assert cells["TPOT"] == f"{1e3 * (8e-3 + 8 * 9e-4 + 8 * 136 * 5e-7 + 1.2e-3):.1f} ms"
    assert "± TTFT" not in cells


def test_the_largest_batch_says_what_was_seen():
    text = facts(GRID, "Memory")["largest batch"]
    assert text.startswith("1,505 of 1,040 positions fit into 16.0 GB, estimated from")
    assert text.endswith("1 measured, 4 ran out of memory")


def test_an_assistant_says_how_many_tokens_a_step_adds():
    text = facts(generations.assisted((3, 1, 4, 2, 4)), "Assistant")["batch 1, prompt 128"]
    assert "a step adds 2.80 tokens on average and computes 5.00" in text
    call = generations.assisted().cells[0].calls[0]
    assert f"takes {100 * 20 * 2e-3 / call.duration:.0f} % of a call" in text


def test_in_short_is_over_all_shapes():
    pairs = facts(GRID, "In short")
    assert pairs["first token"] == "65.3 … 520 ms"
    assert pairs["tokens/s"] == "up to 148  at batch 4, prompt 128"
    assert pairs["decode step"] == "bound by memory  at 47 … 61 % of the bound"
    assert facts(generations.single(), "In short")["tokens/s"] == "75.3"


def test_without_times_nothing_is_claimed():
    text = render(generations.without_times())
    assert "In short" not in text
    assert " 0 " not in text
    assert "interrupted" in text
    assert text.rstrip().endswith("Interrupted before its end.")


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_has_room_for_the_intervals(width):
    console = rich.console.Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view(GRID, width=width))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    header = next(line.split() for line in lines if "TTFT" in line)
    assert header[:5] == ["TTFT", "±", "TPOT", "±", "tokens/s"]


def test_an_interval_of_nothing_has_no_share():
    assert words.share_of(None, 1.0) == ""
    assert words.share_of(Interval(low=-1.0, high=1.0), 0.0) == ""
