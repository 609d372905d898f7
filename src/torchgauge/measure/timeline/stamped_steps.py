"""The stamped pass: layer times of steps with stamps, bare steps between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from torchgauge.analyze.timeline.call_tree import Call, CallTree
from torchgauge.analyze.timeline.layer_times import LayerTimes, layer_times
from torchgauge.analyze.timeline.stamp_cost import scaled_to_steps, stamp_cost
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.measure.latency.step_times import Phases, length, settled
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.step import Step
from torchgauge.measure.timeline.stamp_cost import calibrated
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.targets.placement import Placement

MIN_ROUNDS = 3  # rounds
MIN_LONG_ROUNDS = 1
LONG = 5.0  # seconds: of such steps one of each kind has to do
DOUBLE_STAMP_PERIOD = 3  # rounds from one with two stamps at each call to the next


class StampedSteps(NamedTuple):
    """Layer times without the stamps' cost; steps without stamps and with them, in turns."""

    layers: LayerTimes
    bare: list[Phases]
    stamped: list[Phases]


class _Rounds:
    """Runs steps of each kind, and keeps what was noted of them."""

    def __init__(
        self, placement: Placement, step: Step, modules: Modules, now: Callable[[], int]
    ) -> None:
        self._step, self._modules, self._now = step, modules, now
        self._stamps = Stamps(placement.model, modules, now, step.threads)
        self._around = Stamps(placement.model, modules, now, step.threads)
        self.bare: list[Phases] = []
        self.stamped: list[Phases] = []
        self.calls: list[list[Call]] = []
        self.inner: list[list[Call]] = []
        self.outer: list[list[Call]] = []

    def run_bare(self) -> None:
        """Time steps with nothing attached."""
        self.bare += [phases for phases, _ in settled(self._step, self._now, lambda: None)]

    def run_stamped(self) -> None:
        """Time steps and stamp their calls."""
        with self._stamps.watching():
            steps = settled(self._step, self._now, lambda: self._take_calls(self._stamps))
        self.stamped += [phases for phases, _ in steps]
        self.calls += [calls for _, (calls,) in steps]

    def run_stamped_twice(self) -> None:
        """Stamp each call twice: what the outer stamp reads more is what the inner one takes."""
        stamps = self._stamps, self._around
        with self._stamps.watching(), self._around.watching():
            steps = settled(self._step, self._now, lambda: self._take_calls(*stamps))
        self.inner += [inner for _, (inner, _) in steps]
        self.outer += [outer for _, (_, outer) in steps]

    def _take_calls(self, *stamps: Stamps) -> list[list[Call]]:
        calls = [stamp.take_calls() for stamp in stamps]
        self._modules.forget_gone()  # of every step: the next one's would get other names
        return calls


def stamped_steps(
    placement: Placement,
    step: Step,
    modules: Modules,
    tree: CallTree,
    now: Callable[[], int],
    effort: Effort = USUAL,
) -> StampedSteps:
    """Return stamped steps and the bare ones between them, for as long as `effort` says.

    In every third round calls are stamped twice, which tells at each layer what a stamp costs there
    and then; that is taken off the layers' times, as far as whole steps agree.
    """
    rounds = _Rounds(placement, step, modules, now)
    began = now()
    for number in itertools.count():
        rounds.run_bare()
        rounds.run_stamped()
        if number % DOUBLE_STAMP_PERIOD == 0 and length(rounds.bare[0]) < LONG:
            rounds.run_stamped_twice()
        enough = len(rounds.bare) >= effort.stamped_steps or now() - began >= effort.stamps * 1e9
        if enough and number + 1 >= min_rounds(length(rounds.bare[0])):
            break
    cost = stamp_cost(rounds.inner, rounds.outer, tree, calibrated(now))
    bare, stamped = ([step["forward"] for step in s] for s in (rounds.bare, rounds.stamped))
    cost = scaled_to_steps(cost, rounds.calls, tree, bare, stamped)
    return StampedSteps(layer_times(rounds.calls, tree, cost), rounds.bare, rounds.stamped)


def min_rounds(seconds: float) -> int:
    """Return how many rounds a step of this duration needs at least."""
    return MIN_ROUNDS if seconds < LONG else MIN_LONG_ROUNDS
