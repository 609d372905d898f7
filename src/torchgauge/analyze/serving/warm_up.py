"""Whether a server still warmed up during a level: even its quickest answers became quicker."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import Level

FEWEST_REQUESTS = 100
# The quick tenth hardly depends on the queue, which may begin long and end short by chance.
QUICK = 0.1
FALL = 1.25


def warms_up(level: Level) -> bool:
    """Return whether the quick answers of the first fifth were slower than those of the last half.

    From sent to answered; few requests do not show it.
    """
    columns = RequestTimes(level.requests)
    begin, end = level.window
    inside = columns.done & (columns.scheduled >= begin) & (columns.scheduled < end)
    service = columns.service[inside]
    service = service[np.isfinite(service)]
    if service.size < FEWEST_REQUESTS:
        return False
    first, last = service[: service.size // 5], service[service.size // 2 :]
    return bool(np.quantile(first, QUICK) > FALL * np.quantile(last, QUICK))
