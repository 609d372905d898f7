"""What is derived from several probes that other load may have slowed differently."""

import msgspec
import pytest
from tests.support import exported_records
from tests.support.operator_costs import ROOFS, cost, latency, row

from torchgauge.measure.derived import judged
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

# 10 ms of arithmetic at the peak.
PRODUCT = cost(row(matmul_flops=10**9, bytes=10**6))
BUSY = msgspec.structs.replace(ROOFS, quality="busy", other=1.5)


@pytest.mark.parametrize(
    ("of_tree", "of_call", "roofs", "known"),
    [
        (0.012, 0.012, BUSY, True),
        (0.001, 0.012, BUSY, False),  # ten times as fast as these roofs allow
        (0.012, 0.001, BUSY, False),
        (0.001, None, BUSY, False),
        (0.001, 0.012, ROOFS, True),  # of a quiet machine: then caches or fusion saved traffic
    ],
)
def test_layers_have_no_bound_under_roofs_that_either_time_refutes(of_tree, of_call, roofs, known):
    rows = (
        TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0),
        TreeRow(
            name="aten::mm", kind="operator", parent=0, calls=1, phase="forward",
            host=round(of_tree * 1e9),
        ),
    )  # fmt: skip
    environment = exported_records.profile().environment
    timed = None if of_call is None else latency(of_call)
    root = judged(Tree(rows=rows), PRODUCT, timed, roofs, environment).root
    assert root.time == pytest.approx(of_tree)
    assert root.efficiency == (pytest.approx(0.01 / of_tree) if known else None)
