"""Ranks side by side: who is slow, and who waits."""

import msgspec
import pytest
from tests.support import records

from torchgauge.analyze.ranks.ranks import merged
from torchgauge.errors import InputError
from torchgauge.records.timeline.loop import Captured, Loop, Rank, Stretch


def loop(number, step, waiting, *, world=2, job="job", recorded=3, created="2026-01-01T00:00:00"):
    environment = msgspec.structs.replace(records.profile().environment, created=created)
    return Loop(
        roots=("Net",),
        environment=environment,
        captured=Captured(requested=3, recorded=recorded, budget=10**9),
        by="optimizer",
        count=3,
        stretches=(Stretch(phase="record", durations=(step,) * recorded),) if recorded else (),
        communication=None if waiting is None else waiting + 1.0,
        waiting=waiting,
        rank=Rank(number=number, world=world, job=job),
    )


def test_the_rank_that_works_longest_is_the_straggler():
    found = merged([loop(0, 10.5, 6.5), loop(1, 10.0, 0.0)])
    assert (found.straggler, found.lost) == (1, 6.0)
    assert [(one.number, one.work) for one in found.ranks] == [(0, 4.0), (1, 10.0)]
    assert found.exposed == pytest.approx(6.5 / 20.5)
    assert found.share == pytest.approx(8.5 / 20.5)
    assert not found.missing
    assert "Rank 1 is the straggler" in str(found)


def test_ranks_that_do_not_communicate_do_not_wait():
    alone = [loop(0, 10.0, 0.0), loop(1, 5.0, 0.0)]
    found = merged([msgspec.structs.replace(one, communication=0.0) for one in alone])
    assert (found.straggler, found.lost) == (None, None)
    assert "did not communicate" in str(found)
    assert "waits for it" not in str(found)
    assert "slower" not in str(found)


def test_ranks_that_differ_by_chance_have_no_straggler():
    found = merged([loop(0, 10.0, 1.0), loop(1, 10.0, 1.4)])
    assert (found.straggler, found.lost) == (None, None)
    assert "No rank is slower" in str(found)


def test_missing_ranks_are_told():
    found = merged([loop(1, 10.0, 1.0, world=4), loop(2, 10.0, None, world=4, recorded=0)])
    assert found.missing == (0, 2, 3)
    assert found.straggler is None
    assert "rank 0, 2, 3" in str(found)


def test_of_two_records_of_a_rank_the_later_counts():
    earlier = loop(0, 10.0, 9.0, created="2025-12-31T00:00:00")
    found = merged([loop(0, 10.0, 1.0), earlier, loop(1, 10.0, 1.0)])
    assert found.ranks[0].waiting == 1.0


@pytest.mark.parametrize(
    ("loops", "name"),
    [([], "ranks-none"), ([loop(0, 1.0, 0.5), loop(1, 1.0, 0.5, job="other")], "ranks-mixed")],
)
def test_records_that_do_not_belong_together_are_refused(loops, name):
    with pytest.raises(InputError) as error:
        merged(loops)
    assert error.value.id == name
