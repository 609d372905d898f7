"""Optional libraries: absent, installed and broken, or there."""

import sys

import pytest

from torchgauge.errors import MissingExtraError
from torchgauge.imports import required


@pytest.mark.parametrize(
    ("text", "says", "cause"),
    [
        (None, "which is not installed", "could not be imported"),
        ("import absent_theirs", "which cannot be imported", "No module named 'absent_theirs'"),
        ("from sys import nothing", "which cannot be imported", "cannot import name 'nothing'"),
    ],
)
def test_an_absent_library_is_told_from_a_broken_one(text, says, cause, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "their_library.py").write_text(text)
    with pytest.raises(MissingExtraError) as raised:
        required("their_library", "extra", "This target")
    assert says in str(raised.value)
    assert cause in raised.value.cause
    assert "their_library" not in sys.modules
