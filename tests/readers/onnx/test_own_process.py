"""The process that reads an ONNX file: its limits, and its end without an answer."""

from __future__ import annotations

import sys

import pytest
from tests.support import onnx_files

from torchgauge.errors import InputError
from torchgauge.readers.onnx import onnx_file


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_files.convolutional().SerializeToString())
    return path


def test_the_caller_imports_no_onnx(path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnx"]:
        monkeypatch.delitem(sys.modules, name)
    assert len(onnx_file.read_graph(path).nodes) == 6
    assert "onnx" not in sys.modules


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("import os; os.kill(os.getpid(), 11)", "it crashed"),
        ("raise SystemExit(3)", "it ended with code 3"),
        ("print('no answer')", "it ended with code 0"),
        ("raise ValueError('\\x1b[31mbad')", "bad"),
    ],
)
def test_its_end_is_an_error(path, tmp_path, monkeypatch, script, cause):
    child = tmp_path / "child.py"
    child.write_text(script)
    monkeypatch.setattr("torchgauge.workers.CHILD", child)
    with pytest.raises(InputError) as raised:
        onnx_file.read_graph(path)
    assert raised.value.id == "onnx-unreadable"
    assert cause in raised.value.cause
    assert "\x1b" not in str(raised.value)


def test_it_is_held_to_its_time(path, tmp_path, monkeypatch):
    child = tmp_path / "child.py"
    child.write_text("import time; time.sleep(60)")
    monkeypatch.setattr("torchgauge.workers.CHILD", child)
    monkeypatch.setattr(onnx_file, "TIME_LIMIT", 0.1)
    with pytest.raises(InputError) as raised:
        onnx_file.read_graph(path)
    assert "took more than" in raised.value.cause


@pytest.mark.thorough
def test_it_is_held_to_its_memory(path, monkeypatch):
    monkeypatch.setattr(onnx_file, "MEMORY_BASE", 20 << 20)
    with pytest.raises(InputError) as raised:
        onnx_file.read_graph(path)
    assert raised.value.id in ("onnx-too-large", "onnx-unreadable")
