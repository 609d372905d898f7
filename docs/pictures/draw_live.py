"""Draws the pictures of the live page beside itself: `draw_live.py ADDRESS`.

The address is the one that `torchgauge serve` printed; the page is drawn as it is then.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image

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
            taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            few = taken.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            few.save(HERE / f"live-{theme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
