"""The experiment: outputs first, then screening, fresh confirmation, and what holds together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from torchgauge import units
from torchgauge.advice.candidate import Candidate
from torchgauge.advice.combining import combined
from torchgauge.advice.trying import NOT_SURE, Trying, of_blocks, spread
from torchgauge.advice.world import Block, Side, World
from torchgauge.analyze.speed_up import (
    MINIMUM_GAIN,
    SCREENING,
    break_even,
    confirmed,
    confirming_blocks,
    gain_p,
    layers_helped,
    promising,
)
from torchgauge.errors import TorchgaugeError
from torchgauge.model.advice import Best, Combination, Trial
from torchgauge.model.facts import Facts
from torchgauge.progress import Progress

# Of a budget; the rest is for fresh blocks and combinations.
FOR_SCREENING = 0.5
FOR_CONFIRMING = 0.8


@dataclasses.dataclass(frozen=True)
class Found:
    """What an experiment found."""

    facts: Facts
    trials: tuple[Trial, ...]
    combinations: tuple[Combination, ...]
    best: Best | None
    interrupted: bool


class Experiment:
    """Tries candidates on the world's model.

    `tolerance` replaces each candidate's own. `budget` in seconds bounds the whole: candidates it
    does not reach stay untried. Ctrl-C keeps what was found until then.
    """

    def __init__(
        self,
        world: World,
        candidates: Sequence[Candidate],
        progress: Progress,
        *,
        tolerance: float | None = None,
        budget: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world = world
        self.candidates = candidates
        self.progress = progress
        self.tolerance = tolerance
        self.budget = budget
        self.now = now
        self.began = now()
        self.durations: list[float] = []
        self.combinations: list[Combination] = []
        self.best: Best | None = None

    def run(self) -> Found:
        """Try everything; raises what the original runs into, and only that."""
        self.progress.start("looking at the model")
        facts = self.world.facts()
        tried = [Trying(one, facts) for one in self.candidates]
        for one in tried:
            if reason := one.candidate.untried(facts):
                one.end("untried", reason)
        interrupted = False
        try:
            self._screen([one for one in tried if one.outcome is None])
            self._confirm([one for one in tried if one.outcome is None])
            self._combine([one for one in tried if one.outcome == "accepted"], facts)
        except KeyboardInterrupt:
            interrupted = True
        for one in tried:
            if one.outcome is None:
                one.end("untried", _unfinished(one, interrupted=interrupted))
        trials = tuple(one.trial() for one in tried)
        return Found(facts, trials, tuple(self.combinations), self.best, interrupted)

    def left(self, share: float = 1.0) -> float | None:
        """Return the seconds left of a share of the budget; None without a budget."""
        if self.budget is None:
            return None
        return self.began + share * self.budget - self.now()

    def blocks(self, a: Side, b: Side, number: int, *, layers: bool = False) -> list[Block]:
        """Time two versions in several blocks."""
        found = []
        for place in range(number):
            left = self._time_left(number - place)
            self.progress.update(f"block {place + 1} of {number}{left}", place / number)
            block = self.world.block(a, b, layers=layers)
            self.durations.append(block.duration)
            found.append(block)
        return found

    def _time_left(self, blocks: int) -> str:
        if not self.durations:
            return ""
        return f", {units.time(self.each * blocks, 2)} left for it"

    @property
    def each(self) -> float:
        """How many seconds a block took so far."""
        return sum(self.durations) / len(self.durations) if self.durations else 0.0

    def allowed(self, one: Candidate) -> float:
        """Return the relative error that a candidate's output may have."""
        return one.tolerance if self.tolerance is None else self.tolerance

    def _screen(self, tried: Sequence[Trying]) -> None:
        for place, one in enumerate(tried):
            left = self.left(FOR_SCREENING)
            if left is not None and left < SCREENING * self.each:
                continue
            self.progress.start(f"{place + 1} of {len(tried)}: {one.candidate.id}")
            self._guarded(one, self._screen_one)

    def _guarded(self, one: Trying, do: Callable[[Trying], None]) -> None:
        """Let a candidate that crashes be a result."""
        try:
            do(one)
        except TorchgaugeError as error:
            one.fail(error)

    def _screen_one(self, one: Trying) -> None:
        self.progress.update("comparing outputs")
        side = Side((one.candidate,))
        one.checked(self.world.check(side, self.allowed(one.candidate)))
        if one.outcome is not None:
            return
        one.screening = of_blocks(self.blocks(Side(), side, SCREENING))
        if one.candidate.goal == "memory":
            one.end("accepted", _memory(one))
        elif not promising(one.screening):
            one.end("rejected", f"{spread(one.screening)} in screening: nothing to confirm.")
        elif _too_long(one):
            one.end("rejected", "A call takes longer than the limit.")

    def _confirm(self, tried: Sequence[Trying]) -> None:
        winners = [one for one in tried if one.screening is not None]
        winners.sort(key=lambda one: -one.screening.value)  # type: ignore[union-attr]
        number = confirming_blocks(self.left(FOR_CONFIRMING), len(winners), self.each)
        p: dict[str, float] = {}
        known = {one.candidate.id: one for one in winners}

        def confirm(one: Trying) -> None:
            side = Side((one.candidate,))
            blocks = self.blocks(Side(), side, number, layers=_has_layers(one))
            one.confirmation = of_blocks(blocks)
            p[one.candidate.id] = gain_p(one.confirmation.differences)
            one.known |= {
                "p": p[one.candidate.id],
                "break_even": break_even(one.known.get("one_off"), one.confirmation),
                "layers": layers_helped(
                    [block.layers for block in blocks], [block.layer_seconds for block in blocks]
                ),
            }

        try:
            for place, one in enumerate(winners):
                left = self.left(FOR_CONFIRMING)
                if left is not None and p and left < number * self.each:
                    break
                self.progress.start(f"confirming {one.candidate.id}, {place + 1} of {len(winners)}")
                self._guarded(one, confirm)
        finally:
            for name, held in confirmed(p).items():
                _judge(known[name], held=held)

    def _combine(self, accepted: Sequence[Trying], facts: Facts) -> None:
        combined(self, accepted, facts)


def _judge(one: Trying, *, held: bool) -> None:
    assert one.confirmation is not None  # noqa: S101 - it has a p
    if held and one.confirmation.interval.low > 1 + MINIMUM_GAIN:
        if _too_long(one):
            one.end("rejected", "A call takes longer than the limit.")
            return
        gain = units.percent(one.confirmation.interval.low - 1)
        one.end("accepted", f"{spread(one.confirmation)}: surely by {gain}.")
    else:
        one.end("rejected", f"{spread(one.confirmation)} on fresh blocks: {NOT_SURE}.")


def _memory(one: Trying) -> str:
    before, after = one.known["memory_before"], one.known["memory_after"]
    price = "" if one.screening is None else f", at {units.significant(one.screening.value)} of"
    return f"{units.size(before, 3)} → {units.size(after, 3)} at its peak{price} the speed."


def _too_long(one: Trying) -> bool:
    limit, found = one.facts.latency_limit, one.confirmation or one.screening
    return limit is not None and found is not None and found.after * one.candidate.times > limit


def _has_layers(one: Trying) -> bool:
    return one.candidate.order != "compile" and one.facts.module


def _unfinished(one: Trying, *, interrupted: bool) -> str:
    why = "Ctrl-C" if interrupted else "the budget"
    if one.screening is None:
        return f"Not reached: {why} ended the search."
    return f"{spread(one.screening)} in screening; {why} came before it was confirmed."
