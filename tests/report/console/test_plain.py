"""How wide a text is that goes into a pipe."""

import pytest
from rich.text import Text
from tests.support import records

from torchgauge.report.console.plain import plain


def width_of():
    seen = []
    plain(lambda width: seen.append(width) or Text(""))
    return seen[0]


@pytest.mark.parametrize(("said", "width"), [("120", 120), ("170", 170), ("1", 40)])
def test_a_pipe_is_as_wide_as_columns_says(monkeypatch, said, width):
    monkeypatch.setenv("COLUMNS", said)
    assert width_of() == width


@pytest.mark.parametrize("said", ["0", "wide", ""])
def test_without_a_width_or_a_terminal_it_is_80(monkeypatch, tmp_path, said):
    monkeypatch.setenv("COLUMNS", said)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr("sys.__stdout__", out)
        assert width_of() == 80


def test_in_a_notebook_a_summary_is_text_too(monkeypatch):
    """There rich would display what it is to write, and the text would be empty."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(records.profile()).startswith("Net\n")
