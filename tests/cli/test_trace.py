"""`--trace`: the file that Perfetto opens, from the command line and from Python."""

import json

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.trace.kineto import read_events

MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU()), torch.ones(2, 8)
"""
QUICK = ("--iterations", "3", "--warmup", "1")


@pytest.fixture
def target(tmp_path):
    (tmp_path / "mymodel.py").write_text(MODEL)
    return f"{tmp_path}/mymodel.py:make"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("torchgauge.measure.plan.measure_system", lambda *_: None)  # takes 1 s


@pytest.fixture
def unrun(monkeypatch):
    monkeypatch.setattr("torchgauge.measure.plan.profile", lambda *_: pytest.fail("it measured"))


def test_the_trace_is_written_beside_the_summary(target, tmp_path, capsys):
    path = tmp_path / "new folder" / "out.json"
    assert main(["profile", target, *QUICK, "--train", "--loss", "mean", "--trace", str(path)]) == 0
    assert f"Wrote {path}" in capsys.readouterr().err
    events = json.loads(path.read_text())["traceEvents"]
    assert {"Sequential", "0", "1"} <= {e["name"] for e in events if e["ph"] == "X"}
    assert "AddmmBackward0" in {e["name"] for e in events}


def test_python_writes_it_too_packed(tmp_path):
    path = tmp_path / "out.json.gz"
    profile = tg.profile(nn.ReLU(), torch.ones(4), iterations=3, warmup=1, trace=path)
    assert profile.complete
    found = read_events(path)
    assert "aten::relu" in found.name.values


def test_a_trace_that_could_not_be_written_leaves_the_profile(
    tmp_path, monkeypatch, capsys, target
):
    path = tmp_path / "out.json"
    full = OSError(28, "No space left on device")

    def fail(_recorded, to):
        from torchgauge.files import _unwritable

        raise _unwritable(to, full)

    monkeypatch.setattr("torchgauge.report.chrome_trace.write", fail)
    assert main(["profile", target, *QUICK, "--trace", str(path), "--json"]) == 1
    shown = capsys.readouterr()
    assert "Wrote" not in shown.err
    record = json.loads(shown.out)
    assert record["tree"] is not None
    assert [w["id"] for w in record["warnings"] if w.get("failed")] == ["output-unwritable"]


def test_where_it_cannot_be_written_nothing_is_measured(target, tmp_path, capsys, unrun):
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "out.json", tmp_path / "folder.json"):
        (tmp_path / "folder.json").mkdir(exist_ok=True)
        assert main(["profile", target, "--trace", str(path)]) == 2
        assert "output-unwritable" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.json", "mymodel.py", "taken"]


def test_names_and_details_that_make_no_trace_are_refused(target, tmp_path, unrun):
    with pytest.raises(tg.InputError) as caught:
        tg.profile(nn.ReLU(), torch.ones(4), trace=tmp_path / "out.txt")
    assert caught.value.id == "trace-name"
    with pytest.raises(tg.InputError) as caught:
        tg.profile(nn.ReLU(), torch.ones(4), trace=tmp_path / "out.json", detail="layers")
    assert caught.value.id == "option-conflict"
