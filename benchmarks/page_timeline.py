"""The page's timeline in a headless Chromium, by number of events: size, opening, slowest frame.

The first paint and the drawn timeline are counted from navigation. A step of zoom or pan is timed
from the event to the end of the frame that shows it; the slowest and the median of all steps from
the whole view to a thousandth of it, through it and back. Needs playwright and Chromium.
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

from tests.support import pages, timelines

from torchgauge.report.page import html
from torchgauge.report.page.timeline.page_timeline import timeline

STEPS = ["w"] * 17 + ["d"] * 20 + ["s"] * 17 + ["d"] * 3 + ["a"] * 3
FRAMES = """async (keys) => {
    const box = document.querySelector('.lanes-box');
    box.focus();
    const times = [];
    for (const key of keys) {
        const begin = performance.now();
        box.dispatchEvent(new KeyboardEvent('keydown', {key}));
        await new Promise(done => requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = done;
            channel.port2.postMessage(0);
        }));
        times.push(performance.now() - begin);
    }
    return times;
}"""
# The script's own work for a frame, without waiting for the next one to begin.
WORK = """async (keys) => {
    const box = document.querySelector('.lanes-box');
    const request = window.requestAnimationFrame;
    let act = null;
    window.requestAnimationFrame = (draw) => { act = draw; return 1; };
    const times = [];
    for (const key of keys) {
        const begin = performance.now();
        box.dispatchEvent(new KeyboardEvent('keydown', {key}));
        if (act) act();
        act = null;
        times.push(performance.now() - begin);
    }
    window.requestAnimationFrame = request;
    return times;
}"""
SEARCH = """async () => {
    const input = document.querySelector('#timeline input');
    const begin = performance.now();
    input.value = 'op_7';
    input.dispatchEvent(new Event('input'));
    input.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
}"""
SUM = """async () => {
    const box = document.querySelector('.lanes-box');
    const begin = performance.now();
    box.dispatchEvent(new KeyboardEvent('keydown', {key: '0'}));
    box.dispatchEvent(new KeyboardEvent('keydown', {key: 'r'}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
}"""
COLUMNS = (
    "html MB", "made s", "paint ms", "drawn ms", "frame ms", "slowest", "work ms", "slowest",
    "search ms", "sum ms",
)  # fmt: skip


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    print(" ".join(f"{name:>9}" for name in ["events", *COLUMNS]))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for events in options.events:
            path = Path(folder) / "page.html"
            begin = time.perf_counter()
            path.write_text(page_of(events), encoding="utf-8")
            made = time.perf_counter() - begin
            rounds = [visit(browser, path) for _ in range(options.rounds)]
            times = [statistics.median(column) for column in zip(*rounds, strict=True)]
            figures = [f"{path.stat().st_size / 1e6:.2f}", f"{made:.2f}"]
            figures += [f"{figure:.1f}" for figure in times]
            print(" ".join(f"{text:>9}" for text in [f"{events:,}", *figures]), flush=True)
        browser.close()


def page_of(events: int) -> str:
    """Return the page of a timeline of so many events, and a small tree."""
    tree = pages.chain(10).tree
    part = timeline(msgspec.structs.replace(tree, timeline=timelines.synthetic(events)))
    return html.page("timeline", {"timeline": part})


def visit(browser: Any, path: Path) -> list[float]:
    """Return the times of a fresh page in ms."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#timeline .view[data-drawn]", state="attached", timeout=120_000)
    page.wait_for_timeout(500)
    marks = [
        page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
        page.evaluate("performance.getEntriesByName('timeline')[0].startTime"),
    ]
    frames, work = page.evaluate(FRAMES, STEPS), page.evaluate(WORK, STEPS)
    for times in (frames, work):
        marks += [statistics.median(times), max(times)]
    marks += [page.evaluate(SEARCH), page.evaluate(SUM)]
    context.close()
    return marks


if __name__ == "__main__":
    main()
