"""Which steps of several in a row are timed."""

import pytest

from torchgauge.measure.latency.step_times import settled


class Steps:
    """Steps of a known length on a clock that nothing else moves; the first are slower."""

    def __init__(self, nanoseconds, slow=0):
        self.nanoseconds, self.slow = nanoseconds, slow
        self.time = self.count = 0

    def __call__(self, mark=lambda phase: None):
        mark("forward")
        self.count += 1
        self.time += self.nanoseconds * (2 if self.count <= self.slow else 1)
        mark("end")

    def now(self):
        return self.time


@pytest.mark.parametrize(
    ("milliseconds", "steps", "timed"),
    [(0.7, 12, 4), (5, 12, 4), (20, 4, 2), (60, 2, 1), (199, 2, 1), (300, 1, 1)],
)
def test_the_shorter_a_step_the_more_settle(milliseconds, steps, timed):
    step = Steps(int(milliseconds * 1e6))
    found = settled(step, step.now, lambda: step.count)
    assert step.count == steps
    assert [phases for phases, _ in found] == [{"forward": int(milliseconds * 1e6)}] * timed
    assert [count for _, count in found] == list(range(steps - timed + 1, steps + 1))


def test_steps_that_settle_are_in_no_time():
    step = Steps(700_000, slow=7)
    found = settled(step, step.now, lambda: None)
    assert {phases["forward"] for phases, _ in found} == {700_000}
