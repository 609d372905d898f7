"""A profile in a notebook: its headline as HTML, all else folded; no style or script leaks out."""

from __future__ import annotations

from torchgauge.model.profile import Profile
from torchgauge.report.findings import findings
from torchgauge.report.markup import escaped
from torchgauge.report.page_overview import figures
from torchgauge.report.section import Section
from torchgauge.report.sections import sections, warning_text, warnings

_LEFT = ' style="text-align:left"'


def render(profile: Profile) -> str:
    """Return an HTML fragment; every text is escaped."""
    head, *others = sections(profile)
    run = next(row.value for row in head.rows if row.label == "run as")
    shown = [
        (one["label"], one["value"], f"{one['note']} {one['how']}") for one in figures(profile)
    ]
    parts = [f"<p><b>{escaped(profile.target.name)}</b>, {escaped(run)}</p>", _rows(shown)]
    if found := findings(profile):
        parts.append(_list([f"{one.title}. {one.text}" for one in found]))
    if listed := warnings(profile):
        parts += ["<p><b>Warnings</b></p>", _list([warning_text(one) for one in listed])]
    tables = "".join(map(_table, [head, *others]))
    parts.append(f"<details><summary>All figures</summary>{tables}</details>")
    return f'<div class="torchgauge">{"".join(parts)}</div>'


def _table(section: Section) -> str:
    how = f" <i>{escaped(section.how)}</i>" if section.how else ""
    caption = f"<caption{_LEFT}><b>{escaped(section.title)}</b>{how}</caption>"
    rows = [(row.label, row.value, _note(row.note, row.share)) for row in section.rows]
    notes = "".join(f"<p>{escaped(note)}</p>" for note in section.notes)
    return _rows(rows, caption) + notes


def _rows(rows: list[tuple[str, str, str]], caption: str = "") -> str:
    cells = "".join(
        f'<tr><th scope="row"{_LEFT}>{escaped(label)}</th>'
        f"<td{_LEFT}>{escaped(value)}</td><td{_LEFT}>{escaped(note)}</td></tr>"
        for label, value, note in rows
    )
    return f"<table>{caption}<tbody>{cells}</tbody></table>"


def _list(texts: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(text)}</li>' for text in texts)}</ul>"


def _note(note: str, share: float | None) -> str:
    return note if share is None else f"{share:.1%}".replace("%", " %")
