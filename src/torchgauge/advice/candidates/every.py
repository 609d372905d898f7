"""All candidates, in the order in which they are tried: what costs little to try comes first."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.advice.candidate import Candidate
from torchgauge.advice.candidates import (
    compilation,
    fusing,
    precision,
    process_settings,
    quantisation,
    training_step,
    workload,
)
from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, similar

FILES = (fusing, precision, quantisation, compilation, training_step, process_settings, workload)
ALL_CANDIDATES: tuple[Candidate, ...] = tuple(
    candidate for file in FILES for candidate in file.CANDIDATES
)


def select_candidates(ids: Sequence[str] | None) -> tuple[Candidate, ...]:
    """Return the candidates of these ids, all where none are named; ids may end in `*`.

    Raises InputError `candidate-unknown`.
    """
    if not ids:
        return ALL_CANDIDATES
    selected: dict[str, Candidate] = {}
    for name in ids:
        fitting = [
            candidate
            for candidate in ALL_CANDIDATES
            if candidate.id == name or (name.endswith("*") and candidate.id.startswith(name[:-1]))
        ]
        if not fitting:
            raise _unknown(name)
        selected |= {candidate.id: candidate for candidate in fitting}
    return tuple(selected.values())


def _unknown(name: str) -> InputError:
    names = [candidate.id for candidate in ALL_CANDIDATES]
    question = did_you_mean(similar(name, names), "")
    return InputError(
        f"There is no candidate '{name}'.",
        id="candidate-unknown",
        cause=f"There are {', '.join(names)}.",
        remedy=f"{question} Choose among them; int8-* stands for all int8 ones.".lstrip(),
    )
