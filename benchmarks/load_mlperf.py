"""MLPerf's LoadGen beside torchgauge: early stopping over a grid, and latencies of one server.

LoadGen drives a system that answers at once, with numbers of queries over a grid, in the server
scenario with some that are over the limit. Its summary reports how many queries it would discard,
or how many it needs; torchgauge's rule must give the same, and offline, where LoadGen has no early
stopping, nothing. Then both put the same server under load in the four scenarios: 4 ms a request,
8 at a time, LoadGen through a pool of threads with Python's http.client.

    pip install mlcommons-loadgen   # into an environment of its own, with torchgauge's
    python benchmarks/load_mlperf.py
"""

from __future__ import annotations

import argparse
import http.client
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import mlperf_loadgen  # type: ignore[import-not-found]
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from torchgauge.analyze.serving.levels import (  # noqa: E402 - after the folder of tests
    early_stopping,
    longest_together,
    queries_needed,
    queries_that_may_exceed,
)

GRIDS = {
    "SingleStream": (0.90, (40, 63, 64, 65, 100, 200, 500, 1000, 2000, 5000, 10_000)),
    "MultiStream": (0.99, (400, 661, 662, 800, 1000, 1500, 2500, 5000, 10_000)),
}
SERVER_GRID = ((200, 0), (458, 0), (459, 0), (600, 1), (700, 1), (1000, 3), (1500, 6), (2500, 10))
LIMIT = 1.0
DISCARDED = re.compile(r"Would discard (\d+) highest latency quer")
NEEDED = re.compile(r"Need to process at least (\d+) queries")
MORE = re.compile(r"Would need to run at least (\d+) more queries")
SCENARIOS = {
    "SingleStream": "single-stream", "MultiStream": "multi-stream", "Server": "server",
    "Offline": "offline",
}  # fmt: skip
RATE, QUERIES, SAMPLES = 100.0, 700, 8


class Answer(NamedTuple):
    """What LoadGen's summary says: queries that it discards, or that it needs."""

    discarded: int | None
    needed: int | None


def summary(scenario: str, queries: int, issue: Callable[[list[Any]], None]) -> str:
    """Run LoadGen for so many queries and return its summary."""
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0
    settings.multi_stream_samples_per_query = SAMPLES
    settings.server_target_qps = RATE if issue is not answer_at_once else 2000
    settings.server_target_latency_ns = int(LIMIT * 1e9)
    settings.offline_expected_qps = queries
    with tempfile.TemporaryDirectory() as folder:
        output = mlperf_loadgen.LogOutputSettings()
        output.outdir = folder
        output.copy_summary_to_stdout = False
        log = mlperf_loadgen.LogSettings()
        log.log_output = output
        log.enable_trace = False
        system = mlperf_loadgen.ConstructSUT(issue, lambda: None)
        library = mlperf_loadgen.ConstructQSL(64, 64, lambda _: None, lambda _: None)
        mlperf_loadgen.StartTestWithLogSettings(system, library, settings, log)
        mlperf_loadgen.DestroyQSL(library)
        mlperf_loadgen.DestroySUT(system)
        return (Path(folder) / "mlperf_log_summary.txt").read_text()


def complete(samples: list[Any]) -> None:
    """Tell LoadGen that samples have their answers."""
    answers = [mlperf_loadgen.QuerySampleResponse(sample.id, 0, 0) for sample in samples]
    mlperf_loadgen.QuerySamplesComplete(answers)


def answer_at_once(samples: list[Any]) -> None:
    """Answer without work."""
    complete(samples)


