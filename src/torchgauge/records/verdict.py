"""The verdict of a gate: pass, fail, inconclusive or not comparable, metric by metric."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torchgauge.errors import ExitCode
from torchgauge.records import rendering
from torchgauge.records.comparison import Comparison
from torchgauge.records.exported import Exported
from torchgauge.records.record import How, Interval, MeasurementWarning, Record

SCHEMA = "torchgauge.verdict/1"

Outcome = Literal["pass", "fail", "inconclusive", "not comparable"]

EXIT_CODES: dict[Outcome, ExitCode] = {
    "pass": ExitCode.DONE,
    "fail": ExitCode.THRESHOLD,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "not comparable": ExitCode.NOT_COMPARABLE,
}


class Tolerance(Record, frozen=True, kw_only=True):
    """How much worse a metric may get: both as relative changes for the worse, 0 ≤ δ0 < δ1.

    A change is a failure where it is surely above `accepted` (δ0), and passes where it is surely
    below `refused` (δ1). An exact metric fails above δ0.
    """

    metric: str
    accepted: float
    refused: float


class Limit(Record, frozen=True, kw_only=True):
    """An absolute limit in the metric's SI unit.

    `text` is what the user wrote. `is_minimum` says that the value may not be below it, as of
    throughput; else it may not be above. `rate_unit` is what a rate counts: samples, tokens, images
    or calls.
    """

    metric: str
    value: float
    text: str
    is_minimum: bool = False
    rate_unit: str = ""


class Ruling(Record, frozen=True, kw_only=True):
    """One metric's outcome under one tolerance or limit; figures are in its SI unit.

    `change` is for the worse where positive, whatever direction is better; `interval` is that of
    the change, or of the value under a limit. `corrected`, with an interval of its own, is what is
    left of the change without what the machine's speed explains, estimated from both runs'
    yardsticks; where it is known it was judged. `undisturbed`: other processes took more than a
    tenth of the machine, so that the change is of what a call takes while none disturbs it, not of
    the typical call. `borderline` says that a limit lies in the
    interval. `needed` is the number of ABBA blocks that would decide. `shape` names the calls that
    a metric of generation is of.
    """

    metric: str
    outcome: Outcome
    how: How
    unit: str
    current: float | int | None
    baseline: float | int | None = None
    change: float | None = None
    interval: Interval | None = None
    corrected: float | None = None
    corrected_interval: Interval | None = None
    tolerance: Tolerance | None = None
    limit: Limit | None = None
    undisturbed: bool = False
    at_least: bool = False
    borderline: bool = False
    needed: int | None = None
    reason: str = ""
    method: str = ""
    shape: str = ""

    @property
    def label(self) -> str:
        """The metric, and the shape that it is of: "ttft, batch 4, prompt 128"."""
        return f"{self.metric}, {self.shape}" if self.shape else self.metric


class Block(Record, frozen=True, kw_only=True):
    """One ABBA block of four fresh processes: seconds by process (A, B, B, A) and round.

    `difference` is d = ln(B ÷ A), the mean over the rounds; `undisturbed` the seconds by process of
    a call that no other process disturbs: the sum of each layer's least time, or the fastest call.
    """

    medians: tuple[tuple[float, ...], ...]
    difference: float
    undisturbed: tuple[float, ...] = ()


class Verdict(Exported, frozen=True, kw_only=True):
    """A gate's verdict; `outcome` is fail where any ruling fails, and passes only if all pass.

    `blocks` are the ABBA blocks of a paired run, `looks` how often they were judged (once, or once
    more after the one extension; never where the first ones told that all would not be enough),
    `duration` the seconds it all took. `regressed_layers` names the layers that got worse, most
    first: "layer1.0.conv2 (Conv2d) +12 % [9, 15]".
    """

    schema: str = SCHEMA
    outcome: Outcome
    rulings: tuple[Ruling, ...]
    comparison: Comparison | None = None
    regressed_layers: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    looks: int = 0
    duration: float | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """What a program ends with: 0, 3, 4 or 5."""
        return EXIT_CODES[self.outcome]

    @property
    def passed(self) -> bool:
        """True for "pass" alone."""
        return self.outcome == "pass"

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The warnings, as other records have them."""
        return self.warnings + (() if self.comparison is None else self.comparison.warnings)

    def to_junit(self, path: str | Path | None = None) -> str:
        """Return the rulings as JUnit XML, a test case each; write it to `path` if given."""
        return rendering.text(self, "junit", path)


def overall(rulings: tuple[Ruling, ...]) -> Outcome:
    """Return the outcome of several: the worst of fail, not comparable, inconclusive, pass."""
    outcomes = {ruling.outcome for ruling in rulings}
    order: tuple[Outcome, ...] = ("fail", "not comparable", "inconclusive")
    return next((outcome for outcome in order if outcome in outcomes), "pass")
