"""One candidate while it is tried: how long that takes, its state so far, and its trial."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.advice.budget import Budget, BudgetOver
from torchgauge.advice.candidate import Candidate
from torchgauge.advice.world import Block, Side, World
from torchgauge.analyze.advice.speed_up import (
    FEWEST_CONFIRMING,
    MINIMUM_GAIN,
    MINIMUM_MEMORY,
    SCREENING,
    outcome_of,
    speed_up,
)
from torchgauge.analyze.compare.compared_memory import PROCESS_SPREAD
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.advice.check import MOST_GROUPS, STEPS, CheckResult
from torchgauge.measure.advice.outputs import DIFFERS
from torchgauge.measure.latency.blocks import ABBA
from torchgauge.progress import Progress
from torchgauge.records.advice import Best, Combination, Outcome, SpeedUp, Trial
from torchgauge.records.record import Interval
from torchgauge.records.target import Facts

FEWEST_TOLD = 3
# Of what the first call takes once (compilation), the share that it takes in later processes,
# which find a warm cache.
WARM = 0.5
# Bytes of parameters that are copied, in part converted, and freed in a second.
CONVERTED = 3e8


@dataclasses.dataclass
class Attempt:
    """A candidate on its way; `outcome` None as long as it may still be accepted.

    `fresh` are blocks that are not judged yet. Where the budget left it out, `needed` are the
    seconds that it would have taken, and `remaining` those that the budget had.
    """

    candidate: Candidate
    facts: Facts
    outcome: Outcome | None = None
    reason: str = ""
    screening: SpeedUp | None = None
    confirmation: SpeedUp | None = None
    trial_fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    fresh: list[Block] = dataclasses.field(default_factory=list)
    needed: float | None = None
    remaining: float | None = None

    def end(self, outcome: Outcome, reason: str) -> None:
        """Say what became of it."""
        self.outcome, self.reason = outcome, reason

    def leave_out(self, needed: float, remaining: float | None) -> None:
        """Note what it would have taken, and what the budget had."""
        self.needed, self.remaining = needed, remaining

    def fail(self, error: TorchgaugeError) -> None:
        """End it with what it ran into."""
        self.end("failed", " ".join(filter(None, (error.message, error.cause))))

    def checked(self, check_result: CheckResult) -> None:
        """Take what its check found; an output that is not kept ends it."""
        self.trial_fields |= {
            "output": check_result.output,
            "memory_before": self.facts.memory,
            "memory_after": check_result.memory,
            "one_off": check_result.one_off,
        }
        if not check_result.output.passed:
            self.end("rejected", rejection_reason(check_result))
        elif self.candidate.goal == "memory" and not self._saves(check_result.memory):
            self.end("rejected", f"It saves less than {units.percent(self._saving)} of memory.")

    @property
    def _saving(self) -> float:
        """The share of memory that must be saved: more than processes of one build differ by."""
        return PROCESS_SPREAD if self.facts.runtime else MINIMUM_MEMORY

    def _saves(self, after: int | None) -> bool:
        before = self.facts.memory
        return bool(before and after is not None and after <= before * (1 - self._saving))

    def leave(self, *, interrupted: bool) -> None:
        """End it as untried, with what was measured of it and what ended the search."""
        cause = "Ctrl-C" if interrupted else "the budget"
        parts = [] if self.screening is None else [f"{spread(self.screening)} in screening"]
        if self.fresh:
            gain = units.significant(
                math.exp(-statistics.fmean(block.difference for block in self.fresh))
            )
            number = f"{len(self.fresh)} block{'s' if len(self.fresh) > 1 else ''}"
            parts.append(f"{gain} times as fast in {number}, too few to judge")
        elif not parts and "output" in self.trial_fields:
            parts.append("Its output is kept")
        before = "confirmed" if self.screening is not None else "timed"
        reason = "; ".join([*parts, f"{cause} came before it was {before}."])
        if not parts:
            reason = f"Not reached: {cause} ended the search."
        self.end("untried", " ".join(filter(None, (reason, self._price()))))

    def _price(self) -> str:
        """Say what it would have taken."""
        if self.needed is None or self.remaining is None:
            return ""
        time_left = units.duration(self.remaining) if self.remaining > 0 else "nothing"
        return f"It takes about {units.duration(self.needed)}, and {time_left} was left."

    def trial(self) -> Trial:
        """Return the record of it."""
        candidate = self.candidate
        was_tried = (
            self.outcome != "untried" or self.screening is not None or "output" in self.trial_fields
        )
        is_fit = not (candidate.needs_module and self.facts.runtime)
        assumed = candidate.assumed(self.facts) if is_fit else ()
        return Trial(
            id=candidate.id,
            title=candidate.title,
            outcome=self.outcome or "untried",
            reason=self.reason,
            code=candidate.code(self.facts),
            language=candidate.language,
            goal=candidate.goal,
            how="measured" if was_tried else "estimated" if assumed else None,
            screening=self.screening,
            confirmation=self.confirmation,
            assumed=assumed,
            needed=self.needed if self.outcome == "untried" else None,
            **self.trial_fields,
        )


class Measuring:
    """Checks and times versions of the world's model, as far as the budget goes."""

    durations: Durations

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

    def check(self, side: Side, tolerance: float) -> CheckResult:
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
            block_seconds, missing = self.durations.block(b), number - len(blocks)
            if not self.budget.fits(block_seconds):
                break
            time_left = units.time(block_seconds * missing, 2)
            status = f"block {len(blocks) + 1} of {number}, {time_left} left"
            self.progress.update(status, len(blocks) / number)
            try:
                block = self.world.block(a, b, layers=layers)
            except BudgetOver:
                break
            self.durations.add_block(b, block.duration)
            blocks.append(block)
        return blocks

    def allowed(self, candidate: Candidate) -> float:
        """Return the relative error that a candidate's output may have."""
        return candidate.tolerance if self.tolerance is None else self.tolerance


