"""Which subject a model is: one that torch runs, or one without torch."""

from __future__ import annotations

from typing import Any

from torchgauge.compat.subject import Subject, is_torch
from torchgauge.targets.inputs.inputs import Inputs


def subject_of(model: Any, inputs: Inputs | None = None) -> Subject:
    """Return the model as a subject: of torch where it is a module or takes tensors."""
    if is_torch(model, inputs):
        from torchgauge.compat.torch_subject import TorchSubject

        return TorchSubject(model)
    from torchgauge.compat.array_subject import ArraySubject

    return ArraySubject(model)
