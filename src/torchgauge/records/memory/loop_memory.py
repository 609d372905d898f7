"""The memory of a loop's steps: what lives, what outlives its step, what a checkpoint saves."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.memory.alive_tensor import AliveTensor, Part
from torchgauge.records.record import How, Record

Dominant = Literal["states", "optimizer", "one segment", "segment", "inside", "outside", "other"]
STATES: tuple[Part, ...] = ("parameters", "buffers", "gradients", "optimizer")


class WatchedStep(Record, frozen=True, kw_only=True):
    """Bytes of tensors in a step.

    Attributes:
        number: The step's, from 1; with all that came before the loop in the first.
        before: Alive as it began.
        peak: The most that was alive at once.
        after: Alive as it ended.
        earlier: Alive at the peak, made in earlier steps and no state of the training.
        parts: What was alive as it ended, by part; adds up to `after`.
        phase: What the step did at its peak; `layer`, `operator` and `line` likewise.
        allocated: What the device's allocator had given out as it ended, other threads, rounding
            and libraries included; None on a CPU.
        allocator_peak: The most that it had given out; None where an earlier step took more.
    """

    number: int
    before: int
    peak: int
    after: int
    earlier: int
    parts: dict[str, int]
    phase: str = ""
    layer: str = ""
    operator: str = ""
    line: str = ""
    allocated: int | None = None
    allocator_peak: int | None = None


class OutlivingTensors(Record, frozen=True, kw_only=True):
    """Tensors of one origin that were alive as the last watched step ended, no states among them.

    Attributes:
        tensors: All of them together.
        steps: The steps that made them.
        growth: Bytes by which they grow with each step; 0 where they do not.
        by_graph: Whether autograd's graph of the tensor that `holder` names keeps them.
    """

    tensors: AliveTensor
    steps: tuple[int, ...]
    growth: int
    by_graph: bool = False


class Recomputation(Record, frozen=True, kw_only=True):
    """What activation checkpoints computed again in the step with the highest peak, and the peak.

    Attributes:
        segments: How many were computed again.
        largest: Bytes that the largest of them made.
        total: Bytes that all of them made: what they saved.
        dominant: What takes most of the peak: "states" (parameters, gradients, optimizer), the
            "optimizer" step's own tensors, a "segment" that was computed again, or the only "one
            segment", with the gradients in it; what was made "inside" of segments and kept all the
            same; what layers "outside" of them made, with its gradients; "other".
        size: Bytes of it at the peak.
        layer: The layer that made most of it.
    """

    segments: int
    largest: int
    total: int
    dominant: Dominant
    size: int
    layer: str = ""


class LoopMemory(Record, frozen=True, kw_only=True):
    """The memory of watched steps on one device: storages of tensors, from birth to end.

    `at_peak` is what was alive at the highest peak, of `peak_step`, and adds up to it. `outliving`
    is what outlives steps, what grows most first. `recomputation` is None without checkpoints. What
    kernels take and give back themselves is in no figure but `allocated` and
    `allocator_peak`.
    """

    device: str
    steps: tuple[WatchedStep, ...]
    peak_step: int
    at_peak: tuple[AliveTensor, ...]
    outliving: tuple[OutlivingTensors, ...] = ()
    recomputation: Recomputation | None = None
    how: How = "measured"

    @property
    def growth(self) -> int:
        """Bytes by which what is kept grows with each step."""
        return sum(group.growth for group in self.outliving)
