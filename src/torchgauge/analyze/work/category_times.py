"""A recorded tree by category: time, work, and how near to the roofs each category comes.

A kernel has the category of the operator whose work is counted around it, so that times and FLOPs
are of the same calls: what a convolution runs to change its layout is "convolution". What an
optimizer's step runs is "optimizer"; what no known operator launched is told by the kernel's own
name. Communication, copies and memory sets are that, whoever launched them. Without a device, the
time is that of operators on the host, without what they call.

The type that a kernel computes in, and whether on Tensor Cores, as far as its name says.

Names of cuBLAS, cuDNN and CUTLASS have both, those of rocBLAS and hipBLASLt letters for types,
"nvjet" a letter each for A, B and the result. A name that says nothing is unknown.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from typing import Literal, get_args

from torchgauge.analyze.work.categories import category
from torchgauge.formulas.free import STILL
from torchgauge.formulas.kinds import kind
from torchgauge.records.timeline.node import Node, TreeRow, base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.roofline import Roofs

Precision = Literal["fp8", "int8", "bf16", "fp16", "tf32", "fp32", "fp64"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# The types of `Roofs.peaks`.
DTYPES: dict[Precision, str] = {
    "fp8": "float8", "int8": "int8", "bf16": "bfloat16", "fp16": "float16", "tf32": "tf32",
    "fp32": "float32", "fp64": "float64",
}  # fmt: skip

LONGEST_READ = 1_000  # characters; of longer names the rest is left
# In this order: results and sums are often of a wider type than what is multiplied.
_TYPES: tuple[tuple[Precision, str], ...] = (
    ("fp8", r"e4m3|e5m2|fp8|float8|nvjet_\w*qq"),
    ("int8", r"i8816|i16832|int8|imma|(?<![a-z0-9])i8i8|Cijk_\w*?_I8"),
    ("bf16", r"bf16|bfloat16|nvjet_[a-z]*t[a-z]*_|Cijk_[A-Z]\w*?_B[BS]?[BS]_"),
    ("fp16", r"fp16|(?<![b0-9a-z])f16|half|h884|h1688|h16816|hgemm|nvjet_[a-z]*h[a-z]*_"
             r"|Cijk_[A-Z]\w*?_H[HS]?[HS]_"),
    ("tf32", r"tf32|tfloat32|s1688(?:gemm|cudnn|_)|Cijk_\w*?_S_?X"),
    ("fp64", r"fp64|f64|double|dgemm|d884|Cijk_\w*?_D?DB?_"),
    ("fp32", r"fp32|f32|sgemm|float|scudnn|sss_|Cijk_\w*?_S?SB?_"),
)  # fmt: skip
_PRECISIONS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _TYPES]
_TENSOR_CORES = re.compile(
    r"tensorop_|tensor16x8|wmma|xdlops|gtcx\d|mfma|[a-z](?:884|1688|16816|16832|8816)(?:gemm|cudnn|_|fprop|dgrad|wgrad)"
    r"|hmma|imma|gmma|mma_sync|nvjet|flash_(?:fwd|bwd)|fmha|FlashAttn|_MI\d+x\d+"
    r"|xmma_\w*?(?:tf32|bf16|(?<![b0-9a-z])f16|i8)",
    re.IGNORECASE,
)
_NO_TENSOR_CORES = re.compile(
    r"simt|(?:ampere|volta|turing|maxwell|pascal|hopper)_(?:s|d|c|z)gemm|scudnn|gemv|splitKreduce"
    r"|xmma_\w*?f32f32_f32f32",
    re.IGNORECASE,
)


@functools.lru_cache(8192)
def precision(name: str) -> Precision | None:
    """Return the type of what a kernel multiplies or reads, by its name; None where unknown."""
    name = name[:LONGEST_READ]
    return next((of_name for of_name, pattern in _PRECISIONS if pattern.search(name)), None)


@functools.lru_cache(8192)
def on_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel computes on Tensor Cores (AMD: Matrix Cores); None where unknown."""
    name = name[:LONGEST_READ]
    if _NO_TENSOR_CORES.search(name):
        return False
    return True if _TENSOR_CORES.search(name) else None


