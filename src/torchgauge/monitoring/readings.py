"""Memory of the process and of its GPUs, read now and then."""

from __future__ import annotations

import functools
import sys
from typing import Any

import psutil


@functools.cache
def _process(number: int) -> psutil.Process:
    return psutil.Process(number)


def memory_readings(process: int) -> dict[str, float]:
    """Return bytes by kind: the resident set, and what torch's tensors take on each GPU in use.

    A GPU that the program does not use is not started for it.
    """
    readings = {"resident": float(_process(process).memory_info().rss)}
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if allocated := torch.cuda.memory_allocated(index):
                readings[f"cuda:{index}"] = float(allocated)
    return readings
