"""The reasons to doubt figures of memory: inputs and programs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import torch

from torchgauge.records.record import MeasurementWarning
from torchgauge.signals import restoring
from torchgauge.targets import hygiene
from torchgauge.targets.hygiene.kept import listed
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement


@restoring
def collecting_cycles() -> Iterator[Callable[[], object]]:
    """Yield a function that collects the cycles that were made in this block.

    A process that has imported torch holds 400,000 objects; to search them takes 0.15 s, and cycles
    from before would be freed in the middle of a recorded step.
    """
    if gc.get_freeze_count():  # the user froze objects, which unfreezing would thaw
        yield gc.collect
        return
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()


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
