"""The gate of two builds that are both here: exact metrics first, then blocks in turn."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge import units
from torchgauge.analyze.compare.compare import compare, inputs_differ, judged
from torchgauge.analyze.compare.compared_memory import TWO_MEASURES
from torchgauge.analyze.gate.limits import judge_limit, percentile_of
from torchgauge.analyze.gate.paired_layers import with_layers
from torchgauge.analyze.gate.regressed_layers import regressed_layers
from torchgauge.analyze.gate.stored_gate import exact_ruling
from torchgauge.analyze.latency.noise import deviation, workload
from torchgauge.analyze.statistics.paired import (
    FEWEST_BLOCKS,
    BlockTest,
    FourLogs,
    Paired,
    blocks_for,
    decide,
    four_of,
    hopeless,
    rulings,
)
from torchgauge.analyze.statistics.percentiles import samples_needed
from torchgauge.device import calibration
from torchgauge.errors import TorchgaugeError
from torchgauge.gates.gate_options import USUAL_BLOCKS, GateOptions
from torchgauge.progress import Progress
from torchgauge.records.comparison import Change, Comparison, Judgement
from torchgauge.records.metric import METRICS, figure_of
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.verdict import Block, Limit, Ruling, Tolerance, Verdict, overall

if TYPE_CHECKING:
    from torchgauge.measure.latency.blocks import Pace, PairedRun, Timed
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.measure.processes.waiting_process import Build


def warnings_of(record: Profile, label: str) -> tuple[MeasurementWarning, ...]:
    """Return what must be known of a fresh run: without it a broken model is merely undecided."""
    warnings = [
        msgspec.structs.replace(warning, message=f"The {label} build: {warning.message}")
        for warning in record.all_warnings
        if warning.failed
    ]
    if record.interrupted:
        message = "Ctrl-C ended the run; what it had until then was judged."
        warnings.append(MeasurementWarning(id="interrupted", message=message, probe="gate"))
    return tuple(warnings)


LOOK_ITERATIONS = 10


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
    compared = compare(*records, labels=(base.label, current.label), across_models=True)
    limits = (judge_limit(limit, records[1]) for limit in options.limits)
    exact = (*_exact(compared, options), *limits)
    gate = _Gate(records, options, compared, exact, notes)
    timing = options.of_kind(timing=True)
    if timing and (options.time_always or overall(exact) != "fail"):
        gate.time(base, current, progress)
    elif timing:
        gate.warn("not-timed", "An exact metric failed, so nothing was timed; --all times anyway.")
    return gate.verdict(time.monotonic() - began)


def pace_for(records: Sequence[Profile]) -> Pace:
    """Return how blocks are timed: one process after the other where four would not fit."""
    from torchgauge.measure.latency.blocks import fitting_pace

    peaks = [record.memory.peak if record.memory is not None else 0 for record in records]
    return fitting_pace(records[0].target.device, 2 * sum(peak or 0 for peak in peaks))


def first_look(build: Build, progress: Progress, limits: Sequence[Limit] = ()) -> Profile:
    """Profile a build in a process of its own: exact figures, the tree, times for `limits`."""
    from torchgauge.measure.processes.separate_process import profile_in_separate_process
    from torchgauge.measure.processes.waiting_process import named, not_timed
    from torchgauge.measure.timeline.timeline_options import TimelineOptions

    timing, timeline = _sampling(build.options, limits), TimelineOptions("operators")
    try:
        record = profile_in_separate_process(build.source, timing, progress, timeline, build.home)
    except TorchgaugeError as error:
        raise named(error, build.label) from error.__cause__
    if record.interrupted:
        raise KeyboardInterrupt
    if record.target.device == "meta":
        raise not_timed()
    named_target = msgspec.structs.replace(record.target, spec=build.spec or record.target.spec)
    return msgspec.structs.replace(record, target=named_target)


def _sampling(usual: LatencyOptions, limits: Sequence[Limit]) -> LatencyOptions:
    """Return how a look times: a few calls; as a profile does where a limit is on a time."""
    if not any(METRICS[limit.metric].kind == "timing" for limit in limits):
        return dataclasses.replace(usual, iterations=LOOK_ITERATIONS, warmup=2)
    percentile = percentile_of(limits)
    independent = samples_needed(percentile) if percentile is not None else usual.independent
    return dataclasses.replace(usual, independent=independent)


def _exact(compared: Comparison, options: GateOptions) -> Iterator[Ruling]:
    for tolerance in options.of_kind(timing=False):
        change = compared.change_of(tolerance.metric)
        usual = tolerance.metric in options.usual
        if change is not None and not (usual and change.reason == TWO_MEASURES):
            yield exact_ruling(change, tolerance)
        elif not usual:
            yield _unknown(tolerance, "neither build has it")


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
        self.warnings = [*notes, *(warning for side in sides for warning in warnings_of(*side))]
        self.against = inputs_differ(compared.differences)
        self.blocks: list[Timed] = []
        self.look_count = 0

    def warn(self, id: str, message: str) -> None:
        """Add what the reader of the verdict must know."""
        self.warnings.append(MeasurementWarning(id=id, message=message, probe="gate"))

    def time(self, base: Build, current: Build, progress: Progress) -> None:
        """Plan the blocks, run them, and rule on the timing metrics."""
        if self.against is not None and not self.options.time_always:
            self.rulings += tuple(
                _unlike(_unknown(tolerance, ""), self.against)
                for tolerance in self.options.of_kind(timing=True)
            )
            return
        planned = self._plan()
        if planned is None:
            return
        from torchgauge.measure.latency.blocks import block, run
        from torchgauge.measure.latency.noise import watch_share
        from torchgauge.measure.latency.step_times import is_busy, other_load

        pace = pace_for(self.records)
        if not pace.concurrent:
            self.warn(
                "one-at-a-time",
                "Four copies of the model do not fit into memory: one runs after the other.",
            )
        progress.start("timing both builds in turn")
        other_share = watch_share()

        def pairs(blocks: Sequence[Timed]) -> list[Paired]:
            return self._paired(blocks, busy=is_busy(other_share()))

        done = run(
            functools.partial(block, base, current, pace),
            planned,
            self.options.max_blocks,
            lambda blocks: _decided(pairs(blocks)),
            progress,
            lambda blocks, allowed: hopeless(pairs(blocks), allowed),
        )
        share = other_share()
        self.warnings += other_load(share, probe="gate")
        self._judge(done, planned, busy=is_busy(share))

    def _plan(self) -> int | None:
        """Return how many blocks to run; None where more would be needed than are allowed."""
        if self.options.blocks is not None:
            return self.options.blocks
        record = self.records[1]
        past_runs = [
            run
            for run in calibration.runs(record.environment.machine.fingerprint)
            if run.workload == workload(record.target)
        ]
        if not past_runs:
            return min(USUAL_BLOCKS, self.options.max_blocks)
        s_d, _ = deviation([d for run in past_runs for d in run.differences])
        timing = self.options.of_kind(timing=True)
        needed = max(FEWEST_BLOCKS, *(blocks_for(s_d, tolerance) for tolerance in timing))
        if needed <= self.options.max_blocks:
            return needed
        lengths = [run.duration / len(run.differences) for run in past_runs if run.duration]
        takes = f", some {needed * statistics.median(lengths) / 60:.0f} min" if lengths else ""
        reason = (
            f"below this host's noise floor of {units.percent(s_d)} a block: {needed} blocks would "
            f"be needed{takes}, and {self.options.max_blocks} are allowed (--max-blocks)"
        )
        self.rulings += tuple(_unknown(tolerance, reason, needed) for tolerance in timing)
        return None

    def _paired(self, blocks: Sequence[Timed], *, busy: bool) -> list[Paired]:
        """Return the timing metrics that all blocks have; `busy` ones of undisturbed calls."""
        return [
            paired(blocks, tolerance, figure_of(self.records[1], METRICS[name]).unit, busy=busy)
            for tolerance in self.options.of_kind(timing=True)
            if all((name := tolerance.metric) in block.figures for block in blocks)
        ]

    def _judge(self, done: PairedRun, planned: int, *, busy: bool) -> None:
        self.blocks, self.look_count = done.blocks, done.look_count
        self.warnings += done.warnings
        extent = f"after {len(done.blocks)} of {planned} blocks"
        if done.interrupted:
            self.warn("interrupted", f"Ctrl-C ended the gate {extent}.")
        enough = len(done.blocks) > 1
        pairs = self._paired(done.blocks, busy=busy) if enough else []
        timing_rulings = rulings(pairs, min(2 * planned, self.options.max_blocks))
        if done.hopeless:
            needed = max(ruling.needed or 0 for ruling in timing_rulings)
            self.warn(
                "out-of-reach",
                f"The gate ended {extent}: by how these spread some {needed} would be needed.",
            )
        if not done.complete:
            cause = "interrupted" if done.interrupted else "ended by an error"
            timing_rulings = tuple(_early(ruling, f"{cause} {extent}") for ruling in timing_rulings)
        if self.against is not None:
            timing_rulings = tuple(_unlike(ruling, self.against) for ruling in timing_rulings)
        names = {ruling.metric for ruling in timing_rulings}
        for tolerance in self.options.of_kind(timing=True):
            if tolerance.metric not in names:
                reason = _why_absent(tolerance.metric) if enough else f"ended {extent}"
                timing_rulings += (_unknown(tolerance, reason),)
        self.rulings += timing_rulings
        self.compared = with_pairs(self.compared, pairs, done.blocks, busy=busy)

    def verdict(self, duration: float) -> Verdict:
        """Return what was found."""
        return Verdict(
            outcome=overall(self.rulings),
            rulings=self.rulings,
            comparison=self.compared,
            regressed_layers=regressed_layers(self.compared, self.rulings),
            blocks=tuple(
                Block(
                    medians=block.figures["latency"],
                    difference=block.differences()["latency"],
                    undisturbed=block.undisturbed,
                )
                for block in self.blocks
            ),
            looks=self.look_count,
            duration=duration,
            warnings=tuple(self.warnings),
        )


def _decided(pairs: Sequence[Paired]) -> bool:
    decisions = decide(pairs)
    return "fail" in decisions or "undecided" not in decisions


def _early(ruling: Ruling, reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, outcome="inconclusive", reason=reason, needed=None)


def _unlike(ruling: Ruling, reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, outcome="not comparable", reason=reason, needed=None)


def _why_absent(metric: str) -> str:
    if metric == "first_call":
        return "not compared in turn: four processes make their first calls at the same time"
    if metric.startswith("p9"):
        return "a visit of 0.1 s has too few calls for it"
    return "neither build has it"


BASE, CURRENT = (0, 3), (1, 2)  # the processes of a block, which are A, B, B, A
UNDISTURBED = {"latency": 1, "p50": 1, "throughput": -1}
"""Metrics that are the time of a typical call, or go with its inverse."""


def paired(blocks: Sequence[Timed], tolerance: Tolerance, unit: str, *, busy: bool) -> Paired:
    """Return a timing metric that all blocks have; on a `busy` machine of undisturbed calls."""
    name = tolerance.metric
    undisturbed = busy and name in UNDISTURBED
    logs = tuple(_logs(block, name, undisturbed=undisturbed) for block in blocks)
    before, after = (typical(logs, side) for side in (BASE, CURRENT))
    return Paired(METRICS[name], unit, logs, tolerance, before, after, undisturbed)


def _logs(block: Timed, name: str, *, undisturbed: bool) -> FourLogs:
    typical_logs = block.logs(name)
    if not undisturbed:
        return typical_logs
    # Of a throughput the samples of a call are left, which are the same in all of them.
    power = UNDISTURBED[name]
    samples = typical_logs[0] - power * block.logs("latency")[0] if power < 0 else 0.0
    return four_of(samples + power * math.log(seconds) for seconds in block.undisturbed)


def typical(logs: Sequence[FourLogs], side: tuple[int, int]) -> float:
    """Return the geometric mean over a side's processes."""
    return math.exp(statistics.fmean(four[number] for four in logs for number in side))


