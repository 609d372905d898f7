"""One candidate while it is tried: what is known of it so far, and the trial it ends as."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from torchgauge import units
from torchgauge.advice.candidate import Candidate
from torchgauge.advice.world import Block
from torchgauge.analyze.speed_up import MINIMUM_GAIN, MINIMUM_MEMORY, speed_up
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.check import Checked
from torchgauge.measure.outputs import DIFFERS
from torchgauge.model.advice import Outcome, SpeedUp, Trial
from torchgauge.model.facts import Facts

FEWEST_TOLD = 3


@dataclasses.dataclass
class Trying:
    """A candidate on its way; `outcome` None as long as it may still be accepted.

    `fresh` are blocks that are not judged yet. Where the budget left it out, `needed` are the
    seconds that it would have taken, and `left` those that the budget had.
    """

    candidate: Candidate
    facts: Facts
    outcome: Outcome | None = None
    reason: str = ""
    screening: SpeedUp | None = None
    confirmation: SpeedUp | None = None
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    fresh: list[Block] = dataclasses.field(default_factory=list)
    needed: float | None = None
    left: float | None = None

    def end(self, outcome: Outcome, reason: str) -> None:
        """Say what became of it."""
        self.outcome, self.reason = outcome, reason

    def fail(self, error: TorchgaugeError) -> None:
        """End it with what it ran into."""
        self.end("failed", " ".join(filter(None, (error.message, error.cause))))

    def checked(self, found: Checked) -> None:
        """Take what its check found; an output that is not kept ends it."""
        self.known |= {
            "output": found.output,
            "memory_before": self.facts.memory,
            "memory_after": found.memory,
            "one_off": found.one_off,
        }
        if not found.output.passed:
            self.end("rejected", not_kept(found))
        elif self.candidate.goal == "memory" and not self._saves(found.memory):
            self.end("rejected", f"It saves less than {units.percent(MINIMUM_MEMORY)} of memory.")

    def _saves(self, after: int | None) -> bool:
        before = self.facts.memory
        return bool(before and after is not None and after <= before * (1 - MINIMUM_MEMORY))

    def leave(self, *, interrupted: bool) -> None:
        """End it as untried, with what was measured of it and what ended the search."""
        cause = "Ctrl-C" if interrupted else "the budget"
        parts = [] if self.screening is None else [f"{spread(self.screening)} in screening"]
        if self.fresh:
            gain = units.significant(math.exp(-_mean_difference(self.fresh)))
            number = f"{len(self.fresh)} block{'s' if len(self.fresh) > 1 else ''}"
            parts.append(f"{gain} times as fast in {number}, too few to judge")
        elif not parts and "output" in self.known:
            parts.append("Its output is kept")
        before = "confirmed" if self.screening is not None else "timed"
        reason = "; ".join([*parts, f"{cause} came before it was {before}."])
        if not parts:
            reason = f"Not reached: {cause} ended the search."
        self.end("untried", " ".join(filter(None, (reason, self._price()))))

    def _price(self) -> str:
        """Say what it would have taken."""
        if self.needed is None or self.left is None:
            return ""
        left = units.duration(self.left) if self.left > 0 else "nothing"
        return f"It takes about {units.duration(self.needed)}, and {left} was left."

    def trial(self) -> Trial:
        """Return the record of it."""
        one = self.candidate
        tried = self.outcome != "untried" or self.screening is not None or "output" in self.known
        assumed = one.assumed(self.facts)
        return Trial(
            id=one.id,
            title=one.title,
            outcome=self.outcome or "untried",
            reason=self.reason,
            code=one.code(self.facts),
            language=one.language,
            goal=one.goal,
            how="measured" if tried else "estimated" if assumed else None,
            screening=self.screening,
            confirmation=self.confirmation,
            assumed=assumed,
            needed=self.needed if self.outcome == "untried" else None,
            **self.known,
        )


def not_kept(found: Checked) -> str:
    """Say by how much an output or a metric is off."""
    check = found.output
    if check.bounded == "metric":
        before, after = (
            "not a number" if value is None else units.significant(value, 4)
            for value in (check.metric_before, check.metric_after)
        )
        return f"{check.reason} {before} → {after}"
    if check.max_relative is None or check.reason != DIFFERS:
        return check.reason
    error, bound = units.percent(check.max_relative), units.percent(check.bound)
    return f"{check.reason} By {error} of its largest value, where {bound} may be."


def of_blocks(blocks: Sequence[Block]) -> SpeedUp:
    """Return the speed-up that several blocks show."""
    before, after = (
        statistics.geometric_mean(times)
        for times in zip(*((block.before, block.after) for block in blocks), strict=True)
    )
    return speed_up([block.difference for block in blocks], before, after)


def spread(found: SpeedUp) -> str:
    """Return a speed-up with its interval: '1.18 times as fast [1.12, 1.25]'.

    The interval of two blocks is too wide to tell anything.
    """
    if found.blocks < FEWEST_TOLD:
        return f"{units.significant(found.value)} times as fast"
    low, high = (units.significant(end) for end in (found.interval.low, found.interval.high))
    return f"{units.significant(found.value)} times as fast [{low}, {high}]"


def _mean_difference(blocks: Sequence[Block]) -> float:
    return statistics.fmean(block.difference for block in blocks)


NOT_SURE = f"not surely by more than {units.percent(MINIMUM_GAIN)}"
