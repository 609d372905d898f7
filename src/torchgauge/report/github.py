"""A verdict as annotations of a GitHub workflow, lines that its runner reads."""

from __future__ import annotations

from typing import Literal

from torchgauge.model.verdict import Outcome, Verdict
from torchgauge.report import rulings
from torchgauge.visible import visible_lines

LEVELS: dict[Outcome, Literal["error", "warning", "notice"]] = {
    "fail": "error",
    "not comparable": "error",
    "inconclusive": "warning",
}
# A workflow shows ten of a kind for a step.
MOST = 10


def commands(verdict: Verdict, file: str = "") -> str:
    """Return a line for each ruling that did not pass; `file` is where the target comes from.

    Source: GitHub, "Workflow commands for GitHub Actions".
    """
    lines = []
    for one in verdict.rulings:
        if one.outcome in LEVELS:
            said = rulings.line(one)
            said = "\n".join([said, *rulings.guilty(one, verdict)[:3]])
            lines.append(_command(LEVELS[one.outcome], f"torchgauge: {one.metric}", said, file))
    return "".join(f"{line}\n" for line in lines[:MOST])


def _command(level: str, title: str, message: str, file: str) -> str:
    properties = {"file": file, "title": title}
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{level} {given}::{_message(message)}"


def _message(text: str) -> str:
    return visible_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
