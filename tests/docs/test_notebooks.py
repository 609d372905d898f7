"""The notebooks are run, and saved without what they put out on some other day."""

import json

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cell(source, outputs=()):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs))


def test_they_are_there():
    names = ["colleague", "generation", "notebooks", "quickstart", "resnet50", "serving", "vit"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_saved(path):
    notebook = json.loads(path.read_text())
    nbformat.validate(notebook)
    cells = [one for one in notebook["cells"] if one["cell_type"] == "code"]
    assert cells
    assert not any(one["outputs"] or one["execution_count"] for one in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_run(path, hook):
    notebook = hook("notebook_pages").executed(path)
    cells = [one for one in notebook.cells if one.cell_type == "code"]
    assert [one.execution_count for one in cells] == list(range(1, len(cells) + 1))
    page = hook("notebook_pages").page(notebook, path.name)
    assert f"({path.name})" in page  # the file itself can be had
    assert page.count('<div class="output">') >= len(cells) / 2


@pytest.mark.thorough
def test_a_cell_that_raises_fails(tmp_path, hook):
    path = tmp_path / "bad.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell("1 / 0")]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        hook("notebook_pages").executed(path)


def test_what_a_cell_prints_is_no_html(hook):
    printed = nbformat.v4.new_output("stream", text="<b>&")
    progress = nbformat.v4.new_output("stream", name="stderr", text="loading")
    rich = nbformat.v4.new_output("display_data", {"text/html": "<i>x</i>", "text/plain": "x"})
    title = nbformat.v4.new_markdown_cell("# Title\n\ntext")
    notebook = nbformat.v4.new_notebook(cells=[title, cell("run()", [printed, progress, rich])])
    page = hook("notebook_pages").page(notebook, "a.ipynb")
    assert "<pre>&lt;b&gt;&amp;</pre>" in page
    assert "<i>x</i>" in page
    assert "loading" not in page
    assert page.startswith("# Title\n\n[Download a.ipynb](a.ipynb)\n\ntext")


def test_what_progress_leaves_is_not_shown(hook):
    empty = nbformat.v4.new_output("display_data", {"text/html": "", "text/plain": ""})
    cells = [nbformat.v4.new_markdown_cell("# T"), cell("run()", [empty])]
    page = hook("notebook_pages").page(nbformat.v4.new_notebook(cells=cells), "a.ipynb")
    assert "output" not in page
