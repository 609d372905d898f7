"""Batch normalisation folded into the convolution before it."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts

KINDS = ("1d", "2d", "3d")


def _reason(facts: Facts) -> str | None:
    if any(facts.count(f"Conv{kind}") and facts.count(f"BatchNorm{kind}") for kind in KINDS):
        return None
    return "The model has no batch normalisation after a convolution."


CANDIDATES = (
    Candidate(
        id="fold-batch-norm",
        title="batch norms folded into convolutions",
        code=fixed(
            "from torch.fx.experimental.optimization import fuse\nmodel = fuse(model.eval())"
        ),
        reason=_reason,
        step="inference",
        order="rewrite",
        gain=0.05,
    ),
)
