"""The loop waits for its DataLoader: the step would be shorter if batches were there in time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.host.delay import Delay, delayed_by, title
from torchgauge.analyze.findings.input.loader_split import split_remedy, split_text
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.records.timeline.node import Node
from torchgauge.records.trace.host_delay import LOADING

# With fewer batches the first says nothing of the others.
ENOUGH = 3


def _find(evidence: Evidence) -> Iterator[Finding]:
    waits = () if evidence.loop is None else evidence.loop.loader_waits
    if any(wait.calls for wait in waits):
        yield from _of_bare_steps(evidence, waits)
        return
    delay = delayed_by(evidence, LOADING)
    if delay is None or delay.share < NOTICEABLE or _is_outlier(delay):
        return
    bucket = _bucket(evidence)
    yield Finding(
        id="input-pipeline",
        severity=severity(delay.share),
        title=title(evidence, delay, "data loading"),
        evidence=f"{delay.text}{_pageable_text(evidence)}.",
        remedy=_remedy(evidence, delay),
        time=delay.cost,
        worth=delay.cost,
        node=None if bucket is None else bucket.index,
        view="devices" if evidence.device_times else "tree",
    )


def _of_bare_steps(evidence: Evidence, waits: tuple[LoaderWait, ...]) -> Iterator[Finding]:
    """Yield the finding of a loop's waits, which are of steps without a profiler."""
    first = waits[0]  # the longest
    part = sum(wait.share for wait in waits)
    usual = part - share(first.longest, first.duration)
    if part < NOTICEABLE or (not first.workers and first.calls >= ENOUGH and usual < NOTICEABLE):
        return
    cores = evidence.loop.environment.machine.usable_cores if evidence.loop is not None else 1
    pinning = _pinning(evidence)
    remedy = split_remedy(first, cores) or (
        "Watch the loop from before its workers start, or see whether more of them help."
    )
    bucket = _bucket(evidence)
    cost = min(sum(wait.time / wait.steps for wait in waits), evidence.time)
    yield Finding(
        id="input-pipeline",
        severity=severity(part),
        title=f"Data loading takes {units.percent(part)} of the step",
        evidence=f"{split_text(first)}{_pageable_text(evidence)}.",
        remedy=f"{remedy}{pinning}",
        time=cost,
        worth=cost,
        node=None if bucket is None else bucket.index,
        view="tree",
    )


def _bucket(evidence: Evidence) -> Node | None:
    return next((node for node in evidence.nodes if node.name == LOADING), None)


def _is_outlier(delay: Delay) -> bool:
    """Whether it is one slow call of a loader that does the same work in each of them."""
    usual_share = delay.share * (1 - delay.longest / delay.time)
    return "_SingleProcess" in delay.name and delay.calls >= ENOUGH and usual_share < NOTICEABLE


def _remedy(evidence: Evidence, delay: Delay) -> str:
    pinning = _pinning(evidence)
    if "_SingleProcess" in delay.name:
        return (
            "Load in worker processes beside the step: DataLoader(num_workers=4, "
            f"persistent_workers=True), then see if more help.{pinning}"
        )
    if "_MultiProcessing" not in delay.name:
        return f"Have batches ready before they are needed: DataLoader(num_workers=…).{pinning}"
    if delay.calls >= ENOUGH and delay.longest > delay.time / 2:
        return (
            "Most of it is one batch, as when workers start or a file is opened: "
            f"persistent_workers=True, a larger prefetch_factor.{pinning}"
        )
    return (
        "The workers do not keep up: more of them (num_workers), cheaper decoding and augmentation "
        f"(fewer samples one by one, or on the device), data that are decoded already.{pinning}"
    )


def _pinning(evidence: Evidence) -> str:
    return " pin_memory=True has it copied beside the step." if _pageable(evidence) else ""


def _pageable(evidence: Evidence) -> float:
    """Return the seconds of copies to the device from memory that is not pinned."""
    return sum(
        calls.time for calls in evidence.kernels if calls.kernel.pageable and "HtoD" in calls.name
    )


def _pageable_text(evidence: Evidence) -> str:
    time = _pageable(evidence)
    return f"; {units.time(time)} of copies to the device from pageable memory" if time else ""


RULE = Rule(
    "input-pipeline",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#enable-asynchronous-data-loading-and-augmentation",
    explains=("idle-host", "outside-layers"),
)
