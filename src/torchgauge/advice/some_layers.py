"""Change only some layers, where changing all of them breaks the output."""

from __future__ import annotations

import dataclasses

from torchgauge.advice.candidate import fixed
from torchgauge.advice.trying import Attempt
from torchgauge.measure.advice.layer_choice import LayerChoice


def partial_attempt(attempt: Attempt) -> Attempt | None:
    """Return the candidate of some layers, None where that of all is no output's rejection."""
    candidate, output = attempt.candidate, attempt.trial_fields.get("output")
    if candidate.by_layer is None or output is None or output.passed:
        return None
    if attempt.facts.count(*candidate.by_layer.kinds) < 2:  # one is all of them
        return None
    partial = dataclasses.replace(
        candidate,
        id=f"{candidate.id}-layers",
        title=f"{candidate.title}: some layers",
        code=fixed(""),
        by_layer=None,
        choosing=candidate.by_layer,
    )
    return Attempt(partial, attempt.facts)


def take_layers(attempt: Attempt, choice: LayerChoice) -> None:
    """Make the candidate that of the chosen layers; where there are none that ends it."""
    candidate = attempt.candidate
    assert candidate.choosing is not None  # noqa: S101 - layers are chosen for those alone
    attempt.trial_fields["left_out"] = choice.left_out
    if not choice.paths:
        attempt.end("rejected", "No group of layers keeps the output.")
        return
    attempt.candidate = dataclasses.replace(
        candidate,
        code=fixed(candidate.choosing.code(attempt.facts, choice.paths)),
        gain=candidate.gain * choice.share,
        choosing=None,
    )
