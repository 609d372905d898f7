"""How long trying a candidate takes: measured durations where there are any, else estimates."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from torchgauge.advice.candidate import Candidate
from torchgauge.advice.world import Side
from torchgauge.analyze.advice.speed_up import FEWEST_CONFIRMING, SCREENING
from torchgauge.measure.advice.check import STEPS
from torchgauge.measure.advice.layer_choice import MOST_GROUPS
from torchgauge.measure.latency.blocks import ABBA
from torchgauge.records.target import Facts

# Of what the first call takes once (compilation), the share that it takes in later processes,
# which find a warm cache.
WARM = 0.5
# Bytes of parameters that are copied, in part converted, and freed in a second.
CONVERTED = 3e8


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
