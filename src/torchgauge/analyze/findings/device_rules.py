"""What a device waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.breakdown import DeviceTime, Idle, LatePiece

# A queue that more often than this still holds work when a kernel begins has a host that is ahead.
MOSTLY_EMPTY = 0.5
# Waiting for the device empties its queue too. From one wait in ten launches on, that is the cause.
WAITS_A_LAUNCH = 0.1
# Fewer are the rest of something else, as after one wait.
ENOUGH_LAUNCHES = 20


_CUDA_GRAPHS = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"
_LAUNCH_LESS_IN_JAX = (
    "Launch less: a larger part in one jax.jit, several steps in one call (jax.lax.scan), a larger "
    "batch."
)


@rule("launch-bound", source=_CUDA_GRAPHS, explains=("idle-host",), jax_remedy=_LAUNCH_LESS_IN_JAX)
def launch_bound(evidence: Evidence) -> Iterator[Finding]:
    """Find a device that is done with each kernel before the host has launched the next."""
    rank = evidence.rank
    if rank is None:
        return
    waits = sum(wait.count for wait in rank.synchronisations)
    for device, (time, window), text in _idle(evidence, lambda idle: idle.between_launches or 0.0):
        launches, in_graphs = _launches(evidence, device)
        empty = _empty_share(evidence, device)
        if (
            empty is None
            or empty < MOSTLY_EMPTY
            or launches < max(ENOUGH_LAUNCHES, in_graphs, waits / WAITS_A_LAUNCH)
        ):
            continue
        yield launch_bound.costs(
            (time, window),
            title=f"Launching takes longer than the work: {text} between launches",
            evidence=f"{units.time(time)} in pauses of at most 0.5 ms; {units.percent(empty)} of "
            f"{launches:,} kernels began with none behind them, "
            f"{units.time(window / launches)} apart on average.",
            remedy="Launch less: torch.compile(model, mode='reduce-overhead') or "
            "torch.cuda.make_graphed_callables, else a larger batch.",
            device=device.device,
            view="devices",
        )


def _idle(
    evidence: Evidence, seconds: Callable[[Idle], float]
) -> Iterator[tuple[DeviceTime, tuple[float, float], str]]:
    """Yield devices that are long idle for a cause: seconds of its window, and that in words."""
    for device in evidence.device_times:
        time, window = seconds(device.breakdown.idle), device.breakdown.window
        if (part := share(time, window)) >= NOTICEABLE:
            text = (
                f"{evidence.called(device.device)} is idle for {units.percent(part)} of the window"
            )
            yield device, (time, window), text


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


SHORT = 5_000  # ns: launching a kernel takes about as long


@rule("idle-host", source=_CUDA_GRAPHS)
def idle_host(evidence: Evidence) -> Iterator[Finding]:
    """Find a device that waits for the host to launch its next work."""
    for device, (time, window), text in _idle(evidence, lambda idle: idle.host_wait):
        count, short = _kernels(evidence, device.device)
        yield idle_host.costs(
            (time, window),
            title=f"{text}: it waits for the host",
            evidence=f"{units.time(time)} of {units.time(window)}"
            + (f"; {short:,} of {count:,} kernels take less than 5 µs." if count else "."),
            remedy="See what the host does meanwhile: host times in the tree, synchronisations."
            if short <= count / 2
            else _LAUNCH_LESS_IN_JAX
            if evidence.by_jax
            else "Launch less: torch.compile, CUDA graphs, a larger batch.",
            device=device.device,
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


@rule("idle-device")
def idle_device(evidence: Evidence) -> Iterator[Finding]:
    """Find a device with nothing to do in a step, or in a trace for a cause other than the host."""
    yield from _in_a_step(evidence)
    yield from _in_a_trace(evidence)


def _in_a_step(evidence: Evidence) -> Iterator[Finding]:
    uses = () if evidence.tree is None or evidence.rank is not None else evidence.tree.devices
    shares = [(use.idle / (use.busy + use.idle), use) for use in uses if use.busy + use.idle > 0]
    if not shares:
        return
    idle_share, use = max(shares, key=lambda pair: pair[0])
    yield idle_device.finding(
        title=f"GPU {use.device or 0} is idle {units.percent(idle_share)} of the step",
        evidence=f"{units.time(use.idle, 3)} without any kernel, {units.time(use.busy, 3)} with.",
        time=use.idle,
        view="tree",
    )


def _in_a_trace(evidence: Evidence) -> Iterator[Finding]:
    for device, (time, window), text in _idle(evidence, lambda idle: idle.other):
        latest = device.longest_other
        before = latest is not None and latest.follows_unrecorded and latest.idle > time / 2
        yield idle_device.costs(
            (time, window),
            title=f"{text} for a cause other than the host",
            worth=None if before else "all",
            evidence=f"{units.time(time)} in pauses of more than 5 µs before work that was "
            f"launched already{'.' if latest is None else _late(latest)}",
            remedy="Record after a warm-up, and synchronise before."
            if before
            else "See which streams wait for each other (events, stream priorities).",
            device=device.device,
            view="devices",
        )


def _late(latest: LatePiece) -> str:
    """Return the longest pause in words, with its likely reason."""
    text = (
        f"; {units.time(latest.idle)} before {short_name(latest.name)}, which began "
        f"{units.time(latest.delay)} after its launch"
    )
    if latest.follows_unrecorded:
        return f"{text}, as the first of its stream: earlier work, not in this file, probably ran."
    return f"{text}. For what it waited the file does not say: an event, or work not in the file."


@rule("idle-unknown")
def idle_unknown(evidence: Evidence) -> Iterator[Finding]:
    """Find a device that is idle before work of which no launch was recorded."""
    for device, (time, window), text in _idle(evidence, lambda idle: idle.unknown):
        yield idle_unknown.costs(
            (time, window),
            worth=None,
            title=f"{text}, and the file does not say why",
            evidence=f"{units.time(time)} of {units.time(device.breakdown.idle.total)} without "
            "work are before work of which it does not say when it was launched.",
            device=device.device,
            view="devices",
        )


_WITH_HOST = ("host to device", "device to host")


@rule(
    "exposed-copies",
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    jax_remedy="Move the next batch while this one is computed: jax.device_put returns at once.",
)
def exposed_copies(evidence: Evidence) -> Iterator[Finding]:
    """Find copies between host and device beside which nothing runs."""
    if evidence.rank is None or len(evidence.device_times) != 1:
        return  # copies are known for all devices together
    with_host = [copies for copies in evidence.rank.copies if copies.kind in _WITH_HOST]
    total = sum(copies.time for copies in with_host)
    without_host = sum(copies.time for copies in evidence.rank.copies) - total
    pageable = sum(copies.time for copies in with_host if copies.pageable)
    (device,) = evidence.device_times
    # What is exposed is known of all copies together: so much of it is between host and device.
    time = min(max(device.breakdown.exposed_copies - without_host, 0.0), total)
    if share(time, device.breakdown.window) < NOTICEABLE or pageable > total / 2:
        return
    yield exposed_copies.costs(
        (time, device.breakdown.window),
        title=f"{evidence.called(device.device)} does nothing but copy from and to the host for "
        f"{units.percent(time / device.breakdown.window)} of the window",
        evidence=f"At least {units.time(time)} of {units.time(total)} of such copies overlap with "
        "no kernel.",
        remedy="Copy the next batch on a stream of its own while this one is computed, from pinned "
        "memory: with torch.cuda.stream(side): batch.to(device, non_blocking=True).",
        view="devices",
    )
