"""Pages of comparisons, verdicts and trends: what they say, and that names stay names."""

import msgspec
import pytest
from tests.support import trends
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE
from tests.support.latency_runs import ELEVEN, QUIET, TEN, gate, layer_times, layered, timed

from torchgauge.analyze.compare.compare import compare

pytestmark = pytest.mark.browser


def sides():
    old = timed(*TEN, tree=layered(), layers=layer_times(noise=0.01))
    return old, timed(*ELEVEN, tree=layered(1.3), layers=layer_times(1.3, noise=0.01))


def comparison():
    return compare(*sides(), noise=QUIET)


def verdict():
    return gate(*sides(), noise=QUIET)


def hostile():
    found = comparison()
    layers = tuple(
        msgspec.structs.replace(one, name=name, type=name)
        for one, name in zip(found.layers, HOSTILE, strict=False)
    )
    side = msgspec.structs.replace(found.baseline, label=HOSTILE[0], machine=HOSTILE[1])
    return msgspec.structs.replace(found, layers=layers, baseline=side)


def test_a_comparison_says_figures_and_what_adds_up_to_the_change(opened):
    page = opened(comparison()).page
    shown = page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    assert shown == ["overview", "changes", "contributions", "tables"]
    latency = page.locator("#changes tbody tr", has_text="latency").inner_text()
    for said in ("10.00 ms", "11.00 ms", "+10.0 %", "worse"):
        assert said in latency, said
    bars = page.locator(".waterfall li")
    assert bars.first.inner_text().split() == ["layer3", "proven", "+300", "µs"]
    assert bars.last.inner_text().split()[-2:] == ["+300", "µs"]
    widths = page.eval_on_selector_all(
        ".waterfall i", "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert sum(widths[:-1]) == pytest.approx(widths[-1], rel=0.02)


def test_the_places_of_a_comparison_sort(opened):
    page = opened(comparison()).page
    first = page.locator("#tables tbody tr:not(.space) > :first-child").first
    assert first.inner_text() == "layer3"
    assert page.locator("#tables tbody button.link").count() == 0  # they lead nowhere
    page.locator("#tables thead button", has_text="adds").click()
    page.locator("#tables thead button", has_text="adds").click()
    assert first.inner_text() != "layer3"


def test_a_verdict_says_its_outcome_and_who_is_to_blame(opened):
    page = opened(verdict()).page
    assert page.locator("h1").inner_text() == "FAIL: Net"
    assert "layer3 (Linear) +30.0 %" in page.locator(".findings").inner_text()
    assert page.locator("#changes .verdict.fail").count() == 1
    assert page.locator("#changes .bound").count() == 4  # δ0 and δ1 of memory and of latency


def test_a_trend_says_where_it_changed_and_shows_each_figure(opened):
    page = opened(trends.trend()).page
    assert "After c37, until c38" in page.locator("#trend table").inner_text()
    assert page.locator("#trend canvas").count() == 1
    page.get_by_label("Figure").select_option(index=1)
    assert page.locator("#trend h3").inner_text().startswith("memory_peak")
    assert page.locator("#trend table").count() == 0


def test_no_name_becomes_markup_or_code(opened):
    for record in (hostile(), trends.trend(target=HOSTILE[0], metric=HOSTILE[1])):
        page = opened(record).page
        assert page.evaluate("window.broken") is None
        assert page.locator("img, main script, [onload], [onerror]").count() == 0
        assert HOSTILE[0] in page.locator("body").inner_text()


@pytest.mark.parametrize("width", [400, 2560])
def test_nothing_stands_out_of_the_page(opened, width):
    for record in (comparison(), verdict(), trends.trend()):
        page = opened(record, viewport={"width": width, "height": 900}).page
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [comparison, verdict, trends.trend], ids=lambda f: f.__name__)
def test_no_rule_of_accessibility_is_broken(opened, axe, make, theme):
    assert violations(opened, axe, make(), color_scheme=theme) == []
