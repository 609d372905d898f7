"""A real kernel runs a real notebook: what its cells put out, and what progress leaves behind."""

import nbformat
import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = {
    "setup": """
import torch, torchgauge as tg
from torch import nn
model, x = nn.Linear(3, 4), torch.ones(2, 3)
%load_ext torchgauge
""",
    "profile": 'profile = tg.profile(model, x, effort="quick")\nprofile',
    "print": "print(profile)",
    "part": "profile.memory",
    "table": 'profile.table("layers")',
    "line": "%torchgauge count torch.nn:Identity --input 2x3",
    "cell": "%%torchgauge model\nfor _ in range(5):\n    y = model(x)\ny.shape",
    "error": "%%torchgauge\nmodel(x)\n1 / 0",
}


@pytest.fixture(scope="module")
def outputs():
    """Run the cells, and return what each put out."""
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    quiet = ["--IPKernelApp.log_level=40"]
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", allow_errors=True, extra_arguments=quiet
    ).execute()
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def visible_outputs(outputs):
    return [one for one in outputs if one.output_type != "display_data" or any(one.data.values())]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["profile", "line"])
def test_progress_leaves_no_line(outputs, name):
    progress, result = outputs[name]
    assert progress.data == {"text/html": "", "text/plain": ""}
    assert result.output_type == "execute_result"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["profile", "part", "table", "line"])
def test_a_result_is_shown_as_html_and_logged_as_a_line(outputs, name):
    (result,) = visible_outputs(outputs[name])
    assert result.data["text/html"].startswith('<div class="torchgauge">')
    assert len(result.data["text/plain"]) <= 120


@pytest.mark.thorough
def test_print_writes_the_summary(outputs):
    (printed,) = outputs["print"]
    assert printed.name == "stdout"
    assert printed.text.startswith("Linear\n  target")
    assert "Latency  measured" in printed.text


@pytest.mark.thorough
def test_a_cell_shows_where_its_time_went_and_its_result(outputs):
    shown, result = outputs["cell"]
    assert "Loop of Linear" in shown.data["text/html"]
    assert "Time of each step" in shown.data["text/html"]
    assert result.data["text/plain"] == "torch.Size([2, 4])"


@pytest.mark.thorough
def test_a_cells_error_is_its_own(outputs):
    (error,) = outputs["error"]
    assert error.ename == "ZeroDivisionError"
