"""A verdict as annotations of a GitHub workflow, lines that its runner reads."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.verdict import Outcome, Verdict
from torchgauge.report.content import rulings
from torchgauge.visible import visible_lines

LEVELS: dict[Outcome, Literal["error", "warning", "notice"]] = {
    "fail": "error",
    "not comparable": "error",
    "inconclusive": "warning",
}
# A workflow shows ten annotations of a level for a step.
MAX_ANNOTATIONS = 10


def commands(verdict: Verdict, file: str = "") -> str:
    """Return a line for each ruling that did not pass; `file` is where the target comes from.

    Source: GitHub, "Workflow commands for GitHub Actions".
    """
    lines = []
    for ruling in verdict.rulings:
        if ruling.outcome in LEVELS:
            layers = rulings.regressed_layers(ruling, verdict)[:3]
            message = "\n".join([rulings.line(ruling), *layers])
            title = f"torchgauge: {ruling.label}"
            lines.append(_command(LEVELS[ruling.outcome], title, message, file))
    return "".join(f"{line}\n" for line in lines[:MAX_ANNOTATIONS])


def _command(level: str, title: str, message: str, file: str) -> str:
    properties = {"file": file, "title": title}
    parameters = ",".join(
        f"{name}={_property(value)}" for name, value in properties.items() if value
    )
    return f"::{level} {parameters}::{_message(message)}"


def _message(text: str) -> str:
    return visible_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
