"""The collector's count, held still while objects are made that stay."""

import gc

import pytest

from torchgauge.garbage import CollectorCount


@pytest.fixture
def collections():
    """The generations of the collections since the test began."""
    generations = []

    def collected(phase, details):
        if phase == "start":
            generations.append(details["generation"])

    gc.callbacks.append(collected)
    yield generations
    gc.callbacks.remove(collected)


def test_objects_that_stay_bring_no_collection_nearer(collections):
    count = CollectorCount()
    collections.clear()
    kept = []
    before = gc.get_count()[0]
    with count.held():
        kept += [{number} for number in range(3 * gc.get_threshold()[0])]
    assert abs(gc.get_count()[0] - before) < 20
    assert collections == []


def test_where_the_program_collects_nothing_nor_do_we(collections):
    gc.disable()
    try:
        with CollectorCount().held():
            pass
        assert not gc.isenabled()
        assert collections == []
    finally:
        gc.enable()
