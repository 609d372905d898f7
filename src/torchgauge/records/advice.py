"""Advice: what would make a model faster or smaller, each candidate tried and judged."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.record import How, Interval, MeasurementWarning, Record
from torchgauge.records.target import TargetDescription

SCHEMA = "torchgauge.advice/1"

Outcome = Literal["accepted", "undecided", "rejected", "failed", "untried"]
Goal = Literal["time", "memory"]
Language = Literal["python", "shell"]


BUSY = 0.95  # the share of the time in which threads could run that they run on an idle machine


class CpuSpeedUp(Record, frozen=True, kw_only=True):
    """A speed-up by the CPU time of the processes, of calls in the same blocks.

    `interval` holds 95 %. `core_share` is the least share of the time in which the threads could
    run that they ran; None where the system does not tell.
    """

    value: float
    interval: Interval
    core_share: float | None = None

    @property
    def busy(self) -> bool:
        """Whether other work may have slowed the calls, so that wall time alone shows nothing."""
        return self.core_share is None or self.core_share < BUSY


class SpeedUp(Record, frozen=True, kw_only=True):
    """How many times as fast: the original's time ÷ the candidate's, of several ABBA blocks.

    `interval` holds 95 %; `differences` are d = ln(candidate ÷ original) by block, `before` and
    `after` the typical seconds of a call, of wall time. `cpu` is None in older files.
    """

    value: float
    interval: Interval
    differences: tuple[float, ...]
    before: float
    after: float
    cpu: CpuSpeedUp | None = None

    @property
    def blocks(self) -> int:
        """How many blocks of four fresh processes it comes from."""
        return len(self.differences)

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """The intervals that decide: of wall time, and of CPU time where the machine was busy."""
        if self.cpu is None or not self.cpu.busy:
            return (self.interval,)
        return self.interval, self.cpu.interval

    @property
    def clocks_agree(self) -> bool:
        """Whether one speed-up fits both wall and CPU time, as far as the latter decides."""
        ends = [(interval.low, interval.high) for interval in self.intervals]
        return max(low for low, _ in ends) <= min(high for _, high in ends)


class OutputCheck(Record, frozen=True, kw_only=True):
    """How far the outputs lie from the original's on the same inputs, all tensors together.

    Errors are absolute, or divided by the mean magnitude of the original's output
    (`mean_relative`); `max_relative` is the largest error of a tensor divided by the largest
    magnitude of that tensor. `argmax_agreement` is the share of positions whose largest
    entry along the last dimension is the same. `metric_before` and `metric_after` are the user's
    own. `bound` is what was allowed, of `bounded`; `passed` says whether it held, `reason` why not.
    """

    passed: bool
    bound: float
    bounded: Literal["max_relative", "metric"] = "max_relative"
    max_absolute: float | None = None
    mean_absolute: float | None = None
    max_relative: float | None = None
    mean_relative: float | None = None
    cosine: float | None = None
    argmax_agreement: float | None = None
    metric_before: float | None = None
    metric_after: float | None = None
    reason: str = ""


class LayerGain(Record, frozen=True, kw_only=True):
    """What a candidate does to one layer's own time, as a relative change; negative is faster.

    `seconds` is by how much a call gets longer through it.
    """

    path: str
    change: float
    interval: Interval
    seconds: float


class Assumed(Record, frozen=True, kw_only=True):
    """A figure that was estimated in place of a measurement: `unit` is SI, `by` the model used."""

    name: str
    value: float
    unit: str
    by: str


class LeftOut(Record, frozen=True, kw_only=True):
    """Layers that a change was not made to, since it breaks the output.

    Attributes:
        paths: The layers' module paths, or those of modules around them.
        output: The output with the change made to them.
        tested_alone: Whether they alone were changed, else together with the layers that were
            chosen before.
    """

    paths: tuple[str, ...]
    output: OutputCheck
    tested_alone: bool


class Trial(Record, frozen=True, kw_only=True):
    """One candidate and what became of it.

    `code` applies it (at most three lines): Python after the model is made, of names `model`,
    `args`, `kwargs` and `optimizer`, or shell lines before the program is started. `goal` says
    whether it is judged by time or by memory. `screening` chose it; only `confirmation`, on fresh
    blocks, makes it accepted. It is "undecided" where the intervals hold a gain and none. `p` is of
    the hypothesis that it gains no more than the advice's `minimum_gain`.
    Memory is the peak of one call in bytes. `one_off` are seconds that only the first call takes,
    `break_even` the calls after which they are saved. `needed` are the seconds that a candidate
    which the budget left untried would have taken, estimated. `left_out` are layers that a
    change of some layers does not touch.
    """

    id: str
    title: str
    outcome: Outcome
    reason: str
    code: str = ""
    language: Language = "python"
    goal: Goal = "time"
    how: How | None = None
    screening: SpeedUp | None = None
    confirmation: SpeedUp | None = None
    p: float | None = None
    output: OutputCheck | None = None
    memory_before: int | None = None
    memory_after: int | None = None
    one_off: float | None = None
    break_even: int | None = None
    needed: float | None = None
    layers: tuple[LayerGain, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    assumed: tuple[Assumed, ...] = ()

    @property
    def speed_up(self) -> SpeedUp | None:
        """The confirmed speed-up, else that of the screening."""
        return self.confirmation or self.screening

    @property
    def memory_change(self) -> float | None:
        """The relative change of the memory peak."""
        if self.memory_after is None or not self.memory_before:
            return None
        return self.memory_after / self.memory_before - 1


class Combination(Record, frozen=True, kw_only=True):
    """Several candidates together, measured against `against`: the ids without the last one.

    An empty `against` is the original. Nothing is multiplied: each was run.
    """

    candidates: tuple[str, ...]
    against: tuple[str, ...]
    outcome: Outcome
    reason: str
    speed_up: SpeedUp | None = None
    output: OutputCheck | None = None
    memory_after: int | None = None


class Best(Record, frozen=True, kw_only=True):
    """What to use: the ids that held together, their code, and their speed-up on the original."""

    candidates: tuple[str, ...]
    code: str
    environment: str
    speed_up: SpeedUp
    output: OutputCheck | None = None


class Advice(Exported, frozen=True, kw_only=True):
    """What was tried on a model, on this machine, and what held.

    `minimum_gain` is the relative gain that a candidate must surely exceed, `alpha` the chance of
    one false acceptance (Holm over those confirmed). `latency` is the original's typical call and
    `memory` its peak, in seconds and bytes; `duration` what it all took.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    trials: tuple[Trial, ...]
    combinations: tuple[Combination, ...] = ()
    best: Best | None = None
    minimum_gain: float
    alpha: float
    latency: float | None = None
    memory: int | None = None
    metric: str = ""
    budget: float | None = None
    duration: float | None = None
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    def of(self, outcome: Outcome) -> tuple[Trial, ...]:
        """Return the trials of an outcome; accepted ones by speed-up, the largest first."""
        matching = [trial for trial in self.trials if trial.outcome == outcome]
        return tuple(
            sorted(matching, key=lambda trial: -(trial.speed_up.value if trial.speed_up else 0))
        )

    def __getitem__(self, id: str) -> Trial:
        """Return the trial of a candidate; raises KeyError."""
        for trial in self.trials:
            if trial.id == id:
                return trial
        raise KeyError(id)

    @property
    def accepted(self) -> tuple[Trial, ...]:
        """The candidates that held, the fastest first."""
        return self.of("accepted")
