"""A rule of the catalogue: when it applies, and what it explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.records.finding import Finding, Severity

# The smallest share of a step or window, or of its memory, that is reported.
NOTICEABLE = 0.05
SERIOUS = 0.25


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule of the catalogue.

    Attributes:
        id: The id of its findings.
        find: Yields them, each with the seconds that it speaks of and what they are worth.
        source: Where its remedy is documented.
        explains: Ids of more general findings about the same time; they are left out where this
            explains at least half of it, and else keep the rest.
        jax_remedy: What to do instead in JAX.
    """

    id: str
    find: Callable[[Evidence], Iterator[Finding]]
    source: str = ""
    explains: tuple[str, ...] = ()
    jax_remedy: str = ""


def share(part: float, total: float) -> float:
    """Return the part's share of the total; 0 of nothing."""
    return part / total if total else 0.0


def severity(part: float) -> Severity:
    """Return how much a share of the time matters."""
    return "serious" if part > SERIOUS else "warning"
