"""The gate of two builds that are both here: exact metrics first, then blocks in turn."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge import units
from torchgauge.analyze.compare import asked_otherwise, compare
from torchgauge.analyze.exact import exact_ruling
from torchgauge.analyze.guilty import guilty
from torchgauge.analyze.limits import judge_limit, percentile_of
from torchgauge.analyze.noise import deviation, workload
from torchgauge.analyze.paired import (
    FEWEST_BLOCKS,
    USUAL_BLOCKS,
    Paired,
    blocks_for,
    decide,
    rulings,
)
from torchgauge.analyze.percentiles import samples_needed
from torchgauge.api.gate_options import GateOptions
from torchgauge.api.gate_warnings import warnings_of
from torchgauge.api.paired_changes import BASE, CURRENT, typical, with_pairs
from torchgauge.device import calibration
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.model.comparison import Comparison
from torchgauge.model.metric import METRICS, figure_of
from torchgauge.model.profile import Profile
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.verdict import Block, Limit, Ruling, Tolerance, Verdict, overall
from torchgauge.progress import Progress

if TYPE_CHECKING:
    from torchgauge.measure.blocks import Pace, Timed
    from torchgauge.measure.latency import LatencyOptions
    from torchgauge.measure.paired_run import PairedRun
    from torchgauge.measure.waiting import Build

LOOK_ITERATIONS = 10
# What Python and torch take in each process beside the model.
PROCESS_MEMORY = 600e6


def gate_builds(
    base: Build,
    current: Build,
    options: GateOptions,
    progress: Progress,
    notes: tuple[MeasurementWarning, ...] = (),
) -> Verdict:
    """Return the verdict on two builds; Ctrl-C makes it inconclusive with what was measured.

    Raises what loading or running either raises, named by the build.
    """
    began = time.monotonic()
    records = (first_look(base, progress), first_look(current, progress, options.limits))
    compared = compare(*records, labels=(base.label, current.label))
    exact = _exact(compared, options) + tuple(judge_limit(o, records[1]) for o in options.limits)
    gate = _Gate(records, options, compared, exact, notes)
    timing = options.of_kind(timing=True)
    if timing and (options.everything or overall(exact) != "fail"):
        gate.time(base, current, progress)
    elif timing:
        gate.warn("not-timed", "An exact metric failed, so nothing was timed; --all times anyway.")
    return gate.verdict(time.monotonic() - began)


def pace_for(records: Sequence[Profile]) -> Pace:
    """Return how blocks are timed: one process after the other where four would not fit."""
    from torchgauge.measure.blocks import Pace
    from torchgauge.measure.forward import free_bytes

    where = records[0].target.device
    free = free_bytes(where)
    peaks = [one.memory.peak if one.memory is not None else 0 for one in records]
    needed = 2 * sum(peak or 0 for peak in peaks) + 4 * PROCESS_MEMORY
    return Pace(together=free is None or needed < free)


def first_look(build: Build, progress: Progress, limits: Sequence[Limit] = ()) -> Profile:
    """Profile a build in a process of its own: exact figures, the tree, times for `limits`."""
    from torchgauge.measure.apart import profile_apart
    from torchgauge.measure.timeline_options import TimelineOptions
    from torchgauge.measure.waiting import named

    timing, timeline = _sampling(build.options, limits), TimelineOptions("operators")
    try:
        record = profile_apart(build.source, timing, progress, timeline, build.home)
    except TorchgaugeError as error:
        raise named(error, build.label) from error.__cause__
    if record.interrupted:
        raise KeyboardInterrupt
    if record.target.device == "meta":
        raise InputError(
            "Builds on the meta device cannot be timed.",
            id="meta-model",
            cause="Its tensors have shapes and no values.",
            remedy="Give --device cpu or cuda.",
        )
    shown = msgspec.structs.replace(record.target, spec=build.spec or record.target.spec)
    return msgspec.structs.replace(record, target=shown)


def _sampling(usual: LatencyOptions, limits: Sequence[Limit]) -> LatencyOptions:
    """Return how a look times: a few calls; as a profile does where a limit is on a time."""
    if not any(METRICS[one.metric].kind == "timing" for one in limits):
        return dataclasses.replace(usual, iterations=LOOK_ITERATIONS, warmup=2)
    percentile = percentile_of(limits)
    independent = samples_needed(percentile) if percentile is not None else usual.independent
    return dataclasses.replace(usual, independent=independent)


def _exact(compared: Comparison, options: GateOptions) -> tuple[Ruling, ...]:
    found = []
    for tolerance in options.of_kind(timing=False):
        change = compared.change_of(tolerance.metric)
        if change is not None:
            found.append(exact_ruling(change, tolerance))
        elif tolerance.metric not in options.usual:
            found.append(_unknown(tolerance, "neither build has it"))
    return tuple(found)


def _unknown(
    tolerance: Tolerance, reason: str, needed: int | None = None, unit: str = ""
) -> Ruling:
    return Ruling(
        metric=tolerance.metric,
        outcome="inconclusive",
        how="measured",
        unit=unit,
        current=None,
        tolerance=tolerance,
        needed=needed,
        reason=reason,
    )


class _Gate:
    """One gate while it is made: the rulings so far, and what the blocks said."""

    def __init__(
        self,
        records: Sequence[Profile],
        options: GateOptions,
        compared: Comparison,
        exact: tuple[Ruling, ...],
        notes: tuple[MeasurementWarning, ...],
    ) -> None:
        self.records = records
        self.options = options
        self.compared = compared
        self.rulings = exact
        sides = zip(records, ("base", "current"), strict=True)
        self.warnings = [*notes, *(said for one in sides for said in warnings_of(*one))]
        self.against = asked_otherwise(compared.differences)
        self.blocks: list[Timed] = []
        self.looks = 0

    def warn(self, id: str, message: str) -> None:
        """Add what the reader of the verdict must know."""
        self.warnings.append(MeasurementWarning(id=id, message=message, probe="gate"))

    def time(self, base: Build, current: Build, progress: Progress) -> None:
        """Plan the blocks, run them, and rule on the timing metrics."""
        if self.against is not None and not self.options.everything:
            self.rulings += tuple(
                _unlike(_unknown(one, ""), self.against)
                for one in self.options.of_kind(timing=True)
            )
            return
        planned = self._plan()
        if planned is None:
            return
        from torchgauge.measure.blocks import block
        from torchgauge.measure.paired_run import run

        pace = pace_for(self.records)
        if not pace.together:
            self.warn(
                "one-at-a-time",
                "Four copies of the model do not fit into memory: one runs after the other.",
            )
        progress.start("timing both builds in turn")
        done = run(
            functools.partial(block, base, current, pace),
            planned,
            self.options.most,
            self._decided,
            progress,
        )
        self._judge(done, planned)

    def _plan(self) -> int | None:
        """Return how many blocks to run; None where more would be needed than are allowed."""
        if self.options.blocks is not None:
            return self.options.blocks
        record = self.records[1]
        kept = [
            run
            for run in calibration.runs(record.environment.machine.fingerprint)
            if run.workload == workload(record.target)
        ]
        if not kept:
            return min(USUAL_BLOCKS, self.options.most)
        s_d, _ = deviation([d for run in kept for d in run.differences])
        timing = self.options.of_kind(timing=True)
        needed = max(FEWEST_BLOCKS, *(blocks_for(s_d, one) for one in timing))
        if needed <= self.options.most:
            return needed
        lengths = [run.duration / len(run.differences) for run in kept if run.duration]
        takes = f", some {needed * statistics.median(lengths) / 60:.0f} min" if lengths else ""
        reason = (
            f"below this host's noise floor of {units.percent(s_d)} a block: {needed} blocks would "
            f"be needed{takes}, and {self.options.most} are allowed (--max-blocks)"
        )
        self.rulings += tuple(_unknown(one, reason, needed) for one in timing)
        return None

    def _paired(self, blocks: Sequence[Timed]) -> list[Paired]:
        """Return the timing metrics that every block has."""
        differences = [block.differences() for block in blocks]
        found = []
        for tolerance in self.options.of_kind(timing=True):
            name = tolerance.metric
            if all(name in one for one in differences):
                old, new = (typical(blocks, name, side) for side in (BASE, CURRENT))
                found.append(
                    Paired(
                        METRICS[name],
                        figure_of(self.records[1], METRICS[name]).unit,
                        tuple(one[name] for one in differences),
                        tolerance,
                        old,
                        new,
                    )
                )
        return found

    def _decided(self, blocks: Sequence[Timed]) -> bool:
        found = decide(self._paired(blocks))
        return "fail" in found or "undecided" not in found

    def _judge(self, done: PairedRun, planned: int) -> None:
        self.blocks, self.looks = done.blocks, done.looks
        self.warnings += done.warnings
        said = f"after {len(done.blocks)} of {planned} blocks"
        if done.interrupted:
            self.warn("interrupted", f"Ctrl-C ended the gate {said}.")
        enough = len(done.blocks) > 1
        paired = self._paired(done.blocks) if enough else []
        found = rulings(paired)
        if not done.whole:
            why = "interrupted" if done.interrupted else "ended by an error"
            found = tuple(_early(one, f"{why} {said}") for one in found)
        if self.against is not None:
            found = tuple(_unlike(one, self.against) for one in found)
        names = {one.metric for one in found}
        for tolerance in self.options.of_kind(timing=True):
            if tolerance.metric not in names:
                reason = _why_absent(tolerance.metric) if enough else f"ended {said}"
                found += (_unknown(tolerance, reason),)
        self.rulings += found
        self.compared = with_pairs(self.compared, paired, done.blocks)

    def verdict(self, duration: float) -> Verdict:
        """Return what was found."""
        return Verdict(
            outcome=overall(self.rulings),
            rulings=self.rulings,
            comparison=self.compared,
            guilty=guilty(self.compared, self.rulings),
            blocks=tuple(
                Block(medians=one.figures["latency"], difference=one.differences()["latency"])
                for one in self.blocks
            ),
            looks=self.looks,
            duration=duration,
            warnings=tuple(self.warnings),
        )


def _early(ruling: Ruling, reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, outcome="inconclusive", reason=reason, needed=None)


def _unlike(ruling: Ruling, reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, outcome="not comparable", reason=reason, needed=None)


def _why_absent(metric: str) -> str:
    if metric == "first_call":
        return "not compared in turn: four processes make their first calls beside each other"
    if metric.startswith("p9"):
        return "a visit of 0.1 s has too few calls for it"
    return "neither build has it"
