"""The experiment: compare outputs, screen, confirm on fresh blocks, and combine the winners."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torchgauge import units
from torchgauge.advice.budget import AdviceOptions, BudgetOver
from torchgauge.advice.candidate import fixed
from torchgauge.advice.candidates.every import select_candidates
from torchgauge.advice.trying import (
    Attempt,
    Durations,
    Measuring,
    by_worth,
    judge,
    rejection_reason,
    speed_up_of,
)
from torchgauge.advice.world import Processes, Side
from torchgauge.analyze.advice import speed_up
from torchgauge.analyze.advice.speed_up import ALPHA, CONFIRMATION, FEWEST_CONFIRMING, gain_p
from torchgauge.device.environment import environment
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.measure.advice.check import CheckResult, LayerChoice
from torchgauge.measure.latency.blocks import ABBA, fitting_pace
from torchgauge.measure.processes.fork_server import forking
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Progress
from torchgauge.records.advice import (
    Advice,
    Best,
    Combination,
    Outcome,
    OutputCheck,
    SpeedUp,
    Trial,
)
from torchgauge.records.target import Facts
from torchgauge.targets.precisions import name_of
from torchgauge.targets.training.named_training import function_named
from torchgauge.temporary import temporary_folder

# Of a budget, where there is more than one to confirm; the rest is for combinations.
FOR_CONFIRMING = 0.8


@dataclasses.dataclass(frozen=True)
class ExperimentResult:
    """The result of an experiment."""

    facts: Facts
    trials: tuple[Trial, ...]
    combinations: tuple[Combination, ...]
    best: Best | None
    interrupted: bool


class Experiment(Measuring):
    """Tries candidates on the world's model.

    `tolerance` replaces each candidate's own. `budget` bounds the whole: those that save most per
    second of trying come first, and what would not end within it stays untried. Ctrl-C keeps what
    was found until then.
    """

    def run(self) -> ExperimentResult:
        """Try everything; raises what the original runs into, and only that."""
        self.progress.start("inspecting the model")
        facts = self.world.facts()
        self.durations = Durations(facts, self.world.look_seconds, self.world.timing)
        attempts = [Attempt(candidate, facts) for candidate in self.candidates]
        for attempt in attempts:
            if reason := attempt.candidate.untried(facts):
                attempt.end("untried", reason)
        interrupted = False
        try:
            self._screen(attempts)
            self._confirm([attempt for attempt in attempts if attempt.outcome is None])
            combined(self, attempts, facts)
        except KeyboardInterrupt:
            interrupted = True
        for attempt in attempts:
            if attempt.outcome is None:
                attempt.leave(interrupted=interrupted)
        trials = tuple(attempt.trial() for attempt in attempts)
        return ExperimentResult(facts, trials, tuple(self.combinations), self.best, interrupted)

    def _screen(self, attempts: list[Attempt]) -> None:
        """Check and time those not ended; of some layers joins where of all breaks the output."""
        by_id = {attempt.candidate.id: attempt for attempt in attempts if attempt.outcome is None}
        waiting = by_worth([attempt.candidate for attempt in by_id.values()], self.durations)
        while waiting:
            candidate = waiting.pop(0)
            attempt = by_id[candidate.id]
            needed = self.durations.trial(candidate)
            reserved = self._confirmation_seconds(attempts)
            if not self.budget.fits(needed + reserved):
                attempt.leave_out(needed, (self.budget.remaining() or 0.0) - reserved)
                continue
            self.progress.start(f"{len(by_id) - len(waiting)} of {len(by_id)}: {candidate.id}")
            self._guarded(attempt, self._screen_attempt)
            if (partial := _partial_attempt(attempt)) is not None:
                by_id[partial.candidate.id] = partial
                attempts.insert(attempts.index(attempt) + 1, partial)
                waiting = by_worth([*waiting, partial.candidate], self.durations)

    def _confirmation_seconds(self, attempts: Sequence[Attempt]) -> float:
        """Return the seconds that confirming those screened so far takes at least."""
        winners = [
            attempt
            for attempt in attempts
            if attempt.outcome is None and attempt.screening is not None
        ]
        return speed_up.FEWEST_CONFIRMING * sum(
            self.durations.block(_side(attempt)) for attempt in winners
        )

    def _guarded(self, attempt: Attempt, action: Callable[[Attempt], None]) -> None:
        """Let a candidate that crashes be a result, and one that was stopped be untried."""
        try:
            action(attempt)
        except TorchgaugeError as error:
            attempt.fail(error)
        except BudgetOver:
            attempt.leave_out(self.durations.trial(attempt.candidate), self.budget.remaining())

    def _screen_attempt(self, attempt: Attempt) -> None:
        if attempt.candidate.choosing is not None:
            self.progress.update("choosing layers by their outputs")
            choice = self.world.choose(attempt.candidate.choosing, self.allowed(attempt.candidate))
            _take_layers(attempt, choice)
            if attempt.outcome is not None:
                return
        attempt.checked(self.check(_side(attempt), self.allowed(attempt.candidate)))
        if attempt.outcome is not None:
            return
        attempt.fresh = self.blocks(Side(), _side(attempt), speed_up.SCREENING)
        if len(attempt.fresh) < speed_up.SCREENING:
            attempt.leave_out(self.durations.trial(attempt.candidate), self.budget.remaining())
            return
        if attempt.candidate.goal == "time" and not speed_up.promising(speed_up_of(attempt.fresh)):
            attempt.fresh += self.blocks(Side(), _side(attempt), 1)  # two would reject nothing
        attempt.screening, attempt.fresh = speed_up_of(attempt.fresh), []
        if attempt.candidate.goal == "memory":
            attempt.end("accepted", _memory(attempt))
        elif not speed_up.promising(attempt.screening):
            attempt.end(*judge(attempt.screening, " in screening"))
        else:
            _limit(attempt)

    def _confirm(self, attempts: Sequence[Attempt]) -> None:
        winners = [attempt for attempt in attempts if attempt.screening is not None]
        winners.sort(key=lambda attempt: -attempt.screening.value)  # type: ignore[union-attr]
        p_values: dict[str, float] = {}
        by_id = {attempt.candidate.id: attempt for attempt in winners}

        def confirm(attempt: Attempt) -> None:
            attempt.fresh = self.blocks(Side(), _side(attempt), number, layers=_has_layers(attempt))
            if len(attempt.fresh) < speed_up.FEWEST_CONFIRMING:
                attempt.leave_out(number * block_seconds, self.budget.remaining())
                return
            attempt.confirmation = speed_up_of(attempt.fresh)
            p_values[attempt.candidate.id] = speed_up.gain_p(attempt.confirmation.differences)
            attempt.trial_fields |= {
                "p": p_values[attempt.candidate.id],
                "break_even": speed_up.break_even(
                    attempt.trial_fields.get("one_off"), attempt.confirmation
                ),
                "layers": speed_up.layers_helped(
                    [block.layers for block in attempt.fresh],
                    [block.layer_seconds for block in attempt.fresh],
                ),
            }

        try:
            for index, attempt in enumerate(winners):
                block_seconds, pending = self.durations.block(_side(attempt)), len(winners) - index
                if not self.budget.fits(speed_up.FEWEST_CONFIRMING * block_seconds):
                    attempt.leave_out(
                        speed_up.FEWEST_CONFIRMING * block_seconds, self.budget.remaining()
                    )
                    continue
                share = FOR_CONFIRMING if len(winners) > 1 else 1.0
                number = speed_up.confirming_blocks(
                    self.budget.remaining(share), pending, block_seconds
                )
                self.progress.start(
                    f"confirming {attempt.candidate.id}, {index + 1} of {len(winners)}"
                )
                self._guarded(attempt, confirm)
        finally:
            for name, is_confirmed in speed_up.confirmed(p_values).items():
                _judge(by_id[name], is_confirmed=is_confirmed)


def _side(attempt: Attempt) -> Side:
    return Side((attempt.candidate,))


def _judge(attempt: Attempt, *, is_confirmed: bool) -> None:
    assert attempt.confirmation is not None  # noqa: S101 - it has a p
    attempt.end(*judge(attempt.confirmation, " on fresh blocks", confirmed=is_confirmed))
    _limit(attempt)


def _memory(attempt: Attempt) -> str:
    before, after = attempt.trial_fields["memory_before"], attempt.trial_fields["memory_after"]
    price = (
        "" if attempt.screening is None else f", at {units.significant(attempt.screening.value)} of"
    )
    return f"{units.size(before, 3)} → {units.size(after, 3)} at its peak{price} the speed."


def _limit(attempt: Attempt) -> None:
    """End what is not accepted for its latency; on a busy machine that shows nothing."""
    limit, timing = attempt.facts.latency_limit, attempt.confirmation or attempt.screening
    if limit is None or timing is None or timing.after * attempt.candidate.times <= limit:
        return
    if attempt.outcome in (None, "accepted"):
        busy = timing.cpu is not None and timing.cpu.busy
        suffix = ", while others use the machine" if busy else ""
        attempt.end(
            "undecided" if busy else "rejected", f"A call takes longer than the limit{suffix}."
        )


def _has_layers(attempt: Attempt) -> bool:
    return attempt.candidate.order != "compile" and attempt.facts.module


def _partial_attempt(attempt: Attempt) -> Attempt | None:
    """Return the candidate for some layers; None unless the one for all failed on its output."""
    candidate, output = attempt.candidate, attempt.trial_fields.get("output")
    if candidate.by_layer is None or output is None or output.passed:
        return None
    if attempt.facts.count(*candidate.by_layer.kinds) < 2:  # one is all of them
        return None
    partial = dataclasses.replace(
        candidate,
        id=f"{candidate.id}-layers",
        title=f"{candidate.title}: some layers",
        code=fixed(""),
        by_layer=None,
        choosing=candidate.by_layer,
    )
    return Attempt(partial, attempt.facts)


def _take_layers(attempt: Attempt, choice: LayerChoice) -> None:
    """Apply the candidate to the chosen layers; end it if there are none."""
    candidate = attempt.candidate
    assert candidate.choosing is not None  # noqa: S101 - layers are chosen for those alone
    attempt.trial_fields["left_out"] = choice.left_out
    if not choice.paths:
        attempt.end("rejected", "No group of layers keeps the output.")
        return
    attempt.candidate = dataclasses.replace(
        candidate,
        code=fixed(candidate.choosing.code(attempt.facts, choice.paths)),
        gain=candidate.gain * choice.share,
        choosing=None,
    )


def advised(build: Build, options: AdviceOptions, progress: Progress) -> Advice:
    """Try improvements on a build, and return which of them held.

    Raises InputError `candidate-unknown`, what finding the metric raises; MeasurementError
    `budget-short`; and what running the model raises.
    """
    metric, metric_name = _metric(options)
    tolerance, budget = options.tolerance, options.budget
    if metric is not None and tolerance is None:
        tolerance = speed_up.METRIC_TOLERANCE
    selected = select_candidates(options.candidates)
    # A cache of its own: compiling is cold in the check, and done once for all processes after it.
    with temporary_folder() as cache:
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        with forking(build.spec, variables) as server:
            world = Processes(
                build,
                metric,
                options.latency_limit,
                variables=variables,
                budget=budget,
                server=server,
            )
            progress.start("inspecting the model")
            facts = world.facts()
            # Twice, since a candidate may need more than the original.
            world.pace = fitting_pace(facts.target.device, 2 * ABBA * (facts.memory or 0))
            result = Experiment(world, selected, progress, tolerance=tolerance, budget=budget).run()
    target = facts.target
    if build.spec:
        target = msgspec.structs.replace(target, spec=build.spec)
    return Advice(
        target=target,
        environment=environment(),
        trials=result.trials,
        combinations=result.combinations,
        best=result.best,
        minimum_gain=speed_up.MINIMUM_GAIN,
        alpha=speed_up.ALPHA,
        latency=_call_seconds(result.trials, facts.step),
        memory=facts.memory,
        metric=metric_name,
        budget=budget.seconds,
        duration=budget.elapsed(),
        interrupted=result.interrupted,
        warnings=facts.warnings,
    )


def _metric(options: AdviceOptions) -> tuple[Callable[[Any], float] | None, str]:
    """Return the metric and its name, "" where outputs are compared."""
    if isinstance(options.metric, str):
        return NamedMetric.from_spec(options.metric), options.metric
    return options.metric, "" if options.metric is None else name_of(options.metric)


def _call_seconds(trials: Sequence[Trial], step_seconds: float) -> float:
    """Return a call's typical seconds: as timed beside the first candidate, else as looked at."""
    timed = (trial.speed_up for trial in trials if trial.id != "inference-mode")
    return next((timing.before for timing in timed if timing is not None), step_seconds)


