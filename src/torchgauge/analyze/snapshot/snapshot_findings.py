"""The findings of a memory snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.snapshot.replay import segment_for
from torchgauge.records.finding import Finding
from torchgauge.records.snapshot import DeviceMemory, Oom, OomCause, PossibleLeak, Snapshot, Stack

# The smallest share of what a device reserves that is reported.
MIN_SHARE = 0.1
_MEBIBYTE = 1 << 20
_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_CAUSES: dict[OomCause, tuple[str, str]] = {
    "fragmentation": (
        "enough was free, but in no single block",
        f"Set {_EXPANDABLE}, and avoid sizes that change from step to step.",
    ),
    "full": (
        "the memory was really full",
        "Hold less at the peak: a smaller batch, checkpointing, lower precision; see its stacks.",
    ),
    "elsewhere": (
        "a free block was large enough, but belonged to another stream or pool",
        "Allocate on one stream, or call torch.cuda.empty_cache() between the phases.",
    ),
    "limit": (
        "there was enough memory, but something else refused",
        "Look for set_per_process_memory_fraction, private pools (CUDA graphs), and other "
        "processes on the device.",
    ),
    "unknown": (
        "the file does not have the free memory at that time",
        "Record with torch.cuda.memory._record_memory_history() and dump at the failure.",
    ),
}

_SEGMENT_TOO_LARGE = (
    "the device had as much left, and less than the segment that torch takes for it",
    "It takes 20 MiB at once for what is 1 to 10 MiB, else whole 2 MiB: the device was full. Hold "
    "less at the peak, and see what other processes hold on the device.",
)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return failures first, then waste, then what the file cannot tell."""
    rows = [
        finding for device in snapshot.devices for finding in _device_findings(snapshot, device)
    ]
    rows += _unrecorded(snapshot)
    order = ("serious", "warning", "info")
    return tuple(sorted(rows, key=lambda finding: order.index(finding.severity)))


def _device_findings(snapshot: Snapshot, device: DeviceMemory) -> Iterator[Finding]:
    several = f"GPU {device.device}" if len(snapshot.devices) > 1 else ""
    label = several or "The GPU"
    if device.ooms:
        yield _oom(device.ooms[-1], len(device.ooms), f" on {several}" * bool(several))
    yield from _unused(device, label)
    yield from _pending(device, label)
    yield from _rounding(device, label)
    yield from _possible_leaks(snapshot, device, f" on {several}" * bool(several))
    yield from _peak_holder(snapshot, device, f" of {several}" * bool(several))
    yield from _before_window(device, label)


def _oom(oom: Oom, count: int, on_device: str) -> Finding:
    cause_text, remedy = _CAUSES[oom.cause]
    if oom.cause == "limit" and _less_than_a_segment(oom):
        cause_text, remedy = _SEGMENT_TOO_LARGE
    parts = [f"{units.size(oom.alive)} were in use"]
    if oom.device_free is not None:
        parts.append(f"the device had {units.size(oom.device_free)} left")
    if oom.cached is not None:
        parts.append(
            f"{units.size(oom.cached)} of the reserved were free, the largest piece "
            f"{units.size(oom.largest)}"
        )
    repeated = f" It failed {count} times; this is the last." if count > 1 else ""
    return Finding(
        id=f"oom-{oom.cause}",
        severity="serious",
        title=f"Out of memory at {units.size(oom.requested)}{on_device}: {cause_text}",
        evidence=f"{'; '.join(parts)}.{repeated}",
        remedy=remedy,
    )


def _less_than_a_segment(oom: Oom) -> bool:
    """Return whether the device alone had room, and not for the segment that torch would take."""
    if oom.usable is None or oom.usable >= oom.requested or oom.device_free is None:
        return False
    return oom.device_free < segment_for(oom.requested)


def _unused(device: DeviceMemory, label: str) -> Iterator[Finding]:
    split = device.fragmentation.split
    if split < MIN_SHARE * device.reserved or split < _MEBIBYTE or not device.reserved:
        return
    any_expandable = any(segment.expandable for segment in device.segments)
    yield Finding(
        id="fragmented",
        severity="warning",
        title=f"{label} holds {units.size(split)} between blocks in use",
        evidence=f"{units.percent(split / device.reserved)} of what is reserved cannot go back to "
        f"the device; the largest free block is {units.size(device.fragmentation.largest)}.",
        remedy="Some segments are not expandable: private pools are not."
        if any_expandable
        else f"Set {_EXPANDABLE}.",
    )


def _pending(device: DeviceMemory, label: str) -> Iterator[Finding]:
    if device.pending >= MIN_SHARE * (device.allocated + device.pending) > 0:
        yield Finding(
            id="pending-frees",
            severity="warning",
            title=f"{label} waits for other streams to release {units.size(device.pending)}",
            evidence="It was freed and is still held, because a stream given to record_stream had "
            "not reached that point.",
            remedy="Synchronise the streams earlier, or wait for the side stream before the "
            "tensor is freed instead of record_stream.",
        )


