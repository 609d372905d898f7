"""How much memory a call needs, and what for."""

from __future__ import annotations

from typing import Literal, get_args

from torchgauge.records.memory.out_of_memory import AliveTensor, Part
from torchgauge.records.record import GradMode, How, MeasurementWarning, Record

PARTS: tuple[Part, ...] = get_args(Part)


class Fragmentation(Record, frozen=True, kw_only=True):
    """Three views of what an allocator holds beyond what was asked of it, in bytes.

    `internal`: allocated − requested. `external`: inactive split blocks. `reserved_unused`:
    reserved − active. `largest_free` against `total_free` tells whether one large request fits.
    """

    internal: int | None
    external: int | None
    reserved_unused: int
    largest_free: int | None
    total_free: int | None


class MemoryPoint(Record, frozen=True, kw_only=True, array_like=True):
    """Live tensor bytes from a moment on.

    Attributes:
        time: Nanoseconds from the step's start.
        live: Bytes in all.
        parts: The same by part, in the order of `PARTS`; empty in records of earlier versions.
    """

    time: int
    live: int
    parts: tuple[int, ...] = ()


class Memory(Record, frozen=True, kw_only=True):
    """Bytes of tensors during one step, exact where the allocator's events could be read.

    The parts are those alive at the peak and add up to it: `parameters`, `buffers`, `inputs`,
    `outputs`, `activations` (made in this step and outliving the operator that made them),
    `gradients`, `optimizer` (state) and `workspace` (all else that the allocator held).
    `tensors` are the same by name and shape, the largest first, and add up to `peak` as well.
    `before` is alive when the step begins, `after` when it has returned and its outputs are held:
    what is more then are outputs, gradients, caches, or a leak; None where it is not known.
    `average` is weighted by time, None where only the highest point was
    seen. `retained_for_backward` is what a training forward keeps
    beyond its outputs, None for inference. `per_sample` is (inputs + outputs + activations +
    workspace at the peak) ÷ batch size: an upper bound of what one more sample costs, since scratch
    and caches that do not grow with the batch are in it. `rss_peak` is the process's resident set
    at its highest during the same step without a recording, None where the system does not tell;
    `allocator_peak`, `reserved` (both at their highest) and `fragmentation` (after the step) are
    what the device's own allocator reports (CUDA). The timeline keeps every point up to 2,000;
    beyond, the lowest and highest of equal stretches of events. `peak_layer`, `peak_operator` and
    `peak_phase` are what was running when the peak was reached: the innermost layer, the outermost
    operator, and "forward", "backward" or "optimizer"; "" where none was, or it is not known.
    `grad_mode` is as in `TargetDescription`.
    """

    peak: int
    average: float | None
    parameters: int
    buffers: int
    inputs: int
    outputs: int
    activations: int
    gradients: int
    optimizer: int
    workspace: int
    step: Literal["inference", "training"]
    device: str
    method: str
    retained_for_backward: int | None = None
    per_sample: float | None = None
    rss_before: int | None = None
    rss_peak: int | None = None
    allocator_peak: int | None = None
    reserved: int | None = None
    fragmentation: Fragmentation | None = None
    before: int | None = None
    after: int | None = None
    tensors: tuple[AliveTensor, ...] = ()
    timeline: tuple[MemoryPoint, ...] = ()
    peak_layer: str = ""
    peak_operator: str = ""
    peak_phase: str = ""
    grad_mode: GradMode = "inference_mode"
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"

    @property
    def parts(self) -> dict[str, int]:
        """The parts alive at the peak by name, in bytes; their sum is `peak`."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def growth(self) -> int | None:
        """Bytes that the step leaves allocated beyond what was there before it."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def rss_gap(self) -> int | None:
        """Resident bytes that no tensor explains: interpreter, libraries, their scratch space."""
        if self.rss_peak is None:
            return None
        return self.rss_peak - self.peak if self.device == "cpu" else None
