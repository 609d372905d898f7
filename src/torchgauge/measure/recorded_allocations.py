"""Of recorded allocations: which are a device's, and what is in no recording."""

from __future__ import annotations

import torch

from torchgauge.measure.left_out import listed
from torchgauge.model.record import MeasurementWarning

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
    """Return what is to be said of threads, by name, and frees that were not recorded.

    `operators` says that those of the threads were recorded, and are in the tree.
    """
    found = []
    what = "allocations are" if operators else "operators and allocations are"
    if threads:
        found.append(
            MeasurementWarning(
                id="threads-unrecorded",
                message=f"The step worked on {len(threads)} more thread(s) ({listed(threads)}), "
                f"whose {what} not recorded: peak and average, and those of layers, are lower "
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
        found.append(
            MeasurementWarning(
                id="frees-unrecorded",
                message=f"{lost} block(s) were freed unseen (by another thread); each counts "
                "until its address was used again: peaks, also of layers, are upper bounds.",
                probe=probe,
            )
        )
    return tuple(found)
