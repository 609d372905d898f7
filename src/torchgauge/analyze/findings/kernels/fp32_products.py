"""Matrix products and convolutions in full float32 on a device with Tensor Cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import Device

# Products in full float32, by the names of cuBLAS, CUTLASS and cuDNN. Those of TF32 say "tf32" or
# "tensorop_s1688".
_FULL_FP32 = re.compile(r"(?:^|_)(?<!fp16_)sgemm|_f32f32_f32f32_|_ffma_")
# Convolutions in full float32, and those in TF32. cuDNN uses both where TF32 is allowed.
_FP32_CONVOLUTION = re.compile(
    r"(?<!fp16)_scudnn_|implicit_convolve_sgemm|cudnn::winograd\w*::\w+<float, float>"
)
_TF32_CONVOLUTION = re.compile(r"tf32|tensorop_s1688(?:fprop|dgrad|wgrad)")
TF32_SINCE = 8  # compute capability: Ampere
TENSOR_CORES_SINCE = 7  # Volta
_TF32 = (
    "Where 10 bits of mantissa do, torch.set_float32_matmul_precision('high') and "
    "torch.backends.cudnn.allow_tf32 = True (TF32); else bf16 by autocast."
)
_HALF = (
    "Tensor Cores of this device take half precision: torch.autocast('cuda', torch.float16), with "
    "a GradScaler where it trains."
)


def _find(evidence: Evidence) -> Iterator[Finding]:
    if evidence.rank is None:
        return
    majors = {device.number: _capability(device) for device in evidence.rank.devices}
    rounds = any(_TF32_CONVOLUTION.search(calls.name) for calls in evidence.kernels)
    products = [
        calls
        for calls in evidence.kernels
        if majors.get(calls.kernel.device or 0, 0) >= TENSOR_CORES_SINCE
        and _is_full(calls.name, with_convolutions=not rounds)
    ]
    time = evidence.within(sum(calls.time for calls in products))
    if share(time, evidence.time) < NOTICEABLE:
        return
    has_tf32 = all(majors[calls.kernel.device or 0] >= TF32_SINCE for calls in products)
    times: dict[str, float] = {}
    for calls in products:
        times[calls.name] = times.get(calls.name, 0.0) + calls.time
    count = sum(calls.kernel.calls for calls in products)
    yield Finding(
        id="fp32-products",
        severity="warning",
        title=f"Products in full fp32 take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {count:,} calls of kernels that use no Tensor Core, "
        f"most of it in {short_name(max(times, key=lambda name: times[name]))}.",
        remedy=_TF32 if has_tf32 else _HALF,
        time=time,
        worth=time,
        view="tables",
    )


def _capability(device: Device) -> int:
    """Return the major number of an NVIDIA device's compute capability, 0 of another."""
    major = device.capability.partition(".")[0]
    return int(major) if major.isdigit() and not device.name.startswith("AMD") else 0


def _is_full(kernel: str, *, with_convolutions: bool) -> bool:
    is_convolution = _FP32_CONVOLUTION.search(kernel) is not None
    return with_convolutions if is_convolution else _FULL_FP32.search(kernel) is not None


RULE = Rule(
    "fp32-products",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere",
)
