"""Winners together: the fastest first, each next one measured on top of those that held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchgauge.advice.budget import BudgetOver
from torchgauge.advice.trying import NOT_SURE, Trying, not_kept, of_blocks, spread
from torchgauge.advice.world import Side
from torchgauge.analyze.speed_up import (
    ALPHA,
    CONFIRMATION,
    FEWEST_CONFIRMING,
    MINIMUM_GAIN,
    gain_p,
)
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.check import Checked
from torchgauge.model.advice import Best, Combination
from torchgauge.model.facts import Facts

if TYPE_CHECKING:
    from torchgauge.advice.experiment import Experiment

STOPPED = "The budget came before it was timed."


def combined(experiment: Experiment, accepted: Sequence[Trying], facts: Facts) -> None:
    """Set the experiment's combinations and its best, as far as the budget goes."""
    fit = [one for one in accepted if _fits(one)]
    # Screening chose them; what they were confirmed at is what they are.
    fit.sort(key=lambda one: -one.confirmation.value)  # type: ignore[union-attr]
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
        output=first.known.get("output"),
    )
    checked = None
    for one in fit[1:]:
        if any(_excludes(one, other) for other in side.candidates):
            continue
        grown = Side((*side.candidates, one.candidate))
        blocks = _blocks(experiment, grown)
        if blocks is None:
            continue
        found = _measured(experiment, side, grown, blocks, steps=len(fit) - 1)
        experiment.combinations.append(found[0])
        if found[0].outcome == "accepted":
            side, checked = grown, found[1]
    if checked is not None:
        _best(experiment, side, checked, facts)


def _fits(one: Trying) -> bool:
    """Tell whether it can be part of a whole: the original of all others has the mode already."""
    return one.confirmation is not None and one.candidate.times == 1 and not one.candidate.original


def _excludes(one: Trying, other: object) -> bool:
    group = one.candidate.group
    return bool(group) and group == getattr(other, "group", "")


def _blocks(experiment: Experiment, grown: Side) -> int | None:
    """Return the blocks for a combination, for which the whole's must fit too; None for none."""
    check, each = (time(grown) for time in (experiment.durations.check, experiment.durations.block))
    for number in (CONFIRMATION, FEWEST_CONFIRMING):
        if experiment.budget.fits(check + 2 * number * each):
            return number
    return None


def _measured(
    experiment: Experiment, side: Side, grown: Side, number: int, *, steps: int
) -> tuple[Combination, Checked | None]:
    """Return how a grown combination does against the one before; Bonferroni over the steps."""
    experiment.progress.start(" + ".join(grown.ids))
    made: dict[str, Any] = {"candidates": grown.ids, "against": side.ids}
    try:
        tolerance = max(experiment.allowed(one) for one in grown.candidates)
        checked = experiment.check(grown, tolerance)
        if not checked.output.passed:
            reason = not_kept(checked)
            return Combination(
                **made, outcome="rejected", reason=reason, output=checked.output
            ), None
        blocks = experiment.blocks(side, grown, number)
    except TorchgaugeError as error:
        reason = " ".join(filter(None, (error.message, error.cause)))
        return Combination(**made, outcome="failed", reason=reason), None
    except BudgetOver:
        return Combination(**made, outcome="untried", reason=STOPPED), None
    if len(blocks) < FEWEST_CONFIRMING:
        return Combination(**made, outcome="untried", reason=STOPPED, output=checked.output), None
    found = of_blocks(blocks)
    held = gain_p(found.differences) <= ALPHA / steps and found.interval.low > 1 + MINIMUM_GAIN
    combination = Combination(
        **made,
        outcome="accepted" if held else "rejected",
        reason=f"{spread(found)} on top of {' + '.join(side.ids)}"
        + ("." if held else f": {NOT_SURE}."),
        speed_up=found,
        output=checked.output,
        memory_after=checked.memory,
    )
    return combination, checked


def _best(experiment: Experiment, side: Side, checked: Checked, facts: Facts) -> None:
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
        speed_up=of_blocks(blocks),
        output=checked.output,
    )


def _python(side: Side, facts: Facts) -> tuple[str, ...]:
    return side.code(facts) + side.code(facts, "optimizer")


def _shell(side: Side, facts: Facts) -> str:
    return "\n".join(f"export {name}={value}" for name, value in side.variables(facts).items())
