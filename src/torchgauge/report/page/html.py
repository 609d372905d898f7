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

from torchgauge.records.advice import Advice
from torchgauge.records.comparison import Comparison
from torchgauge.records.profile import Profile
from torchgauge.records.record import Record
from torchgauge.records.snapshot import Growth, Snapshot
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.trace import Trace
from torchgauge.records.trace.trace_diff import TraceDiff
from torchgauge.records.trend import Trend
from torchgauge.records.verdict import Verdict
from torchgauge.report.content import alive_tensors
from torchgauge.report.page import (
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
from torchgauge.report.page.markup import escaped, script_data
from torchgauge.report.page.page_choice import Choice

# A part that returns None is left out, and its view with it. The order of views is the script's.
Part = Callable[[Any], object]


def _tables(profile: Profile) -> list[dict[str, Any]] | None:
    """Return the tables of a profile's tree, and of the tensors alive at its memory peak."""
    listed_tables = page_tables.profile_tables(profile) or []
    if profile.memory is not None and profile.memory.tensors:
        listed_tables.append(alive_tensors.page(profile.memory))
    return listed_tables or None


PARTS: dict[type[Record], dict[str, Part]] = {
    Profile: {
        "overview": page_overview.overview,
        "tree": page_tree.profile_tree,
        "tables": _tables,
        "roofline": page_roofline.roofline,
        "latency": page_series.latency,
        "memory": page_series.memory,
        "system": page_series.system,
        "method": page_method.profile_method,
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
# Parts of which a page shows one option at a time, in addition to those above.
CHOICES: dict[type[Record], Callable[[Any], Choice]] = {
    Trace: page_trace.choice,
    Snapshot: page_snapshot.choice,
}


def render(record: Record, leave_out: Collection[str] = ()) -> str:
    """Return the page of a record, without the parts of these names."""
    chosen_parts = {
        name: part for name, part in PARTS[type(record)].items() if name not in leave_out
    }
    parts = {name: part(record) for name, part in chosen_parts.items()}
    data = {name: part for name, part in parts.items() if part is not None}
    choices = CHOICES.get(type(record))
    choice = None if choices is None else choices(record).without(leave_out)
    if choice is not None and len(choice.options) == 1:
        data |= choice.options[0].parts
        choice = None
    return page(page_overview.title(record), data, choice)


def page(title: str, parts: dict[str, object], choice: Choice | None = None) -> str:
    """Return the page of these parts and those of a choice, each shown by the view of its name."""
    content: dict[str, object] = {"title": title, "parts": parts}
    if choice is not None:
        options = [option._asdict() for option in choice.options]
        content["choice"] = {"label": choice.label, "first": choice.first, "options": options}
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
        f'<script type="application/json" id="data">{script_data(content)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    folder = resources.files("torchgauge.report") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
