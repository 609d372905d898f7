"""What stands out in a memory snapshot, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.snapshot_ranges import segment_for
from torchgauge.model.finding import Finding
from torchgauge.model.snapshot import DeviceMemory, Oom, OomCause, Snapshot, Stack

# Less of what a device reserves is not worth a word.
LEAST = 0.1
_MEBIBYTE = 1 << 20
_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_WHY: dict[OomCause, tuple[str, str]] = {
    "fragmentation": (
        "enough was free, but in no piece as large",
        f"Set {_EXPANDABLE}, and avoid sizes that change from step to step.",
    ),
    "full": (
        "the memory was really full",
        "Hold less at the peak: a smaller batch, checkpointing, lower precision; see its stacks.",
    ),
    "elsewhere": (
        "a free piece was large enough, and belonged to another stream or pool",
        "Allocate on one stream, or call torch.cuda.empty_cache() between the phases.",
    ),
    "limit": (
        "there was room, and something else refused",
        "Look for set_per_process_memory_fraction, private pools (CUDA graphs), and other "
        "processes on the device.",
    ),
    "unknown": (
        "what was free then is not in the file",
        "Record with torch.cuda.memory._record_memory_history() and dump at the failure.",
    ),
}

_STEP = (
    "the device had as much left, and less than the segment that torch takes for it",
    "It takes 20 MiB at once for what is 1 to 10 MiB, else whole 2 MiB: the device was full. Hold "
    "less at the peak, and see what other processes hold on the device.",
)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return failures first, then waste, then what the file cannot tell."""
    found = [one for device in snapshot.devices for one in _of(snapshot, device)]
    found += _unrecorded(snapshot)
    order = ("serious", "warning", "info")
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


def _of(snapshot: Snapshot, device: DeviceMemory) -> Iterator[Finding]:
    several = f"GPU {device.device}" if len(snapshot.devices) > 1 else ""
    where = several or "The GPU"
    if device.ooms:
        yield _oom(device.ooms[-1], len(device.ooms), f" on {several}" * bool(several))
    yield from _unused(device, where)
    yield from _pending(device, where)
    yield from _rounding(device, where)
    yield from _kept(snapshot, device, f" on {several}" * bool(several))
    yield from _holder(snapshot, device, f" of {several}" * bool(several))
    yield from _before(device, where)


def _oom(oom: Oom, count: int, where: str) -> Finding:
    why, remedy = _WHY[oom.cause]
    if oom.cause == "limit" and _less_than_a_segment(oom):
        why, remedy = _STEP
    parts = [f"{units.size(oom.alive)} were in use"]
    if oom.device_free is not None:
        parts.append(f"the device had {units.size(oom.device_free)} left")
    if oom.cached is not None:
        parts.append(
            f"{units.size(oom.cached)} of the reserved were free, the largest piece "
            f"{units.size(oom.largest)}"
        )
    more = f" It failed {count} times; this is the last." if count > 1 else ""
    return Finding(
        id=f"oom-{oom.cause}",
        severity="serious",
        title=f"Out of memory at {units.size(oom.asked)}{where}: {why}",
        evidence=f"{'; '.join(parts)}.{more}",
        remedy=remedy,
    )


def _less_than_a_segment(oom: Oom) -> bool:
    """Return whether the device alone had room, and not for the segment that torch would take."""
    if oom.usable is None or oom.usable >= oom.asked or oom.device_free is None:
        return False
    return oom.device_free < segment_for(oom.asked)


def _unused(device: DeviceMemory, where: str) -> Iterator[Finding]:
    split = device.fragmentation.split
    if split < LEAST * device.reserved or split < _MEBIBYTE or not device.reserved:
        return
    on = any(one.expandable for one in device.segments)
    yield Finding(
        id="fragmented",
        severity="warning",
        title=f"{where} holds {units.size(split)} between blocks in use",
        evidence=f"{units.percent(split / device.reserved)} of what is reserved cannot go back to "
        f"the device; the largest free block is {units.size(device.fragmentation.largest)}.",
        remedy="Some segments are not expandable: private pools are not."
        if on
        else f"Set {_EXPANDABLE}.",
    )


