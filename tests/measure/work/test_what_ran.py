"""Where the forward raises, the layers that ran are in the record and on the console."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.errors import ModelError
from torchgauge.records.work.cost import NOT_RUN

MODEL = """
import torch
from torch import nn

def broken():
    inner = nn.Sequential(nn.Linear(8, 4), nn.Flatten())
    return nn.Sequential(nn.Linear(8, 8), inner, nn.Linear(5, 2), nn.ReLU()), torch.ones(3, 8)
"""
LAYERS = {
    "": ("3×8 float32", None),
    "0": ("3×8 float32", "3×8 float32"),
    "1": ("3×8 float32", "3×4 float32"),
    "1.0": ("3×8 float32", "3×4 float32"),
    "1.1": ("3×4 float32", "3×4 float32"),
    "2": ("3×4 float32", None),
}
FLOPS = 2 * 3 * 8 * 8 + 2 * 3 * 8 * 4


def test_the_error_has_the_work_up_to_there():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(5, 2))
    with pytest.raises(ModelError) as raised:
        tg.count_cost(model, torch.ones(3, 8))
    ran = raised.value.ran
    assert (ran.flops, ran.unknown) == (2 * 3 * 8 * 8, {NOT_RUN: 1})
    assert ran.tree.children[1].own.at_least
    assert not ran.tree.children[0].work.at_least


def test_an_error_that_the_model_catches_is_not_where_it_ended():
    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad, self.good, self.last = nn.Linear(5, 2), nn.Linear(8, 8), nn.Linear(7, 2)

        def forward(self, x):
            try:
                return self.bad(x)
            except RuntimeError:
                return self.last(self.good(x))

    with pytest.raises(ModelError) as raised:
        tg.count_cost(Catches(), torch.ones(3, 8))
    (row,) = [row for row in raised.value.ran.rows if row.operator == NOT_RUN]
    assert raised.value.ran.nodes[row.node].path == "last"


@pytest.mark.thorough
@pytest.mark.parametrize("device", [[], ["--device", "cpu"]], ids=["meta first", "cpu"])
def test_count_shows_the_layers_and_writes_the_record(tmp_path, monkeypatch, capsys, device):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("model.py").write_text(MODEL)
    assert main(["count", "model.py:broken", *device, "-o", "count.json"]) == 1
    said = capsys.readouterr()
    assert "[forward-raised]" in said.err
    lines = [line.split() for line in said.out.splitlines()]
    assert ["1", "3×4", "float32", "3×4", "float32", "–"] in lines
    assert ["2", "3×4", "float32", "raised", "unknown"] in lines
    record = json.loads(tmp_path.joinpath("count.json").read_text())
    nodes = {node["path"]: (node["inputs"], node["outputs"]) for node in record["cost"]["nodes"]}
    assert nodes == LAYERS
    assert record["totals"]["flops"] == FLOPS
    assert record["totals"]["unknown_calls"] == 1
    failed = [w["id"] for w in record["cost"]["warnings"] if w["failed"]]
    assert failed == ["forward-raised"]


def test_a_profile_shows_them_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("model.py").write_text(MODEL)
    assert main(["profile", "model.py:broken", "--quick", "-o", "profile.json"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["2", "3×4", "float32", "raised", "unknown"] in lines
    record = json.loads(tmp_path.joinpath("profile.json").read_text())
    nodes = {node["path"]: (node["inputs"], node["outputs"]) for node in record["cost"]["nodes"]}
    assert nodes == LAYERS
