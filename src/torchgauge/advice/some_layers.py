"""A change of some layers, where the change of all of them breaks the output."""

from __future__ import annotations

import dataclasses

from torchgauge.advice.candidate import fixed
from torchgauge.advice.trying import Trying
from torchgauge.measure.layer_choice import LayerChoice


def of_some_layers(whole: Trying) -> Trying | None:
    """Return the candidate of some layers, None where that of all is no output's rejection."""
    candidate, output = whole.candidate, whole.known.get("output")
    if candidate.by_layer is None or output is None or output.passed:
        return None
    if whole.facts.count(*candidate.by_layer.kinds) < 2:  # one is all of them
        return None
    partial = dataclasses.replace(
        candidate,
        id=f"{candidate.id}-layers",
        title=f"{candidate.title}: some layers",
        code=fixed(""),
        by_layer=None,
        choosing=candidate.by_layer,
    )
    return Trying(partial, whole.facts)


def take_layers(trying: Trying, choice: LayerChoice) -> None:
    """Make the candidate that of the chosen layers; where there are none that ends it."""
    candidate = trying.candidate
    assert candidate.choosing is not None  # noqa: S101 - layers are chosen for those alone
    trying.known["left_out"] = choice.left_out
    if not choice.paths:
        trying.end("rejected", "No group of layers keeps the output.")
        return
    trying.candidate = dataclasses.replace(
        candidate,
        code=fixed(candidate.choosing.code(trying.facts, choice.paths)),
        gain=candidate.gain * choice.share,
        choosing=None,
    )
