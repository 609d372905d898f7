"""An optimizer that updates all parameters in a few kernels."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
FOREACH = (*FUSED, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def _unsupported_reason(names: tuple[str, ...], facts: Facts) -> str | None:
    if facts.optimizer in names:
        return None
    return f"{facts.optimizer or 'The optimizer'} has no such implementation."


CANDIDATES = (
    Candidate(
        id="optimizer-fused",
        title="fused optimizer",
        code=fixed(
            "for group in optimizer.param_groups:\n    group.update(fused=True, foreach=False)"
        ),
        reason=lambda facts: _unsupported_reason(FUSED, facts),
        step="training",
        on="optimizer",
        group="optimizer",
        gain=0.1,
    ),
    Candidate(
        id="optimizer-foreach",
        title="foreach optimizer",
        code=fixed(
            "for group in optimizer.param_groups:\n    group.update(foreach=True, fused=False)"
        ),
        reason=lambda facts: _unsupported_reason(FOREACH, facts),
        step="training",
        on="optimizer",
        group="optimizer",
    ),
)
