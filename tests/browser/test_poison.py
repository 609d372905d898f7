"""Pages of which every text is a stranger's, in a browser: no script runs, nothing is asked for."""

import pytest
from tests.support.hostile_texts import ORDER, POISONS, WORD
from tests.support.poisoned_samples import SAMPLES, sample

from torchgauge.report import kinds

pytestmark = pytest.mark.browser

PAGES = [name for name, one in SAMPLES.items() if kinds.fits(type(one).__name__, "html")]
MADE = "svg[onload], img[src=x], a[href^='javascript:'], h1:text-is('head')"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("how", ["terminal", "markup"])
def test_no_text_of_others_runs_in_its_page(opened, name, how):
    opening = opened(sample(name, POISONS[how]))
    opening.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opening.page
    while (closed := page.locator("details:not([open]) > summary:visible")).count():
        closed.first.click()
    for link in page.locator("header nav a").all():
        link.click()
    opening.settle()
    assert page.evaluate("window.broken") is None
    assert page.locator(MADE).count() == 0
    text = page.locator("body").inner_text()
    assert WORD.search(text)
    assert not ORDER.search(text.replace("\t", ""))


def test_what_is_copied_from_the_page_is_no_markup(opened):
    opening = opened(sample("profile on a page", POISONS["markup"]))
    opening.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opening.page
    for button in page.get_by_role("button", name="Copy as Markdown").all():
        if button.is_visible():
            button.click()
            page.get_by_text("Copied").first.wait_for()
            text = page.evaluate("navigator.clipboard.readText()")
            assert WORD.search(text)
            assert "<s" not in text.replace("\\<", "")
            assert "](" not in text.replace("\\]", "")
            page.get_by_text("Copied").first.wait_for(state="detached")
