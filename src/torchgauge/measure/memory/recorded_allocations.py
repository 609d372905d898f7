"""Device numbers of recorded allocations, and warnings of what was not recorded."""

from __future__ import annotations

import torch

from torchgauge.measure.loop.excluded_threads import listed
from torchgauge.records.record import MeasurementWarning

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
