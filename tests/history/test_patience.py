"""Waiting is random, bounded, and only for what passes."""

import pytest

from torchgauge.errors import StoreError
from torchgauge.history.retention import LONGEST_WAIT, patiently


class Time:
    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def sleep(self, seconds):
        self.now += seconds
        self.pauses.append(seconds)


def busy(times, result="done"):
    left = iter([StoreError("", id="store-busy")] * times)

    def work():
        if (error := next(left, None)) is not None:
            raise error
        return result

    return work


def test_it_tries_again_until_it_is_its_turn():
    time = Time()
    assert patiently(busy(7), now=lambda: time.now, sleep=time.sleep) == "done"
    assert len(time.pauses) == len(set(time.pauses)) == 7


@pytest.mark.parametrize(("setting", "bound"), [("", LONGEST_WAIT), ("5", 5.0), ("600", 30.0)])
def test_it_gives_up_at_the_bound(monkeypatch, setting, bound):
    monkeypatch.setenv("TORCHGAUGE_STORE_TIMEOUT", setting)
    time = Time()
    with pytest.raises(StoreError) as error:
        patiently(busy(10**6), now=lambda: time.now, sleep=time.sleep, draw=lambda low, high: high)
    assert error.value.id == "store-busy"
    assert time.now == pytest.approx(bound)


def test_what_waiting_does_not_mend_is_raised_at_once():
    time = Time()

    def full():
        raise StoreError("", id="store-full")

    with pytest.raises(StoreError):
        patiently(full, now=lambda: time.now, sleep=time.sleep)
    assert not time.pauses
