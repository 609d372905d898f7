"""Draws the pictures of README and tour beside itself: `make pictures`.

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
HEAD = 68  # of the page
TALLEST = 860  # of a section: the rest of a long table is left out
SECTIONS = ("tree", "tables", "roofline", "memory")  # with the section beside it, if any


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
    """Yield each picture with its name: the terminal's, and those of the page, light and dark."""
    yield "console.svg", console(profile).encode()
    from playwright.sync_api import sync_playwright

    profile.to_html(page)
    # Where none is on the path, Playwright takes its own, or says how to get it.
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            shown = browser.new_page(viewport={"width": PIXELS, "height": 900}, color_scheme=theme)
            shown.goto(page.as_uri())
            shown.wait_for_selector("html[data-ready]", state="attached")
            shown.get_by_label("Colour").select_option("type")
            yield f"page-{theme}.png", section(shown, "overview", above=HEAD)
            for name in SECTIONS:
                if name == "tree":
                    point_at_widest_leaf(shown)
                yield f"{name}-{theme}.png", section(shown, name)
        browser.close()


def point_at_widest_leaf(page: Any) -> None:
    """Move the pointer to the widest cell of the lowest level but one, which shows its tooltip."""
    page.locator("#tree").scroll_into_view_if_needed()
    boxes = [cell.bounding_box() for cell in page.locator("#tree .icicle .cell").all()]
    levels = sorted({box["y"] for box in boxes})
    level = levels[-2] if len(levels) > 1 else levels[-1]
    box = max((box for box in boxes if box["y"] == level), key=lambda box: box["width"])
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)


def console(profile: Profile) -> str:
    """Return what a terminal shows."""
    terminal = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    terminal.print(view(profile, width=COLUMNS))
    picture = terminal.export_svg(title=COMMAND)
    # The reader's own monospaced font will do: a picture must not load one from the network.
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def section(page: Any, name: str, *, above: int = AROUND) -> bytes:
    """Return a section as PNG, with as many colours as a palette holds: a third of the bytes."""
    box = page.locator(f"#{name}").bounding_box()
    top = box["y"] + page.evaluate("scrollY") - above
    high = min(box["height"] + above + AROUND, TALLEST)
    clip = {"x": 0, "y": top, "width": PIXELS, "height": high}
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
    out = io.BytesIO()
    few = taken.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
