"""The memory of a step of a model."""

from __future__ import annotations

import torch

from torchgauge.measure.memory import memory
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.target import Target
from torchgauge.targets.training.training import Training


def placed(model, inputs, batch=None, device="cpu"):
    inputs = Inputs.of(inputs)
    target = Target(model, inputs, spec="test", kind="module", name="test", batch=batch)
    return Placement(target, model, inputs, device=device, precision="fp32", method="native")


def measured(model, inputs, train=None, batch=None):
    return memory.measure(placed(model, inputs, batch), train=train)


def total(outputs, inputs):
    return outputs.sum()


ADAM = Training(loss=total, optimizer=lambda p: torch.optim.Adam(p, foreach=False))
