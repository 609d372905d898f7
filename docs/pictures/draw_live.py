"""Draws the pictures of the live page beside itself: `draw_live.py ADDRESS` of a page that is served.

The address is the one that `torchgauge serve` printed.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = {"width": 1280, "height": 960}


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="as `torchgauge serve` prints it")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            page.goto(options.address)
            page.locator("main tbody tr").first.wait_for()
            page.wait_for_timeout(3000)  # until the newest runs are analyzed
            page.screenshot(path=HERE / f"live-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main()
