"""NumPy's products on as many threads as torch takes, in a process of its own.

A BLAS reads how many threads it may take when it is loaded, and the one of this process is.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from torchgauge.device.roofs.roof_measurement import Effort
from torchgauge.workers import worker

CHILD = Path(__file__).with_name("numpy_products_child.py")
DTYPES = ("float32", "float64")
# What the usual libraries read when they are loaded.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Cores that a product keeps busy, over the threads allowed: more is another number of threads.
MOST_BUSY = 1.1
LONGEST = 30.0


def numpy_peaks(threads: int, effort: Effort) -> dict[str, float]:
    """Return FLOP/s of NumPy's products by dtype on at most `threads` threads.

    Empty where the process failed, or where its BLAS kept more cores busy than it may.
    """
    request = {"path": sys.path, "dtypes": DTYPES, "effort": dataclasses.asdict(effort)}
    try:
        with worker(CHILD, variables=dict.fromkeys(VARIABLES, str(threads))) as child:
            output, _ = child.communicate(json.dumps(request).encode(), LONGEST)
        if child.returncode:
            return {}
        answer = json.loads(output)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {
        dtype: product["peak"]
        for dtype, product in answer.items()
        if product["peak"] and product["busy_cores"] <= MOST_BUSY * threads
    }
