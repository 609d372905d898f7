"""Activations that wait for the backward pass in the host's memory."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts


def _offload(facts: Facts) -> str | None:
    return None if facts.cuda else "The activations are on the host already."


CANDIDATES = (
    Candidate(
        id="activation-offload",
        title="activations kept on the host",
        code=fixed(
            "def offloaded(*args, forward=model.forward, **kwargs):\n"
            "    with torch.autograd.graph.save_on_cpu(): return forward(*args, **kwargs)\n"
            "model.forward = offloaded"
        ),
        reason=_offload,
        step="training",
        goal="memory",
    ),
)