BUDGET_ENDED = "The budget ended before it was timed."


def combined(experiment: Measuring, attempts: Sequence[Attempt], facts: Facts) -> None:
    """Set the experiment's combinations and its best, as far as the budget goes."""
    fit = [attempt for attempt in attempts if _fits(attempt)]
    # Screening chose them; what they were confirmed at is what they are.
    fit.sort(key=lambda attempt: -attempt.confirmation.value)  # type: ignore[union-attr]
    if not fit:
        return
    first = fit[0]
    assert first.confirmation is not None  # noqa: S101 - `_fits`
    side = Side((first.candidate,))
    experiment.best = _best(side, facts, first.confirmation, first.trial_fields.get("output"))
    checked = None
    for attempt in fit[1:]:
        group = attempt.candidate.group
        if group and any(group == other.group for other in side.candidates):
            continue
        extended = Side((*side.candidates, attempt.candidate))
        blocks = _blocks(experiment, extended)
        if blocks is None:
            continue
        combination, extended_check = _measured(
            experiment, side, extended, blocks, steps=len(fit) - 1
        )
        experiment.combinations.append(combination)
        if combination.outcome == "accepted":
            side, checked = extended, extended_check
    if checked is not None:
        _measure_whole(experiment, side, checked, facts)


def _fits(attempt: Attempt) -> bool:
    """Tell whether it can be part of a whole: the original of all others has the mode already."""
    return (
        attempt.outcome == "accepted"
        and attempt.confirmation is not None
        and attempt.candidate.times == 1
        and not attempt.candidate.original
    )


