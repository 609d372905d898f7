"""The process's own memory limit, where it is lower than the device's memory."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch

from torchgauge.device.counters import data_segment
from torchgauge.quantities import reported_size

# torch says in its error what a process may take of a GPU, where that is less than all.
_ALLOWED = " allowed"


class MemoryLimit(NamedTuple):
    """Bytes that the process may allocate in all, and how many of them are left."""

    limit: int
    remaining: int


def process_limit(device: str, error_text: str) -> MemoryLimit | None:
    """Return the limit of the process on `device`, None where there is none or it is not known.

    `error_text` is torch's error. On the CPU it is the limit of the data segment, which Linux
    counts all allocations against.
    """
    try:
        if torch.device(device).type == "cuda":
            limit = reported_size(error_text, after=_ALLOWED)
            if limit is None:
                return None
            return MemoryLimit(limit, limit - torch.cuda.memory_reserved(device))
        if torch.device(device).type == "cpu" and sys.platform == "linux":
            import resource

            limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
            used = data_segment()
            if limit == resource.RLIM_INFINITY or used is None:
                return None
            return MemoryLimit(limit, limit - used)
    except (RuntimeError, AssertionError, ValueError, OSError):
        return None
    return None
