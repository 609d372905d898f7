"""Where a graph is cut: at equal shares of the time, and around its largest nodes."""

from __future__ import annotations

import pytest

from torchgauge.measure.timeline.profiled_nodes import cut_places


@pytest.mark.parametrize(
    ("seconds", "cuts"),
    [
        ([1.0] * 12, [2, 4, 6, 8, 10]),
        ([1.0, 1.0, 50.0, 1.0, 1.0], [2, 3]),
        ([50.0, 1.0, 50.0], [1, 2]),
        ([1.0], []),
        ([], []),
        ([0.0, 0.0], []),
    ],
)
def test_cuts(seconds, cuts):
    assert cut_places(seconds, 6) == cuts