def rejection_reason(result: CheckResult) -> str:
    """Say by how much an output or a metric is off."""
    check = result.output
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


def speed_up_of(blocks: Sequence[Block]) -> SpeedUp:
    """Return the speed-up that several blocks show."""
    before, after = (
        statistics.geometric_mean(times)
        for times in zip(*((block.before, block.after) for block in blocks), strict=True)
    )
    cpu = [block.cpu for block in blocks if block.cpu is not None]
    shares = [block.core_share for block in blocks if block.core_share is not None]
    return speed_up(
        [block.difference for block in blocks],
        before,
        after,
        cpu if len(cpu) == len(blocks) else (),
        min(shares) if len(shares) == len(blocks) else None,
    )


def judge(gain: SpeedUp, context: str, *, confirmed: bool = False) -> tuple[Outcome, str]:
    """Return the outcome of a speed-up and the reason; `context` follows it in the text."""
    outcome = outcome_of(gain, confirmed=confirmed)
    minimum = units.percent(MINIMUM_GAIN)
    if outcome == "accepted":
        reason = f"significantly, by {units.percent(min(i.low for i in gain.intervals) - 1)}"
    elif outcome == "rejected":
        reason = f"no gain above {minimum}"
    elif not gain.clocks_agree:
        reason = "wall time and CPU time contradict each other"
    else:
        reason = f"not significantly above {minimum}"
    return outcome, f"{spread(gain)}{context}: {reason}."


def spread(gain: SpeedUp) -> str:
    """Return a speed-up with its interval: '1.18 times as fast [1.12, 1.25]'.

    The interval of two blocks is too wide to tell anything. On a busy machine CPU time's follows.
    """
    text = f"{units.significant(gain.value)} times as fast{_ends(gain, gain.interval)}"
    if gain.cpu is None or not gain.cpu.busy:
        return text
    by_cpu = f"{units.significant(gain.cpu.value)}{_ends(gain, gain.cpu.interval)} by CPU time"
    share = gain.cpu.core_share
    load = "" if share is None else f", as threads had a core for {units.percent(share)} of it"
    return f"{text}, {by_cpu} (the machine may be busy{load})"


def _ends(gain: SpeedUp, interval: Interval) -> str:
    if gain.blocks < FEWEST_TOLD:
        return ""
    return f" [{units.significant(interval.low)}, {units.significant(interval.high)}]"


class Durations:
    """Seconds of checks and blocks so far, by the version that they were of.

    `look_seconds` are those of the process that looked at the model: loading it and a few calls,
    which is what every later process begins with. `timing` are those that a block then times for.
    """

    def __init__(self, facts: Facts, look_seconds: float, timing: float = 0.0) -> None:
        self.facts = facts
        self.look_seconds = look_seconds
        self.timing = timing
        self._checks: list[float] = []
        self._one_offs: dict[tuple[str, ...], float] = {}
        self._blocks: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def add_check(self, side: Side, seconds: float, one_off: float | None) -> None:
        """Remember a check: `one_off` of its seconds only the first call takes."""
        self._one_offs[side.ids] = one_off or 0.0
        self._checks.append(max(0.0, seconds - (one_off or 0.0)))

    def add_block(self, side: Side, seconds: float) -> None:
        """Remember a block of the original and a version."""
        self._blocks[side.ids].append(seconds)

    def check(self, side: Side) -> float:
        """Return what a check of a version takes: a process, and what only its first call does."""
        usual = statistics.median(self._checks) if self._checks else self.look_seconds
        return usual + self._once(side)

    def block(self, side: Side) -> float:
        """Return what a block of a version takes: as those before, else as those of others."""
        if own := self._blocks.get(side.ids):
            return statistics.fmean(own)
        if self._blocks:
            usual = min(statistics.fmean(block_times) for block_times in self._blocks.values())
        else:
            usual = self.look_seconds * max(1.0, ABBA / self.facts.cores) + self.timing
        return usual + WARM * self._once(side)

    def trial(self, candidate: Candidate) -> float:
        """Return what trying a candidate takes until it is accepted."""
        side = Side((candidate,))
        blocks = SCREENING + (FEWEST_CONFIRMING if candidate.goal == "time" else 0)
        choice = 0.0 if candidate.choosing is None else self.choice()
        return choice + self.check(side) + blocks * self.block(side)

    def choice(self) -> float:
        """Return what choosing layers takes: a process, and each group by itself and together."""
        group_seconds = STEPS * self.facts.step + self.facts.parameter_bytes / CONVERTED
        return self.check(Side()) + 2 * MOST_GROUPS * group_seconds

    def _once(self, side: Side) -> float:
        if side.ids in self._one_offs:
            return self._one_offs[side.ids]
        return sum(self._expected(candidate) for candidate in side.candidates)

    def _expected(self, candidate: Candidate) -> float:
        return self._one_offs.get((candidate.id,), candidate.setup(self.facts))


def by_worth(candidates: Iterable[Candidate], durations: Durations) -> list[Candidate]:
    """Return candidates by expected gain per second of trying them, the best first."""

    def worth(candidate: Candidate) -> float:
        return candidate.gain / max(durations.trial(candidate), 1e-9)

    return sorted(candidates, key=worth, reverse=True)