OUTSIDE = "outside of operators"
# A rate of a smaller share of a category's time says little of the category.
LARGER_PART = 0.5
# Categories whose kernels may run on Tensor Cores.
PRODUCTS = ("matrix product", "convolution", "attention", "recurrent")
_OF_DTYPE = {DTYPES[of_type]: of_type for of_type in PRECISIONS}


@dataclasses.dataclass
class CategoryTime:
    """Work of one category: `time` in seconds, `calls` of kernels (without a device, operators).

    `share` is that of all time. `flops` are those of operators that ran `flops_time` seconds,
    `bytes` of those that ran `bytes_time`: of the others they are not known. At the peak of the
    types used, FLOPs of `peak_time` would take `least_time`. `precisions` has the seconds by type
    in which kernels compute, by their names, else by the inputs of the operator around; without a
    device by those of the operators. `named_time` is that of kernels
    whose names say it, `tensor_time` of those on Tensor Cores. `bandwidth` is that of the device's
    memory, None where unknown.
    """

    name: str
    time: float = 0.0
    calls: int = 0
    share: float | None = None
    flops: int = 0
    flops_time: float = 0.0
    bytes: int = 0
    bytes_time: float = 0.0
    precisions: dict[str, float] = dataclasses.field(default_factory=dict)
    named_time: float = 0.0
    tensor_time: float = 0.0
    least_time: float = 0.0
    peak_time: float = 0.0
    bandwidth: float | None = None

    @property
    def flops_per_second(self) -> float | None:
        """FLOP per second of the operators whose FLOPs are known; None above the peaks."""
        is_known = self.flops and self.flops_time and self.least_time <= self.peak_time
        return self.flops / self.flops_time if is_known else None

    @property
    def flops_share(self) -> float:
        """The share of the time that the FLOP per second are of."""
        return min(self.flops_time / self.time, 1.0) if self.time else 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """Compulsory traffic per second of operators whose bytes are known; None above the peak."""
        rate = self.bytes / self.bytes_time if self.bytes and self.bytes_time else None
        return None if rate and self.bandwidth and rate > self.bandwidth else rate

    @property
    def bytes_share(self) -> float:
        """The share of the time that the bytes per second are of."""
        return min(self.bytes_time / self.time, 1.0) if self.time else 0.0

    @property
    def compute_share(self) -> float | None:
        """FLOP per second as a share of the peaks of the types used.

        None where unknown, and where it is of less than half of the time.
        """
        is_known = (
            self.flops_per_second and self.peak_time and self.peak_time >= LARGER_PART * self.time
        )
        return self.least_time / self.peak_time if is_known else None

    @property
    def memory_share(self) -> float | None:
        """Bytes per second as a share of the memory's bandwidth; None as `compute_share`."""
        rate = self.bytes_per_second if self.bytes_share >= LARGER_PART else None
        return rate / self.bandwidth if rate and self.bandwidth else None

    @property
    def precision(self) -> str | None:
        """The type in which kernels compute most of the time, "mixed" where none does."""
        if not self.precisions:
            return None
        name, seconds = max(self.precisions.items(), key=lambda entry: entry[1])
        return name if seconds > 0.5 * sum(self.precisions.values()) else "mixed"

    @property
    def tensor_cores(self) -> float | None:
        """The least share of time on Tensor Cores; None where a category has no products."""
        is_known = self.name in PRODUCTS and self.named_time
        return self.tensor_time / self.time if is_known and self.time else None


def category_times(tree: Tree, roofs: Roofs | None = None) -> list[CategoryTime]:
    """Return the categories that took time, most first; `roofs` are those of the device."""
    on_device = tree.root.device_time is not None
    by_name: dict[str, CategoryTime] = {}
    # The category of the counted operator around each node, None outside of such.
    around: list[str | None] = []
    dtypes: list[str] = []  # of the operator that each node is, or is below
    for node in tree.nodes:
        row = node.row
        inherited = around[row.parent] if row.parent >= 0 else None
        counted = inherited is None and row.kind == "operator" and _is_counted(row.name)
        of_node = _operator_category(row) if counted else inherited
        around.append(of_node)
        dtypes.append(row.dtype or (dtypes[row.parent] if row.parent >= 0 else ""))
        name = _category(row, of_node, on_device=on_device)
        if name is not None:
            sums = by_name.setdefault(name, CategoryTime(name))
            _add_time(sums, row, dtypes[-1], on_device=on_device)
            # On the host an operator counts once, without those that it runs itself.
            sums.calls += row.calls if row.kind == "kernel" or (counted and not on_device) else 0
        if counted and node.time:
            name = of_node or OUTSIDE
            _add_work(by_name.setdefault(name, CategoryTime(name)), node, roofs)
    categories = [sums for sums in by_name.values() if sums.time > 0]
    total = sum(sums.time for sums in categories)
    for sums in categories:
        sums.share = sums.time / total
        sums.bandwidth = None if roofs is None else roofs.memory_bandwidth
    return sorted(categories, key=lambda sums: -sums.time)