def _rounding(device: DeviceMemory, label: str) -> Iterator[Finding]:
    lost, active = device.fragmentation.internal, device.allocated + device.pending
    if lost is not None and lost >= MIN_SHARE * active and lost >= _MEBIBYTE:
        yield Finding(
            id="rounding",
            severity="info",
            title=f"{label} loses {units.size(lost)} to rounding",
            evidence=f"{units.percent(lost / active)} of the blocks in use exceeds the requested "
            "sizes.",
            remedy="Many small tensors, or roundup_power2_divisions: put small ones together.",
        )


def _peak_holder(snapshot: Snapshot, device: DeviceMemory, of_device: str) -> Iterator[Finding]:
    peak = device.peak
    if peak is None:
        return
    largest = next((holding for holding in peak.held if holding.stack is not None), None)
    if largest is None or largest.stack is None or not peak.bytes:
        return
    stack, share = snapshot.stacks[largest.stack], largest.bytes / peak.bytes
    if share >= 0.25 and stack.frames:
        yield Finding(
            id="peak-holder",
            severity="info",
            title=f"{units.percent(share)} of the peak{of_device} comes from {place(stack)}",
            evidence=f"{units.size(largest.bytes)} of {units.size(peak.bytes)} in "
            f"{largest.blocks:,} block{'s' * (largest.blocks != 1)}.",
            remedy="To lower the peak, begin there.",
        )


def _possible_leaks(snapshot: Snapshot, device: DeviceMemory, on_device: str) -> Iterator[Finding]:
    min_bytes = 0.01 * (device.allocated + device.pending)
    leaks = [leak for leak in device.possible_leaks if leak.bytes >= min_bytes]
    if not any(stack.category == "gradients" for stack in snapshot.stacks):
        forward = [leak for leak in leaks if snapshot.stacks[leak.stack].category == "activations"]
        leaks = [leak for leak in leaks if leak not in forward]
        yield from _forward_alone(forward, on_device)
    for leak in leaks[:3]:
        yield Finding(
            id="kept",
            severity="warning",
            title=f"{place(snapshot.stacks[leak.stack])} keeps its allocations{on_device}: "
            f"{units.size(leak.bytes)}",
            evidence=f"{leak.blocks:,} of its {leak.allocations:,} allocations, all through the "
            "window, are still alive at the end.",
            remedy="A list or a log that holds tensors, or a graph that is kept: detach() or "
            "item() what is stored. A cache that fills looks the same.",
        )


def _forward_alone(leaks: list[PossibleLeak], on_device: str) -> Iterator[Finding]:
    """Find what forward passes keep in a window without a backward pass: not yet a leak."""
    if leaks:
        yield Finding(
            id="kept-for-backward",
            severity="info",
            title=f"Forward passes keep {units.size(sum(leak.bytes for leak in leaks))}"
            f"{on_device}, and no backward pass is in the window",
            evidence=f"{sum(leak.blocks for leak in leaks):,} blocks of {len(leaks):,} places.",
            remedy="A backward pass frees what it needs of this; for inference use "
            "torch.inference_mode(). A list of outputs with their graphs looks the same.",
        )


def place(stack: Stack) -> str:
    """Return where an allocation was made, in a few words."""
    if not stack.frames:
        return "no recorded stack"
    frame = stack.frames[0]
    file = frame.file.rsplit("/", 1)[-1]
    location = f"{file}:{frame.line}" if frame.line else file
    return f"{location} {frame.name}".strip() if location else frame.name


def _before_window(device: DeviceMemory, label: str) -> Iterator[Finding]:
    window = device.window
    if (
        window is not None
        and window.before
        and window.before >= MIN_SHARE * (device.allocated or 1)
    ):
        yield Finding(
            id="window-middle",
            severity="info",
            title=f"{label} held {units.size(window.before)} before the first recorded event",
            evidence=f"{window.before_blocks:,} allocations: the recording began later, or its "
            "ring buffer (max_entries) forgot them.",
            remedy="The stacks of blocks freed since then are unknown. Record from the beginning, "
            "with more entries.",
        )


def _unrecorded(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.devices and not any(device.window for device in snapshot.devices):
        yield Finding(
            id="no-history",
            severity="info",
            title="No events were recorded: the peak and the timeline are unknown",
            evidence="The file holds the state of one moment.",
            remedy="Call torch.cuda.memory._record_memory_history() before the code in question.",
        )
    if snapshot.stacks and not any(stack.frames for stack in snapshot.stacks):
        yield Finding(
            id="no-stacks",
            severity="info",
            title="No stacks were recorded: allocations cannot be attributed",
            evidence="No block and no event has frames.",
            remedy="Leave _record_memory_history(context=…) at its default.",
        )
