"""The page: one HTML file that holds its data, its script and its style, and needs no network.

What is shown is decided by the parts below; `web/` is the source of the script that shows them. The
data stands in the page as JSON that the browser does not run, and the script makes text nodes of it
alone, so that no name in a record can become markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from importlib import resources

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.page import page_document
from torchgauge.report.page.markup import escaped, script_data
from torchgauge.report.page.page_document import Choice
from torchgauge.report.page.page_shorter import short


def render(record: Record, leave_out: Collection[str] = ()) -> str:
    """Return the page of a record, without the parts of these names."""
    module = kinds.part(record, "page") or page_document
    # A part that is None is left out, and its view with it. The order of views is the script's.
    parts = {name: part(record) for name, part in module.PARTS.items() if name not in leave_out}
    data = {name: part for name, part in parts.items() if part is not None}
    choice: Choice | None = None
    if hasattr(module, "choice"):
        choice = module.choice(record).without(leave_out)
    if choice is not None and len(choice.options) == 1:
        data |= choice.options[0].parts
        choice = None
    titled = module if hasattr(module, "title") else kinds.part(record, "content")
    return page(short(titled.title(record)), data, choice)


def page(title: str, parts: dict[str, object], choice: Choice | None = None) -> str:
    """Return the page of these parts and those of a choice, each shown by the view of its name."""
    content: dict[str, object] = {"title": title, "parts": parts}
    if choice is not None:
        options = [option._asdict() for option in choice.options]
        content["choice"] = {**choice._asdict(), "options": options}
    script, style = _asset("page.js"), _asset("page.css")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
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


def policy() -> str:
    """Return the Content-Security-Policy of every page: its own script and style, nothing else."""
    script, style = _hash(_asset("page.js")), _hash(_asset("page.css"))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    folder = resources.files("torchgauge.report") / "assets"
    return (folder / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
