"""Device numbers of recorded allocations, and warnings of what a recording lacks or shows."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchgauge.measure.loop.excluded_threads import listed
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import strided

DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # torch's own numbers (c10::DeviceType)


def numbers(device: torch.device) -> tuple[int, int]:
    """Return torch's numbers for a device's type and index; CUDA's without one is the current."""
    if device.type == "cpu":
        return DEVICE_TYPES["cpu"], -1
    index = torch.cuda.current_device() if device.index is None else device.index
    return DEVICE_TYPES[device.type], index


def unrecorded(
    threads: list[str], lost: int, *, probe: str, operators: bool = True
) -> tuple[MeasurementWarning, ...]:
    """Return warnings of threads, by name, and of frees that were not recorded.

    `operators` says that those of the threads were recorded, and are in the tree.
    """
    warnings = []
    omitted = "allocations are" if operators else "operators and allocations are"
    if threads:
        warnings.append(
            MeasurementWarning(
                id="threads-unrecorded",
                message=f"The step worked on {len(threads)} more thread(s) ({listed(threads)}), "
                f"whose {omitted} not recorded: peak and average, and those of layers, are lower "
                "bounds where they run operators.",
                probe=probe,
                cause=""
                if operators
                else "torch crashes or hangs where another thread is in an operator as a recording "
                "of all threads begins or ends.",
                remedy=""
                if operators
                else "Where no other thread runs operators, all_threads=True (--all-threads) "
                "records theirs.",
            )
        )
    if lost:
        warnings.append(
            MeasurementWarning(
                id="frees-unrecorded",
                message=f"{lost} block(s) were freed unseen (by another thread); each counts "
                "until its address was used again: peaks, also of layers, are upper bounds.",
                probe=probe,
            )
        )
    return tuple(warnings)


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