def _blocks(experiment: Measuring, extended: Side) -> int | None:
    """Return the blocks for a combination, for which the whole's must fit too; None for none."""
    check_seconds, block_seconds = (
        time(extended) for time in (experiment.durations.check, experiment.durations.block)
    )
    for number in (CONFIRMATION, FEWEST_CONFIRMING):
        if experiment.budget.fits(check_seconds + 2 * number * block_seconds):
            return number
    return None


def _measured(
    experiment: Measuring, side: Side, extended: Side, number: int, *, steps: int
) -> tuple[Combination, CheckResult | None]:
    """Return how a grown combination does against the one before; Bonferroni over the steps."""
    experiment.progress.start(" + ".join(extended.ids))
    fields: dict[str, Any] = {"candidates": extended.ids, "against": side.ids}
    outcome: Outcome
    checked = None
    try:
        tolerance = max(experiment.allowed(candidate) for candidate in extended.candidates)
        checked = experiment.check(extended, tolerance)
        fields["output"] = checked.output
        if not checked.output.passed:
            outcome, reason = "rejected", rejection_reason(checked)
        elif len(blocks := experiment.blocks(side, extended, number)) < FEWEST_CONFIRMING:
            outcome, reason = "untried", BUDGET_ENDED
        else:
            gain = speed_up_of(blocks)
            is_confirmed = gain_p(gain.differences) <= ALPHA / steps
            context = f" on top of {' + '.join(side.ids)}"
            outcome, reason = judge(gain, context, confirmed=is_confirmed)
            fields |= {"speed_up": gain, "memory_after": checked.memory}
    except TorchgaugeError as error:
        outcome, reason = "failed", " ".join(filter(None, (error.message, error.cause)))
    except BudgetOver:
        outcome, reason = "untried", BUDGET_ENDED
    return Combination(**fields, outcome=outcome, reason=reason), checked


