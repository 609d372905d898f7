"""The layout's figures, on files that break them."""

import pytest
from checks.source import SourceFile

from checks import house, source


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Return a function that makes a file of the project."""
    monkeypatch.setattr(source, "ROOT", tmp_path)

    def write(name, text):
        (tmp_path / name).write_text(text)
        return SourceFile(tmp_path.joinpath(name).relative_to(tmp_path))

    return write


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("from tests.report.test_html import data", "tests.report.test_html.data"),
        ("from tests.report import pages, test_html", "tests.report.test_html"),
        ("import tests.report.test_html as html", "tests.report.test_html"),
        ("from .test_html import data", "test_html.data"),
        ("from . import test_html", ".test_html"),
        ("def test():\n    from tests.test_html import data", "tests.test_html.data"),
    ],
)
def test_an_import_of_a_test_module_is_found(line, imported, written):
    (place,) = house.imports_of_tests([written("test_page.py", f"import os\n{line}\n")])
    assert place.startswith("test_page.py:")
    assert place.endswith(f" {imported}")


@pytest.mark.parametrize(
    "line",
    [
        "from tests.support.page_data import data",
        "from tests.support import latest_runs",
        "import pytest_plugin",
        "text = 'from tests.test_html import data'",
    ],
)
def test_other_imports_are_none_of_it(line, written):
    assert house.imports_of_tests([written("test_page.py", line)]) == []
