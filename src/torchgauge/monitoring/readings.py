"""Memory of the process and of its GPUs, read now and then."""

from __future__ import annotations

import sys
from typing import Any

from torchgauge.device.counters import resident


def memory_readings() -> dict[str, float]:
    """Return bytes by kind: the resident set, and what torch's tensors take on each GPU in use.

    A GPU that the program does not use is not started for it.
    """
    own = resident()
    readings = {} if own is None else {"resident": float(own)}
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if allocated := torch.cuda.memory_allocated(index):
                readings[f"cuda:{index}"] = float(allocated)
    return readings
