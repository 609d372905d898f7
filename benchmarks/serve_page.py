"""How fast the live page is with a large history and many live series, in Chromium.

Makes a history of 100,000 runs of 20 targets and a process with 20 live series, starts
`torchgauge serve`, and prints when the first page is painted and its rows are drawn, and what each
interaction takes from the key or click until its next frame (Event Timing, in steps of 8 ms) and
until the answer is drawn. `python benchmarks/serve_page.py` needs Chromium and takes two minutes;
`--keep FOLDER` keeps the history for the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
LIVE = """
import random, sys, time
from torchgauge.monitoring.monitor import Monitor
from torchgauge.monitoring.monitor_options import MonitorOptions
monitor = Monitor(MonitorOptions(name="chat", folder=sys.argv[1]))
while True:
    for endpoint in range(int(sys.argv[2])):
        for _ in range(10):
            monitor.add("latency", random.lognormvariate(-4, 0.3), endpoint=f"v1/{endpoint}")
    time.sleep(0.2)
"""
# What Chromium notes of each key and click, and of what blocks the page.
WATCH = """
window.noted = { events: [], tasks: [] };
new PerformanceObserver(list => window.noted.events.push(...list.getEntries()
    .filter(entry => entry.interactionId)
    .map(entry => [entry.name, entry.duration])))
    .observe({ type: "event", durationThreshold: 16, buffered: true });
new PerformanceObserver(list => window.noted.tasks.push(...list.getEntries()
    .map(entry => entry.duration))).observe({ type: "longtask", buffered: true });
"""
TIMES = """() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    rows: performance.getEntriesByName("fleet")[0]?.startTime,
    tasks: window.noted.tasks,
})"""


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as running:
        try:
            yield running
        finally:
            running.terminate()


def loads(browser: Any, url: str, count: int) -> None:
    """Print when the page is painted and its rows are drawn, each time with an empty cache."""
    all_times = []
    for _ in range(count):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(url)
        page.locator("#models tbody tr").nth(19).wait_for()
        page.locator("#live tbody tr").nth(19).wait_for()
        all_times.append(page.evaluate(TIMES))
        context.close()
    for name, label in (("paint", "first contentful paint"), ("rows", "all rows drawn")):
        times = [one[name] for one in all_times]
        show(label, times)
    show("longest task of a load", [max(one["tasks"], default=0.0) for one in all_times])


def show(label: str, times: list[float]) -> None:
    """Print the median and the range."""
    print(f"  {label:<52}{statistics.median(times):>8.0f} ms   {min(times):.0f} … {max(times):.0f}")


def interactions(browser: Any, url: str, rounds: int) -> None:
    """Print what each interaction takes, until the next frame and until its answer is drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(url)
    page.locator("#models tbody tr").nth(19).wait_for()
    frames: dict[str, list[float]] = {}
    answers: dict[str, list[float]] = {}

    def act(label: str, action: Any, drawn: str = "") -> None:
        page.evaluate("window.noted.events.length = 0; performance.clearMarks()")
        before = page.evaluate("performance.now()")
        action()
        if drawn:
            # Not `wait_for_function`, which evaluates text: the page's policy forbids that.
            while not page.evaluate(f"performance.getEntriesByName('{drawn}').length"):
                page.wait_for_timeout(5)
            after = page.evaluate(f"performance.getEntriesByName('{drawn}')[0].startTime")
            answers.setdefault(label, []).append(after - before)
        page.wait_for_timeout(150)
        noted = [duration for _, duration in page.evaluate("window.noted.events")]
        frames.setdefault(label, []).append(max(noted, default=0.0))

    for number in range(rounds):
        filter_box = page.get_by_role("searchbox")
        act("type into the filter", lambda box=filter_box: box.press_sequentially("net1"), "fleet")
        act(
            "clear the filter",
            lambda box=filter_box: (box.focus(), box.press("Control+a"), box.press("Delete")),
            "fleet",
        )
        page.locator("#models tbody tr").nth(19).wait_for()
        order = page.get_by_role("combobox", name="Order")
        act("another order of the rows", lambda box=order: (box.focus(), box.press("ArrowDown")))
        order.select_option("newest")
        link = page.locator("#models tbody a").nth(number % 20)
        act("open a model", link.click, "trend")
        everything = page.get_by_role("button", name="All ")
        act("show all its runs", everything.click, "trend")
        figure = page.get_by_role("combobox", name="Figure")
        act("another figure", lambda box=figure: (box.focus(), box.press("ArrowDown")), "trend")
        act("another theme", page.get_by_role("button", name="Theme").click)
        act("back to the list", page.get_by_role("link", name="Fleet").click, "fleet")
        link = page.locator("#live tbody a").nth(number % 20)
        act("open a live series", link.click, "monitor")
        slider = page.get_by_role("slider")
        act("another window", lambda box=slider: (box.focus(), box.press("ArrowLeft")), "monitor")
        act("back to the list", page.get_by_role("link", name="Fleet").click, "fleet")
        page.locator("#models tbody tr").nth(19).wait_for()
    print("Interactions until the next frame (0: less than 16 ms)")
    for label, times in frames.items():
        show(label, times)
    print("Until the answer is drawn")
    for label, times in answers.items():
        show(label, times)
    show("longest task of all", [max(page.evaluate("window.noted.tasks"), default=0.0)])
    context.close()


def main() -> None:
    """Make what is shown, serve it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5_000, help="of each target")
    parser.add_argument("--series", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a folder for the history")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT))
    from tests.support import large_histories

    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    with tempfile.TemporaryDirectory() as temporary:
        file = (options.keep or Path(temporary)) / f"{options.targets}x{options.runs}.db"
        if not file.exists():
            large_histories.fill(file, targets=options.targets, runs_each=options.runs)
        monitors = str(Path(temporary) / "monitors")
        command = ("-m", "torchgauge", "serve", "--port", "0", "--monitor", monitors)
        begun = time.perf_counter()
        with (
            process(sys.executable, "-c", LIVE, monitors, str(options.series)),
            process(sys.executable, *command, "--history", str(file)) as server,
            sync_playwright() as playwright,
        ):
            assert server.stdout is not None
            url = re.search(r"http\S+", server.stdout.readline())[0]  # type: ignore[index]
            started = time.perf_counter() - begun
            total = options.targets * options.runs
            print(f"{total:,} runs of {options.targets} targets, {options.series} live series")
            print(f"  {'from the command to the address':<52}{started * 1000:>8.0f} ms")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            time.sleep(12)  # a few windows
            loads(browser, url, options.rounds)
            interactions(browser, url, options.rounds)
            browser.close()


if __name__ == "__main__":
    main()
