"""`torchgauge count` as a user runs it."""

import csv
import io
import json

import pytest
from tests.support import onnx_files

import torchgauge as tg
from torchgauge.cli.main import main

MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.ones(2, 8)

def frozen():
    model, x = make()
    model[0].requires_grad_(False)
    return model, x

class Again(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)

def again():
    return Again(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), torch.ones(2, 16)

class Reads(nn.Linear):
    def forward(self, x):
        return super().forward(x) * x.sum().item()

def reads():
    return Reads(8, 8), torch.ones(2, 8)

class Broken(nn.Linear):
    def forward(self, x):
        raise ValueError("the model's own words")

def broken():
    return Broken(8, 8), torch.ones(2, 8)
"""
MACS = 2 * (8 * 16 + 16 * 4)


@pytest.fixture
def target(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    return lambda name: f"{tmp_path / 'net.py'}:{name}"


def counted(capsys, *arguments):
    assert main(["count", *arguments]) == 0
    return capsys.readouterr().out


def test_the_record_as_json_is_read_back(target, capsys, tmp_path):
    out = counted(capsys, target("make"), "--json")
    (tmp_path / "count.json").write_text(out)
    record = tg.load(tmp_path / "count.json")
    assert record.cost.macs == MACS
    assert record.size.parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert record.cost.counted_on == "meta"
    assert json.loads(out)["schema"] == "torchgauge.count/1"


def test_the_table_as_csv_adds_up(target, capsys):
    lines = list(csv.DictReader(io.StringIO(counted(capsys, target("make"), "--csv"))))
    assert [line["path"] for line in lines] == ["", "0", "1", "2"]
    assert [int(line["macs"]) for line in lines] == [MACS, 256, 0, 128]
    assert sum(int(line["flops"]) for line in lines[1:]) == int(lines[0]["flops"])
    assert sum(float(line["share"]) for line in lines[1:]) == pytest.approx(1.0)


@pytest.mark.parametrize("by", ["operator", "type"])
def test_the_lines_are_what_was_asked_for(target, capsys, by):
    lines = list(csv.DictReader(io.StringIO(counted(capsys, target("make"), "--csv", "--by", by))))
    names = {line["name"]: int(line["macs"]) for line in lines}
    if by == "type":
        assert names["Linear"] == MACS
        assert names["ReLU"] == 0
    else:
        assert names["aten::addmm"] == MACS


def test_the_report_fits_80_columns_and_says_what_it_is(target, capsys):
    out = counted(capsys, target("make"), "--depth", "0")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert "100.0 %  of operator calls have a formula" in out
    assert "1 MAC = 2 FLOP" in out
    assert "nothing computed" in out
    assert out.count("Linear") == 0  # below the depth


def test_backward_counts_more(target, capsys):
    once = json.loads(counted(capsys, target("make"), "--json"))
    both = json.loads(counted(capsys, target("make"), "--json", "--backward"))
    phases = {row["phase"] for row in both["cost"]["rows"]}
    assert phases == {"forward", "backward"}
    assert {row["phase"] for row in once["cost"]["rows"]} == {"forward"}


@pytest.mark.thorough
def test_code_that_reads_values_is_counted_on_real_tensors_and_said(target, capsys):
    out = counted(capsys, target("reads"))
    assert "counted-on-cpu" in out
    assert "cpu tensors" in out


@pytest.mark.thorough
def test_a_model_that_raises_fails_with_its_words(target, capsys):
    assert main(["count", target("broken")]) == 1
    assert "the model's own words" in capsys.readouterr().err


def test_meta_alone_is_kept_to_where_it_is_asked_for(target, capsys):
    assert main(["count", target("reads"), "--device", "meta"]) == 1
    assert "[forward-raised]" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_memory_of_a_training_step_is_part_of_it(target, capsys, device):
    out = counted(capsys, target("make"), "--json", "--backward", "--device", device)
    training = json.loads(out)["training"]
    weights = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert training["parameters"] == {"bytes": weights, "how": "counted", "by_dtype": {}}
    assert training["gradients"]["by_dtype"] == {"float32": weights}
    assert training["inputs"]["bytes"] == 2 * 8 * 4
    # What ReLU and the last layer return, and their mean, stacked and summed.
    assert training["activations"]["bytes"] == pytest.approx(2 * 16 * 4 + 2 * 4 * 4 + 4, abs=8)
    adamw = training["optimizers"]["adamw"]
    assert adamw["states"]["bytes"] == 2 * weights + 4 * 4
    assert adamw["total"] == sum(adamw["at_peak"].values())
    # Temporaries: two like the first matrix; or, of the second, two and what the first left.
    assert (adamw["moment"], adamw["at_peak"]["workspace"]) == ("optimizer", 2 * 4 * 8 * 16)
    assert adamw["at_peak"]["gradients"] == weights
    assert (training["optimizer"], adamw["how"]) == ("adamw", "estimated")


def test_a_step_under_autocast_keeps_its_parameters(target, capsys):
    asked = ("--backward", "--json", "--loss", "mean", "--autocast")
    training = json.loads(counted(capsys, target("make"), *asked, "bf16"))["training"]
    weights = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert training["gradients"]["by_dtype"] == {"float32": weights}
    assert training["parameters"]["bytes"] == weights
    # What its products hold inside is unknown in half precision.
    assert training["optimizers"]["sgd"].get("total") is None
    assert training["optimizers"]["sgd"]["lower_bound"] >= 2 * weights


@pytest.mark.slow
def test_a_step_that_reads_values_is_at_least_and_never_may_fit(target, capsys):
    asked = ("--backward", "--on", "h100,l4")
    record = json.loads(counted(capsys, target("reads"), *asked, "--json"))
    assert {one["total"] for one in record["training"]["optimizers"].values()} == {None}
    assert record["training"]["optimizers"]["adamw"]["lower_bound"] > 0
    assert {one["fits"] for one in record["other_devices"]} == {None}
    assert "training-memory-at-least" in [one["id"] for one in record["warnings"]]
    text = counted(capsys, target("reads"), *asked)
    assert "at least" in text
    assert "may fit" not in text


def test_what_is_frozen_has_neither_gradient_nor_state(target, capsys):
    out = counted(capsys, target("frozen"), "--json", "--backward")
    training = json.loads(out)["training"]
    assert training["parameters"]["bytes"] == 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert training["gradients"]["bytes"] == 4 * (16 * 4 + 4)
    assert training["optimizers"]["sgd-momentum"]["states"]["bytes"] == 4 * (16 * 4 + 4)


def test_without_backward_there_is_no_training_step(target, capsys):
    assert json.loads(counted(capsys, target("make"), "--json"))["training"] is None


def test_the_optimizer_is_the_one_asked_for_elsewhere_too(target, capsys):
    asked = ("--backward", "--on", "l4", "--optimizer", "Adafactor")
    record = json.loads(counted(capsys, target("make"), *asked, "--json"))
    training = record["training"]
    assert record["other_devices"][0]["memory"] == training["optimizers"]["adafactor"]["total"]
    assert "Elsewhere, training with adafactor" in counted(capsys, target("make"), *asked)


def test_an_optimizer_without_backward_or_an_unknown_one_is_bad_input(target, capsys):
    for option in (["--optimizer", "sgd"], ["--loss", "mean"], ["--autocast", "bf16"]):
        assert main(["count", target("make"), *option]) == 2
        assert "[option-conflict]" in capsys.readouterr().err
    assert main(["count", target("make"), "--backward", "--optimizer", "sdg"]) == 2
    assert "[optimizer-unknown]" in capsys.readouterr().err


def test_the_totals_are_in_the_json(target, capsys):
    totals = json.loads(counted(capsys, target("make"), "--json"))["totals"]
    assert totals["macs"] == MACS
    assert totals["flops"] == 2 * MACS + 2 * 16
    assert totals["unknown_calls"] == 0


def test_recomputation_is_executed_and_not_the_models(target, capsys):
    totals = json.loads(counted(capsys, target("again"), "--json", "--backward"))["totals"]
    product, elements = 2 * 2 * 16 * 16, 2 * 16
    # Forward 2 and backward 3 products; ReLU, its backward, two sums for the biases.
    assert totals["flops"] == 5 * product + 4 * elements
    # The second layer's inputs come back with the first layer and ReLU.
    assert totals["executed_flops"] == totals["flops"] + product + elements
    assert "  executed  " in counted(capsys, target("again"), "--backward")
    assert "  executed  " not in counted(capsys, target("make"), "--backward")


def test_other_devices_are_estimated(target, capsys):
    out = counted(capsys, target("make"), "--on", "h100,l4")
    assert "Elsewhere  estimated" in out
    assert "H100" in out
    record = json.loads(counted(capsys, target("make"), "--on", "l4", "--json"))
    (there,) = record["other_devices"]
    assert there["how"] == "estimated"
    assert 0 < there["latency"] < 1e-3


def test_an_unknown_device_is_bad_input(target, capsys):
    assert main(["count", target("make"), "--on", "h1000"]) == 2
    assert "[device-unknown]" in capsys.readouterr().err


def test_a_depth_must_be_a_number(target):
    assert main(["count", target("make"), "--depth", "deep"]) == 2


@pytest.mark.thorough
def test_an_onnx_file_counts_alike_for_every_runtime_and_provider(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "small.onnx"
    onnx.save(onnx_files.convolutional(), path)
    tables = {
        counted(capsys, str(path), "--csv", "--by", "operator", *options)
        for options in ((), ("--runtime", "openvino"), ("--provider", "cuda"))
    }
    assert len(tables) == 1
    assert "Conv" in tables.pop()


@pytest.mark.parametrize("verb", ["count", "profile", "advise", "compare", "sweep", "load"])
def test_no_torch_model_is_said_to_run_in_another_runtime(target, capsys, verb):
    targets = [target("make")] * (2 if verb == "compare" else 1)
    assert main([verb, *targets, "--provider", "cuda"]) == 2
    assert "runtime-unsupported" in capsys.readouterr().err
