"""Candidates for the training step and its memory."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.target import Facts

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
FOREACH = (*FUSED, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def _unsupported_reason(names: tuple[str, ...], facts: Facts) -> str | None:
    if facts.optimizer in names:
        return None
    return f"{facts.optimizer or 'The optimizer'} has no such implementation."


_OPTIMIZER = (
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


_ZERO_GRAD = (
    Candidate(
        id="zero-grad-none",
        title="gradients freed instead of zeroed",
        code=fixed("optimizer.zero_grad(set_to_none=True)"),
        reason=lambda _facts: "torch 2 does so by default, and so does the measured step.",
        step="training",
        on="optimizer",
    ),
)


def _checkpointing(facts: Facts) -> str | None:
    if "gradient_checkpointing_enable" in facts.switches:
        return None
    return "The model has no switch for it; torch.utils.checkpoint goes into its own code."


_TRAINING_MEMORY = (
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


_ACTIVATION_OFFLOAD = (
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


CANDIDATES = (*_OPTIMIZER, *_ZERO_GRAD, *_TRAINING_MEMORY, *_ACTIVATION_OFFLOAD)
