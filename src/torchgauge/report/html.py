"""The page: one HTML file that holds its data, its script and its style, and asks nobody else.

What is shown is decided by the parts below; `web/` is the source of the script that shows them. The
data stands in the page as JSON that the browser does not run, and the script makes text nodes of it
alone, so that no name in a record can become markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection
from importlib import resources
from typing import Any

from torchgauge.model.advice import Advice
from torchgauge.model.comparison import Comparison
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.record import Record
from torchgauge.model.snapshot import Growth, Snapshot
from torchgauge.model.sweep import Sweep
from torchgauge.model.trace import Trace
from torchgauge.model.trace_diff import TraceDiff
from torchgauge.model.trend import Trend
from torchgauge.model.verdict import Verdict
from torchgauge.report import (
    alive_tensors,
    page_advice,
    page_comparison,
    page_growth,
    page_loop,
    page_method,
    page_overview,
    page_roofline,
    page_series,
    page_snapshot,
    page_sweep,
    page_tables,
    page_trace,
    page_trace_diff,
    page_tree,
    page_trend,
    page_verdict,
)
from torchgauge.report.markup import escaped, script_data
from torchgauge.report.page_choice import Choice

# A part that returns None is left out, and its view with it. The order of views is the script's.
Part = Callable[[Any], object]


def _tables(profile: Profile) -> list[dict[str, Any]] | None:
    """Return the tables of a profile's tree, and what was alive at the peak of its memory."""
    found = page_tables.of_profile(profile) or []
    if profile.memory is not None and profile.memory.tensors:
        found.append(alive_tensors.page(profile.memory))
    return found or None


PARTS: dict[type[Record], dict[str, Part]] = {
    Profile: {
        "overview": page_overview.overview,
        "tree": page_tree.of_profile,
        "tables": _tables,
        "roofline": page_roofline.roofline,
        "latency": page_series.latency,
        "memory": page_series.memory,
        "system": page_series.system,
        "method": page_method.of_profile,
        "environment": page_method.environment,
    },
    Comparison: {
        "overview": page_comparison.overview,
        "changes": page_comparison.changes,
        "contributions": page_comparison.contributions,
        "tables": page_comparison.tables,
    },
    Verdict: {
        "overview": page_verdict.overview,
        "changes": page_verdict.changes,
        "contributions": page_verdict.contributions,
        "tables": page_verdict.tables,
    },
    Trend: {"overview": page_trend.overview, "trend": page_trend.series},
    Advice: {"overview": page_advice.overview, "advice": page_advice.advice},
    Sweep: {
        "overview": page_sweep.overview,
        "cells": page_sweep.cells,
        "pareto": page_sweep.pareto,
        "scaling": page_sweep.scaling,
    },
    Loop: {
        "overview": page_loop.overview,
        "tree": page_loop.tree,
        "tables": page_loop.tables,
        "steps": page_loop.steps,
        "method": page_loop.method,
        "environment": page_method.environment,
    },
    Trace: {"ranks": page_trace.ranks},
    TraceDiff: {
        "overview": page_trace_diff.overview,
        "contributions": page_trace_diff.contributions,
        "tables": page_trace_diff.tables,
    },
    Snapshot: {},
    Growth: {
        "overview": page_growth.overview,
        "contributions": page_growth.contributions,
        "tables": page_growth.tables,
    },
}
# Parts of which a page shows one set at a time, beside those above.
CHOICES: dict[type[Record], Callable[[Any], Choice]] = {
    Trace: page_trace.choice,
    Snapshot: page_snapshot.choice,
}


def render(record: Record, leave_out: Collection[str] = ()) -> str:
    """Return the page of a record, without the parts of these names."""
    shown = {name: part for name, part in PARTS[type(record)].items() if name not in leave_out}
    parts = {name: part(record) for name, part in shown.items()}
    data = {name: part for name, part in parts.items() if part is not None}
    choices = CHOICES.get(type(record))
    choice = None if choices is None else choices(record).without(leave_out)
    if choice is not None and len(choice.options) == 1:
        data |= choice.options[0].parts
        choice = None
    return page(page_overview.title(record), data, choice)


def page(title: str, parts: dict[str, object], choice: Choice | None = None) -> str:
    """Return the page of these parts and those of a choice, each shown by the view of its name."""
    shown: dict[str, object] = {"title": title, "parts": parts}
    if choice is not None:
        options = [one._asdict() for one in choice.options]
        shown["choice"] = {"label": choice.label, "first": choice.first, "options": options}
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)} – torchgauge</title>\n"
        f"<style>{style}</style>\n</head>\n<body>\n"
        "<noscript>This report is drawn by a script that is part of it; scripts are switched off."
        "</noscript>\n"
        f'<script type="application/json" id="data">{script_data(shown)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    folder = resources.files("torchgauge.report") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
