"""Matrix products in full float32 on a device with Tensor Cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import Device

# Products in full float32, by the names of cuBLAS, CUTLASS and cuDNN. Those of TF32 say "tf32" or
# "tensorop_s1688".
_FULL_FP32 = re.compile(r"(?:^|_)(?<!fp16_)sgemm|_f32f32_f32f32_|_ffma_")
TF32_SINCE = 8  # compute capability: Ampere


def _find(evidence: Evidence) -> Iterator[Finding]:
    if evidence.rank is None:
        return
    capable = {device.number for device in evidence.rank.devices if _has_tf32(device)}
    products = [
        calls
        for calls in evidence.kernels
        if calls.kernel.device in capable and _FULL_FP32.search(calls.name)
    ]
    time = sum(calls.time for calls in products)
    if share(time, evidence.device_time) < NOTICEABLE:
        return
    times: dict[str, float] = {}
    for calls in products:
        times[calls.name] = times.get(calls.name, 0.0) + calls.time
    count = sum(calls.kernel.calls for calls in products)
    yield Finding(
        id="fp32-products",
        severity="warning",
        title=f"Products in full fp32 take {units.percent(time / evidence.device_time)} of the "
        "device's time",
        evidence=f"{units.time(time)} in {count:,} calls of kernels that use no Tensor Core, "
        f"most of it in {max(times, key=lambda name: times[name])[:80]}.",
        remedy="Where 10 bits of mantissa do, torch.set_float32_matmul_precision('high') "
        "(TF32); else bf16 by autocast.",
        time=time,
        worth=time,
        view="tables",
    )


def _has_tf32(device: Device) -> bool:
    major = device.capability.partition(".")[0]
    return major.isdigit() and int(major) >= TF32_SINCE and not device.name.startswith("AMD")


RULE = Rule(
    "fp32-products",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere",
)
