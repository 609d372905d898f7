"""A headless Chromium that opens pages from disk, and everything that it complains about."""

import shutil
from pathlib import Path

import pytest
from tests.support.paths import ROOT

WEB = ROOT / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="pip install torchgauge-profiler[browser]"
    )
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page from disk: `complaints` are errors, console messages and requests that it made."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)
        self.path = path
        self.goto()

    def goto(self, fragment: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        self.settle()

    def settle(self) -> None:
        """Let two frames pass, in which observers and charts draw."""
        self.page.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def _request(self, request) -> None:
        if request.url not in ("about:blank",) and not request.url.startswith(self.path.as_uri()):
            self.complaints.append(f"asked for {request.url}")

    def _dialog(self, dialog) -> None:
        self.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def opened(browser, tmp_path):
    """Return a function that writes a record's page and opens it; it must not have complained."""
    pages = []

    def open_record(record, **options) -> Opened:
        path = tmp_path / f"page{len(pages)}.html"
        record.to_html(path)
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield open_record
    complaints = [one for page in pages for one in page.complaints]
    for page in pages:
        page.context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def axe() -> str:
    path = WEB / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    return path.read_text()
