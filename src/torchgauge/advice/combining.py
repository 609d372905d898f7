"""Combine the winners: the fastest first, each next one measured on top of those accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torchgauge.advice.budget import Budget, BudgetOver
from torchgauge.advice.candidate import Candidate
from torchgauge.advice.durations import Durations
from torchgauge.advice.trying import NOT_SURE, Attempt, rejection_reason, speed_up_of, spread
from torchgauge.advice.world import Block, Side
from torchgauge.analyze.advice.speed_up import (
    ALPHA,
    CONFIRMATION,
    FEWEST_CONFIRMING,
    MINIMUM_GAIN,
    gain_p,
)
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.advice.check import CheckResult
from torchgauge.progress import Progress
from torchgauge.records.advice import Best, Combination
from torchgauge.records.model_facts import Facts

BUDGET_ENDED = "The budget ended before it was timed."


class RunningExperiment(Protocol):
    """The experiment, as far as combining needs it."""

    best: Best | None
    combinations: list[Combination]
    budget: Budget
    durations: Durations
    progress: Progress

    def allowed(self, candidate: Candidate) -> float:
        """Return the tolerance of its outputs."""
        ...

    def check(self, side: Side, tolerance: float) -> CheckResult:
        """Compare the outputs with the original's."""
        ...

    def blocks(self, a: Side, b: Side, number: int) -> list[Block]:
        """Time both sides in turn."""
        ...


def combined(experiment: RunningExperiment, accepted: Sequence[Attempt], facts: Facts) -> None:
    """Set the experiment's combinations and its best, as far as the budget goes."""
    fit = [attempt for attempt in accepted if _fits(attempt)]
    # Screening chose them; what they were confirmed at is what they are.
    fit.sort(key=lambda attempt: -attempt.confirmation.value)  # type: ignore[union-attr]
    if not fit:
        return
    first = fit[0]
    assert first.confirmation is not None  # noqa: S101 - `_fits`
    side = Side((first.candidate,))
    experiment.best = Best(
        candidates=side.ids,
        code="\n".join(_python(side, facts)),
        environment=_shell(side, facts),
        speed_up=first.confirmation,
        output=first.trial_fields.get("output"),
    )
    checked = None
    for attempt in fit[1:]:
        if any(_excludes(attempt, other) for other in side.candidates):
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
        _best(experiment, side, checked, facts)


def _fits(attempt: Attempt) -> bool:
    """Tell whether it can be part of a whole: the original of all others has the mode already."""
    return (
        attempt.confirmation is not None
        and attempt.candidate.times == 1
        and not attempt.candidate.original
    )


def _excludes(attempt: Attempt, other: object) -> bool:
    group = attempt.candidate.group
    return bool(group) and group == getattr(other, "group", "")


def _blocks(experiment: RunningExperiment, extended: Side) -> int | None:
    """Return the blocks for a combination, for which the whole's must fit too; None for none."""
    check_seconds, block_seconds = (
        time(extended) for time in (experiment.durations.check, experiment.durations.block)
    )
    for number in (CONFIRMATION, FEWEST_CONFIRMING):
        if experiment.budget.fits(check_seconds + 2 * number * block_seconds):
            return number
    return None


def _measured(
    experiment: RunningExperiment, side: Side, extended: Side, number: int, *, steps: int
) -> tuple[Combination, CheckResult | None]:
    """Return how a grown combination does against the one before; Bonferroni over the steps."""
    experiment.progress.start(" + ".join(extended.ids))
    fields: dict[str, Any] = {"candidates": extended.ids, "against": side.ids}
    try:
        tolerance = max(experiment.allowed(candidate) for candidate in extended.candidates)
        checked = experiment.check(extended, tolerance)
        if not checked.output.passed:
            reason = rejection_reason(checked)
            return Combination(
                **fields, outcome="rejected", reason=reason, output=checked.output
            ), None
        blocks = experiment.blocks(side, extended, number)
    except TorchgaugeError as error:
        reason = " ".join(filter(None, (error.message, error.cause)))
        return Combination(**fields, outcome="failed", reason=reason), None
    except BudgetOver:
        return Combination(**fields, outcome="untried", reason=BUDGET_ENDED), None
    if len(blocks) < FEWEST_CONFIRMING:
        return Combination(
            **fields, outcome="untried", reason=BUDGET_ENDED, output=checked.output
        ), None
    gain = speed_up_of(blocks)
    is_confirmed = (
        gain_p(gain.differences) <= ALPHA / steps and gain.interval.low > 1 + MINIMUM_GAIN
    )
    combination = Combination(
        **fields,
        outcome="accepted" if is_confirmed else "rejected",
        reason=f"{spread(gain)} on top of {' + '.join(side.ids)}"
        + ("." if is_confirmed else f": {NOT_SURE}."),
        speed_up=gain,
        output=checked.output,
        memory_after=checked.memory,
    )
    return combination, checked


def _best(experiment: RunningExperiment, side: Side, checked: CheckResult, facts: Facts) -> None:
    """Measure the whole on the original: what was gained step by step is not multiplied."""
    experiment.progress.start(f"the whole: {' + '.join(side.ids)}")
    try:
        blocks = experiment.blocks(Side(), side, CONFIRMATION)
    except TorchgaugeError:
        return
    if len(blocks) < FEWEST_CONFIRMING:
        return
    experiment.best = Best(
        candidates=side.ids,
        code="\n".join(_python(side, facts)),
        environment=_shell(side, facts),
        speed_up=speed_up_of(blocks),
        output=checked.output,
    )


def _python(side: Side, facts: Facts) -> tuple[str, ...]:
    return side.code(facts) + side.code(facts, "optimizer")


def _shell(side: Side, facts: Facts) -> str:
    return "\n".join(f"export {name}={value}" for name, value in side.variables(facts).items())
