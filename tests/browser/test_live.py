"""The live page in a browser: its views, keyboard, narrow screens, strangers' names, axe-core."""

import re

import pytest
from tests.support import history_runs as runs
from tests.support.accessibility import page_violations
from tests.support.hostile_texts import ORDER, POISONS, WORD
from tests.support.live_sites import history, monitors, served

from torchgauge.history.store import Store
from torchgauge.live.routes import Site

pytestmark = pytest.mark.browser

MADE = "svg[onload], img, a[href^='javascript:'], h1:text-is('head'), main script"
PHONE = {"width": 400, "height": 850}


def latency(day):
    return (0.0090 if day < 30 else 0.0099) * (1.003 if day % 2 else 0.997)


def added(store, names, days=40):
    for name in names:
        for day in range(days):
            store.add(runs.run(day, latency=latency(day), target=name, commit=f"c{day}"))


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    file = tmp_path_factory.mktemp("history") / "h.db"
    with Store.open(str(file)) as store:
        added(store, ["net.py:make"])
        added(store, ["few.py:make"], 2)
    return file


@pytest.fixture(scope="module")
def server(location):
    def judge(windows, _now):
        return ("alert", ["it burns"]) if windows[-1].errors else ("steady", [])

    view = history(location)
    with served(Site(view, monitors(["chat", "embed"], looks=30, judge=judge))) as server:
        yield server
    view.close()


@pytest.fixture
def visit(browser):
    """Return a function that opens an address; nothing may have complained or left the server."""
    contexts, complaints = [], []

    def open_address(server, fragment="", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(server.url)
                or complaints.append(f"{request.method} {request.url}")
            ),
        )
        page.goto(server.url + fragment)
        page.wait_for_selector("html[data-ready]", state="attached")
        page.complaints = complaints
        return page

    yield open_address
    for context in contexts:
        context.close()
    assert complaints == []


def row(page, name):
    return page.locator("tbody tr", has=page.get_by_role("link", name=name))


