"""All candidates, in the order in which they are tried: what costs little to try comes first."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.advice.candidate import Candidate
from torchgauge.advice.candidates import (
    activation_offload,
    allocator,
    attention,
    batch,
    channels_last,
    compilation,
    folding,
    inference_mode,
    loading,
    optimizer,
    precision,
    quantisation,
    serving,
    sharding,
    threads,
    training_memory,
    zero_grad,
)
from torchgauge.errors import InputError

FILES = (
    inference_mode, attention, folding, channels_last, precision, quantisation, compilation,
    optimizer, zero_grad, training_memory, activation_offload, threads, allocator,
    batch, loading, sharding, serving,
)  # fmt: skip
EVERY: tuple[Candidate, ...] = tuple(one for file in FILES for one in file.CANDIDATES)


def chosen(ids: Sequence[str] | None) -> tuple[Candidate, ...]:
    """Return the candidates of these ids, all where none are named; ids may end in `*`.

    Raises InputError `candidate-unknown`.
    """
    if not ids:
        return EVERY
    found: dict[str, Candidate] = {}
    for name in ids:
        fitting = [one for one in EVERY if one.id == name or _begins(one.id, name)]
        if not fitting:
            raise InputError(
                f"There is no candidate '{name}'.",
                id="candidate-unknown",
                cause=f"There are {', '.join(one.id for one in EVERY)}.",
                remedy="Choose among them; int8-* stands for all that begin so.",
            )
        found |= {one.id: one for one in fitting}
    return tuple(found.values())


def _begins(id: str, pattern: str) -> bool:
    return pattern.endswith("*") and id.startswith(pattern[:-1])