@functools.lru_cache(4096)  # a tree has thousands of operators, and few names
def _is_counted(operator: str) -> bool:
    """Whether an operator's work is counted at itself, by its name."""
    name = base_name(operator)
    return (
        "::" in operator
        and kind(operator) not in ("composite", "unknown")
        and not {name, name.removesuffix("_")} & STILL
    )


def _operator_category(row: TreeRow) -> str:
    return "optimizer" if row.phase == "optimizer" else category(base_name(row.name))


def _category(row: TreeRow, around: str | None, *, on_device: bool) -> str | None:
    """Return the category of the node's own time; None where that is none of what is summed."""
    if not on_device:
        if row.kind != "operator":
            return around or OUTSIDE
        own = _operator_category(row) if around is None else around
        return OUTSIDE if own in ("view", "other") and around is None else own
    if row.kind != "kernel":
        return None
    own, kernel = category(row.name), row.kernel
    if own == "communication" or (kernel is not None and kernel.collective is not None):
        return "communication"
    if kernel is not None and kernel.work != "kernel":
        return "copy" if kernel.work == "copy" else "fill"
    return "optimizer" if row.phase == "optimizer" else around or own


def _add_time(sums: CategoryTime, row: TreeRow, dtype: str, *, on_device: bool) -> None:
    """Add the time of a node; `dtype` is that of the inputs of the operator that it belongs to."""
    seconds = ((row.device if on_device else row.host) or 0) * 1e-9
    sums.time += seconds
    named = precision(row.name) if row.kind == "kernel" else None
    of_type = named or _of_inputs(dtype, sums.name, on_device=on_device)
    if of_type is not None:
        sums.precisions[of_type] = sums.precisions.get(of_type, 0.0) + seconds
    sums.named_time += seconds * (named is not None)
    sums.tensor_time += seconds * bool(row.kind == "kernel" and on_tensor_cores(row.name))


def _of_inputs(dtype: str, category_name: str, *, on_device: bool) -> Precision | None:
    """Return the type in which an operator computes by that of its inputs; None where unknown.

    On a device products of float32 may be rounded to TF32, which the inputs do not say.
    """
    of_type = _OF_DTYPE.get(dtype)
    may_be_rounded = on_device and category_name in PRODUCTS and of_type == "fp32"
    return None if may_be_rounded else of_type


def _add_work(sums: CategoryTime, node: Node, roofs: Roofs | None) -> None:
    """Add FLOPs and bytes of a counted operator with all below it, and the time of both."""
    time = node.time or 0.0
    if node.flops is not None and not node.at_least:
        sums.flops += node.flops
        sums.flops_time += time
        of_type = _precision_of(node) if roofs is not None and node.flops else None
        peak = roofs.peak(DTYPES[of_type]) if roofs is not None and of_type else None
        if peak:
            sums.least_time += node.flops / peak
            sums.peak_time += time
    if node.bytes is not None:
        sums.bytes += node.bytes
        sums.bytes_time += time


def _precision_of(node: Node) -> Precision | None:
    """Return the type in which the kernels below an operator compute most of the time.

    Where none says, that of its inputs.
    """
    times: Counter[Precision] = Counter()  # ns
    kernels = [below for below in node.walk() if below.kind == "kernel"]
    for below in kernels:
        of_type = precision(below.name)
        if of_type is not None:
            times[of_type] += below.row.device or 0
    if times:
        return times.most_common(1)[0][0]
    return _of_inputs(node.row.dtype, category(base_name(node.name)), on_device=bool(kernels))