def _measure_whole(experiment: Measuring, side: Side, checked: CheckResult, facts: Facts) -> None:
    """Measure the whole on the original: what was gained step by step is not multiplied."""
    experiment.progress.start(f"the whole: {' + '.join(side.ids)}")
    with contextlib.suppress(TorchgaugeError):
        blocks = experiment.blocks(Side(), side, CONFIRMATION)
        if len(blocks) >= FEWEST_CONFIRMING:
            experiment.best = _best(side, facts, speed_up_of(blocks), checked.output)


def _best(side: Side, facts: Facts, gain: SpeedUp, output: OutputCheck | None) -> Best:
    return Best(
        candidates=side.ids,
        code="\n".join(side.code(facts) + side.code(facts, "optimizer")),
        environment="\n".join(f"export {k}={v}" for k, v in side.variables(facts).items()),
        speed_up=gain,
        output=output,
    )


@dataclasses.dataclass(frozen=True)
class NamedMetric:
    """A function file.py:function or module:function that takes the model's outputs."""

    spec: str

    @staticmethod
    def from_spec(spec: str) -> NamedMetric:
        """Return the metric of that name; raises InputError `metric-unknown` and as importing."""
        if ":" not in spec:
            raise InputError(
                f"Unknown metric '{spec}'.",
                id="metric-unknown",
                cause="It is not the name of a function in a file or module.",
                remedy="Give --metric file.py:function, taking the outputs and returning a number.",
            )
        function_named(spec)  # a mistake shows now, not after minutes
        return NamedMetric(spec)

    def __call__(self, outputs: Any) -> float:
        """Call the function of that name."""
        metric: Callable[..., Any] = function_named(self.spec)
        return float(metric(outputs))
