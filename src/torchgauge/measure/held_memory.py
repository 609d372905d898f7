"""What holds this process to less memory than the device has: a limit of its own."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

import torch

from torchgauge.device.counters import data_segment

# torch says in its error what a process may take of a GPU, where that is less than all.
_ALLOWED = re.compile(r"([\d.]+) ?([KMGT]?i?B|bytes) allowed", re.IGNORECASE)
_SCALE = {"b": 1, "bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Held(NamedTuple):
    """Bytes that the process may have of its own, and how many of them it has not yet."""

    limit: int
    left: int


def held(device: str, said: str) -> Held | None:
    """Return what holds the process on `device`, None where nothing does or nothing tells.

    `said` is torch's error. On the CPU it is the limit of the data segment, which Linux counts
    all allocations against.
    """
    try:
        if torch.device(device).type == "cuda":
            allowed = _ALLOWED.search(said)
            if allowed is None:
                return None
            limit = bytes_of(allowed)
            return Held(limit, limit - torch.cuda.memory_reserved(device))
        if torch.device(device).type == "cpu" and sys.platform == "linux":
            import resource

            limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
            used = data_segment()
            if limit == resource.RLIM_INFINITY or used is None:
                return None
            return Held(limit, limit - used)
    except (RuntimeError, AssertionError, ValueError, OSError):
        return None
    return None


def bytes_of(found: re.Match[str]) -> int:
    """Return the size that a number and a unit of torch's say: "2.00", "GiB"."""
    return int(float(found[1]) * _SCALE[found[2].lower()])
