"""What a trace shows that costs time, in words: evidence first, then what to try."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.analyze.pieces import COMPUTE, Pieces
from torchgauge.model.breakdown import DeviceTime
from torchgauge.model.finding import Finding, Severity
from torchgauge.model.trace import Device, RankTrace

SHORT = 5_000  # ns: launching a kernel takes about as long
NOTICEABLE = 0.05
SERIOUS = 0.25
Found = Iterator[tuple[float, Finding]]
# Products in full float32, by the names of cuBLAS, CUTLASS and cuDNN. Those of TF32 say "tf32" or
# "tensorop_s1688".
_FULL_FP32 = re.compile(r"(?:^|_)(?<!fp16_)sgemm|_f32f32_f32f32_|_ffma_")
TF32_SINCE = 8  # compute capability: Ampere


# What fits JAX in place of what PyTorch has.
_OF_JAX = {
    "idle-host": "Launch less: a larger part in one jax.jit, several steps in one call "
    "(jax.lax.scan), a larger batch.",
    "pageable-copies": "Leave data on the device, or move it while the step before runs "
    "(jax.device_put returns at once).",
    "launched-before": "Record after a warm-up, and call jax.block_until_ready before.",
}


def rank_findings(
    rank: RankTrace, pieces: Pieces, *, launches_told: bool = True
) -> tuple[Finding, ...]:
    """Return what stands out in one rank, what costs most first.

    `launches_told`: the file has the launches of all work that was launched in it.
    """
    found = [*_copies(rank), *_synchronisations(rank), *_full_fp32(rank)]
    if launches_told:
        found += _before(rank)
    for device in rank.times:
        mine = pieces.take(pieces.device == (-1 if device.device is None else device.device))
        name = rank.called(device.device)
        found += [*_host(device, name, mine), *_communication(device, name)]
        found += _device(device, name, launches_told)
    ordered = [one for _, one in sorted(found, key=lambda pair: -pair[0])]
    if rank.contents.recorder == "JAX":
        ordered = [
            msgspec.structs.replace(one, remedy=_OF_JAX.get(one.id, one.remedy)) for one in ordered
        ]
    return tuple(ordered)


def _host(device: DeviceTime, name: str, pieces: Pieces) -> Found:
    whole = device.breakdown
    time, share = whole.idle.host_wait, _share(whole.idle.host_wait, whole.window)
    if share < NOTICEABLE:
        return
    kernel = pieces.kind == COMPUTE
    count, short = int(kernel.sum()), int((kernel & (pieces.end - pieces.begin < SHORT)).sum())
    yield (
        time,
        Finding(
            id="idle-host",
            severity=_severity(share),
            title=f"{name} is idle for {units.percent(share)} of the window: it waits for the host",
            evidence=f"{units.time(time)} of {units.time(whole.window)}"
            + (f"; {short:,} of {count:,} kernels take less than 5 µs." if count else "."),
            remedy="Launch less: torch.compile, CUDA graphs, a larger batch."
            if short > count / 2
            else "See what the host does meanwhile: host times in the tree, synchronisations.",
        ),
    )


def _communication(device: DeviceTime, name: str) -> Found:
    whole = device.breakdown
    time, share = whole.exposed_communication, _share(whole.exposed_communication, whole.window)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="exposed-communication",
            severity=_severity(share),
            title=f"{name} does nothing but communicate for {units.percent(share)} of the window",
            evidence=f"{units.time(time)} of {units.time(whole.communication)} "
            "of communication have no computation beside them.",
            remedy="Overlap it (buckets, prefetching, order); see whether a rank comes late.",
        ),
    )


def _device(device: DeviceTime, name: str, launches_told: bool) -> Found:
    whole = device.breakdown
    time, share = whole.idle.other, _share(whole.idle.other, whole.window)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="idle-device",
            severity=_severity(share),
            title=f"{name} is idle for {units.percent(share)} of the window"
            + (" for another cause than the host" if launches_told else ""),
            evidence=f"{units.time(time)} in pauses of more than 5 µs, before work that was "
            "launched already, or whose launch is not in the file.",
            remedy="See which streams wait for each other (events, stream priorities).",
        ),
    )


def _copies(rank: RankTrace) -> Found:
    slow = [one for one in rank.copies if one.pageable]
    time = sum(one.time for one in slow)
    share = _share(time, rank.device_time)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="pageable-copies",
            severity="warning",
            title=f"{sum(one.count for one in slow):,} copies use pageable memory of the host",
            evidence=f"{units.time(time)}, {units.percent(share)} of the device's time; "
            "each stops the host as well.",
            remedy="Pin it: DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
        ),
    )


def _synchronisations(rank: RankTrace) -> Found:
    named = [one for one in rank.synchronisations if one.operator]
    time = sum(one.time for one in named)
    if _share(time, rank.window) < NOTICEABLE:
        return
    most = named[0]
    where = f" in {most.layer}" if most.layer else ""
    yield (
        time,
        Finding(
            id="synchronisation",
            severity="warning",
            title=f"Operators make the host wait for the device, {units.time(time)} in all",
            evidence=f"{most.count:,} × {most.operator}{where} ({most.call}): "
            f"{units.time(most.time)}.",
            remedy="Leave values on the device: no .item(), .cpu(), print or if in the step.",
        ),
    )


def _full_fp32(rank: RankTrace) -> Found:
    able = {one.number for one in rank.devices if _has_tf32(one)}
    kernels = [
        (row.name, row.kernel)
        for row in rank.tree.rows
        if row.kernel is not None and row.kernel.device in able and _FULL_FP32.search(row.name)
    ]
    times: dict[str, int] = {}
    for name, kernel in kernels:
        times[name] = times.get(name, 0) + sum(kernel.durations)
    time = sum(times.values()) * 1e-9
    share = _share(time, rank.device_time)
    if share < NOTICEABLE:
        return
    most = max(times, key=lambda name: times[name])
    yield (
        time,
        Finding(
            id="fp32-products",
            severity="warning",
            title=f"Products in full fp32 take {units.percent(share)} of the device's time",
            evidence=f"{units.time(time)} in {sum(one.calls for _, one in kernels):,} calls of "
            f"kernels that use no Tensor Core, most of it in {most[:80]}.",
            remedy="Where 10 bits of mantissa do, torch.set_float32_matmul_precision('high') "
            "(TF32); else bf16 by autocast.",
        ),
    )


def _has_tf32(device: Device) -> bool:
    major = device.capability.partition(".")[0]
    return major.isdigit() and int(major) >= TF32_SINCE and not device.name.startswith("AMD")


def _before(rank: RankTrace) -> Found:
    share = _share(rank.launched_before, rank.device_time)
    if share < NOTICEABLE:
        return
    yield (
        rank.launched_before,
        Finding(
            id="launched-before",
            severity="info",
            title=f"{units.percent(share)} of the device's time has no launch in the file",
            evidence=f"{units.time(rank.launched_before)} were launched before the window; "
            "by which layer is not known.",
            remedy="Record after a warm-up (schedule(wait=…, warmup=…)), and synchronise before.",
        ),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _severity(share: float) -> Severity:
    return "serious" if share > SERIOUS else "warning"
