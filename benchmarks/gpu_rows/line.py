"""One line of the table: what was measured of what, what stands beside it, and the verdict."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Verdict = Literal["met", "missed", "measured", "tried", "failed", "timed out", "not run"]


@dataclasses.dataclass(frozen=True)
class Line:
    """What a row says of one thing: `of` names it, `ours` is torchgauge's figure as text.

    `beside` is the truth or the other tool, `goal` what the comparison is to show, `note` the
    reason of a failure. `figures` are the numbers that the texts were made of, in SI units. The
    verdict "tried" is of code that ran with fakes alone.
    """

    of: str
    ours: str = ""
    beside: str = ""
    goal: str = ""
    verdict: Verdict = "measured"
    note: str = ""
    figures: dict[str, float | int | str | None] = dataclasses.field(default_factory=dict)
    row: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for a file of JSON lines."""
        return dataclasses.asdict(self)


def judged(
    of: str,
    ours: str,
    beside: str = "",
    /,
    *,
    goal: str = "",
    met: bool | None = None,
    note: str = "",
    **figures: float | str | None,
) -> Line:
    """Return a line with the verdict that `met` says; None is a figure without a goal."""
    verdict: Verdict = "measured" if met is None else "met" if met else "missed"
    return Line(of, ours, beside, goal, verdict, note, dict(figures))


def absent(of: str, reason: str) -> Line:
    """Return the line of what cannot be measured here."""
    return Line(of, verdict="not run", note=reason)