def number(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that a summary names."""
    match = pattern.search(text)
    return int(match[1]) if match else None


def own_answer(fraction: float, queries: int) -> Answer:
    """Return what torchgauge's rule says of so many queries."""
    allowed = queries_that_may_exceed(fraction, queries)
    # The estimate is the query that may exceed the percentile: LoadGen discards those above it.
    return Answer(allowed - 1, None) if allowed else Answer(None, queries_needed(fraction, 1))


def queries_missing(queries: int, over: int) -> int | None:
    """Return how many more queries LoadGen needs in the server scenario; None if none."""
    slow = iter(range(over))

    def issue(samples: list[Any]) -> None:
        if next(slow, None) is None:
            complete(samples)
        else:
            threading.Timer(1.5 * LIMIT, complete, (samples,)).start()

    return number(MORE, summary("Server", queries, issue))


def compare_early_stopping() -> None:
    """Print both answers for each number of queries, and how many differ."""
    differing = total = 0
    for scenario, (fraction, grid) in GRIDS.items():
        for queries in grid:
            text = summary(scenario, queries, answer_at_once)
            theirs = Answer(number(DISCARDED, text), number(NEEDED, text))
            ours = own_answer(fraction, queries)
            differing += theirs != ours
            total += 1
            print(f"{scenario:12} {queries:6} queries: LoadGen {theirs}, torchgauge {ours}")
    for queries, over in SERVER_GRID:
        latencies = np.where(np.arange(queries) < over, 1.5 * LIMIT, 0.0)
        verdict = early_stopping(latencies, "server", LIMIT)
        missing = None if verdict is None or verdict.passed else verdict.needed - queries
        theirs_missing = queries_missing(queries, over)
        differing += theirs_missing != missing
        total += 1
        print(
            f"Server       {queries:6} queries, {over:2} over the limit: LoadGen needs "
            f"{theirs_missing} more, torchgauge {missing}"
        )
    without = "Early Stopping Result" not in summary("Offline", 1000, answer_at_once)
    differing += without != (early_stopping(np.zeros(1000), "offline") is None)
    print(f"Offline: LoadGen {'without' if without else 'with'} early stopping")
    print(f"{differing} of {total + 1} differ")


def loadgen_latencies(url: str, scenario: str) -> tuple[float, float, float]:
    """Return p50 and p99 in seconds and samples/s of a server, as LoadGen reports them."""
    local = threading.local()

    def send(sample: Any) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(url.removeprefix("http://"))
        local.connection.request("GET", "/")
        local.connection.getresponse().read()
        complete([sample])

    def issue(samples: list[Any]) -> None:
        for sample in samples:
            pool.submit(send, sample)

    with ThreadPoolExecutor(2 * SAMPLES) as pool:
        text = summary(scenario, QUERIES, issue)
    figures = {name: float(value) for name, value in re.findall(r"(.+?) *: *([\d.]+)\n", text)}
    rate = next((v for name, v in figures.items() if "amples per second" in name), float("nan"))
    return (
        figures.get("50.00 percentile latency (ns)", float("nan")) / 1e9,
        figures.get("99.00 percentile latency (ns)", float("nan")) / 1e9,
        rate,
    )


def own_latencies(url: str, scenario: str) -> tuple[float, float, float]:
    """Return the same of torchgauge's requests."""
    import torchgauge as tg

    rate = RATE if scenario == "Server" else None
    queries = QUERIES * (SAMPLES if scenario == "MultiStream" else 1)
    serving = tg.measure_serving(url, rate=rate, scenario=SCENARIOS[scenario], requests=queries)
    requests = serving.levels[0].requests
    scheduled, last = np.array(requests.scheduled), np.array(requests.last, dtype=float)
    latencies = last - scheduled
    if scenario == "MultiStream":
        latencies = longest_together(scheduled, latencies)
    middle, high = np.quantile(latencies, (0.5, 0.99))
    return float(middle), float(high), len(last) / float(last.max() - scheduled.min())


def compare_latencies() -> None:
    """Print what both report of one server."""
    from tests.support.servers.running import running

    for scenario in SCENARIOS:
        for name, measured in (("LoadGen", loadgen_latencies), ("torchgauge", own_latencies)):
            with running("fifo_server", service=0.004, workers=SAMPLES) as server:
                middle, high, rate = measured(server.address, scenario)
            print(
                f"{scenario:12} {name:10} p50 {1e3 * middle:8.2f} ms, p99 {1e3 * high:8.2f} ms, "
                f"{rate:7.1f} samples/s"
            )


def main() -> None:
    """Compare both."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    compare_early_stopping()
    compare_latencies()


if __name__ == "__main__":
    main()