def answered(page):
    """Let every view ask again, as it does when the page is seen again."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_from_the_fleet_to_the_page_of_a_run_and_back(visit, server):
    page = visit(server)
    net = row(page, "net.py:make")
    net.get_by_text("alert").wait_for()
    assert "9.930 ms" in net.inner_text()
    assert "unknown" in row(page, "few.py:make").inner_text()
    assert page.locator("p.summary").inner_text().split("\n")[0].startswith("2 with alerts")
    page.get_by_role("link", name="net.py:make").click()
    page.locator(".uplot").first.wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == "net.py:make"
    assert "+10.0 %" in page.get_by_role("region", name="Changes of level").inner_text()
    assert "changed by +10.0 %" in page.get_by_label("Alerts").inner_text()
    page.get_by_role("combobox", name="Figure").select_option("memory_peak")
    page.get_by_role("heading", name="memory_peak").wait_for()
    runs_table = page.get_by_role("region", name="Table of the newest runs").get_by_role("link")
    assert runs_table.count() == 40
    runs_table.first.click()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#latency").is_visible()
    page.go_back()
    page.get_by_role("heading", name="net.py:make", level=1).wait_for()


def test_one_window_of_a_monitor_by_keyboard(visit, server):
    page = visit(server)
    page.get_by_role("link", name="chat latency").click()
    page.locator("#main .bin").first.wait_for()
    assert "it burns" in page.get_by_label("Alerts").inner_text()
    assert "40.8" in page.locator(".cards").inner_text()
    assert page.get_by_role("cell", name="4", exact=True).is_visible()
    slider = page.get_by_role("slider", name="Window")
    newest = page.get_by_role("button", name="Newest")
    assert slider.get_attribute("max") == "29"
    assert newest.is_disabled()
    spread = page.locator("#main figure [role=img]").last
    before = spread.get_attribute("aria-label")
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_function(
        "before => ![...document.querySelectorAll('[role=img]')]"
        ".some(one => one.ariaLabel === before)",
        arg=before,
    )
    assert slider.input_value() == "28"
    newest.click()
    page.wait_for_function(
        "before => [...document.querySelectorAll('[role=img]')]"
        ".some(one => one.ariaLabel === before)",
        arg=before,
    )
    assert "encoder.0" in page.locator(".timed").inner_text()


def test_the_keyboard_reaches_everything(visit, server):
    page = visit(server)
    row(page, "net.py:make").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(7):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.textContent || document.activeElement.type")
        )
    assert seen[:3] == ["chat latency", "embed latency", "search"]
    assert seen[4:6] == ["few.py:make", "net.py:make"] or seen[4:6] == [
        "net.py:make",
        "few.py:make",
    ]
    page.get_by_role("link", name="net.py:make").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="net.py:make", level=1).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_filter_and_the_order(visit, server):
    page = visit(server)
    row(page, "net.py:make").wait_for()
    page.get_by_role("combobox", name="Order").select_option("name")
    names = page.locator("#models tbody a").all_inner_texts()
    assert names == ["few.py:make", "net.py:make"]
    page.get_by_role("combobox", name="Order").select_option("alerts")
    assert page.locator("#models tbody a").all_inner_texts() == ["net.py:make", "few.py:make"]
    page.get_by_role("searchbox").fill("few")
    row(page, "net.py:make").wait_for(state="detached")
    assert page.get_by_text("1 of 2 models").is_visible()
    page.get_by_role("searchbox").fill("nothing")
    page.get_by_text("No model has such a name.").wait_for()


def test_new_runs_appear_and_the_focus_stays(visit, tmp_path):
    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        added(store, ["net.py:make"], 3)
        view = history(file)
        with served(Site(view, None)) as server:
            page = visit(server)
            page.get_by_role("link", name="net.py:make").focus()
            store.add(runs.run(5, latency=0.02, target="net.py:make"))
            store.add(runs.run(9, target="new.py:make"))
            answered(page)
            row(page, "new.py:make").wait_for()
            assert "20.00 ms" in row(page, "net.py:make").inner_text()
            assert page.evaluate("document.activeElement.textContent") == "net.py:make"
            assert page.locator("#live").is_hidden()
        view.close()


def test_a_server_that_ends_and_comes_back(visit, server, location):
    view = history(location)
    with served(Site(view, None)) as first:
        port = first.server_address[1]
        page = visit(first)
        page.get_by_text("live", exact=True).wait_for()
    answered(page)
    page.get_by_text("no answer; asking again").wait_for()
    assert "net.py:make" in page.locator("#models").inner_text()  # what is known stays
    assert all("ERR_CONNECTION_REFUSED" in text for text in page.complaints)
    page.complaints.clear()
    with served(Site(view, None), port=port):
        answered(page)
        page.get_by_text("live", exact=True).wait_for()
    page.goto("about:blank")
    page.complaints.clear()
    view.close()


def test_an_error_of_the_history_is_shown(visit, tmp_path):
    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        added(store, ["net.py:make"], 1)
    view = history(file)
    with served(Site(view, monitors(looks=2))) as server:
        page = visit(server)
        row(page, "net.py:make").wait_for()
        file.unlink()
        answered(page)
        assert "[store-missing]" in page.get_by_role("alert").inner_text()
        assert row(page, "chat latency").is_visible()
    page.goto("about:blank")
    page.complaints.clear()
    view.close()


@pytest.mark.parametrize("how", ["terminal", "markup"])
def test_names_of_strangers_are_inert(visit, tmp_path, how):
    name = POISONS[how].format("w111w")
    long = "w222w" + "x" * 5_000
    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        for target in (name, long):
            store.add(runs.run(0, target=target, branch=name, commit=name, torch=name))
    view = history(file)
    live = monitors(
        [name, long],
        looks=3,
        labels={name: name},
        error=name,
        judge=lambda *_: ("alert", [name, name]),
    )
    with served(Site(view, live)) as server:
        page = visit(server, viewport=PHONE)
        texts = []
        for section in ("#models", "#live"):
            page.goto(server.url)
            page.locator(f"{section} tbody a").first.wait_for()
            for at in range(2):
                texts.append(page.locator("body").inner_text())
                page.locator(f"{section} tbody a").nth(at).click()
                page.locator("#main h1:has(bdi)").wait_for()
                page.locator("svg rect, .uplot, .picture .note").first.wait_for()
                texts.append(page.locator("body").inner_text())
                texts.append(page.title())
                assert page.locator(MADE).count() == 0
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= PHONE["width"]
                page.goto(server.url)
                page.locator(f"{section} tbody a").first.wait_for()
        assert page.evaluate("window.broken") is None
        assert WORD.search("".join(texts))
        assert not [text for text in texts if ORDER.search(text.replace("\t", ""))]
    view.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_the_rules_of_axe(visit, server, axe, theme, size):
    page = visit(server, bypass_csp=True, color_scheme=theme, viewport=size)
    for name in (None, "net.py:make", "chat latency"):
        if name is None:
            row(page, "net.py:make").wait_for()
        else:
            page.goto(server.url)
            page.get_by_role("link", name=name).click()
            page.locator(".uplot").first.wait_for()
        assert page_violations(page, axe) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_the_policy_lets_nothing_else_run_or_leave(visit, server):
    page = visit(server)
    row(page, "net.py:make").wait_for()
    assert (
        page.evaluate("fetch('/api/fleet', {method: 'POST'}).then(answer => answer.status)") == 405
    )
    for script in (
        "fetch('http://127.0.0.1:9/').then(() => 'left', () => 'stopped')",
        """new Promise(done => {
            const made = document.createElement('script');
            made.textContent = 'window.broken = 1';
            document.head.append(made);
            setTimeout(() => done(window.broken ? 'ran' : 'stopped'));
        })""",
        """new Promise(done => {
            const made = document.createElement('iframe');
            made.onload = () => done('framed');
            made.src = '/';
            document.body.append(made);
            setTimeout(() => done('stopped'), 300);
        })""",
    ):
        assert page.evaluate(script) in ("stopped", "framed")
    assert page.evaluate("window.broken") is None
    kinds = {
        re.sub(r".*directive[^\"']*[\"']([a-z-]+).*", r"\1", text, flags=re.S)
        for text in page.complaints
    }
    assert {"connect-src", "script-src"} <= kinds | set()
    page.complaints.clear()
