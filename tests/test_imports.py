"""Optional libraries: absent, installed and broken, or there."""

import sys
from types import ModuleType

import pytest

from torchgauge.errors import MissingExtraError
from torchgauge.imports import modules_with_files, required


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


class Lazy(ModuleType):
    """Is imported when it is asked for something, and fails then."""

    def __getattribute__(self, name):
        raise ImportError(name)


class Library:
    """Says that it is a module, as cffi's libraries do, and has no variables."""

    __slots__ = ()
    __class__ = ModuleType


def test_what_modules_are_there_imports_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "no_module", 1)
    monkeypatch.setitem(sys.modules, "library", Library())
    files = {name: file for name, _, file in modules_with_files()}
    assert files["pytest"] == pytest.__file__
    assert {"lazy_module", "no_module", "library", "sys"}.isdisjoint(files)
