"""The other end of `numpy_products`: NumPy's products in this fresh process, as JSON.

Nothing but the standard library is imported before the parent's sys.path is in place.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    """Read the request from standard input, and write peaks and busy cores by dtype."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    from torchgauge.device.roofs.roof_measurement import Effort

    effort = Effort(**request["effort"])
    answer = {dtype: measured(dtype, effort) for dtype in request["dtypes"]}
    json.dump(answer, sys.stdout)


def measured(dtype: str, effort: Any) -> dict[str, float | None]:
    """Return the peak in FLOP/s, and how many cores this process kept busy meanwhile."""
    from torchgauge.clock import SystemClock
    from torchgauge.device.roofs.numpy_kernels import Host, NumpyKernels
    from torchgauge.device.roofs.roof_measurement import product_peak

    start, busy = time.perf_counter(), time.process_time()
    peak = product_peak(dtype, NumpyKernels(), Host(), SystemClock(), effort)
    seconds = time.perf_counter() - start
    return {"peak": peak, "busy_cores": (time.process_time() - busy) / seconds}


if __name__ == "__main__":
    main()
