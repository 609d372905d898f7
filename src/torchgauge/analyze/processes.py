"""The median over fresh processes: Student's t on the logs of their medians."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from torchgauge.model.record import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 3


def process_interval(medians: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the latency over processes from one median (seconds) of each.

    None below three processes: with two, the interval would be 6 times their distance on either
    side, or by luck next to nothing. None where a median is 0 (a coarse clock). The interval always
    holds the median of the medians, which the t interval of a skewed spread may miss.

    Source: Student (1908), on log medians because effects on latency multiply.
    """
    if len(medians) < FEWEST or min(medians) <= 0:
        return None
    from scipy.special import stdtrit

    logs = [math.log(median) for median in medians]
    centre = statistics.fmean(logs)
    reach = stdtrit(len(logs) - 1, 0.975) * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.median(medians)
    return Interval(
        low=min(math.exp(centre - reach), middle), high=max(math.exp(centre + reach), middle)
    )
