"""Early stopping beside MLPerf's LoadGen: the same numbers from the same runs.

LoadGen drives a system that answers at once, in the single-stream and multi-stream scenarios, with
numbers of queries over a grid. Its summary reports how many queries it would discard, or how
many it needs; torchgauge's rule must give the same.

    pip install mlcommons-loadgen   # into an environment of its own, with torchgauge's
    python benchmarks/load_mlperf.py
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import mlperf_loadgen  # type: ignore[import-not-found]

from torchgauge.analyze.serving.early_stopping import queries_needed, queries_that_may_exceed

GRIDS = {
    "SingleStream": (0.90, (40, 63, 64, 65, 100, 200, 500, 1000, 2000, 5000, 10_000)),
    "MultiStream": (0.99, (400, 661, 662, 800, 1000, 1500, 2500, 5000, 10_000)),
}
DISCARDED = re.compile(r"Would discard (\d+) highest latency quer")
NEEDED = re.compile(r"Need to process at least (\d+) queries")


class Answer(NamedTuple):
    """What LoadGen's summary says: queries that it discards, or that it needs."""

    discarded: int | None
    needed: int | None


def loadgen_answer(scenario: str, queries: int) -> Answer:
    """Run LoadGen for so many queries and read its summary."""
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0

    def issue(samples: list[Any]) -> None:
        answers = [mlperf_loadgen.QuerySampleResponse(s.id, 0, 0) for s in samples]
        mlperf_loadgen.QuerySamplesComplete(answers)

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
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    discarded, needed = DISCARDED.search(summary), NEEDED.search(summary)
    return Answer(int(discarded[1]) if discarded else None, int(needed[1]) if needed else None)


def own_answer(fraction: float, queries: int) -> Answer:
    """Return what torchgauge's rule says of so many queries."""
    allowed = queries_that_may_exceed(fraction, queries)
    # The estimate is the query that may exceed the percentile: LoadGen discards those above it.
    return Answer(allowed - 1, None) if allowed else Answer(None, queries_needed(fraction, 1))


def main() -> None:
    """Print both answers for each number of queries, and how many differ."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    differing = total = 0
    for scenario, (fraction, grid) in GRIDS.items():
        for queries in grid:
            theirs, ours = loadgen_answer(scenario, queries), own_answer(fraction, queries)
            differing += theirs != ours
            total += 1
            print(f"{scenario:12} {queries:6} queries: LoadGen {theirs}, torchgauge {ours}")
    print(f"{differing} of {total} differ")


if __name__ == "__main__":
    main()
