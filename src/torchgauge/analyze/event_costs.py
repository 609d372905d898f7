"""Costs from recorded operators alone: what each span did itself, by its shapes in the trace.

The interface is settled, the body is being written: every figure is unknown for now.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.analyze.attribution import Spans
from torchgauge.model.events import ABSENT, Events, Integers


@dataclasses.dataclass(frozen=True, eq=False)
class EventCosts:
    """What each span did itself, in the order of `Spans`; sum them over `Growth.of_span`.

    `matmul` and `vector` are FLOP, `bytes` compulsory traffic; 0 for what did nothing itself (a
    range, a composite, what runs inside a counted operator), ABSENT where it is unknown. `counts`
    says which spans were counted or are unknown: operators that answer for themselves.
    """

    matmul: Integers
    vector: Integers
    bytes: Integers
    counts: np.ndarray

    @property
    def flops(self) -> Integers:
        """FLOP of each span itself, ABSENT where unknown."""
        return np.where(self.matmul == ABSENT, ABSENT, self.matmul + self.vector)


def event_costs(events: Events, spans: Spans) -> EventCosts:
    """Return the work of every span as its recorded shapes tell it; no torch is needed."""
    count = len(spans.row)
    unknown = np.full(count, ABSENT)
    return EventCosts(unknown, unknown, unknown, np.ones(count, np.bool_))
