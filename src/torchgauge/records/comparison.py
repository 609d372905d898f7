"""The comparison of two runs: differences of context, figures and places; its regressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from torchgauge.records import rendering
from torchgauge.records.advice import OutputCheck
from torchgauge.records.exported import Exported
from torchgauge.records.record import How, Interval, MeasurementWarning, Record
from torchgauge.records.target import TargetDescription

SCHEMA = "torchgauge.comparison/1"

Judgement = Literal["better", "worse", "same", "inconclusive", "unknown"]


class Side(Record, frozen=True, kw_only=True):
    """One of the two runs: where it came from, of what, when, on which machine."""

    label: str
    target: TargetDescription
    created: str
    machine: str
    processes: int
    commit: str = ""


class Difference(Record, frozen=True, kw_only=True):
    """Something around the runs that is not the same.

    Across it, times cannot be compared (`timing`), or counted figures cannot (`work`), or neither
    is touched and the reader is merely told.
    """

    part: Literal["target", "machine", "software", "settings"]
    name: str
    baseline: str
    current: str
    timing: bool = True
    work: bool = False


class Change(Record, frozen=True, kw_only=True):
    """One metric on both sides, in its SI unit.

    A side of None did not record it. `change` is current ÷ baseline − 1, None where a side is
    unknown, the baseline is 0 or the two are not comparable; its `interval` holds 95 %. `exact`
    figures need none. `method` says how the judgement was reached, `reason` why there is none.
    `corrected` is the change without what the machine explains of it, by the fastest processes and
    the yardsticks of both runs: it is estimated, has an interval of its own and is what was judged;
    None where no correction has been seen to help on this host. `undisturbed`: both sides are what
    a call takes while no other process disturbs it, as the machine was busy. `shape` names the
    calls that a metric of generation is of.
    """

    metric: str
    unit: str
    how: How
    better: Literal["lower", "higher"]
    exact: bool
    baseline: float | int | None
    current: float | int | None
    judgement: Judgement
    change: float | None = None
    interval: Interval | None = None
    corrected: float | None = None
    corrected_interval: Interval | None = None
    undisturbed: bool = False
    method: str = ""
    reason: str = ""
    shape: str = ""

    @property
    def label(self) -> str:
        """The metric, and the shape that it is of: "ttft, batch 4, prompt 128"."""
        return f"{self.metric}, {self.shape}" if self.shape else self.metric

    @property
    def judged_interval(self) -> Interval | None:
        """The interval that the judgement rests on."""
        return self.interval if self.corrected is None else self.corrected_interval


class Place(Record, frozen=True, kw_only=True):
    """One layer, operator or kernel on both sides; a side where it is absent is None.

    `baseline` and `current` are seconds of a step that are its own: of a layer with its operators
    but without the layers that it calls, so that all places of one kind add up to the step.
    `contribution` is what it adds to the step's change, in seconds. `interval` holds 95 % of the
    relative change of its time; `significant` says that it changed, false discoveries among all
    tested places kept at 5 %, None where it could not be tested. FLOPs, bytes and calls are exact.
    """

    kind: Literal["layer", "operator", "kernel"]
    name: str
    type: str = ""
    baseline: float | None = None
    current: float | None = None
    contribution: float = 0.0
    change: float | None = None
    interval: Interval | None = None
    significant: bool | None = None
    baseline_flops: int | None = None
    current_flops: int | None = None
    baseline_bytes: int | None = None
    current_bytes: int | None = None
    baseline_calls: int | None = None
    current_calls: int | None = None

    @property
    def appeared(self) -> bool:
        """True where only the current run has it."""
        return self.baseline_calls is None

    @property
    def vanished(self) -> bool:
        """True where only the baseline has it."""
        return self.current_calls is None

    @property
    def work_changed(self) -> bool:
        """True where its calls, FLOPs or bytes are not the same."""
        return (self.baseline_calls, self.baseline_flops, self.baseline_bytes) != (
            self.current_calls,
            self.current_flops,
            self.current_bytes,
        )


class ComparedStage(Record, frozen=True, kw_only=True):
    """A prefill or a decode step of two generations side by side; places as in `Comparison`.

    `shape` names the calls that they are of.
    """

    stage: Literal["prefill", "decode"]
    shape: str
    layers: tuple[Place, ...] = ()
    operators: tuple[Place, ...] = ()
    kernels: tuple[Place, ...] = ()
    step_change: float | None = None
    remainder: float | None = None
    places_tested: str = ""

    @property
    def label(self) -> str:
        """What it is of, in words: "decode step, batch 1, prompt 128"."""
        return f"{'decode step' if self.stage == 'decode' else 'prefill'}, {self.shape}"


class Comparison(Exported, frozen=True, kw_only=True):
    """Two runs side by side; exact metrics come first, places by what they contribute.

    `step_change` is the difference of the two trees' steps in seconds, to which the contributions
    of layers and `remainder` (buckets and layers left out as too small) add up; None where one side
    has no tree. `paired` says that the two were measured in turn, not one after the other. `stages`
    are the trees of generations. `outputs` compares what a model and its ONNX file return for the
    same inputs; None where no side is one, or nothing was run.
    """

    schema: str = SCHEMA
    baseline: Side
    current: Side
    differences: tuple[Difference, ...] = ()
    changes: tuple[Change, ...] = ()
    layers: tuple[Place, ...] = ()
    operators: tuple[Place, ...] = ()
    kernels: tuple[Place, ...] = ()
    step_change: float | None = None
    remainder: float | None = None
    places_tested: str = ""
    stages: tuple[ComparedStage, ...] = ()
    paired: bool = False
    outputs: OutputCheck | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def timing_comparable(self) -> bool:
        """True where nothing differs that decides how long the same work takes."""
        return not any(difference.timing for difference in self.differences)

    @property
    def compared_trees(self) -> tuple[Comparison | ComparedStage, ...]:
        """The step's places, and those of a generation's stages."""
        return (self, *self.stages)

    def change_of(self, metric: str) -> Change | None:
        """Return the change of a metric, None where neither side has it."""
        return next((change for change in self.changes if change.metric == metric), None)


class Regressions(Record, frozen=True, kw_only=True):
    """The metrics that significantly `regressed`, and those that are `undecided`.

    True where anything got worse; iterates over those.
    """

    regressed: tuple[Change, ...]
    undecided: tuple[Change, ...]
    comparison: Comparison

    def __bool__(self) -> bool:
        return bool(self.regressed)

    def __len__(self) -> int:
        return len(self.regressed)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.regressed)

    def __str__(self) -> str:
        return rendering.text(self, "regressions")

    def __rich_console__(self, _console: Any, options: Any) -> list[Any]:
        return rendering.segments(self, "regressions", options.max_width)
