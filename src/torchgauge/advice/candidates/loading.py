"""How data gets to the model: copies and workers of the user's own loop."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts


def _copies(facts: Facts) -> str | None:
    if not facts.cuda:
        return "Nothing is copied to a GPU."
    return "The inputs are on the GPU when a call is timed: measure your loop with tg.timeline."


CANDIDATES = (
    Candidate(
        id="pinned-memory",
        title="pinned memory and copies that overlap the work",
        code=fixed(
            "loader = DataLoader(data, pin_memory=True)\n"
            "batch = batch.to(device, non_blocking=True)"
        ),
        reason=_copies,
        needs_module=False,
    ),
    Candidate(
        id="loader-workers",
        title="workers that load data",
        code=fixed("loader = DataLoader(data, num_workers=4, persistent_workers=True)"),
        reason=lambda _facts: (
            "The loader is in your loop: tg.timeline shows how long a step waits."
        ),
        step="training",
        needs_module=False,
    ),
)
