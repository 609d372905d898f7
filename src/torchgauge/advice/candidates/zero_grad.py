"""Gradients that are let go of between steps."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed

CANDIDATES = (
    Candidate(
        id="zero-grad-none",
        title="gradients freed in place of zeroed",
        code=fixed("optimizer.zero_grad(set_to_none=True)"),
        reason=lambda _facts: "It is what torch 2 does, and the step that is measured here.",
        step="training",
        on="optimizer",
    ),
)
