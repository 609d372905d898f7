"""The FLOPs of products that a recording shows, step by step, from recorded sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.timeline import attribution
from torchgauge.analyze.timeline.steps import Steps
from torchgauge.analyze.work.event_costs import EventCosts
from torchgauge.analyze.work.recorded_work import floating_types
from torchgauge.analyze.work.utilization import Products, multiplies_activations
from torchgauge.records.trace.events import ABSENT, Events, Integers

# What an optimizer multiplies is no work of the model.
_NOT_THE_MODEL = (attribution.OPTIMIZER, attribution.ZERO_GRAD)
_OF_THE_MODEL = (attribution.FORWARD, attribution.BACKWARD, attribution.RECOMPUTE)


def recorded_products(
    events: Events, spans: attribution.Spans, costs: EventCosts, steps: Steps | None = None
) -> Iterator[Products]:
    """Yield the products of each step, of the whole recording without steps."""
    if steps is None:
        number, count = np.zeros(len(spans.row), np.int64), 1
    else:
        number, count = steps.containing(spans.nesting.start), len(steps)
    inside = (number != attribution.NONE) & ~np.isin(spans.phase, _NOT_THE_MODEL)
    inside &= ~spans.is_loading
    rows = np.flatnonzero(inside & (costs.products > 0))
    flops, phase, step = costs.products[rows], spans.phase[rows], number[rows]
    own = phase != attribution.RECOMPUTE
    names = events.name.take(spans.row[rows])
    attended = own & names.where(multiplies_activations)
    of_model = np.isin(spans.phase, _OF_THE_MODEL) | ~spans.is_layer.any()
    lacking = inside & costs.counts & (costs.matmul == ABSENT) & of_model
    dtypes, code = _dtypes(events, spans.row[rows])
    for current in range(count):
        in_step = step == current
        by_dtype = {
            dtype: int(flops[in_step & own & (code == value)].sum())
            for value, dtype in enumerate(dtypes)
        }
        yield Products(
            model=int(flops[in_step & own].sum()),
            executed=int(flops[in_step].sum()),
            by_dtype={dtype: amount for dtype, amount in by_dtype.items() if amount},
            attention=int(flops[in_step & attended].sum()),
            backward=bool((in_step & (phase == attribution.BACKWARD)).any()),
            at_least=bool((lacking & (number == current)).any()),
        )


def typical_products(steps: tuple[Products, ...]) -> Products | None:
    """Return the products of the middle one of the steps by their FLOPs; None without any."""
    if not steps:
        return None
    return sorted(steps, key=lambda products: products.model)[len(steps) // 2]


def _dtypes(events: Events, rows: Integers) -> tuple[list[str], Integers]:
    """Return the types of first floating-point operands, and which of them each row has."""
    operators = events.operators
    code_of_row = np.full(len(events), ABSENT)
    code_of_row[operators.row] = operators.types.codes
    codes = code_of_row[rows]
    distinct, inverse = np.unique(codes, return_inverse=True)
    named = [
        "" if code == ABSENT else next(floating_types(operators.types.values[code]), "")
        for code in distinct.tolist()
    ]
    names = sorted(set(named))
    place = np.array([names.index(name) for name in named], np.int64)
    return names, place[inverse] if len(place) else np.zeros(0, np.int64)
