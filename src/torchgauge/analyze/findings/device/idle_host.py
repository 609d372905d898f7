"""A device that waits for the host to launch its next work."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

SHORT = 5_000  # ns: launching a kernel takes about as long


def _find(evidence: Evidence) -> Iterator[Finding]:
    for device in evidence.device_times:
        time, window = device.breakdown.idle.host_wait, device.breakdown.window
        if share(time, window) < NOTICEABLE:
            continue
        count, short = _kernels(evidence, device.device)
        yield RULE.costs(
            time,
            window,
            title=f"{evidence.called(device.device)} is idle for {units.percent(time / window)} of "
            "the window: it waits for the host",
            evidence=f"{units.time(time)} of {units.time(window)}"
            + (f"; {short:,} of {count:,} kernels take less than 5 µs." if count else "."),
            remedy="Launch less: torch.compile, CUDA graphs, a larger batch."
            if short > count / 2
            else "See what the host does meanwhile: host times in the tree, synchronisations.",
            view="devices",
        )


def _kernels(evidence: Evidence, device: int | None) -> tuple[int, int]:
    """Return how many kernels that compute ran on a device, and how many of them are short."""
    durations = [
        duration
        for calls in evidence.kernels
        if calls.kernel.device == device and calls.computes
        for duration in calls.kernel.durations
    ]
    return len(durations), sum(duration < SHORT for duration in durations)


RULE = Rule(
    "idle-host",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    jax_remedy="Launch less: a larger part in one jax.jit, several steps in one call "
    "(jax.lax.scan), a larger batch.",
)
