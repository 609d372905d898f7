"""The loop waits for its DataLoader: the step would be shorter if batches were there in time."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.host.delay import Delay, delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.records.finding import Finding
from torchgauge.records.trace.host_delay import LOADING

# With fewer batches the first says nothing of the others.
ENOUGH = 3


def _find(evidence: Evidence) -> Iterator[Finding]:
    delay = delayed_by(evidence, LOADING)
    if delay is None or delay.share < NOTICEABLE or _is_outlier(delay):
        return
    bucket = next((node for node in evidence.nodes if node.name == LOADING), None)
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


def _is_outlier(delay: Delay) -> bool:
    """Whether it is one slow call of a loader that does the same work in each of them."""
    usual_share = delay.share * (1 - delay.longest / delay.time)
    return "_SingleProcess" in delay.name and delay.calls >= ENOUGH and usual_share < NOTICEABLE


def _remedy(evidence: Evidence, delay: Delay) -> str:
    pinning = " pin_memory=True has it copied beside the step." if _pageable(evidence) else ""
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
