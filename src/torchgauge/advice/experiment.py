"""The experiment: outputs first, then screening, fresh confirmation, and what holds together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from torchgauge import units
from torchgauge.advice.budget import Budget, BudgetOver
from torchgauge.advice.candidate import Candidate
from torchgauge.advice.combining import combined
from torchgauge.advice.durations import Durations, by_worth
from torchgauge.advice.some_layers import of_some_layers, take_layers
from torchgauge.advice.trying import NOT_SURE, Trying, of_blocks, spread
from torchgauge.advice.world import Block, Side, World
from torchgauge.analyze.speed_up import (
    FEWEST_CONFIRMING,
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
from torchgauge.measure.check import Checked
from torchgauge.model.advice import Best, Combination, Trial
from torchgauge.model.facts import Facts
from torchgauge.progress import Progress

# Of a budget, where there is more than one to confirm; the rest is for combinations.
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

    `tolerance` replaces each candidate's own. `budget` bounds the whole: those that save most per
    second of trying come first, and what would not end within it stays untried. Ctrl-C keeps what
    was found until then.
    """

    def __init__(
        self,
        world: World,
        candidates: Sequence[Candidate],
        progress: Progress,
        *,
        tolerance: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.world = world
        self.candidates = candidates
        self.progress = progress
        self.tolerance = tolerance
        self.budget = budget or Budget()
        self.combinations: list[Combination] = []
        self.best: Best | None = None

    def run(self) -> Found:
        """Try everything; raises what the original runs into, and only that."""
        self.progress.start("looking at the model")
        facts = self.world.facts()
        self.durations = Durations(facts, self.world.looked, self.world.timing)
        tried = [Trying(one, facts) for one in self.candidates]
        for one in tried:
            if reason := one.candidate.untried(facts):
                one.end("untried", reason)
        interrupted = False
        try:
            self._screen(tried)
            self._confirm([one for one in tried if one.outcome is None])
            self._combine([one for one in tried if one.outcome == "accepted"], facts)
        except KeyboardInterrupt:
            interrupted = True
        for one in tried:
            if one.outcome is None:
                one.leave(interrupted=interrupted)
        trials = tuple(one.trial() for one in tried)
        return Found(facts, trials, tuple(self.combinations), self.best, interrupted)

    def check(self, side: Side, tolerance: float) -> Checked:
        """Compare a version's outputs with the original's; raises BudgetOver as well."""
        self.progress.update("comparing outputs")
        began = self.budget.now()
        checked = self.world.check(side, tolerance)
        self.durations.add_check(side, self.budget.now() - began, checked.one_off)
        return checked

    def blocks(self, a: Side, b: Side, number: int, *, layers: bool = False) -> list[Block]:
        """Time two versions in several blocks: all, or as many as end within the budget."""
        blocks: list[Block] = []
        while len(blocks) < number:
            each, missing = self.durations.block(b), number - len(blocks)
            if not self.budget.fits(each):
                break
            left = f"block {len(blocks) + 1} of {number}, {units.time(each * missing, 2)} left"
            self.progress.update(left, len(blocks) / number)
            try:
                block = self.world.block(a, b, layers=layers)
            except BudgetOver:
                break
            self.durations.add_block(b, block.duration)
            blocks.append(block)
        return blocks

    def allowed(self, one: Candidate) -> float:
        """Return the relative error that a candidate's output may have."""
        return one.tolerance if self.tolerance is None else self.tolerance

    def _screen(self, tried: list[Trying]) -> None:
        """Check and time those not ended; of some layers joins where of all breaks the output."""
        known = {one.candidate.id: one for one in tried if one.outcome is None}
        waiting = by_worth([one.candidate for one in known.values()], self.durations)
        while waiting:
            candidate = waiting.pop(0)
            one = known[candidate.id]
            needed = self.durations.trial(candidate)
            kept = self._to_confirm(tried)
            if not self.budget.fits(needed + kept):
                one.needed, one.left = needed, (self.budget.left() or 0.0) - kept
                continue
            self.progress.start(f"{len(known) - len(waiting)} of {len(known)}: {candidate.id}")
            self._guarded(one, self._screen_one)
            if (partial := of_some_layers(one)) is not None:
                known[partial.candidate.id] = partial
                tried.insert(tried.index(one) + 1, partial)
                waiting = by_worth([*waiting, partial.candidate], self.durations)

    def _to_confirm(self, tried: Sequence[Trying]) -> float:
        """Return the seconds that the fewest fresh blocks of those screened so far take."""
        winners = [one for one in tried if one.outcome is None and one.screening is not None]
        return FEWEST_CONFIRMING * sum(self.durations.block(_side(one)) for one in winners)

    def _guarded(self, one: Trying, do: Callable[[Trying], None]) -> None:
        """Let a candidate that crashes be a result, and one that was stopped be untried."""
        try:
            do(one)
        except TorchgaugeError as error:
            one.fail(error)
        except BudgetOver:
            one.needed, one.left = self.durations.trial(one.candidate), self.budget.left()

    def _screen_one(self, one: Trying) -> None:
        if one.candidate.choosing is not None:
            self.progress.update("choosing layers by their outputs")
            choice = self.world.choose(one.candidate.choosing, self.allowed(one.candidate))
            take_layers(one, choice)
            if one.outcome is not None:
                return
        one.checked(self.check(_side(one), self.allowed(one.candidate)))
        if one.outcome is not None:
            return
        one.fresh = self.blocks(Side(), _side(one), SCREENING)
        if len(one.fresh) < SCREENING:
            one.needed, one.left = self.durations.trial(one.candidate), self.budget.left()
            return
        one.screening, one.fresh = of_blocks(one.fresh), []
        if one.candidate.goal == "memory":
            one.end("accepted", _memory(one))
        elif not promising(one.screening):
            one.end("rejected", f"{spread(one.screening)} in screening: nothing to confirm.")
        elif _too_long(one):
            one.end("rejected", "A call takes longer than the limit.")

    def _confirm(self, tried: Sequence[Trying]) -> None:
        winners = [one for one in tried if one.screening is not None]
        winners.sort(key=lambda one: -one.screening.value)  # type: ignore[union-attr]
        p: dict[str, float] = {}
        known = {one.candidate.id: one for one in winners}

        def confirm(one: Trying) -> None:
            one.fresh = self.blocks(Side(), _side(one), number, layers=_has_layers(one))
            if len(one.fresh) < FEWEST_CONFIRMING:
                one.needed, one.left = number * each, self.budget.left()
                return
            one.confirmation = of_blocks(one.fresh)
            p[one.candidate.id] = gain_p(one.confirmation.differences)
            one.known |= {
                "p": p[one.candidate.id],
                "break_even": break_even(one.known.get("one_off"), one.confirmation),
                "layers": layers_helped(
                    [block.layers for block in one.fresh],
                    [block.layer_seconds for block in one.fresh],
                ),
            }

        try:
            for place, one in enumerate(winners):
                each, others = self.durations.block(_side(one)), len(winners) - place
                if not self.budget.fits(FEWEST_CONFIRMING * each):
                    one.needed, one.left = FEWEST_CONFIRMING * each, self.budget.left()
                    continue
                share = FOR_CONFIRMING if len(winners) > 1 else 1.0
                number = confirming_blocks(self.budget.left(share), others, each)
                self.progress.start(f"confirming {one.candidate.id}, {place + 1} of {len(winners)}")
                self._guarded(one, confirm)
        finally:
            for name, held in confirmed(p).items():
                _judge(known[name], held=held)

    def _combine(self, accepted: Sequence[Trying], facts: Facts) -> None:
        combined(self, accepted, facts)


def _side(one: Trying) -> Side:
    return Side((one.candidate,))


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
