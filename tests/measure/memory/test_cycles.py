"""Cycles of a recording's steps are collected, older ones are left until it ends."""

import gc
import weakref

import pytest

from torchgauge.measure.memory import memory_warnings as cycles
from torchgauge.measure.memory.memory_warnings import collecting_cycles


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def no_collection_by_itself(monkeypatch):
    monkeypatch.setattr(cycles, "gc", gc)
    gc.unfreeze()  # as a user's process is, unlike that of the tests
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.mark.thorough
def test_cycles_of_the_block_are_collected_and_older_ones_afterwards():
    older = weakref.ref(Cycle())
    with collecting_cycles() as collect:
        newer = weakref.ref(Cycle())
        collect()
        assert newer() is None
        assert older() is not None
    gc.collect()
    assert older() is None
    assert gc.get_freeze_count() == 0


@pytest.mark.thorough
def test_what_the_user_froze_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collecting_cycles() as collect:
        newer = weakref.ref(Cycle())
        collect()
        assert newer() is None
    assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)
