"""A profile in a notebook: its headline as HTML, all else folded; no style or script leaks out."""

from __future__ import annotations

from torchgauge.records.profile import Profile
from torchgauge.report.content.findings import findings
from torchgauge.report.content.section import Section
from torchgauge.report.content.sections import sections, warning_text, warnings
from torchgauge.report.page.markup import escaped
from torchgauge.report.page.page_profile import figures

_ALIGN_START = ' style="text-align:left"'


def render(profile: Profile) -> str:
    """Return an HTML fragment; every text is escaped."""
    head, *details = sections(profile)
    run = next(row.value for row in head.rows if row.label == "run as")
    headline_rows = [
        (figure["label"], figure["value"], f"{figure['note']} {figure['how']}")
        for figure in figures(profile)
    ]
    parts = [f"<p><b>{escaped(profile.target.name)}</b>, {escaped(run)}</p>", _rows(headline_rows)]
    if ranked := findings(profile):
        parts.append(_list([f"{finding.title}. {finding.text}" for finding in ranked]))
    if listed := warnings(profile):
        parts += ["<p><b>Warnings</b></p>", _list([warning_text(warning) for warning in listed])]
    tables = "".join(map(_table, [head, *details]))
    parts.append(f"<details><summary>All figures</summary>{tables}</details>")
    return f'<div class="torchgauge">{"".join(parts)}</div>'


def _table(section: Section) -> str:
    how = f" <i>{escaped(section.how)}</i>" if section.how else ""
    caption = f"<caption{_ALIGN_START}><b>{escaped(section.title)}</b>{how}</caption>"
    rows = [(row.label, row.value, _note(row.note, row.share)) for row in section.rows]
    notes = "".join(f"<p>{escaped(note)}</p>" for note in section.notes)
    return _rows(rows, caption) + notes


def _rows(rows: list[tuple[str, str, str]], caption: str = "") -> str:
    cells = "".join(
        f'<tr><th scope="row"{_ALIGN_START}>{escaped(label)}</th>'
        f"<td{_ALIGN_START}>{escaped(value)}</td><td{_ALIGN_START}>{escaped(note)}</td></tr>"
        for label, value, note in rows
    )
    return f"<table>{caption}<tbody>{cells}</tbody></table>"


def _list(texts: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(text)}</li>' for text in texts)}</ul>"


def _note(note: str, share: float | None) -> str:
    return note if share is None else f"{share:.1%}".replace("%", " %")
