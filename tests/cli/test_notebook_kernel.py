"""A real kernel runs a real notebook: what its cells put out, and what progress leaves behind."""

import queue
import time

import nbformat
import psutil
import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
jupyter_client = pytest.importorskip("jupyter_client")

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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["profile", "line"])
def test_progress_leaves_no_line(outputs, name):
    progress, result = outputs[name]
    assert progress.data == {"text/html": "", "text/plain": ""}
    assert result.output_type == "execute_result"


@pytest.mark.slow
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


SETUP = """
import time, torch
from torch import nn
model, x = nn.Linear(300, 400), torch.ones(200, 300)
%load_ext torchgauge
"""
NET = """
import torch
from torch import nn

def make():
    return nn.Linear(300, 400), torch.ones(200, 300)
"""
LOOP = "%%torchgauge model\nfor i in range(10**6):\n    y = model(x)\n    time.sleep(0.01)\n"
LOOP += "    if i == 20:\n        print('turning')"


@pytest.fixture
def kernel(tmp_path):
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), extra_arguments=["--IPKernelApp.log_level=40"])
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown_by(kernel, code, interrupt_at=None):
    """Run a cell, interrupt it once it shows a text, and return what it showed until it ended."""
    manager, client = kernel
    own_id, shown, end = client.execute(code), [], time.monotonic() + 200
    while time.monotonic() < end:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        if message["parent_header"].get("msg_id") != own_id:
            continue
        content = message["content"]
        if content.get("execution_state") == "idle":
            return shown
        shown.append(content.get("data", {}).get("text/plain") or content.get("text")
                     or content.get("ename") or "")  # fmt: skip
        if interrupt_at and interrupt_at in shown[-1]:
            manager.interrupt_kernel()
            interrupt_at = None
    raise AssertionError(f"The cell did not end: {shown[-5:]}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "begun", "result"),
    [
        ("%torchgauge profile model x --precise", "latency", "<Profile Linear: parameters 120.4 k"),
        ("%torchgauge profile net.py:make", "latency", "<Profile Linear: parameters 120.4 k"),
        (LOOP, "turning", "<Loop "),
    ],
    ids=["variables", "command", "cell"],
)
def test_ctrl_c_ends_a_cell_and_shows_what_was_measured(kernel, tmp_path, code, begun, result):
    (tmp_path / "net.py").write_text(NET)
    shown_by(kernel, SETUP)
    shown = shown_by(kernel, code, interrupt_at=begun)
    assert any(text.startswith(result) for text in shown), shown
    assert (shown[-1] == "KeyboardInterrupt") == (code is LOOP)
    manager, _ = kernel
    assert psutil.Process(manager.provisioner.pid).children(recursive=True) == []
    assert "2" in shown_by(kernel, "1 + 1")
