"""Options of advice: what is tried, what an output may differ by, and for how long."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from torchgauge.advice.budget import Budget


@dataclasses.dataclass(frozen=True)
class AdviceOptions:
    """What is tried on a model, and which changes of its output are accepted.

    Attributes:
        metric: A number of the outputs that decides, as a function or by its name
            (`file.py:function`); None compares the outputs themselves.
        tolerance: The largest error allowed; None is what the arithmetic explains.
        candidates: Ids of what is tried; None is all.
        latency_limit: Seconds that a call of a larger batch may take; None tries none.
        budget: The time for everything, from the moment that it was made.
    """

    metric: Callable[[Any], float] | str | None = None
    tolerance: float | None = None
    candidates: Sequence[str] | None = None
    latency_limit: float | None = None
    budget: Budget = dataclasses.field(default_factory=Budget)
