"""What a record says as a whole."""

import msgspec
from tests.support import records

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree


def warning(id, probe):
    return MeasurementWarning(id=id, message="seen by " + probe, probe=probe)


def test_what_both_recordings_of_memory_cannot_see_is_said_once():
    memory = msgspec.structs.replace(
        records.memory(), warnings=(warning("threads-unrecorded", "memory"),)
    )
    tree = Tree(
        rows=(TreeRow(name="Net", kind="model", parent=-1, calls=1),),
        warnings=(warning("threads-unrecorded", "timeline"), warning("tree-residual", "timeline")),
    )

    def said(**parts):
        found = records.profile(latency=None, system=None, warnings=(), tree=tree, **parts)
        return [(one.id, one.probe) for one in found.all_warnings]

    residual = ("tree-residual", "timeline")
    assert said(memory=memory) == [("threads-unrecorded", "memory"), residual]
    assert said(memory=None) == [("threads-unrecorded", "timeline"), residual]
