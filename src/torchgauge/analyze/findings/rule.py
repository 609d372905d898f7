"""A rule of the catalogue: when it applies, and what it explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.records.finding import Finding, Severity
from torchgauge.records.timeline.node import Node

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

    def costs(
        self,
        time: float,
        total: float,
        *,
        title: str,
        evidence: str,
        remedy: str,
        worth: float | Literal["all"] | None = "all",
        node: Node | None = None,
        path: str = "",
        search: str = "",
        view: str = "tree",
    ) -> Finding:
        """Return a finding about seconds of a total, whose share says how much it matters.

        `worth` is how many of them the remedy could save at most, None where that is not known.
        `node` is the layer, operator or kernel to look at; `path` a layer alone.
        """
        return Finding(
            id=self.id,
            severity=severity(share(time, total)),
            title=title,
            evidence=evidence,
            remedy=remedy,
            time=time,
            worth=time if worth == "all" else worth,
            path=path if node is None else node.path,
            node=None if node is None else node.index,
            search=search,
            view=view,
        )


def share(part: float, total: float) -> float:
    """Return the part's share of the total; 0 of nothing."""
    return part / total if total else 0.0


def severity(part: float) -> Severity:
    """Return how much a share of the time matters."""
    return "serious" if part > SERIOUS else "warning"
