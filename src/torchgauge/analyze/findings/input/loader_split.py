"""What a split wait for a DataLoader shows, and what to change because of it."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.timeline.loader_wait import LoaderWait

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
