"""Of recorded allocations: which are a device's, and what is in no recording."""

from __future__ import annotations

import torch

from torchgauge.model.record import MeasurementWarning

DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # torch's own numbers (c10::DeviceType)


def numbers(device: torch.device) -> tuple[int, int]:
    """Return torch's numbers for a device's type and index; CUDA's without one is the current."""
    if device.type == "cpu":
        return DEVICE_TYPES["cpu"], -1
    index = torch.cuda.current_device() if device.index is None else device.index
    return DEVICE_TYPES[device.type], index


def unrecorded(threads: int, lost: int, *, probe: str) -> tuple[MeasurementWarning, ...]:
    """Return what is to be said of threads and of frees that were not recorded, by their number."""
    found = []
    if threads:
        found.append(
            MeasurementWarning(
                id="threads-unrecorded",
                message=f"The step ran operators on {threads} more thread(s), whose allocations "
                "cannot be recorded: peak and average, and those of layers, are lower bounds.",
                probe=probe,
            )
        )
    if lost:
        found.append(
            MeasurementWarning(
                id="frees-unrecorded",
                message=f"{lost} block(s) were freed unseen (by another thread); each counts "
                "until its address was used again: peaks, also of layers, are upper bounds.",
                probe=probe,
            )
        )
    return tuple(found)
