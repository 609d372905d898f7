"""A page on paper: light whatever the screen was, and nothing of it lost."""

import msgspec
import pytest
from tests.support import pages

pytestmark = pytest.mark.browser

# The mean of red, green and blue of what is drawn in a chart, 0 to 255: its lines are light on a
# dark page, its grid is light on a white one.
WATCH = """() => {
    window.drawn = () => {
        const chart = document.querySelector('#latency canvas');
        const copy = new OffscreenCanvas(chart.width, chart.height);
        const context = copy.getContext('2d', { willReadFrequently: true });
        context.drawImage(chart, 0, 0);
        const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
        let [sum, number] = [0, 0];
        for (let at = 0; at < pixels.length; at += 4) {
            if (pixels[at + 3] < 200) continue;
            sum += (pixels[at] + pixels[at + 1] + pixels[at + 2]) / 3;
            number++;
        }
        return sum / number;
    };
    addEventListener('beforeprint', () => queueMicrotask(() => (window.printed = drawn())));
}"""


def watched(opening):
    opening.page.evaluate(WATCH)
    opening.settle()
    return opening.page.evaluate("drawn()")


@pytest.mark.parametrize("chosen", ["auto", "dark"])
def test_charts_are_printed_in_light_colours_and_stay_dark_on_the_screen(opened, chosen):
    light = watched(opened(pages.with_tree(), color_scheme="light"))
    opening = opened(pages.with_tree(), color_scheme="dark")
    page = opening.page
    button = page.get_by_role("button", name="Theme")
    while button.inner_text() != f"Theme: {chosen}":
        button.click()
    dark = watched(opening)
    assert abs(dark - light) > 50
    page.pdf()
    opening.settle()
    assert page.evaluate("printed") == pytest.approx(light, abs=3)
    assert page.evaluate("drawn()") == pytest.approx(dark, abs=3)
    assert button.inner_text() == f"Theme: {chosen}"


def test_printing_shows_rows_and_no_controls(opened):
    page = opened(
        pages.with_tree(), color_scheme="dark", viewport={"width": 800, "height": 900}
    ).page
    fill = "getComputedStyle(document.documentElement).getPropertyValue('--fill-0')"
    dark = page.evaluate(fill)
    page.emulate_media(media="print")
    assert page.evaluate(fill) != dark  # no dark cells under black text
    assert page.evaluate("document.documentElement.scrollWidth") == 800
    assert not page.locator(".controls").first.is_visible()
    assert not page.locator("header nav").is_visible()
    assert page.locator("#tables tbody tr:not(.space)").last.is_visible()


def test_what_was_laid_out_for_a_wide_screen_fits_on_narrow_paper(opened):
    """Nothing lays the page out anew for the paper, so what is drawn has to shrink with it."""
    found = pages.with_tree()
    samples = tuple(
        msgspec.structs.replace(found.system.samples[0], time=0.05 * at) for at in range(1, 9)
    )
    system = msgspec.structs.replace(found.system, samples=samples)
    page = opened(
        msgspec.structs.replace(found, system=system), viewport={"width": 2560, "height": 900}
    ).page
    page.emulate_media(media="print")
    # As when it prints: laid out for another width, and no observer of sizes is asked in between.
    beyond = page.evaluate(
        """() => {
            const main = document.querySelector('main');
            main.style.width = '700px';
            const edge = main.getBoundingClientRect().right;
            return [...document.querySelectorAll('.cell, canvas, svg')]
                .map(one => one.getBoundingClientRect().right)
                .filter(right => right > edge);
        }"""
    )
    assert beyond == []
