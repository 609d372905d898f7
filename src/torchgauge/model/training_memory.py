"""What a training step keeps in memory, part by part, of a model that need not be run."""

from __future__ import annotations

import msgspec

from torchgauge.model.record import How, Record


class MemoryPart(Record, frozen=True, kw_only=True):
    """Bytes of one kind of tensor, and how they are known; `by_dtype` where that is known too."""

    bytes: int
    how: How
    by_dtype: dict[str, int] = msgspec.field(default_factory=dict)


class OptimizerMemory(Record, frozen=True, kw_only=True):
    """The states of one optimizer, and a whole step with it, in bytes.

    `total` is all parts together. `least` has the larger of gradients and activations in place of
    both: a step that begins by dropping its gradients, as torch's does, never holds all of both.
    """

    states: MemoryPart
    least: int
    total: int
    how: How = "estimated"


class TrainingMemory(Record, frozen=True, kw_only=True):
    """What a training step holds, by part, and by optimizer: `optimizer` is the one assumed.

    `gradients` is one per trainable parameter, in its dtype. `activations` is the bytes that
    operators save for the backward pass, seen at the end of the forward pass: what a kernel of
    another device saves, or a custom function keeps past `save_for_backward`, is not in it. In no
    figure are gradients of activations, workspaces, an optimizer's temporaries, fragmentation and
    the driver's own memory.
    """

    parameters: MemoryPart
    buffers: MemoryPart
    inputs: MemoryPart
    gradients: MemoryPart
    activations: MemoryPart
    optimizers: dict[str, OptimizerMemory]
    optimizer: str

    @property
    def assumed(self) -> OptimizerMemory:
        """The step with the optimizer that is assumed."""
        return self.optimizers[self.optimizer]

    @property
    def parts(self) -> dict[str, MemoryPart]:
        """The parts of `assumed.total`, by name."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "inputs": self.inputs,
            "gradients": self.gradients,
            "states": self.assumed.states,
            "activations": self.activations,
        }
