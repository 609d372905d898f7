"""Warn of outputs with NaN or infinities: such a model is still timed."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchgauge.measure.memory.storages import tensors_in
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.inputs.tensors import strided


def output_warnings(outputs: Any, probe: str) -> tuple[MeasurementWarning, ...]:
    """Return the warning `output-not-finite` where a tensor in `outputs` holds NaN or infinity.

    Nothing of a tensor's size is allocated. What a tensor cannot be asked (float8, subclasses
    without the operator) counts as finite.
    """
    parts = [part for tensor in tensors_in(outputs) for part in strided(tensor)]
    faults = [_non_finite_kind(part) for part in parts]
    kinds = sorted({kind for kind in faults if kind})
    if not kinds:
        return ()
    return (
        MeasurementWarning(
            id="output-not-finite",
            message=f"{sum(map(bool, faults))} of {len(parts)} output tensors hold "
            f"{' and '.join(kinds)}.",
            probe=probe,
            cause="The figures hold, but they are those of a computation that broke down, or of a "
            "mask of infinities.",
            remedy="Check the weights, the inputs and the precision.",
        ),
    )


def _non_finite_kind(tensor: torch.Tensor) -> str:
    """Return "NaN" or "infinities" where the tensor holds them, else ""."""
    if tensor.is_meta or not tensor.numel():
        return ""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return ""
    try:
        low, high = (float(value) for value in torch.aminmax(tensor.detach()))
    except (RuntimeError, NotImplementedError, TypeError):
        return ""
    if math.isnan(low) or math.isnan(high):
        return "NaN"
    return "infinities" if math.isinf(low) or math.isinf(high) else ""
