"""What a machine can do at most, and how near a model comes: roofs, roofline, bottleneck."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import msgspec

from torchgauge.records.record import How, Record

Bound = Literal["compute", "memory", "overhead"]
Confidence = Literal["clear", "likely", "unsure"]

_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_BYTE = frozenset({"int8", "uint8", "qint8", "quint8"})


class BandwidthPoint(Record, frozen=True, kw_only=True):
    """Bytes per second, read and written together, on a working set of this size."""

    working_set: int
    bytes_per_second: float


class Roofs(Record, frozen=True, kw_only=True):
    """What one device does at most: operations per second by dtype, bytes per second by size.

    Attributes:
        device: its name.
        source: whether it was measured, or is what the vendor prints.
        method: how, in words.
        peaks: FLOP/s of dense products by dtype ("float32", "tf32", "bfloat16", "float16",
            "float8", "float64"), operations per second for "int8".
        libraries: whose product reached each peak: "torch" or "numpy".
        bandwidth: in order of working set, and never rising with it; a datasheet gives one point,
            the device's memory.
        extent: "full", or "quick": fewer sizes in a few seconds, and so a little too low.
        quality: "busy" where other work ran meanwhile, which makes measured roofs too low; None of
            a datasheet.
        other: cores' worth of time that other processes, and other guests of the host, took
            meanwhile.
        spread: how far two passes over the same streams differ, as a share of the faster; the
            median over working sets.
        created: when it was measured, in ISO 8601.
        machine: the key under which measured roofs are kept.
        threads: torch's threads; None of a GPU.
        torch: its version.
        last_level_cache: bytes.
        memory: bytes.
        dispatch: seconds that an operator call takes which does nothing.
        sources: the document of each figure of a datasheet.
    """

    device: str
    source: Literal["measured", "datasheet"]
    method: str
    peaks: dict[str, float]
    bandwidth: tuple[BandwidthPoint, ...]
    libraries: dict[str, str] = msgspec.field(default_factory=dict)
    extent: Literal["full", "quick"] = "full"
    quality: Literal["quiet", "busy"] | None = None
    created: str = ""
    machine: str = ""
    threads: int | None = None
    torch: str = ""
    last_level_cache: int | None = None
    memory: int | None = None
    dispatch: float | None = None
    other: float | None = None
    spread: float | None = None
    sources: dict[str, str] = msgspec.field(default_factory=dict)

    def peak(self, dtype: str, *, tf32: bool = False) -> float | None:
        """Return the operations per second on elements of a dtype; None where unknown.

        Complex numbers count as the real ones that they are made of. With `tf32`, float32 products
        may be rounded, where the device does that.
        """
        name = _REAL.get(dtype, dtype)
        if name in _BYTE:
            name = "int8"
        elif name.startswith("float8"):
            name = "float8"
        elif tf32 and name == "float32":
            return self.peaks.get("tf32", self.peaks.get(name))
        return self.peaks.get(name)

    def bandwidth_at(self, working_set: float) -> float | None:
        """Return the bytes per second on a working set, between points by their logarithms."""
        points = self.bandwidth
        if not points:
            return None
        if working_set <= points[0].working_set:
            return points[0].bytes_per_second
        for low, high in itertools.pairwise(points):
            if working_set < high.working_set:
                share = math.log(working_set / low.working_set) / math.log(
                    high.working_set / low.working_set
                )
                ratio = high.bytes_per_second / low.bytes_per_second
                return float(low.bytes_per_second * ratio**share)
        return points[-1].bytes_per_second

    @property
    def memory_bandwidth(self) -> float | None:
        """Bytes per second beyond the caches: that of the largest working set."""
        return self.bandwidth[-1].bytes_per_second if self.bandwidth else None


class LayerRoofline(Record, frozen=True, kw_only=True):
    """One layer call path with all that it calls; `node` is an index of `Cost.nodes`.

    `lower_bound` and `time` are seconds per call of the model, `intensity` is FLOPs per byte.
    `time` and what follows from it is None where layers were not timed.
    """

    node: int
    intensity: float | None
    lower_bound: float
    bound: Bound | None
    time: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    efficiency: float | None = None


class Roofline(Record, frozen=True, kw_only=True):
    """A call beside the roofs of its device: seconds, FLOPs per byte, FLOP/s, bytes per second.

    `lower_bound` is the sum over operators of the longer of two times, for their operations and
    for their bytes; `efficiency` is `lower_bound` over the measured `time`. A share above 1 means
    that caches or fusion saved traffic that is counted per operator. With `at_least` an operator or
    a peak is unknown, and the bound is too low. `datasheet` is what the device's vendor prints,
    beside measured roofs; nothing is computed from it then.
    """

    roofs: Roofs
    intensity: float | None
    lower_bound: float
    time: float | None
    flops_per_second: float | None
    bytes_per_second: float | None
    efficiency: float | None
    at_least: bool
    layers: tuple[LayerRoofline, ...] = ()
    datasheet: Roofs | None = None
    how: How = "estimated"


class Bottleneck(Record, frozen=True, kw_only=True):
    """What a call waits for: arithmetic, memory, or neither (launch and dispatch).

    `compute_time` is the lower bound of the operators that arithmetic bounds, `memory_time` that of
    those that memory bounds, `unexplained` what the measured time is longer; seconds. `kind` is
    None where it cannot be told, and `evidence` says why.
    """

    kind: Bound | None
    confidence: Confidence
    evidence: tuple[str, ...]
    compute_time: float | None = None
    memory_time: float | None = None
    unexplained: float | None = None
    how: How = "estimated"


class OtherDevice(Record, frozen=True, kw_only=True):
    """A call on a device that is not here: `latency` a lower bound in seconds, `memory` in bytes.

    `fits` is None where that cannot be told: the memory is known in part alone, or a training step
    is estimated nearer to it than estimates are to what was measured. `latency_at_least` and
    `memory_at_least` say that a figure lacks a part.
    """

    device: str
    latency: float | None
    memory: int
    memory_available: int | None
    fits: bool | None
    latency_at_least: bool
    memory_at_least: bool
    method: str
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    how: How = "estimated"
