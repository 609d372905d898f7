"""Candidates for the training step and its memory."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.target import Facts

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
FOREACH = (*FUSED, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def _implementation(
    name: str, other: str, optimizers: tuple[str, ...], gain: float = 0.03
) -> Candidate:
    def reason(facts: Facts) -> str | None:
        if facts.optimizer in optimizers:
            return None
        return f"{facts.optimizer or 'The optimizer'} has no such implementation."

    return Candidate(
        id=f"optimizer-{name}",
        title=f"{name} optimizer",
        code=fixed(
            f"for group in optimizer.param_groups:\n    group.update({name}=True, {other}=False)"
        ),
        reason=reason,
        step="training",
        on="optimizer",
        group="optimizer",
        gain=gain,
    )


def _checkpointing(facts: Facts) -> str | None:
    if "gradient_checkpointing_enable" in facts.switches:
        return None
    return "The model has no switch for it; torch.utils.checkpoint goes into its own code."


CANDIDATES = (
    _implementation("fused", "foreach", FUSED, gain=0.1),
    _implementation("foreach", "fused", FOREACH),
    Candidate(
        id="zero-grad-none",
        title="gradients freed instead of zeroed",
        code=fixed("optimizer.zero_grad(set_to_none=True)"),
        reason=lambda _facts: "torch 2 does so by default, and so does the measured step.",
        step="training",
        on="optimizer",
    ),
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
    Candidate(
        id="activation-offload",
        title="activations kept on the host",
        code=fixed(
            "def offloaded(*args, forward=model.forward, **kwargs):\n"
            "    with torch.autograd.graph.save_on_cpu(): return forward(*args, **kwargs)\n"
            "model.forward = offloaded"
        ),
        reason=lambda facts: None if facts.cuda else "The activations are on the host already.",
        step="training",
        goal="memory",
    ),
)
