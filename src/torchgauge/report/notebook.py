"""The summary as an HTML table for notebooks; every text is escaped, no style leaks out."""

from __future__ import annotations

from html import escape

from torchgauge.model.profile import Profile
from torchgauge.report.sections import Section, sections, warning_text, warnings


def render(profile: Profile) -> str:
    """Return an HTML fragment."""
    parts = [_table(section) for section in sections(profile)]
    if shown := warnings(profile):
        items = "".join(f"<li>{escape(warning_text(w))}</li>" for w in shown)
        parts.append(f"<p><b>Warnings</b></p><ul>{items}</ul>")
    return f'<div class="torchgauge">{"".join(parts)}</div>'


def _table(section: Section) -> str:
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(row.label)}</th>'
        f'<td style="text-align:left">{escape(row.value)}</td>'
        f'<td style="text-align:left">{escape(_note(row.note, row.share))}</td></tr>'
        for row in section.rows
    )
    how = f" <i>{escape(section.how)}</i>" if section.how else ""
    caption = f'<caption style="text-align:left"><b>{escape(section.title)}</b>{how}</caption>'
    notes = "".join(f"<p>{escape(note)}</p>" for note in section.notes)
    return f"<table>{caption}<tbody>{rows}</tbody></table>{notes}"


def _note(note: str, share: float | None) -> str:
    return note if share is None else f"{share:.1%}".replace("%", " %")
