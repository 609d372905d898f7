"""The reference server: a body that it knows, and an answer whose head names batch and service.

Any server may name them, and every API reads them: `Server-Timing: batch;desc="8",
service;dur=12.5` (W3C Server Timing; durations are milliseconds).
"""

from __future__ import annotations

import re

from torchgauge.records.serving.capacity_plan import LARGEST_BATCH
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import Dialect

DIALECT = Dialect("torchgauge", path="/torchgauge")
_LONGEST_TIMING = 1 << 10  # bytes of a `Server-Timing` header that are read
_SERVER_TIMING = re.compile(
    rb'(?:^|,)\s*(?:(batch)|service)\s*(?:;(?:[^",;]|"[^"]*")*)*?;\s*(?(1)desc|dur)\s*=\s*'
    rb'("?)([0-9.eE+-]{1,24})\2\s*(?=[,;]|$)'
)


def read_timing(columns: Columns, row: int, value: bytes) -> None:
    """Note the batch and the seconds of service that a `Server-Timing` header names."""
    if len(value) > _LONGEST_TIMING:
        return
    for batch, _, number in _SERVER_TIMING.findall(value):
        try:
            amount = float(number)
        except ValueError:
            continue
        if batch and 1 <= amount <= LARGEST_BATCH:
            columns.batch[row] = int(amount)
        elif not batch and 0 <= amount < 1e9:
            columns.service[row] = amount / 1000
