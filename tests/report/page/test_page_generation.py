"""The data of a generation's page: maps, points and lines, caches, parts of calls, trees."""

import json
import math

import msgspec
import pytest
from tests.support import generation_pages as generations
from tests.support.page_data import data, parts

from torchgauge.report.page.generation import page_generation
from torchgauge.report.page.html import render


@pytest.fixture(scope="module")
def grid():
    return generations.grid()


@pytest.fixture(scope="module")
def page(grid):
    return data(render(grid))


def test_the_page_has_a_part_for_each_question_and_no_part_without_an_answer(page):
    assert list(page["parts"]) == [
        "overview", "shapes", "growth", "cache", "calls", "method", "environment"
    ]  # fmt: skip
    assert parts(generations.generation())["overview"]["figures"] == []
    assert set(parts(generations.generation())) == {"overview", "method", "environment"}


def test_the_switch_of_the_trees_stands_in_their_view(page):
    choice = page["choice"]
    assert (choice["view"], choice["label"]) == ("tree", "Forward")
    assert [option["name"] for option in choice["options"]] == ["prefill", "decode step"]
    sums = [
        sum(time or 0 for time in option["parts"]["tree"]["columns"]["host"])
        for option in choice["options"]
    ]
    assert sums[0] > 2 * sums[1] > 0


def test_a_finding_leads_to_the_view_that_details_it(page):
    findings = {one["title"]: one["view"] for one in page["parts"]["overview"]["findings"]}
    views = {title: view for title, view in findings.items() if "static cache" in title}
    assert set(views.values()) == {"cache"}
    assert set(findings.values()) <= set(page["parts"])


def test_a_map_has_what_was_measured_what_failed_with_its_reason_and_what_is_estimated(page):
    dynamic, static = page["parts"]["shapes"]["maps"]
    assert (dynamic["batches"], dynamic["prompts"]) == ([1, 4, 8, 16], [128, 512, 1024, 2048, 4096])
    states = [(c["batch"], c["prompt"], c["status"], c["reason"]) for c in static["cells"][-2:]]
    assert states == [
        (16, 512, "failed", "The model raised ValueError."),
        (16, 2048, "out of memory", "4.8 GB were requested, 3.1 GB free."),
    ]
    assert all(value is None for cell in static["cells"][-2:] for value in cell["values"])
    estimated = [cell for cell in dynamic["cells"] if cell["status"] == "estimated"]
    assert [cell["reason"] for cell in estimated] == ["", "extrapolated"]
    titles = [title for title, _ in dynamic["figures"]]
    bound = titles.index("share of the bound, decode")
    assert all(cell["values"][bound] is None for cell in estimated)  # no fit says it


def test_a_map_s_times_are_those_of_the_cells_in_nanoseconds(grid, page):
    first = page["parts"]["shapes"]["maps"][0]["cells"][0]
    cell = grid.cells[0]
    assert first["values"][0] == pytest.approx(cell.ttft.value * 1e9, rel=1e-5)
    assert first["intervals"][0][0] == pytest.approx(cell.ttft.interval.low * 1e9, rel=1e-5)


def test_shapes_that_fill_no_grid_are_a_table_alone():
    sizes = [(1, 10), (2, 20), (3, 30), (4, 40)]
    sparse = generations.generation(generations.cell(*size, calls=1, warmup=0) for size in sizes)
    shapes = parts(sparse)["shapes"]
    assert shapes["maps"] == []
    assert shapes["cells"]["columns"][0]["values"] == ["1 × 10", "2 × 20", "3 × 30", "4 × 40"]
    alike = [generations.cell(1, 8, calls=1, warmup=0, new=new) for new in (4, 5)]
    assert parts(generations.generation(alike))["shapes"]["maps"] == []  # one would hide the other


