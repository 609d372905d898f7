"""Gradients that are freed between steps."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed

CANDIDATES = (
    Candidate(
        id="zero-grad-none",
        title="gradients freed instead of zeroed",
        code=fixed("optimizer.zero_grad(set_to_none=True)"),
        reason=lambda _facts: "torch 2 does so by default, and so does the measured step.",
        step="training",
        on="optimizer",
    ),
)
