"""What a loop waited for while it asked its DataLoaders for batches."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.report.content.section import SMALLEST_SHARE, Row, Section

LABELS = {
    "restart": ("workers", "started or ended"),
    "queued": ("busy worker", "made earlier batches"),
    "decode": ("decode", "in the dataset"),
    "collate": ("collate", "in collate_fn"),
    "transfer": ("transfer", "from the worker"),
    "pin": ("pinning", "to pinned memory"),
    "sampler": ("sampler", "in this process"),
    "other": ("other", "in this process"),
}
_NOT_SPLIT = "Not split: workers began before the timeline, or the iterator is a library's own."
# Shares of the steps' time below which a wait needs no section.
NOTED = 0.01


def waits(loader_waits: tuple[LoaderWait, ...]) -> list[Section]:
    """Return a section for each loader that the loop waited for noticeably."""
    return [_section(wait) for wait in loader_waits if wait.share >= NOTED]


def loader_name(wait: LoaderWait) -> str:
    """Return a loader's dataset and workers: "Images, 4 workers"."""
    if not wait.workers:
        return f"{wait.dataset}, no workers"
    return f"{wait.dataset}, {wait.workers:,} worker{'s' if wait.workers > 1 else ''}"


def _section(wait: LoaderWait) -> Section:
    rows = [_waited(wait), *_parts(wait), *_workers(wait)]
    if wait.starts:
        note = f"mean of {wait.starts:,} epochs" if wait.starts > 1 else "of the only epoch"
        rows.append(Row("first batch", units.time(wait.start / wait.starts), note))
    title = f"Waiting for data ({loader_name(wait)})"
    return Section(title, wait.how, tuple(rows), (_NOT_SPLIT,) * (wait.parts is None))


def _waited(wait: LoaderWait) -> Row:
    note = f"mean of {wait.steps:,} bare; longest {units.time(wait.longest)}"
    return Row("a step", units.time(wait.time / wait.steps), note, wait.share)


def _parts(wait: LoaderWait) -> Iterator[Row]:
    """Yield the parts of a wait, with their shares of the steps' time."""
    for part, seconds in ({} if wait.parts is None else wait.parts.by_name).items():
        share = seconds / wait.duration
        if share >= SMALLEST_SHARE:
            label, note = LABELS[part]
            yield Row(f"  {label}", units.time(seconds / wait.steps), note, share)


def _workers(wait: LoaderWait) -> Iterator[Row]:
    if wait.behind is not None and wait.behind / wait.duration >= SMALLEST_SHARE:
        value = units.time(wait.behind / wait.steps)
        yield Row("out of order", value, "of this a later batch was ready")
    if wait.busy is not None and len(wait.loads) == wait.workers:
        slowest = max(wait.loads, key=lambda load: load.busy / load.batches)
        batch_time = units.time(slowest.busy / slowest.batches)
        note = f"of the workers' time; slowest: worker {slowest.number}, {batch_time} a batch"
        yield Row("workers busy", units.percent(wait.busy), note)
