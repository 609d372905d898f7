"""Products of types, shapes and alignments that devices are slow at."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    PRODUCTS,
    Evidence,
    Execution,
    operators_above,
    shapes_of,
    short_name,
)
from torchgauge.analyze.findings.rule import NOTICEABLE, SERIOUS, noticeable, rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name
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
_FP32_PRODUCTS_HALF = (
    "Tensor Cores of this device take half precision: torch.autocast('cuda', torch.float16), with "
    "a GradScaler where it trains."
)


@rule("fp32-products", source="https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere")
def fp32_products(evidence: Evidence) -> Iterator[Finding]:
    """Find matrix products and convolutions in full float32 on a device with Tensor Cores."""
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
    if not (time := noticeable(evidence, (calls.time for calls in products))):
        return
    has_tf32 = all(majors[calls.kernel.device or 0] >= TF32_SINCE for calls in products)
    times: dict[str, float] = {}
    for calls in products:
        times[calls.name] = times.get(calls.name, 0.0) + calls.time
    count = sum(calls.kernel.calls for calls in products)
    yield fp32_products.finding(
        "warning",
        title=f"Products in full fp32 take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {count:,} calls of kernels that use no Tensor Core, "
        f"most of it in {short_name(max(times, key=lambda name: times[name]))}.",
        remedy=_TF32 if has_tf32 else _FP32_PRODUCTS_HALF,
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


_DOUBLE = re.compile(r"dgemm|f64|(?<!\w)d(?:gemv|conv)|<double\b|_DB_")


@rule(
    "float64-products",
    source="https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html",
    jax_remedy="Leave jax_enable_x64 off, and give float32.",
)
def float64_products(evidence: Evidence) -> Iterator[Finding]:
    """Find matrix products and convolutions in double precision."""
    products = evidence.executed(*PRODUCTS)
    if evidence.runs_on_host:
        double = _on_host(evidence, products)
    else:
        double = [execution for execution in products if _DOUBLE.search(execution.node.name)]
    if not (time := noticeable(evidence, (execution.time for execution in double))):
        return
    longest = max(double, key=lambda execution: execution.time)
    yield float64_products.costs(
        (time, evidence.time),
        title=f"Products in float64 take {evidence.part(time)}",
        evidence=f"{units.time(time)}, most of it in {longest.node.name[:60]}"
        + (f" of {longest.node.path}." if longest.node.path else "."),
        remedy="Cast the model and its inputs to float32: .float(). Data from NumPy is float64: "
        "torch.as_tensor(data, dtype=torch.float32).",
        node=longest.node,
    )


def _on_host(evidence: Evidence, products: list[Execution]) -> list[Execution]:
    """Return the products of layers that compute in float64 alone, by the count of their work."""
    cost = None if evidence.profile is None else evidence.profile.cost
    if cost is None:
        return []
    dtypes: dict[str, set[str]] = {}
    for row in cost.rows:
        if row.matmul_flops:
            dtypes.setdefault(cost.nodes[row.node].path, set()).add(row.dtype)
    return [execution for execution in products if dtypes.get(execution.node.path) == {"float64"}]


_EMULATED_HALF_HALF = ("float16", "bfloat16")
CLEARLY = 0.7  # of the peak in float32: two measurements differ less


@rule(
    "emulated-half", source="https://docs.pytorch.org/docs/stable/amp.html#cpu-op-specific-behavior"
)
def emulated_half(evidence: Evidence) -> Iterator[Finding]:
    """Find half precision that the processor computes slower than single precision."""
    profile = evidence.profile
    if profile is None or profile.cost is None or profile.roofline is None:
        return
    roofs = profile.roofline.roofs
    full = roofs.peak("float32")
    for dtype in _EMULATED_HALF_HALF:
        half = roofs.peak(dtype)
        if full is None or half is None or half > CLEARLY * full:
            continue
        time = evidence.product_time(dtype)
        if share(time, evidence.time) < NOTICEABLE:
            continue
        yield emulated_half.costs(
            (time, evidence.time),
            title=f"This processor computes products in {dtype} slower than in float32",
            evidence=f"{units.time(time)}, {units.percent(time / evidence.time)} of the step; at "
            f"most {units.rate(half, 'FLOP')} in {dtype}, {units.rate(full, 'FLOP')} in float32.",
            remedy="Compute in float32 here, or on a processor with instructions for this type "
            "(AMX, AVX512-BF16, AVX512-FP16).",
            worth=time * (1 - half / full),
        )


# What a cast costs is won back from about here on.
FASTER = 1.5


@rule("faster-half", source="https://docs.pytorch.org/docs/stable/amp.html", order="last")
def faster_half(evidence: Evidence) -> Iterator[Finding]:
    """Find products in single precision on a device that computes half precision much faster."""
    profile = evidence.profile
    if profile is None or profile.cost is None or profile.roofline is None:
        return
    if profile.target.precision not in ("native", "fp32"):
        return
    roofs = profile.roofline.roofs
    single = roofs.peak("float32", tf32=profile.environment.settings.fp32_matmul == "tf32")
    half = roofs.peak("bfloat16")
    if single is None or half is None or half < FASTER * single:
        return
    time = evidence.product_time("float32")
    if share(time, evidence.time) < SERIOUS:
        return
    yield faster_half.finding(
        title=f"This device computes products in bfloat16 {units.significant(half / single, 2)} "
        "times as fast as in float32",
        evidence=f"{units.time(time)}, {units.percent(time / evidence.time)} of the step, are "
        f"products in float32; at most {units.rate(half, 'FLOP')} against "
        f"{units.rate(single, 'FLOP')}.",
        remedy="Where 8 bits of mantissa do: torch.autocast(device_type, torch.bfloat16), or "
        "model.to(torch.bfloat16).",
        time=time,
        worth=time * (1 - single / half),
        view="tree",
    )


# CUTLASS's names say how many elements a load takes: 16 bytes are 8 of half precision, 4 of TF32.
# In half precision cuBLAS of Volta goes without Tensor Cores where a size is no multiple of 8.
_UNALIGNED = re.compile(r"_align[12](?!\d)|fp16_sgemm_fp16|volta_(?:fp16_)?hgemm")


@rule(
    "unaligned-products",
    source="https://docs.nvidia.com/deeplearning/performance/"
    "dl-performance-matrix-multiplication/index.html#requirements-tc",
)
def unaligned_products(evidence: Evidence) -> Iterator[Finding]:
    """Find matrix products whose sizes keep them from the fast kernels."""
    products = [
        calls
        for calls in evidence.kernels
        if _UNALIGNED.search(calls.name) and "simt" not in calls.name
    ]
    if not (time := noticeable(evidence, (calls.time for calls in products))):
        return
    longest = max(products, key=lambda calls: calls.time)
    operator = longest.node.parent
    shapes = [] if operator is None else [shape for shape in shapes_of(operator) if shape]
    on_shapes = f" on {' and '.join(_written(shape) for shape in shapes)}" if shapes else ""
    yield unaligned_products.costs(
        (time, evidence.time),
        title=f"Products on unaligned sizes take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {sum(calls.kernel.calls for calls in products):,} calls "
        f"of kernels that load one or two elements at a time, most of it in "
        f"{short_name(longest.name)}{on_shapes}.",
        remedy="Pad channels, vocabulary and sequence to multiples of 8 (fp32: 4), better 64.",
        node=longest.node,
        view="tables",
    )


def _written(shape: object) -> str:
    return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)


# Where they are most of the work, it is a decoder or a model that serves one request at a time.
DOMINANT_SHARE = 0.5
# The place of the operand whose rows are the batch's.
_OPERANDS = {"aten::mm": 0, "aten::addmm": 1, "aten::mv": None, "aten::addmv": None}


@rule(
    "single-row-products",
    order="most",
    source="https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/"
    "index.html#understand-perf",
)
def single_row_products(evidence: Evidence) -> Iterator[Finding]:
    """Find products of one row, which wait for the weights to be read."""
    products = [
        execution for execution in evidence.executed("matrix product") if _has_one_row(execution)
    ]
    time = evidence.within(sum(execution.time for execution in products))
    if share(time, sum(execution.time for execution in evidence.executions)) < DOMINANT_SHARE:
        return
    longest = max(products, key=lambda execution: execution.time)
    calls = sum(execution.node.calls for execution in products)
    yield single_row_products.costs(
        (time, evidence.time),
        title=f"Products of a single row take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {calls:,} calls "
        "that read each weight for two operations: memory bounds them, not arithmetic.",
        remedy="Several requests in one batch cost hardly more than one; else smaller weights "
        "(int8, int4 weights).",
        worth=None,
        node=longest.node,
    )


def _has_one_row(execution: Execution) -> bool:
    """Whether it is a product with a matrix of one row, by the shapes that its operator took."""
    around = [execution.node, *operators_above(execution.node)]
    operator = next((node for node in around if node.kind == "operator"), None)
    name = "" if operator is None else base_name(operator.name)
    if operator is None or name not in _OPERANDS:
        return False
    place = _OPERANDS[name]
    shapes = shapes_of(operator)
    if place is None:
        return True
    return len(shapes) > place and isinstance(shapes[place], list) and shapes[place][:1] == [1]
