"""Fused attention in place of matrices of scores, where the model has a switch."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts


def _reason(facts: Facts) -> str | None:
    if "set_attn_implementation" not in facts.switches or not facts.attention:
        return "The model has no switch for its attention; code of its own is not rewritten."
    if facts.attention != "eager":
        return f"It uses {facts.attention} already."
    return None


CANDIDATES = (
    Candidate(
        id="sdpa",
        title="scaled_dot_product_attention",
        code=fixed('model.set_attn_implementation("sdpa")'),
        reason=_reason,
        order="rewrite",
        gain=0.1,
    ),
)
