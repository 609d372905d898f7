"""Makes the page of findings from the catalogue: what each means, and its remedy's source."""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import urlsplit

from mkdocs.structure.files import File, Files

from torchgauge.analyze.findings.catalogue import FILES
from torchgauge.analyze.findings.rule import Rule, rules_of

INTRODUCTION = """\
# Findings

What costs time or memory in a profile, a loop, the generation of a language model or a recorded
trace, and what a server under load runs out of, with evidence and a remedy. The same catalogue is
used for all of them: on the terminal, the page, in Markdown and notebooks, and in the `findings` of
every record.

- `time` is the seconds of a step, of a call that generates, or of a trace's window, that a finding
  speaks of.
- `worth` is what its remedy could save at most; findings are in the order of it.
- Where one finding explains another (a loader that keeps the device waiting explains that the
  device waits for the host), the more general one is left out.

A finding is left out, too, where what it is made from was not recorded: no finding is no proof that
nothing is wrong.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, "findings.md", content=page()))
    return files


def page() -> str:
    """Return the page as Markdown: a table for each file of the catalogue."""
    blocks = [INTRODUCTION]
    for file in FILES:
        rows = ["| finding | what it finds | its remedy is documented by |", "|---|---|---|"]
        rows += [_row(rule) for rule in rules_of(file)]
        title = inspect.getdoc(file).removesuffix(".")
        blocks.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(blocks)


def _row(rule: Rule) -> str:
    meaning = " ".join(inspect.getdoc(rule.find).split()).removeprefix("Find ").replace("|", "\\|")
    link = f"[{urlsplit(rule.source).netloc}]({rule.source})" if rule.source else ""
    return f"| `{rule.id}` | {meaning} | {link} |"
