"""The summary as one row of CSV under a header; unknown values are empty."""

from __future__ import annotations

import csv
import io

from torchgauge.model.profile import Profile

# A spreadsheet would run a cell that starts so as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(profile: Profile) -> str:
    """Return header and row; text that a spreadsheet would take for a formula is quoted with '."""
    buffer = io.StringIO()
    row = profile.summary()
    writer = csv.DictWriter(buffer, fieldnames=list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow({key: _cell(value) for key, value in row.items()})
    return buffer.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    return value
