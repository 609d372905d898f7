"""Draws the pictures of README and site beside itself: `make pictures`.

Runs the command that they show, on a machine that should do nothing else meanwhile; a profile that
was saved with `--output-dir` is drawn instead where one is given.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

import torchgauge as tg
from torchgauge.records.profile import Profile
from torchgauge.report.console.console import view

HERE = Path(__file__).parent
COMMAND = "torchgauge profile examples/resnet18.py:resnet18 --roofs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PIXELS = 1280
COLUMNS = 80  # of the terminal that is drawn
AROUND = 16


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path, nargs="?", help="a saved profile")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the pictures go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profile = tg.load(options.record or run(Path(folder)))
        for name, picture in pictures(profile, Path(folder) / "page.html"):
            (options.folder / name).write_bytes(picture)


def run(folder: Path) -> Path:
    """Run the command and return its record."""
    command = [sys.executable, "-m", *COMMAND.split(), "--output-dir", str(folder)]
    subprocess.run(command, check=True)
    return folder / "profile.json"


def pictures(profile: Profile, page: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each picture with its name: the terminal's, and two of the page, light and dark."""
    yield "console.svg", console(profile).encode()
    from playwright.sync_api import sync_playwright

    profile.to_html(page)
    # Where none is on the path, Playwright takes its own, or says how to get it.
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            opened = browser.new_page(viewport={"width": PIXELS, "height": 900}, color_scheme=theme)
            opened.goto(page.as_uri())
            opened.wait_for_selector("html[data-ready]", state="attached")
            opened.get_by_label("Colour").select_option("type")
            yield (
                f"page-{theme}.png",
                section(opened, "#overview", above=68),
            )  # with the page's head
            yield f"tree-{theme}.png", section(opened, "#tree")
        browser.close()


def console(profile: Profile) -> str:
    """Return what a terminal shows."""
    terminal = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    terminal.print(view(profile, width=COLUMNS))
    picture = terminal.export_svg(title=COMMAND)
    # The reader's own monospaced font will do: a picture must not load one from the network.
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def section(page: Any, name: str, *, above: int = AROUND) -> bytes:
    """Return a section as PNG, with as many colours as a palette holds: a third of the bytes."""
    box = page.locator(name).bounding_box()
    high = box["height"] + above + AROUND
    clip = {"x": 0, "y": box["y"] - above, "width": PIXELS, "height": high}
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
    out = io.BytesIO()
    few = taken.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
