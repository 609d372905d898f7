"""The timeline of a record: what of it is saved, and what is refused where it was damaged."""

import msgspec
import pytest
from tests.support import evidence, pages, timelines

from torchgauge.errors import RecordError
from torchgauge.records import codec
from torchgauge.records.codec import SAVED_TIMELINE
from torchgauge.records.timeline.tree import disagreements


def trace(timeline):
    record = evidence.trace()
    (rank,) = record.ranks
    tree = msgspec.structs.replace(rank.tree, timeline=timeline)
    return msgspec.structs.replace(record, ranks=(msgspec.structs.replace(rank, tree=tree),))


def test_a_small_one_is_saved_whole():
    record = trace(timelines.synthetic(500))
    assert codec.decode(codec.encode(record)) == record


def test_a_large_one_of_a_trace_is_left_out():
    timeline = timelines.synthetic(50_000)
    assert len(timeline.columns) > SAVED_TIMELINE
    assert codec.decode(codec.encode(trace(timeline))) == trace(None)


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": ("other",)},
        {"sizes": (1, 2)},
        {"sizes": (-1, 0, 0, 0, 0, 1)},
        {"sizes": (10**9, 0, 0, 0, 0, 0)},
        {"columns": b"damaged"},
        {"lanes": ()},
    ],
)
def test_what_does_not_fit_together_is_refused(change):
    timeline = timelines.synthetic(500)
    assert [*disagreements(timeline)] == []
    broken = pages.with_tree(
        tree=msgspec.structs.replace(
            pages.tree(), timeline=msgspec.structs.replace(timeline, **change)
        )
    )
    with pytest.raises(RecordError) as caught:
        codec.decode(codec.encode(broken))
    assert caught.value.id == "record-invalid"
    assert "timeline" in caught.value.cause
