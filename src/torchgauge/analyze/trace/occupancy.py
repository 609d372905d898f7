"""Theoretical occupancy of a kernel on an NVIDIA GPU, and what limits it.

A block is resident with all its warps, registers and shared memory, or not at all. Sources:
"Compute Capabilities" of the CUDA C++ Programming Guide (resident blocks, reserved shared memory),
the occupancy calculator of Nsight Compute (units of allocation). Registers are given to a warp in
units of 256, out of the quarter of the register file that its scheduler has; shared memory to a
block in units of 256 bytes (7.x and below) or 128, from 8.0 on with 1 KiB for the system.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from torchgauge.records.trace.breakdown import Limiter

_RESIDENT_BLOCKS = {
    (5, 0): 32, (5, 2): 32, (5, 3): 32, (6, 0): 32, (6, 1): 32, (6, 2): 32, (7, 0): 32, (7, 2): 32,
    (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32,
    (10, 3): 32, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
_LIMITS = (
    "computeMajor",
    "computeMinor",
    "numSms",
    "maxThreadsPerMultiprocessor",
    "regsPerMultiprocessor",
    "sharedMemPerMultiprocessor",
)
_REGISTER_UNIT = 256
_SCHEDULERS = 4
_WARP = 32


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds, of `multiprocessors`; shared memory in bytes."""

    multiprocessors: int
    warps: int
    blocks: int
    registers: int
    shared_memory: int
    shared_unit: int
    shared_reserved: int


def limits(device: dict[str, Any]) -> Limits | None:
    """Return the limits of a device of a trace's header; None for AMD's and unknown ones."""
    values = [device.get(name) for name in _LIMITS]
    if device.get("warpSize") != _WARP or not all(isinstance(value, int) for value in values):
        return None
    major, minor, multiprocessors, threads, registers, shared = map(int, values)  # type: ignore[arg-type]
    blocks = _RESIDENT_BLOCKS.get((major, minor))
    if blocks is None or min(multiprocessors, threads, registers, shared) < 1:
        return None
    recent = major >= 8
    return Limits(
        multiprocessors=multiprocessors,
        warps=threads // _WARP,
        blocks=blocks,
        registers=registers,
        shared_memory=shared,
        shared_unit=128 if recent else 256,
        shared_reserved=1024 if recent else 0,
    )


def occupancy(
    device: Limits, grid: int, block: int, registers: int, shared_memory: int
) -> tuple[float, Limiter] | None:
    """Return resident warps ÷ what the device holds, and the limiter.

    `grid` in blocks, `block` in threads, `registers` per thread, `shared_memory` in bytes per
    block. Where the grid has fewer blocks than would fit, they are spread over all
    multiprocessors, as Kineto's "est. achieved occupancy %" has it. None for what cannot run.
    """
    if min(grid, block) < 1:
        return None
    warps = math.ceil(block / _WARP)
    unit = _rounded(registers * _WARP, _REGISTER_UNIT)
    used = _rounded(shared_memory + device.shared_reserved, device.shared_unit)
    fitting: dict[Limiter, int] = {"warps": device.warps // warps, "blocks": device.blocks}
    if unit:
        usable = device.registers // _SCHEDULERS // unit * _SCHEDULERS
        fitting["registers"] = usable // warps
    if used:
        fitting["shared memory"] = device.shared_memory // used
    limiter = min(fitting, key=fitting.__getitem__)  # of equal ones the first
    resident, available = fitting[limiter], grid / device.multiprocessors
    if not resident:
        return None
    if available < resident:
        return available * warps / device.warps, "grid"
    return resident * warps / device.warps, limiter


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit
