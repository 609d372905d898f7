"""Analyses in the background: once for each state of their data."""

from concurrent.futures import Executor, Future

import pytest

from torchgauge.live import analyses
from torchgauge.live.analyses import Analyses


class Waiting(Executor):
    """Runs nothing before it is told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, /, *arguments, **options):
        future = Future()
        self.waiting.append((future, function))
        return future

    def run(self):
        for future, function in self.waiting:
            try:
                future.set_result(function())
            except ZeroDivisionError as error:
                future.set_exception(error)
        self.waiting.clear()


def test_a_result_comes_later_and_stays_until_its_data_change():
    executor = Waiting()
    known = Analyses(executor)
    assert known.result("a", 1, lambda: "first") == (None, False)
    assert known.result("a", 1, lambda: "again") == (None, False)
    assert len(executor.waiting) == 1
    executor.run()
    assert known.result("a", 1, lambda: "again") == ("first", True)
    assert known.result("a", 2, lambda: "second") == ("first", False)
    executor.run()
    assert known.result("a", 2, lambda: "third") == ("second", True)


def test_an_error_is_raised_and_tried_again_with_another_state_or_later():
    executor = Waiting()
    known = Analyses(executor, now=lambda: now)
    now = 0.0
    known.result("a", 1, lambda: 1 / 0)
    executor.run()
    with pytest.raises(ZeroDivisionError):
        known.result("a", 1, lambda: 1)
    assert known.result("a", 2, lambda: 1 / 0) == (None, False)
    executor.run()
    now = analyses.RETRY + 1
    assert known.result("a", 2, lambda: 1) == (None, False)
    executor.run()
    assert known.result("a", 2, lambda: 1) == (1, True)


def test_the_least_used_ones_are_forgotten(monkeypatch):
    monkeypatch.setattr(analyses, "MAX_ENTRIES", 2)
    executor = Waiting()
    known = Analyses(executor)
    for name in "abac":  # b is the one that was not used lately
        known.result(name, 1, lambda: 1)
    assert len(executor.waiting) == 3
    known.result("a", 1, lambda: 1)
    assert len(executor.waiting) == 3
    known.result("b", 1, lambda: 1)
    assert len(executor.waiting) == 4
