"""Less memory in training: activations computed again, or batches in parts."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts


def _checkpointing(facts: Facts) -> str | None:
    if "gradient_checkpointing_enable" in facts.switches:
        return None
    return "The model has no switch for it; torch.utils.checkpoint goes into its own code."


CANDIDATES = (
    Candidate(
        id="gradient-checkpointing",
        title="activations computed again",
        code=fixed("model.train()\nmodel.gradient_checkpointing_enable({'use_reentrant': False})"),
        reason=_checkpointing,
        step="training",
        goal="memory",
        order="rewrite",
    ),
    Candidate(
        id="gradient-accumulation",
        title="several small batches for one step",
        code=fixed(
            "loss = loss / steps\nloss.backward()\n"
            "if (number + 1) % steps == 0: optimizer.step(); optimizer.zero_grad()"
        ),
        reason=lambda _facts: (
            "It is a change of your loop, not of the model: measure it with tg.timeline."
        ),
        step="training",
        goal="memory",
    ),
)
