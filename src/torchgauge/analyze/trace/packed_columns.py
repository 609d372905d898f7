"""A column to read number by number: quicker than NumPy's, a fifth of a list's memory."""

from __future__ import annotations

from array import array

import numpy as np

from torchgauge.records.trace.events import Integers


def packed(column: Integers) -> array[int]:
    """Return the numbers as Python reads them best."""
    return array("q", column.astype(np.int64).tobytes())
