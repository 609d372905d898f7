"""Findings about a rank's trace: what costs time, with evidence and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.analyze.trace.device_work import COMPUTE, Activities
from torchgauge.records.finding import Finding, Severity
from torchgauge.records.trace.breakdown import DeviceTime
from torchgauge.records.trace.trace import Device, RankTrace

SHORT = 5_000  # ns: launching a kernel takes about as long
NOTICEABLE = 0.05
SERIOUS = 0.25
CostedFindings = Iterator[tuple[float, Finding]]
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
    rank: RankTrace, activities: Activities, *, has_launches: bool = True
) -> tuple[Finding, ...]:
    """Return the findings of one rank, the most expensive first.

    `has_launches`: the file has the launches of all work that was launched in it.
    """
    costed_findings = [*_copies(rank), *_synchronisations(rank), *_full_fp32(rank)]
    if has_launches:
        costed_findings += _before(rank)
    for device in rank.times:
        on_device = activities.take(
            activities.device == (-1 if device.device is None else device.device)
        )
        name = rank.called(device.device)
        costed_findings += [*_host(device, name, on_device), *_communication(device, name)]
        costed_findings += _device(device, name, has_launches)
    ordered = [finding for _, finding in sorted(costed_findings, key=lambda pair: -pair[0])]
    if rank.contents.recorder == "JAX":
        ordered = [
            msgspec.structs.replace(finding, remedy=_OF_JAX.get(finding.id, finding.remedy))
            for finding in ordered
        ]
    return tuple(ordered)


def _host(device: DeviceTime, name: str, activities: Activities) -> CostedFindings:
    breakdown = device.breakdown
    time, share = breakdown.idle.host_wait, _share(breakdown.idle.host_wait, breakdown.window)
    if share < NOTICEABLE:
        return
    kernel = activities.kind == COMPUTE
    count = int(kernel.sum())
    short = int((kernel & (activities.end - activities.begin < SHORT)).sum())
    yield (
        time,
        Finding(
            id="idle-host",
            severity=_severity(share),
            title=f"{name} is idle for {units.percent(share)} of the window: it waits for the host",
            evidence=f"{units.time(time)} of {units.time(breakdown.window)}"
            + (f"; {short:,} of {count:,} kernels take less than 5 µs." if count else "."),
            remedy="Launch less: torch.compile, CUDA graphs, a larger batch."
            if short > count / 2
            else "See what the host does meanwhile: host times in the tree, synchronisations.",
        ),
    )


def _communication(device: DeviceTime, name: str) -> CostedFindings:
    breakdown = device.breakdown
    time = breakdown.exposed_communication
    share = _share(time, breakdown.window)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="exposed-communication",
            severity=_severity(share),
            title=f"{name} does nothing but communicate for {units.percent(share)} of the window",
            evidence=f"{units.time(time)} of {units.time(breakdown.communication)} "
            "of communication overlap with no computation.",
            remedy="Overlap it (buckets, prefetching, order); see whether a rank comes late.",
        ),
    )


def _device(device: DeviceTime, name: str, has_launches: bool) -> CostedFindings:
    breakdown = device.breakdown
    time, share = breakdown.idle.other, _share(breakdown.idle.other, breakdown.window)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="idle-device",
            severity=_severity(share),
            title=f"{name} is idle for {units.percent(share)} of the window"
            + ("for a cause other than the host" if has_launches else ""),
            evidence=f"{units.time(time)} in pauses of more than 5 µs, before work that was "
            "launched already, or whose launch is not in the file.",
            remedy="See which streams wait for each other (events, stream priorities).",
        ),
    )


def _copies(rank: RankTrace) -> CostedFindings:
    slow = [copy for copy in rank.copies if copy.pageable]
    time = sum(copy.time for copy in slow)
    share = _share(time, rank.device_time)
    if share < NOTICEABLE:
        return
    yield (
        time,
        Finding(
            id="pageable-copies",
            severity="warning",
            title=f"{sum(copy.count for copy in slow):,} copies use pageable memory of the host",
            evidence=f"{units.time(time)}, {units.percent(share)} of the device's time; "
            "each stops the host as well.",
            remedy="Pin it: DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
        ),
    )


def _synchronisations(rank: RankTrace) -> CostedFindings:
    waits = [wait for wait in rank.synchronisations if wait.operator]
    time = sum(wait.time for wait in waits)
    if _share(time, rank.window) < NOTICEABLE:
        return
    longest = waits[0]
    location = f" in {longest.layer}" if longest.layer else ""
    yield (
        time,
        Finding(
            id="synchronisation",
            severity="warning",
            title=f"Operators make the host wait for the device, {units.time(time)} in all",
            evidence=f"{longest.count:,} × {longest.operator}{location} ({longest.call}): "
            f"{units.time(longest.time)}.",
            remedy="Leave values on the device: no .item(), .cpu(), print or if in the step.",
        ),
    )


def _full_fp32(rank: RankTrace) -> CostedFindings:
    tf32_devices = {device.number for device in rank.devices if _has_tf32(device)}
    kernels = [
        (row.name, row.kernel)
        for row in rank.tree.rows
        if row.kernel is not None
        and row.kernel.device in tf32_devices
        and _FULL_FP32.search(row.name)
    ]
    times: dict[str, int] = {}
    for name, kernel in kernels:
        times[name] = times.get(name, 0) + sum(kernel.durations)
    time = sum(times.values()) * 1e-9
    share = _share(time, rank.device_time)
    if share < NOTICEABLE:
        return
    calls = sum(kernel.calls for _, kernel in kernels)
    slowest = max(times, key=lambda name: times[name])
    yield (
        time,
        Finding(
            id="fp32-products",
            severity="warning",
            title=f"Products in full fp32 take {units.percent(share)} of the device's time",
            evidence=f"{units.time(time)} in {calls:,} calls of kernels that use no Tensor Core, "
            f"most of it in {slowest[:80]}.",
            remedy="Where 10 bits of mantissa do, torch.set_float32_matmul_precision('high') "
            "(TF32); else bf16 by autocast.",
        ),
    )


def _has_tf32(device: Device) -> bool:
    major = device.capability.partition(".")[0]
    return major.isdigit() and int(major) >= TF32_SINCE and not device.name.startswith("AMD")


def _before(rank: RankTrace) -> CostedFindings:
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


def _share(part: float, total: float) -> float:
    return part / total if total else 0.0


def _severity(share: float) -> Severity:
    return "serious" if share > SERIOUS else "warning"
