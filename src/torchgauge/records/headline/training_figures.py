"""Figures of a training that a trainer ran."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.headline.figure import Figure
from torchgauge.records.timeline.training_run import TrainingRun


def training_figures(run: TrainingRun) -> Iterator[Figure]:
    """Yield the steps of one process, their mean time, rates and memory."""
    yield Figure("training_steps", "", "counted", "Steps of the optimizer", run.count)
    yield Figure(
        "training_step", "s", "measured", "Mean step, waits for data with it",
        run.step, True, run.interval,
    )  # fmt: skip
    for name, unit, text, value in (
        ("data_wait", "ratio", "Share of the steps that waited for batches", run.data_wait_share),
        ("tokens", "1/s", "Tokens per second of this process", run.tokens_per_second),
        ("samples", "1/s", "Samples per second of this process", run.samples_per_second),
        ("memory_peak", "B", "Most memory that was in use", run.memory_peak),
    ):
        yield Figure(f"training_{name}", unit, "measured", text, value)  # type: ignore[arg-type]
