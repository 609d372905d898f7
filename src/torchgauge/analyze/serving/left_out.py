"""Why a level says nothing of the server: its client was late, or the server still warmed up.

A search that counted such levels would report the client's limit, or that of the server's first
seconds, as its capacity.
"""

from __future__ import annotations

import math

import numpy as np

from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.records.serving.level import LeftOut, Level

# Lateness is part of every latency: beyond this share of a goal's limit it decides about the goal.
MOST_LATENESS = 0.1
FEWEST_REQUESTS = 500
# The quick tenth hardly depends on the queue, which may begin long and end short by chance. Of the
# first requests as good as none is as quick, and theirs take longer by this.
QUICK, AS_GOOD_AS_NONE = 0.1, 0.02
FALL = 1.25


def left_out(level: Level, *, is_first: bool) -> LeftOut:
    """Return why a search leaves a level out; empty where it does not.

    Args:
        level: It, with its goals.
        is_first: Whether it is one of the first levels, at which a server may be cold.
    """
    if _client_was_late(level):
        return "late client"
    return "warm-up" if is_first and _warms_up(level) else ""


def _client_was_late(level: Level) -> bool:
    client = level.client
    if client is None or not client.limited:
        return False
    limits = [result.goal.limit for result in level.goals if result.goal.metric != "errors"]
    return (client.lateness_p99 or math.inf) > MOST_LATENESS * min(limits, default=0.0)


def _warms_up(level: Level) -> bool:
    """Return whether the quick answers of the first fifth were slower than those of the last half.

    From sent to answered; few requests do not show it.
    """
    columns = RequestTimes(level.requests)
    inside = columns.done & in_window(columns, level.window)
    service = columns.service[inside]
    service = service[np.isfinite(service)]
    if service.size < FEWEST_REQUESTS:
        return False
    first, last = service[: service.size // 5], service[service.size // 2 :]
    quick = float(np.quantile(last, QUICK))
    slower = float(np.quantile(first, QUICK)) > FALL * quick
    return slower and float((first <= quick).mean()) < AS_GOOD_AS_NONE
