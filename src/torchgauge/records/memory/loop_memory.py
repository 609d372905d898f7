"""The memory of a loop's steps: what lives in them, what outlives them, what checkpoints save."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.memory.memory import Part
from torchgauge.records.record import How, Record

STATES: tuple[Part, ...] = ("parameters", "buffers", "gradients", "optimizer")
Share = Literal[
    "states", "running segment", "segment inputs", "kept in segments", "outside of segments",
    "of no layer",
]  # fmt: skip


class AliveGroup(Record, frozen=True, kw_only=True):
    """Tensors of one origin that were alive at once; states of the training by part alone.

    Attributes:
        part: What they are for.
        size: Bytes of their storages.
        count: How many storages.
        phase: What the step did as they were made; "before" the watched steps, "unseen" where no
            operator of the stepping thread made them.
        layer: The layer that made the largest by `operator`; of what a backward pass made, the
            forward's, as `line` is: "train.py:12".
        steps: The steps that made them, from 1; 0 is before the watched ones.
        growth: Bytes by which they grow with each step; 0 where they do not.
        holder: The variable that holds the oldest, "losses[0]", or if `by_graph` the tensor whose
            graph does; `held_in` is the function, module or class that has it. "": not found.
    """

    part: Part
    size: int
    count: int
    phase: str = ""
    layer: str = ""
    line: str = ""
    operator: str = ""
    steps: tuple[int, ...] = ()
    growth: int = 0
    holder: str = ""
    held_in: str = ""
    by_graph: bool = False


class WatchedStep(Record, frozen=True, kw_only=True):
    """Bytes of tensors in a step.

    Attributes:
        number: The step's, from 1.
        peak: The most that was alive at once.
        after: Alive as it ended.
        earlier: Alive at the peak, made in earlier watched steps and no state of the training.
        phase: What the step did as it reached its peak, `layer`, `operator` and `line` likewise;
            "" where it began with most.
        allocated: What the device's allocator had given out as it ended; None on a CPU.
    """

    number: int
    peak: int
    after: int
    earlier: int = 0
    phase: str = ""
    layer: str = ""
    operator: str = ""
    line: str = ""
    allocated: int | None = None


class Checkpoints(Record, frozen=True, kw_only=True):
    """What activation checkpoints ran again in a step, and what its peak consists of.

    Attributes:
        segments: How many ran again.
        recomputed: Bytes of the tensors that they made.
        shares: Bytes of the peak, which they add up to, the largest first. Tensors of the
            optimizer's step are with the states, gradients with the segment that ran again.
        layer: The layer that made most of the largest of these.
    """

    segments: int
    recomputed: int
    shares: dict[Share, int]
    layer: str = ""


class LoopMemory(Record, frozen=True, kw_only=True):
    """The memory of watched steps on one device: storages of tensors, from birth to end.

    `at_peak` is what was alive at the highest peak, and adds up to it; `outliving` what was alive
    as the last step ended, no states, what grows most first. `checkpoints` are of the step with the
    highest peak; None without any. What kernels take and give back themselves is in no figure.
    """

    device: str
    steps: tuple[WatchedStep, ...] = ()
    at_peak: tuple[AliveGroup, ...] = ()
    outliving: tuple[AliveGroup, ...] = ()
    checkpoints: Checkpoints | None = None
    how: How = "measured"

    @property
    def highest(self) -> WatchedStep:
        """The last step with the highest peak."""
        return max(self.steps, key=lambda step: (step.peak, step.number))

    @property
    def growth(self) -> int:
        """Bytes by which what outlives steps grows with each."""
        return sum(group.growth for group in self.outliving)
