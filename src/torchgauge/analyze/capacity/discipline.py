"""Whether a server answers requests in the order that the simulation assumes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Fate

# Fates of requests that a server turned away, or let wait until the client gave up.
SHED: tuple[Fate, ...] = ("refused", "reset", "status", "timeout")
# A share of these above which its queue is not one without limit.
SHED_SHARE = 0.01
# Statuses of a request that would have been taken at another time; others of 400 never are.
BUSY = (408, 425, 429)
# Requests whose batch began before that of an earlier one, in seconds and mean service times.
EARLIER, EARLIER_SHARE = 2e-3, 0.02
MARGIN, LATE = 0.25, 2.0
FEWEST_REQUESTS = 50


def misfit(level: Level, workers: Workers) -> str:
    """Return why a level of load is not that of one queue in order; empty where it may be.

    A server that turns requests away has a queue with a limit. Of others the begin of each batch is
    its end less its seconds: in one queue, a later request is not begun before an earlier one,
    however many workers there are. A server that takes the newest first, or one queue for each
    worker, begins many too early as soon as requests wait.
    """
    return rejected(level) or _shed(level) or _overtaken(level, workers)


def rejected(level: Level) -> str:
    """Return that a server does not take what is sent, by its statuses; empty where it does."""
    statuses = [s for s in level.requests.status if s and 400 <= s < 500 and s not in BUSY]
    share = len(statuses) / len(level.requests) if statuses else 0.0
    if share <= SHED_SHARE:
        return ""
    named = ", ".join(map(str, sorted(set(statuses))[:3]))
    return (
        f"At {level.label} {units.percent(share)} of the requests were answered by status {named}: "
        "the server does not take what was sent."
    )


def _shed(level: Level) -> str:
    count = sum(level.fates.values())
    # In a queue that grows without end, clients give up without the server's doing.
    saturated = level.saturation is not None and level.saturation.saturated
    fates = [fate for fate in SHED if not (saturated and fate == "timeout")]
    away = {fate: level.fates[fate] for fate in fates if level.fates.get(fate)}
    share = sum(away.values()) / count if count else 0.0
    if share <= SHED_SHARE:
        return ""
    named = ", ".join(f"{number:,} {fate}" for fate, number in away.items())
    return (
        f"At {level.label} the server answered {units.percent(1 - share)} of the requests alone "
        f"({named}): it turns requests away in place of letting them wait."
    )


def _overtaken(level: Level, workers: Workers) -> str:
    requests = level.requests
    rows = [
        (sent, last - took, took)
        for sent, last, took in zip(requests.sent, requests.last, requests.service, strict=False)
        if sent is not None and last is not None and took is not None
    ]
    if len(rows) < FEWEST_REQUESTS:
        return ""
    sent, began, took = np.array(sorted(rows)).T
    # By so much a begin may seem earlier: the way of the answer, readings of two clocks, and what
    # a client that is late to send is late to read.
    late = 0.0 if level.client is None else level.client.lateness_p99 or 0.0
    slack = max(EARLIER, MARGIN * float(np.median(took)), LATE * late)
    latest = np.maximum.accumulate(began)
    early = began < latest - slack
    # Of requests that were sent together, any may be first.
    sent_later = sent > sent[np.maximum.accumulate(_argmax_so_far(began))] + EARLIER
    share = float((early & sent_later).mean())
    if share <= EARLIER_SHARE:
        return ""
    several = " and the workers may have a queue each" if workers.count > 1 else ""
    return (
        f"At {level.label} {units.percent(share)} of the requests began before one that was sent "
        f"earlier: the server does not keep their order{several}."
    )


def _argmax_so_far(values: Floats) -> npt.NDArray[np.int64]:
    """Return, for each position, where the largest value up to it is."""
    is_record = values >= np.maximum.accumulate(values)
    return np.where(is_record, np.arange(len(values)), 0)
