"""What a loop waits for while batches are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.host_rules import Delay, delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.host_delay import LOADING

# Parts that one change makes shorter, with what it is called in evidence.
_GROUPS = {
    "made": ("queued", "decode", "collate"),
    "restart": ("restart",),
    "transfer": ("transfer",),
    "pin": ("pin",),
    "sampler": ("sampler",),
    "other": ("other",),
}
_WORDS = {"queued": "busy worker", "restart": "starting workers", "pin": "pinning"}
# Shares of the workers' time: above the one they are all at work, below the other mostly idle.
_ALL_BUSY = 0.9


def split_text(wait: LoaderWait) -> str:
    """Return the evidence: "26.2 ms a step in 87 steps: decode 21.0 ms, collate 5.0 ms"."""
    text = f"{units.time(wait.time / wait.steps)} a step in {wait.steps:,} bare steps"
    parts = {} if wait.parts is None else wait.parts.by_name
    longest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    named = [
        f"{_WORDS.get(name, name)} {units.time(seconds / wait.steps)}"
        for name, seconds in longest
        if seconds >= wait.time / 20
    ]
    if wait.busy is not None:
        named.append(f"workers busy {units.percent(wait.busy)}")
    return f"{text}: {', '.join(named)}" if named else text


def split_remedy(wait: LoaderWait, cores: int) -> str | None:
    """Return what to change; None where the wait is not split. `cores` are usable ones."""
    if wait.parts is None:
        return None
    times = wait.parts.by_name
    group = max(_GROUPS, key=lambda name: sum(times[part] for part in _GROUPS[name]))
    if group == "made":
        return _unmade(wait, times, cores)
    if group == "restart":
        return _restart(wait)
    return {
        "transfer": "Receiving batches takes most of it: few large tensors instead of many small "
        "ones, smaller types (uint8 that the device converts), no more workers than cores.",
        "pin": "Pinning takes most of it: make batches smaller, or reuse one pinned buffer.",
        "sampler": "The sampler takes most of it: compute the order once per epoch, or yield "
        "batches of indices (batch_sampler).",
        "other": "It is neither the dataset nor its workers: see what the loop's own thread does "
        "by `torchgauge run --lines`.",
    }[group]


def _restart(wait: LoaderWait) -> str:
    if wait.persistent:
        return "Workers start slowly: import less in the script and the dataset, or use fewer."
    mean_start = units.time(wait.start / wait.starts) if wait.starts else "its time"
    return (
        f"Each epoch starts the workers again ({mean_start} to the first batch): "
        "persistent_workers=True."
    )


def _unmade(wait: LoaderWait, times: dict[str, float], cores: int) -> str:
    """Return what to do where batches are not made in time."""
    slow = "collate_fn" if times["collate"] > times["decode"] + times["queued"] else "decoding"
    cheaper = (
        "build batches by few vectorised operations in collate_fn"
        if slow == "collate_fn"
        else "decode less (data decoded already, smaller samples, augmentation on the device)"
    )
    needed, needed_cores = wait.needed, wait.needed_cores or 0.0
    if wait.workers and wait.busy is not None and wait.busy < _ALL_BUSY:
        text = "Workers idle while a batch is late: a larger prefetch_factor"
        if wait.behind is not None and wait.behind > wait.time / 2:
            text += ", or in_order=False, as later batches were ready"
        return f"{text}."
    if needed is None:
        return f"More workers (num_workers), or {cheaper}."
    if needed_cores > cores:
        return (
            f"It takes {units.significant(needed_cores)} cores to keep up, of which {cores:,} are "
            f"usable: {cheaper}"
            f"{'' if wait.workers else ', in workers beside the step (num_workers)'}."
        )
    if not wait.workers:
        return (
            "Load in worker processes beside the step: DataLoader("
            f"num_workers={needed}, persistent_workers=True) would keep up by an estimate; "
            f"or {cheaper}."
        )
    more_workers = max(needed, wait.workers + 1)
    return f"More workers: num_workers={more_workers} would keep up by an estimate; or {cheaper}."


# With fewer batches the first says nothing of the others.
ENOUGH = 3


@rule(
    "input-pipeline",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#enable-asynchronous-data-loading-and-augmentation",
    explains=("idle-host", "outside-layers"),
)
def input_pipeline(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for a DataLoader: the step would be shorter if batches were there in time."""
    loop = evidence.loop
    if loop is not None and any(wait.calls for wait in loop.loader_waits):
        yield from _of_bare_steps(evidence, loop)
        return
    delay = delayed_by(evidence, LOADING)
    if delay is None or delay.share < NOTICEABLE or _is_outlier(delay):
        return
    view = "devices" if evidence.device_times else "tree"
    subject = title(evidence, delay, "data loading")
    yield _waiting(evidence, delay.share, subject, delay.text, _remedy(delay), delay.cost, view)


def _waiting(
    evidence: Evidence, part: float, subject: str, text: str, remedy: str, cost: float, view: str
) -> Finding:
    pageable = _pageable(evidence)
    copied = f"; {units.time(pageable)} of copies to the device from pageable memory"
    return input_pipeline.finding(
        severity(part),
        title=subject,
        evidence=f"{text}{copied * bool(pageable)}.",
        remedy=f"{remedy}{' pin_memory=True has it copied beside the step.' * bool(pageable)}",
        time=cost,
        worth=cost,
        node=next((node for node in evidence.nodes if node.name == LOADING), None),
        path="",
        view=view,
    )


def _of_bare_steps(evidence: Evidence, loop: Loop) -> Iterator[Finding]:
    """Yield the finding of a loop's waits, which are of steps without a profiler."""
    first, part = loop.loader_waits[0], loop.loading or 0.0  # the longest, and all
    usual = part - share(first.longest, first.duration)
    if part < NOTICEABLE or (not first.workers and first.calls >= ENOUGH and usual < NOTICEABLE):
        return
    remedy = split_remedy(first, loop.environment.machine.usable_cores) or (
        "Watch the loop from before its workers start, or see whether more of them help."
    )
    subject = f"Data loading takes {units.percent(part)} of the step"
    cost = min(sum(wait.time / wait.steps for wait in loop.loader_waits), evidence.time)
    yield _waiting(evidence, part, subject, split_text(first), remedy, cost, "tree")


def _is_outlier(delay: Delay) -> bool:
    """Whether it is one slow call of a loader that does the same work in each of them."""
    usual_share = delay.share * (1 - delay.longest / delay.time)
    return delay.has_workers is False and delay.calls >= ENOUGH and usual_share < NOTICEABLE


def _remedy(delay: Delay) -> str:
    if delay.has_workers is False:
        return (
            "Load in worker processes beside the step: DataLoader(num_workers=4, "
            "persistent_workers=True), then see if more help."
        )
    if delay.has_workers is None:
        return "Have batches ready before they are needed: DataLoader(num_workers=…)."
    if delay.calls >= ENOUGH and delay.longest > delay.time / 2:
        return (
            "Most of it is one batch, as when workers start or a file is opened: "
            "persistent_workers=True, a larger prefetch_factor."
        )
    return (
        "The workers do not keep up: more of them (num_workers), cheaper decoding and augmentation "
        "(fewer samples one by one, or on the device), data that are decoded already."
    )


def _pageable(evidence: Evidence) -> float:
    """Return the seconds of copies to the device from memory that is not pinned."""
    return sum(
        calls.time for calls in evidence.kernels if calls.kernel.pageable and "HtoD" in calls.name
    )