def _pending(device: DeviceMemory, where: str) -> Iterator[Finding]:
    if device.pending >= LEAST * (device.allocated + device.pending) > 0:
        yield Finding(
            id="pending-frees",
            severity="warning",
            title=f"{where} waits for other streams to let go of {units.size(device.pending)}",
            evidence="It was freed and is still held, since record_stream named a stream that had "
            "not come so far.",
            remedy="Synchronise the streams earlier, or wait for the side stream before the "
            "tensor is freed instead of record_stream.",
        )


def _rounding(device: DeviceMemory, where: str) -> Iterator[Finding]:
    lost, active = device.fragmentation.internal, device.allocated + device.pending
    if lost is not None and lost >= LEAST * active and lost >= _MEBIBYTE:
        yield Finding(
            id="rounding",
            severity="info",
            title=f"{where} loses {units.size(lost)} to rounding",
            evidence=f"{units.percent(lost / active)} of the blocks in use is more than was asked "
            "for.",
            remedy="Many small tensors, or roundup_power2_divisions: put small ones together.",
        )


def _holder(snapshot: Snapshot, device: DeviceMemory, where: str) -> Iterator[Finding]:
    peak = device.peak
    first = next((one for one in peak.held if one.stack is not None), None) if peak else None
    if peak is None or first is None or first.stack is None or not peak.bytes:
        return
    stack, share = snapshot.stacks[first.stack], first.bytes / peak.bytes
    if share >= 0.25 and stack.frames:
        yield Finding(
            id="peak-holder",
            severity="info",
            title=f"{units.percent(share)} of the peak{where} comes from {place(stack)}",
            evidence=f"{units.size(first.bytes)} of {units.size(peak.bytes)} in {first.blocks:,} "
            f"block{'s' * (first.blocks != 1)}.",
            remedy="Where the peak is to fall, begin there.",
        )


def _kept(snapshot: Snapshot, device: DeviceMemory, where: str) -> Iterator[Finding]:
    for one in device.kept[:3]:
        if one.bytes < 0.01 * (device.allocated + device.pending):
            continue
        yield Finding(
            id="kept",
            severity="warning",
            title=f"{place(snapshot.stacks[one.stack])} keeps what it allocates{where}: "
            f"{units.size(one.bytes)}",
            evidence=f"{one.blocks:,} of its {one.allocations:,} allocations, all through the "
            "window, are still alive at the end.",
            remedy="A list or a log that holds tensors, or a graph that is kept: detach() or "
            "item() what is stored. A cache that fills looks the same.",
        )


def place(stack: Stack) -> str:
    """Return where an allocation was made, in a few words."""
    if not stack.frames:
        return "no recorded stack"
    frame = stack.frames[0]
    file = frame.file.rsplit("/", 1)[-1]
    where = f"{file}:{frame.line}" if frame.line else file
    return f"{where} {frame.name}".strip() if where else frame.name


def _before(device: DeviceMemory, where: str) -> Iterator[Finding]:
    window = device.window
    if window is not None and window.before and window.before >= LEAST * (device.allocated or 1):
        yield Finding(
            id="window-middle",
            severity="info",
            title=f"{where} held {units.size(window.before)} before the first recorded event",
            evidence=f"{window.before_blocks:,} allocations: the recording began later, or its "
            "ring buffer (max_entries) forgot them.",
            remedy="Who allocated them is known where they are still alive, else not. Record "
            "from the beginning, with more entries.",
        )


def _unrecorded(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.devices and not any(one.window for one in snapshot.devices):
        yield Finding(
            id="no-history",
            severity="info",
            title="No events were recorded: the peak and the timeline are unknown",
            evidence="The file holds the state of one moment.",
            remedy="Call torch.cuda.memory._record_memory_history() before what is looked at.",
        )
    if snapshot.stacks and not any(stack.frames for stack in snapshot.stacks):
        yield Finding(
            id="no-stacks",
            severity="info",
            title="No stacks were recorded: who allocated is unknown",
            evidence="No block and no event has frames.",
            remedy="Leave _record_memory_history(context=…) at its default.",
        )
