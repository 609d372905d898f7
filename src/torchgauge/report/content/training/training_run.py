"""A training that a trainer ran: its steps, rates, utilization, memory and the recorded window."""

from __future__ import annotations

import statistics

from torchgauge import units
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.report.content import loop
from torchgauge.report.content.document import Block, Document, Heading, Note, Options, Warnings
from torchgauge.report.content.section import Row, Section, utilization
from torchgauge.report.notebook import charts

TRAINERS = {
    "transformers": "Hugging Face Trainer",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
}


def title(run: TrainingRun) -> str:
    """Return which model was trained."""
    return f"Training of {run.model or 'a model'}"


def document(run: TrainingRun, options: Options) -> Document:
    """Return the steps and their rates, the utilization, and where a recorded step went."""
    blocks: list[Block] = [steps(run)]
    if run.utilization is not None:
        blocks.append(utilization(run.utilization))
    elif run.unknown:
        blocks.append(Note(f"MFU is unknown: {run.unknown}.", "doubtful"))
    if run.window is not None:
        recorded = loop.document(run.window, options)
        blocks += [Heading("Recorded window"), *recorded.blocks]
    if run.warnings:
        heading = "Warnings" if run.complete else "Failed and warnings"
        blocks.append(Warnings(run.warnings, heading))
    if run.interrupted:
        blocks.append(Note("Interrupted before its end.", "doubtful"))
    rank = "" if run.rank is None else f", rank {run.rank.number} of {run.rank.world}"
    return Document(
        title(run),
        line=f"{run.count:,} step{'s' * (run.count != 1)} by {TRAINERS[run.trainer]}{rank}",
        blocks=blocks,
        names=(run.model,) if run.model else (),
        charts=[] if run.window is None else charts.loop(run.window),
    )


def steps(run: TrainingRun) -> Section:
    """Return how long the steps took, what they did a second, and the memory they took."""
    left_out = "without the first" if run.window is None else "without the first and the recorded"
    rows = [Row("step", units.time(run.step), f"mean of {run.rated:,} steps, {left_out}")]
    if run.durations:
        rows.append(Row("median", units.time(statistics.median(run.durations))))
    if run.interval is not None:
        rows[0] = Row(
            "step", rows[0].value,
            f"95 % in {units.times(run.interval.low, run.interval.high)}; {rows[0].note}",
        )  # fmt: skip
    rows.append(Row("data wait", units.percent(run.data_wait_share), "of a step"))
    several = run.replicas if run.replicas and run.replicas > 1 else None
    for rate, name in ((run.tokens_per_second, "tokens"), (run.samples_per_second, "samples")):
        note = "the batches do not say how many" if rate is None else ""
        if rate is not None and several:
            note = f"of this process; {several} such processes"
        rows.append(Row(name, units.rate(rate, name), note))
    if run.micro_batches is not None and run.micro_batches != 1:
        rows.append(Row("batches", f"{units.significant(run.micro_batches)} a step", "accumulated"))
    rows.append(Row("between", units.time(run.between), "steps: evaluation, checkpoints"))
    rows.append(Row("memory peak", units.size(run.memory_peak)))
    headlines = ("step", "data wait", "tokens", "samples", "memory peak")
    return Section("Steps", "measured", tuple(rows), headlines=headlines)