def with_pairs(
    compared: Comparison, pairs: Sequence[Paired], blocks: Sequence[Timed], *, busy: bool
) -> Comparison:
    """Return the comparison with times and layers as they were measured in turn."""
    if not pairs:
        return compared
    measured = {pair.metric.name: pair for pair in pairs}
    against = inputs_differ(compared.differences)
    changes = tuple(
        _in_turn(change, measured[change.metric], against)
        if change.metric in measured
        else _not_in_turn(change)
        for change in compared.changes
    )
    in_turn = msgspec.structs.replace(compared, changes=changes, paired=True)
    if against:
        return in_turn
    step = [_logs(block, "latency", undisturbed=busy) for block in blocks]
    return with_layers(
        in_turn,
        [block.layer_logs(fastest=busy) for block in blocks],
        [block.fastest if busy else block.layers for block in blocks],
        typical(step, CURRENT) - typical(step, BASE),
    )


def _in_turn(change: Change, pair: Paired, against: str | None) -> Change:
    test = BlockTest(pair.logs)
    interval = None if against else test.interval()
    judgement: Judgement = "unknown" if against else "inconclusive"
    if interval is not None:
        judgement = judged(pair.metric, interval)
    open_end = "the interval holds both no change and one" if judgement == "inconclusive" else ""
    return msgspec.structs.replace(
        change,
        how=pair.how,
        baseline=pair.baseline,
        current=pair.current,
        change=None if against else test.change,
        interval=interval,
        undisturbed=pair.undisturbed,
        judgement=judgement,
        method=f"permutations in {test.blocks} ABBA blocks",
        reason=against or open_end,
    )


def _not_in_turn(change: Change) -> Change:
    """Return a time of which each build has one process: too little to judge it by."""
    if change.exact or change.judgement == "unknown":
        return change
    return msgspec.structs.replace(
        change, judgement="inconclusive", method="", reason="of one process each, not in turn"
    )
