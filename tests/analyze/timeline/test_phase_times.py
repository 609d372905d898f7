"""Backward pass and optimizer are as long as in bare steps, whatever the recording says."""

import numpy as np
import pytest

from torchgauge.analyze.timeline.attribution import BACKWARD, FORWARD, NONE, OPTIMIZER
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING, NodeDraft, NodeTable
from torchgauge.analyze.timeline.typical_step import PhaseTimes

NODES = [
    NodeDraft("Net", "model", NONE),
    NodeDraft("aten::mm", "operator", 0, FORWARD),
    NodeDraft("MmBackward0", "operator", 0, BACKWARD),
    NodeDraft("aten::mm", "operator", 2, BACKWARD),
    NodeDraft(ENGINE, "bucket", 0),
    NodeDraft(OPTIMIZING, "bucket", 0),
    NodeDraft("aten::add_", "operator", 5, OPTIMIZER),
]


def grown(*steps: list[int]) -> NodeTable:
    host = np.array(steps, np.int64).T
    return NodeTable(NODES, host, np.ones_like(host), np.zeros(0, np.int64))


def test_a_phase_that_the_recording_made_slower_takes_its_bare_time():
    table = grown([7, 100, 40, 150, 10, 30, 370])
    phases = PhaseTimes(
        bare=[{"zero_grad": 10, "forward": 100, "backward": 100, "optimizer": 190}],
        recorded=[{"zero_grad": 20, "forward": 500, "backward": 200, "optimizer": 380}],
    )

    found = phases.scaled(table.host[:, 0], table)

    assert found.tolist() == [7, 100, 20, 75, 5, 15, 185]


def test_page_faults_that_meet_another_operator_each_time_are_part_of_the_phase():
    # 100 ns of each backward pass are a fault; the medians of the operators alone hold none of it.
    table = grown([0, 0, 110, 10, 10, 0, 0], [0, 0, 10, 110, 10, 0, 0], [0, 0, 10, 10, 110, 0, 0])
    phases = PhaseTimes(bare=[{"backward": 130}] * 3, recorded=[{"backward": 130}] * 3)

    found = phases.scaled(np.median(table.host, axis=1).astype(np.int64), table)

    assert found.tolist() == [0, 0, 43, 43, 43, 0, 0]


@pytest.mark.parametrize(
    "phases",
    [
        PhaseTimes([], []),
        PhaseTimes([{"forward": 9}], [{"forward": 12}]),
        PhaseTimes([{"backward": 0, "optimizer": 0}], [{"backward": 0, "optimizer": 0}]),
    ],
    ids=["none", "inference", "empty"],
)
def test_what_has_no_such_phase_stays_as_recorded(phases):
    table = grown([7, 100, 40, 150, 10, 30, 370])

    assert phases.scaled(table.host[:, 0], table).tolist() == table.host[:, 0].tolist()
