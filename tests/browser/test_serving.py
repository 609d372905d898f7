"""Pages of serving and capacity: charts, clouds of points, the switch of levels, names."""

import msgspec
import pytest
from tests.support import serving_pages, servings
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE

pytestmark = pytest.mark.browser
RECORDS = [
    servings.capacity_found, servings.with_errors, servings.streamed, serving_pages.plan,
    serving_pages.token_plan,
]  # fmt: skip


def hostile():
    record = servings.capacity_found()
    goals = tuple(
        msgspec.structs.replace(goal, text=HOSTILE[at]) for at, goal in enumerate(record.goals)
    )
    levels = tuple(
        msgspec.structs.replace(
            level,
            goals=tuple(
                msgspec.structs.replace(result, goal=goals[0], reason=HOSTILE[2])
                for result in level.goals
            ),
            arrivals=msgspec.structs.replace(level.arrivals, file=HOSTILE[1]),
        )
        for level in record.levels
    )
    target = servings.target(name=HOSTILE[1], spec=HOSTILE[0])
    served_by = msgspec.structs.replace(
        record.served_by, software=HOSTILE[1], address="http://127.0.0.1/<script>"
    )
    return msgspec.structs.replace(
        record, goals=goals, levels=levels, target=target, served_by=served_by
    )


def readout(page, view, position, number=0):
    chart = page.locator(f"#{view} .chart .u-over").nth(number)
    chart.scroll_into_view_if_needed()
    chart.hover(position=position)
    return page.locator(f"#{view} .readout").nth(number).inner_text()


def test_a_level_is_chosen_in_the_header_and_what_is_common_stays(opened):
    page = opened(servings.capacity_found()).page
    page.evaluate("document.querySelector('#rates canvas').id = 'same'")
    select = page.locator("header select")
    assert select.input_value() == "2"
    before = page.locator("#requests table").inner_text()
    select.select_option("0")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#requests table").inner_text() != before
    assert page.locator("#same").count() == 1
    assert "#load=25%20requests%2Fs" in page.url


def test_a_chart_by_rate_reads_out_percentiles_with_their_intervals(opened):
    page = opened(servings.capacity_found()).page
    text = readout(page, "rates", {"x": 90, "y": 100})
    assert text.startswith("offered requests/s 50: ")
    assert "p50" in text
    assert "95 %: " in text


def test_another_time_is_drawn_where_it_is_chosen(opened):
    page = opened(servings.streamed()).page
    page.locator("#rates select").select_option(label="time to first token")
    assert page.locator("#rates .chart").first.get_attribute("aria-label").startswith("time to")
    assert page.locator("#rates .pair h3").count() == 2


def test_the_point_next_to_the_cursor_is_read_out(opened):
    shown = opened(servings.with_errors())
    page = shown.page
    box = page.locator("#requests .u-over").bounding_box()
    texts = {
        readout(page, "requests", {"x": x, "y": box["height"] - 22})
        for x in range(20, int(box["width"]) - 20, 60)
    }
    assert any("latency" in text and text.startswith("due at") for text in texts)
    assert readout(page, "requests", {"x": 100, "y": box["height"] / 2}) in ("", "\xa0")


def test_charts_of_one_level_show_the_same_moment(opened):
    page = opened(servings.capacity_found()).page
    first = readout(page, "over_time", {"x": 200, "y": 100})
    others = [page.locator("#over_time .readout").nth(at).inner_text() for at in (1, 2)]
    moment = first.split(":")[0]
    assert moment.startswith("time ")
    assert [text.split(":")[0] for text in others] == [moment, moment]


def test_three_hundred_thousand_requests_are_few_elements_and_all_counted(opened):
    page = opened(serving_pages.long_run()).page
    text = page.locator("#requests").inner_text()
    assert "300,000 requests as 1" in text
    assert "timed out 3" in text
    assert page.evaluate("document.querySelectorAll('*').length") < 5_000


def test_a_plan_shows_what_is_needed_and_what_lay_outside(opened):
    page = opened(serving_pages.plan()).page
    assert page.locator("#checks .verdict").all_inner_texts() == ["inside", "outside", ""]
    point = page.locator("#front svg g").first
    point.scroll_into_view_if_needed()
    point.focus()
    assert "1 worker, one by one" in page.locator("#front .readout").inner_text()


def test_no_name_becomes_markup_or_code(opened):
    page = opened(hostile()).page
    assert page.evaluate("window.broken") is None
    assert page.locator("img, main script, [onload], [onerror]").count() == 0


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_nothing_stands_out_of_the_page(opened, width):
    for record in (*(make() for make in RECORDS), hostile(), serving_pages.every_fate()):
        page = opened(record, viewport={"width": width, "height": 900}).page
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".banner", has_text="could not be drawn").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", RECORDS, ids=lambda f: f.__name__)
def test_no_rule_of_accessibility_is_broken(opened, axe, make, theme):
    assert violations(opened, axe, make(), color_scheme=theme) == []
