"""What a pass over the steps cost, by hand."""

import pytest

from torchgauge.model.record import Interval
from torchgauge.model.tree import Pass


@pytest.mark.parametrize(
    ("duration", "bare", "interval", "overhead"),
    [
        (3.0, 2.0, None, 1.5),
        (2.0, 2.0, None, None),
        (1.28, 2.0, None, None),
        (3.0, None, None, None),
        (3.0, 2.0, (1.5, 2.5), 1.5),
        (2.4, 2.0, (1.5, 2.5), None),
        (1.28, 2.0, (1.5, 2.5), None),
    ],
)
def test_overhead_is_said_where_it_can_be_told_from_none(duration, bare, interval, overhead):
    known = None if interval is None else Interval(low=interval[0], high=interval[1])
    found = Pass(name="stamps", steps=3, duration=duration, bare=bare, bare_interval=known)
    assert found.overhead == overhead
