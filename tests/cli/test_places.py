"""Relative names mean the folder where they were typed, wherever the user's code goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.errors import TorchgaugeError
from torchgauge.files import check_replaceable, write_atomically
from torchgauge.history.store import Store
from torchgauge.targets.loaders.load import load_weights
from torchgauge.targets.loaders.python_source import import_file
from torchgauge.traces.trace_files import trace_files

WANDERING = """
import os, torch
class Net(torch.nn.Linear):
    def forward(self, x):
        os.chdir({elsewhere!r})
        return super().forward(x)
def made():
    os.chdir({elsewhere!r})
    return Net(4, 4), torch.ones(2, 4)
"""
SCRIPT = """
import os, torch
from models import made
model, inputs = made()
for _ in range(12):
    model(inputs)
os.chdir("/")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of the user's shell, which holds a model that leaves it."""
    typed, elsewhere = tmp_path / "typed", tmp_path / "elsewhere"
    typed.mkdir()
    elsewhere.mkdir()
    (typed / "models.py").write_text(WANDERING.format(elsewhere=str(elsewhere)))
    (typed / "script.py").write_text(SCRIPT)
    save_file({"weight": torch.ones(4, 4), "bias": torch.ones(4)}, typed / "w.safetensors")
    yield typed
    assert list(elsewhere.iterdir()) == []


def torchgauge(folder, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "torchgauge", *arguments],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_profile_of_a_model_that_changes_folders(folder):
    done = torchgauge(
        folder, "profile", "models.py:made", "--weights", "w.safetensors", "--trace", "t.json.gz",
        "--html", "page.html", "--output-dir", "out", "--iterations", "3", "--warmup", "1",
        TORCHGAUGE_STATE="state",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {"models.py", "script.py", "w.safetensors", "t.json.gz", "page.html", "out", "state"}
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == made
    for name in ("t.json.gz", "page.html", "out/profile.json"):
        assert f"Wrote {folder / name}\n" in done.stderr


@pytest.mark.slow
def test_a_script_that_changes_folders(folder):
    done = torchgauge(folder, "run", "--output-dir", "out", "--html", "page.html", "script.py")
    assert done.returncode == 0, done.stderr
    assert f"Wrote {folder / 'out' / 'loop.json'}\n" in done.stderr
    assert (folder / "out" / "loop.json").exists()
    assert (folder / "page.html").exists()


@pytest.mark.slow
def test_a_trace_and_a_record_from_python_lie_where_the_call_was_made(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder.parent / "elsewhere" / "trace.json").mkdir()  # a place that cannot be written to

    class Wandering(torch.nn.Linear):
        def forward(self, x):
            os.chdir(folder.parent / "elsewhere")
            return super().forward(x)

    try:
        record = tg.profile(
            Wandering(4, 4), torch.ones(2, 4), iterations=3, warmup=1, trace="trace.json"
        )
    finally:
        (folder.parent / "elsewhere" / "trace.json").rmdir()
    assert not [one.id for one in record.all_warnings if one.failed]
    assert (folder / "trace.json").stat().st_size
    os.chdir(folder)
    record.save("record.json")
    assert (folder / "record.json").exists()


def test_a_folder_that_was_removed_is_an_error_of_ours(tmp_path):
    code = (
        "import os, sys, runpy; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone');"
        "sys.argv = ['torchgauge', 'report', '/nowhere.json'];"
        "runpy.run_module('torchgauge', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "[folder-removed]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "x" * 300],
        ["compare", "x" * 300, "y" * 300],
        ["snapshot", "x" * 300],
        ["trace", "x" * 300],
        ["gate", "--baseline", "x" * 300, "y" * 300],
        ["history", "add", "x" * 300],
        ["history", "trend", "--alerts", "x" * 300],
        ["profile", f"{'x' * 300}.py:made"],
        ["profile", "~nobody-of-that-name/models.py:made"],
        ["profile", "--model-path", f"latency:1{'x' * 300}"],
        ["count", f"{'x' * 300}.pt"],
        ["run", "x" * 300],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_names_that_no_file_can_have_are_errors_of_ours(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "torchgauge: error:" in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def closed():
    """Yield a folder that the test may not look into, as nobody where it is run by root."""
    place = Path(tempfile.mkdtemp(prefix="torchgauge-test-"))
    (place / "closed").mkdir()
    for name in ("w.safetensors", "run.json", "models.py"):
        (place / "closed" / name).write_bytes(b"{}")
    place.chmod(0o755)
    (place / "closed").chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield place / "closed"
    finally:
        if root:
            os.seteuid(0)
        (place / "closed").chmod(0o755)
        shutil.rmtree(place)


def test_a_folder_that_may_not_be_looked_into_is_an_error_of_ours(closed):
    looks = {
        "file-missing": [
            lambda: load_weights(torch.nn.Linear(4, 4), closed / "w.safetensors"),
            lambda: import_file(closed / "models.py"),
            lambda: trace_files(closed),
            lambda: tg.load(closed),
            lambda: tg.load(closed / "run.json"),
            lambda: tg.compare(closed / "run.json", closed / "run.json"),
            lambda: tg.read_trace(closed / "trace.json"),
        ],
        "output-unwritable": [
            lambda: write_atomically(closed / "out" / "run.json", b""),
            lambda: check_replaceable(closed / "out.json"),
        ],
        "store-unreachable": [
            lambda: Store.open(str(closed / "h.db")),
            lambda: Store.open(str(closed / "h.db"), create=False),
        ],
    }
    for error_id, calls in looks.items():
        for call in calls:
            with pytest.raises(TorchgaugeError) as error:
                call()
            assert error.value.id == error_id
            assert "ermission" in error.value.cause


OPTIONS = [
    (["profile", "x.py:f", "--threshold", "memory:1e308TB"], "[threshold-invalid]"),
    (["profile", "x.py:f", "--threshold", "latency:1e308s"], "[threshold-invalid]"),
    (["profile", "x.py:f", "--threshold", "flops:1e308"], "[threshold-invalid]"),
    (["sweep", "x.py:f", "--memory-limit", "1e308GB"], "[option-invalid]"),
    (["sweep", "x.py:f", "--memory-limit", "1e20GB"], "[option-invalid]"),
    (["trace", "x.json", "--memory-limit", "1e308GB"], "[option-invalid]"),
    (["trace", "x.json", "--to", "chrome", "--from", "1e308s"], "is not a time"),
    (["trace", "x.json", "--to", "chrome", "--until", "1e25s"], "[option-invalid]"),
    (["run", "--memory-budget", "9" * 400 + "GB", "x.py"], "is not a size"),
]


@pytest.mark.parametrize(("arguments", "says"), OPTIONS, ids=lambda one: str(one)[-30:])
def test_amounts_beyond_all_numbers_are_refused(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = main(arguments)
    told = capsys.readouterr().err
    assert code == 2
    assert says in told
    assert "report it" not in told


def test_a_folder_named_tilde_is_not_the_home(tmp_path, monkeypatch, capsys):
    home, folder = tmp_path / "home", tmp_path / "here" / "~"
    home.mkdir()
    folder.mkdir(parents=True)
    (home / "models.py").write_text("raise SystemExit('the one at home')")
    (folder / "models.py").write_text(
        "import torch\n\ndef made():\n    return torch.nn.Linear(2, 1), torch.ones(1, 2)\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder.parent)
    assert main(["count", "./~/models.py:made"]) == 0
    assert "Linear  ./~/models.py:made" in capsys.readouterr().out
