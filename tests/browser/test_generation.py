"""Pages of generation: maps, charts, the trees and their switch, names that stay names."""

import msgspec
import pytest
from tests.support import generation_pages as generations
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE

pytestmark = pytest.mark.browser
RECORDS = [
    generations.grid, generations.watched, generations.encoder_decoder, generations.assisted
]  # fmt: skip


def hostile():
    record = generations.grid()
    cells = tuple(
        msgspec.structs.replace(cell, reason=text, cache_kind=text)
        for cell, text in zip(record.cells, HOSTILE * 9, strict=False)
    )
    target = generations.target(HOSTILE[1], spec=HOSTILE[0])
    return msgspec.structs.replace(record, cells=cells, target=target)


def test_a_map_shows_the_figure_that_is_chosen_and_why_a_cell_has_none(opened):
    page = opened(generations.grid()).page
    dynamic = page.locator("#shapes .heat").first
    assert "76" in dynamic.locator("td").nth(1).inner_text()
    failed = page.locator("#shapes .heat td.failed")
    assert failed.count() == 2
    assert "4.8 GB were requested" in failed.last.inner_text()
    assert page.locator("#shapes .heat td.estimated").count() == 2
    page.locator("#shapes select").select_option("cache held")
    assert "14.1 MB" in dynamic.locator("td").nth(1).inner_text()
    page.locator("#shapes select").select_option("share of the bound, decode")
    assert page.locator("#shapes .heat td.estimated").count() == 0
    assert "unknown" in dynamic.inner_text()


def test_values_of_a_map_are_inside_their_cells(opened):
    for width in (400, 1280):
        page = opened(generations.grid(), viewport={"width": width, "height": 900}).page
        wide = page.eval_on_selector_all(
            "#shapes .heat td b, #shapes .heat td .note div",
            "all => all.filter(one => one.scrollWidth > one.closest('td').clientWidth)"
            ".map(one => one.textContent)",
        )
        assert wide == []


def test_the_trees_switch_where_they_stand_and_nothing_else_is_drawn_again(opened):
    page = opened(generations.grid()).page
    assert page.locator("header select").count() == 0
    total = page.locator("#tree .panel .definitions").first.inner_text()
    page.evaluate("document.querySelector('#growth canvas').id = 'same'")
    page.locator("#tree select").first.select_option("1")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#tree .panel .definitions").first.inner_text() != total
    assert "One decode step" in page.locator("#tree").inner_text()
    assert page.locator("#same").count() == 1
    assert "#forward=decode%20step" in page.url


def test_a_chart_reads_out_points_lines_and_bands(opened):
    page = opened(generations.grid()).page
    chart = page.locator("#growth .chart .u-over").nth(1)
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 40, "y": 100})
    text = page.locator("#growth .readout").nth(1).inner_text()
    assert "batch 16, line" in text
    assert "95 %" in text
    assert "…" in text


def test_a_cache_of_one_length_is_words_not_a_chart(opened):
    page = opened(generations.encoder_decoder()).page
    assert page.locator("#cache canvas").count() == 0
    assert "formula\nunknown" in page.locator("#cache dl").inner_text()
    assert page.locator("#tree").count() == 0


def test_no_name_becomes_markup_or_code(opened):
    page = opened(hostile()).page
    assert page.evaluate("window.broken") is None
    assert page.locator("img, main script, [onload], [onerror]").count() == 0
    assert HOSTILE[1] in page.locator("body").inner_text()


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_nothing_stands_out_of_the_page(opened, width):
    for record in (*(make() for make in RECORDS), hostile()):
        page = opened(record, viewport={"width": width, "height": 900}).page
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", RECORDS, ids=lambda f: f.__name__)
def test_no_rule_of_accessibility_is_broken(opened, axe, make, theme):
    assert violations(opened, axe, make(), color_scheme=theme) == []
