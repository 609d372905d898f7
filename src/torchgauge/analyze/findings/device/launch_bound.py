"""A device that is done with each kernel before the host has launched the next."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.breakdown import DeviceTime

# A queue that more often than this still holds work when a kernel begins has a host that is ahead.
MOSTLY_EMPTY = 0.5
# Waiting for the device empties its queue too. From one wait in ten launches on, that is the cause.
WAITS_A_LAUNCH = 0.1
# Fewer are the rest of something else, as after one wait.
ENOUGH_LAUNCHES = 20


def _find(evidence: Evidence) -> Iterator[Finding]:
    rank = evidence.rank
    if rank is None:
        return
    waits = sum(wait.count for wait in rank.synchronisations)
    for device in evidence.device_times:
        time, window = device.breakdown.idle.between_launches or 0.0, device.breakdown.window
        launches, in_graphs = _launches(evidence, device)
        empty = _empty_share(evidence, device)
        if (
            share(time, window) < NOTICEABLE
            or empty is None
            or empty < MOSTLY_EMPTY
            or launches < max(ENOUGH_LAUNCHES, in_graphs, waits / WAITS_A_LAUNCH)
        ):
            continue
        yield RULE.costs(
            time,
            window,
            title=f"Launching takes longer than the work: {evidence.called(device.device)} is idle "
            f"for {units.percent(time / window)} of the window between launches",
            evidence=f"{units.time(time)} in pauses of at most 0.5 ms; {units.percent(empty)} of "
            f"{launches:,} kernels began with none behind them, "
            f"{units.time(window / launches)} apart on average.",
            remedy="Launch less: torch.compile(model, mode='reduce-overhead') or "
            "torch.cuda.make_graphed_callables, else a larger batch.",
            view="devices",
        )


def _launches(evidence: Evidence, device: DeviceTime) -> tuple[int, int]:
    """Return how many kernels were launched one by one, and how many by CUDA graphs."""
    one_by_one = in_graphs = 0
    for calls in evidence.kernels:
        if calls.kernel.device == device.device and calls.kernel.work == "kernel":
            if calls.kernel.graph:
                in_graphs += calls.kernel.calls
            else:
                one_by_one += calls.kernel.calls
    return one_by_one, in_graphs


def _empty_share(evidence: Evidence, device: DeviceTime) -> float | None:
    """Return the share of empty queues on the stream that computes most; None where unknown."""
    computing = max(device.streams, key=lambda stream: stream.breakdown.compute, default=None)
    queues = () if evidence.rank is None else evidence.rank.queues
    for queue in queues:
        if computing and (queue.device, queue.stream) == (device.device, computing.stream):
            return queue.empty
    return None


RULE = Rule(
    "launch-bound",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    explains=("idle-host",),
    jax_remedy="Launch less: a larger part in one jax.jit, several steps in one call "
    "(jax.lax.scan), a larger batch.",
)