def test_a_decode_step_is_a_point_at_its_context_until_the_next_one_begins():
    cell = generations.cell(1, 10, calls=1, warmup=0, new=4)
    forwards, duration = cell.calls[0].forwards, cell.calls[0].duration
    measured = page_generation.points(cell, "decode")
    assert [point.context for point in measured] == [11, 12, 13]
    ends = [*forwards.begin[2:], duration]
    for point, begin, end in zip(measured, forwards.begin[1:], ends, strict=True):
        assert point.seconds == pytest.approx(end - begin)


def test_steps_of_an_assistant_hold_its_drafts():
    record = generations.assisted()
    measured = page_generation.points(record.cells[0], "decode")
    # Three drafts of 4.4 ms and the step's 42.5 ms, but for the last, which no draft follows.
    assert [round(point.seconds, 4) for point in measured[:10]] == [0.0557] * 9 + [0.0425]


def test_many_points_are_medians_of_neighbours_and_the_page_says_so(grid, page):
    decode = page["parts"]["growth"][1]
    drawn = sum(len(series["points"]) for series in decode["series"])
    steps = 9 * 3 * (generations.NEW - 1)
    assert drawn < page_generation.MAX_POINTS < steps
    assert f"median of {math.ceil(steps / page_generation.MAX_POINTS)}" in decode["notes"][0]
    points = [page_generation.Point(context, context / 10) for context in (5, 1, 3, 4, 2)]
    assert page_generation.binned(points, 3) == [
        page_generation.Point(2, 0.2),
        page_generation.Point(4.5, 0.45),
    ]


def test_lines_lie_in_their_bands_and_are_dashed_where_nothing_was_measured(page):
    decode = page["parts"]["growth"][1]
    for series in decode["series"]:
        for _, value, low, high, _ in series["line"]:
            assert low < value < high
        outside = {context: flag for context, *_, flag in series["line"]}
        assert {context > 2111 for context, flag in outside.items() if flag} == {True}
        assert max(outside) > 2111  # a prediction lies there


def test_a_single_shape_has_points_without_a_line_and_says_why():
    (decode,) = parts(generations.watched())["growth"]
    assert len(decode["series"][0]["points"]) == 23
    assert decode["series"][0]["line"] == []
    assert decode["notes"] == ["No line: the calls of a single shape do not say how time grows."]


def test_a_figure_of_one_call_says_why_it_has_no_interval():
    figures = parts(generations.watched())["overview"]["figures"]
    notes = {figure["label"]: figure["note"] for figure in figures}
    assert notes["time to first token"] == "of 1 call: no interval from fewer than 3"


def test_what_is_unknown_of_no_tokens_is_unknown():
    none = msgspec.structs.replace(
        generations.watched().cells[0], ttft=None, tpot=None, tokens_per_second=None
    )
    figures = parts(generations.generation([none]))["overview"]["figures"]
    assert [figure["value"] for figure in figures[:3]] == ["unknown"] * 3


def test_a_cache_without_a_formula_has_none(page):
    (cache,) = parts(generations.encoder_decoder())["cache"]
    assert cache["series"][0]["points"] == [[16, 9_400_000, 9_400_000, None]]
    assert cache["notes"] == ["No formula is known for this architecture."]
    held, used = page["parts"]["cache"][1]["series"][0]["points"][0][1:3]
    assert held > used  # the static one


def test_parts_of_a_call_add_up_to_it(page):
    for record_page in (page, data(render(generations.encoder_decoder()))):
        for row in record_page["parts"]["calls"]["rows"]:
            assert sum(row["amounts"]) == pytest.approx(row["whole"], abs=5)
    encoder = record_page["parts"]["calls"]["rows"][0]["amounts"][0]
    assert encoder == 21_000_000


def test_a_call_that_was_ended_says_by_what():
    (cell,) = generations.watched().cells
    ended = msgspec.structs.replace(cell.calls[0], error="KeyboardInterrupt", interrupted=True)
    cell = msgspec.structs.replace(cell, calls=(ended,), status="interrupted")
    (row,) = parts(generations.generation([cell]))["calls"]["rows"]
    assert row["note"] == "ended by Ctrl-C"


def test_the_page_is_of_numbers_that_json_has(page):
    assert "NaN" not in json.dumps(page)
