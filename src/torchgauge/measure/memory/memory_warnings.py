"""The reasons to doubt figures of memory: inputs and programs."""

from __future__ import annotations

import torch

from torchgauge.records.record import MeasurementWarning
from torchgauge.targets import hygiene
from torchgauge.targets.hygiene.kept import listed
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement


def unread_warnings(inputs: Inputs) -> tuple[MeasurementWarning, ...]:
    """Return the warning of inputs in which no tensor shows."""
    names = [f"{entry.name} ({type(entry.item).__name__})" for entry in inputs.unread()]
    if not names:
        return ()
    return (
        MeasurementWarning(
            id="inputs-unread",
            message=f"What these inputs hold cannot be seen: {listed(names)}. It is in no figure.",
            probe="memory",
            cause="They are iterators, have their content outside of Python, or hold too many "
            "objects.",
            remedy="Give the tensors themselves, in containers or in attributes of an object.",
        ),
    )


def torchscript_warnings(placement: Placement) -> tuple[MeasurementWarning, ...]:
    """Return the warning that a program's activations are not told from workspace."""
    if not isinstance(hygiene.module_of(placement.model), torch.jit.ScriptModule):
        return ()
    return (
        MeasurementWarning(
            id="activations-undivided",
            message="A TorchScript program is one operator to the recording: its activations count "
            "as workspace. The peak is exact.",
            probe="memory",
        ),
    )
