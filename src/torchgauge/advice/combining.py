"""Combine the winners: the fastest first, each next one measured on top of those accepted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torchgauge.advice.budget import BudgetOver
from torchgauge.advice.trying import Attempt, Measuring, judge, rejection_reason, speed_up_of
from torchgauge.advice.world import Side
from torchgauge.analyze.advice.speed_up import ALPHA, CONFIRMATION, FEWEST_CONFIRMING, gain_p
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.advice.check import CheckResult
from torchgauge.records.advice import Best, Combination, Outcome, OutputCheck, SpeedUp
from torchgauge.records.target import Facts

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
