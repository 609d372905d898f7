"""What may go, by hand."""

import pytest
from tests.support import history_runs as runs

from torchgauge.history.content import moment
from torchgauge.history.retention import superfluous


def gone(made, **limits):
    return [run.commit for run in superfluous([one.run for one in made], **limits)]


MADE = [
    runs.run(0, branch="old"),
    *(runs.run(day) for day in range(1, 6)),
    runs.run(6, memory=64_000_000_000),
    runs.run(7, target="other"),
]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, []),
        ({"keep_last": 2}, ["c1", "c2", "c3"]),
        ({"keep_last": 9}, []),
        ({"before": moment("2026-01-04")}, ["c1", "c2"]),
        ({"before": moment("2027-01-01")}, ["c1", "c2", "c3", "c4"]),  # the newest of each stays
        ({"keep_last": 4, "before": moment("2027-01-01")}, ["c1"]),
        ({"keep_last": 1, "before": moment("2026-01-03")}, ["c1"]),
    ],
)
def test_what_may_go(limits, expected):
    assert gone(MADE, **limits) == expected
