"""A rule of the catalogue: when it applies, and what it explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Literal, Required, TypedDict, Unpack

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.records.finding import Finding, Severity
from torchgauge.records.timeline.node import Node

# The smallest share of a step or window, or of its memory, that is reported.
NOTICEABLE = 0.05
SERIOUS = 0.25
MAJORITY = 0.5  # of the time of device work
CONSIDERABLE = 0.1  # a single layer with more is among what matters most

Order = Literal["first", "worth", "time", "most", "last"]


class Parts(TypedDict, total=False):
    """What a finding says beside its amounts.

    Attributes:
        node: The layer, operator or kernel to look at.
        path: A layer alone, or another than the node's.
        device: The device; one finding is made of those about several.
    """

    title: Required[str]
    evidence: Required[str]
    remedy: str
    node: Node | None
    path: str
    device: int | None
    search: str


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
        order: Before all others, by what they are worth, by a considerable time or that, last, or
            "most": what takes most of the work, of unknown worth, before what is worth little.
    """

    id: str
    find: Callable[[Evidence], Iterator[Finding]]
    source: str = ""
    explains: tuple[str, ...] = ()
    jax_remedy: str = ""
    order: Order = "worth"

    def finding(
        self,
        severity: Severity = "info",
        *,
        time: float | None = None,
        worth: float | None = None,
        view: str = "",
        **parts: Unpack[Parts],
    ) -> Finding:
        """Return a finding of this rule."""
        node = parts.get("node")
        fields: dict[str, Any] = {"path": "" if node is None else node.path, **parts}
        fields["node"] = None if node is None else node.index
        return Finding(id=self.id, severity=severity, time=time, worth=worth, view=view, **fields)

    def place(self, finding: Finding, evidence: Evidence) -> tuple[int, float, bool, float]:
        """Return what a finding of this rule is ordered by among others."""
        time, worth, total = finding.time or 0.0, finding.worth, evidence.time
        if self.order == "time" and time > CONSIDERABLE * total:
            worth = time
        is_most = time >= evidence.within(MAJORITY * evidence.device_time)
        if self.order == "most" and worth is None and is_most:
            worth = min(time, SERIOUS * total)
        place = {"first": 0, "last": 2}
        return place.get(self.order, 1), -(worth or 0.0), finding.severity == "info", -time

    def costs(
        self,
        part: tuple[float, float],
        *,
        worth: float | Literal["all"] | None = "all",
        view: str = "tree",
        **parts: Unpack[Parts],
    ) -> Finding:
        """Return a finding about a part: seconds, and those whose share says how much it matters.

        `worth` is how many of them the remedy could save at most, None where that is not known.
        """
        amount = part[0] if worth == "all" else worth
        return self.finding(severity(share(*part)), time=part[0], worth=amount, view=view, **parts)


def rule(
    id: str, *, source: str = "", explains: tuple[str, ...] = (), jax_remedy: str = "",
    order: Order = "worth",
) -> Callable[[Callable[[Evidence], Iterator[Finding]]], Rule]:  # fmt: skip
    """Return the decorator that makes a rule of the function that yields its findings."""
    return lambda find: Rule(id, find, source, explains, jax_remedy, order)


def rules_of(module: ModuleType) -> list[Rule]:
    """Return the rules that a file of the catalogue declares, in its order."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def share(part: float, total: float) -> float:
    """Return the part's share of the total; 0 of nothing."""
    return part / total if total else 0.0


def noticeable(evidence: Evidence, seconds: Iterable[float]) -> float:
    """Return the sum of the seconds, at most all there are; 0 of too few to be reported."""
    total = evidence.within(sum(seconds))
    return total if share(total, evidence.time) >= NOTICEABLE else 0.0


def severity(part: float) -> Severity:
    """Return how much a share of the time matters."""
    return "serious" if part > SERIOUS else "warning"
