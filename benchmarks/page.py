"""The page's size and times in a headless Chromium, by nodes of the tree and points of a timeline.

First paint and the end of drawing are counted from navigation, interactions from the event to the
next frame; each the median of fresh pages. Needs playwright and Chromium (`make browser`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import pages, records

from torchgauge.records.profile import Profile
from torchgauge.report.page import html

# Each returns what to do once; it is timed to the frame that shows it.
INTERACTIONS = {
    "zoom": "() => document.querySelectorAll('.cell')[1].click()",
    "width": "() => { const s = document.querySelector('#tree select'); s.value = 'flops';"
    " s.dispatchEvent(new Event('change')); }",
    "search": "() => { const i = document.querySelector('#tree input'); i.value = 'addmm';"
    " i.dispatchEvent(new Event('input')); }",
    "sort": "() => document.querySelectorAll('#tables thead button')[3].click()",
    "filter": "() => { const i = document.querySelector('#tables input'); i.value = '7.lin';"
    " i.dispatchEvent(new Event('input')); }",
    "scroll": "() => { const s = document.querySelector('.scroller');"
    " s.scrollTop = s.scrollHeight / 2; }",
    "theme": "() => document.querySelector('header button').click()",
}
TIMED = """async (act) => {
    const begin = performance.now();
    (0, eval)(act)();
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
}"""


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    empty = html.page("empty", {})
    print(f"page without data: {len(empty.encode()) / 1e3:.0f} kB")
    names = ["html MB", "made s", "paint ms", "drawn ms", *(f"{name} ms" for name in INTERACTIONS)]
    print(" ".join(f"{name:>10}" for name in ["nodes", *names]))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for nodes in options.nodes:
            path = Path(folder) / "page.html"
            profile = large(nodes)
            begin = time.perf_counter()
            profile.to_html(path)
            made = time.perf_counter() - begin
            rounds = [visit(browser, path) for _ in range(options.rounds)]
            times = [statistics.median(column) for column in zip(*rounds, strict=True)]
            figures = [f"{path.stat().st_size / 1e6:.2f}", f"{made:.2f}"]
            figures += [f"{one:.0f}" for one in times]
            print(" ".join(f"{one:>10}" for one in [f"{nodes:,}", *figures]), flush=True)
        browser.close()


def large(nodes: int) -> Profile:
    """Return a profile of so many nodes and so many timed calls."""
    profile = pages.chain(nodes)
    run = profile.latency.processes[0]
    samples = tuple(0.01 + (number * 7_919 % 997) * 1e-6 for number in range(nodes))
    runs = (msgspec.structs.replace(run, samples=samples, warmup=50),)
    return msgspec.structs.replace(
        records.profile(),
        tree=profile.tree,
        latency=msgspec.structs.replace(profile.latency, processes=runs),
    )


def visit(browser: Any, path: Path) -> list[float]:
    """Return ms to the first paint, to the end of drawing, and of each interaction."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
    page.wait_for_timeout(500)
    found = [
        page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
        page.evaluate("performance.getEntriesByName('ready')[0].startTime"),
    ]
    for act in INTERACTIONS.values():
        found.append(page.evaluate(TIMED, act))
        page.wait_for_timeout(200)
    context.close()
    return found


if __name__ == "__main__":
    main()
