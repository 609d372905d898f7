"""The memory of a training step by part, estimated without running the model."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.record import How, Record


class MemoryPart(Record, frozen=True, kw_only=True):
    """Bytes of one kind of tensor, and how they are known; `by_dtype` where that is known too."""

    bytes: int
    how: How
    by_dtype: dict[str, int] = msgspec.field(default_factory=dict)


class OptimizerMemory(Record, frozen=True, kw_only=True):
    """The states of one optimizer, and a whole step with it, in bytes.

    Attributes:
        states: What the optimizer keeps between steps.
        lower_bound: What the step holds at its end, or at the end of its forward pass, whichever
            is more: its peak is at least that.
        total: The most that is alive at once; None where it cannot be estimated.
        moment: The phase in which that is.
        at_peak: What is alive then, by part; adds up to `total`. "activations" were made in the
            forward pass, outputs among them; "workspace" is gradients of activations, what a
            checkpoint makes anew, scratch of kernels, temporaries of the optimizer.
    """

    states: MemoryPart
    lower_bound: int
    total: int | None = None
    moment: Literal["forward", "backward", "optimizer"] | None = None
    at_peak: dict[str, int] = msgspec.field(default_factory=dict)
    how: How = "estimated"


class TrainingMemory(Record, frozen=True, kw_only=True):
    """What a training step holds, by part, and by optimizer: `optimizer` is the one assumed.

    `gradients` is one per trainable parameter, in its dtype. `activations` is what is alive at the
    end of the forward pass beside parameters, buffers and inputs, as the CPU's or CUDA's kernels
    keep it (`kernels`). The parts are not all alive at once: `assumed.at_peak` is. In no figure are
    fragmentation and the driver's own memory.
    """

    parameters: MemoryPart
    buffers: MemoryPart
    inputs: MemoryPart
    gradients: MemoryPart
    activations: MemoryPart
    optimizers: dict[str, OptimizerMemory]
    optimizer: str
    kernels: Literal["cpu", "cuda"] = "cpu"

    @property
    def assumed(self) -> OptimizerMemory:
        """The step with the optimizer that is assumed."""
        return self.optimizers[self.optimizer]

    @property
    def parts(self) -> dict[str, MemoryPart]:
        """Every part at its largest, by name."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "inputs": self.inputs,
            "gradients": self.gradients,
            "states": self.assumed.states,
            "activations": self.activations,
        }
