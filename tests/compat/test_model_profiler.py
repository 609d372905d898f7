"""ModelProfiler as its users write it: each test is a snippet of theirs, and what it must say."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import torch
from tests.support import page_data
from torch import nn

import torchgauge as tg
from torchgauge import ModelProfiler, detect_regressions, load_baseline

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(16, 48), nn.Linear(48, 16))
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, input_ids):
        return self.blocks(self.embedding(input_ids))


ATTENTION, MLP = 2 * 2 * 16 * 48, 2 * 2 * 16 * 64
input_data = {"input_ids": torch.zeros(4, 8, dtype=torch.int64)}


@pytest.fixture(scope="module")
def profiler():
    profiler = ModelProfiler(model_path=Words(), device="cpu", precision="fp32")
    profiler.profile(input_data, num_runs=20, warmup_runs=2)
    return profiler


def test_results(profiler):
    results = profiler.results
    latency, record = results["latency"], results.profile
    for name in ("mean", "p50", "p95", "p99", "max", "min", "std", "median"):
        assert latency[name] == pytest.approx(getattr(record.latency, name) * 1e3)
    assert len(record.latency.samples) == 20
    assert results["throughput"]["samples_per_second"] == pytest.approx(4e3 / latency["median"])
    assert results["throughput"]["tokens_per_second"] == pytest.approx(32e3 / latency["median"])
    assert results["throughput"]["requests_per_second"] == pytest.approx(1e3 / latency["median"])
    assert results["throughput"]["images_per_second"] is None
    assert results["memory"]["peak"] == record.memory.peak > 0
    assert results["memory"]["average"] == record.memory.average
    assert results["memory"]["per_sample"] == record.memory.per_sample
    assert results["memory"]["fragmentation"] is None  # the CPU's allocator does not tell
    model = results["model"]
    assert model["parameters"] == 50 * 16 + 2 * (16 * 48 * 2 + 64 + 16 * 64 * 2 + 80)
    assert model["flops"] == 32 * 2 * (ATTENTION + MLP + 64 + 2 * 16)
    assert model["size"] == 4 * model["parameters"]
    assert model["disk_size"] > 0
    assert model["activation_memory"] > 0
    assert results["system"]["cpu_cores"] > 0
    for name in ("disk_read", "disk_write", "network_sent", "network_received", "gpu_utilization"):
        assert name in results["system"]
    assert "layers" not in results
    assert str(results) == str(record)


def test_results_are_a_mapping(profiler):
    results = profiler.results
    assert list(results) == ["latency", "throughput", "memory", "model", "system"]
    assert dict(results)["latency"] is results["latency"]
    assert results.get("nothing") is None
    with pytest.raises(KeyError):
        results["nothing"]


@pytest.mark.slow
def test_detailed_analysis():
    profiler = ModelProfiler(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    results = profiler.profile(torch.randn(2, 8), num_runs=5, warmup_runs=1, detailed_analysis=True)
    assert [row["path"] for row in results["layers"]] == ["", "0", "1"]
    whole, *layers = results["layers"]
    host = results.profile.tree.root.host_time
    assert whole["host_time_ms"] == pytest.approx(1e3 * host)
    assert sum(row["host_time_ms"] for row in layers) <= whole["host_time_ms"]
    addmm = next(row for row in results["operators"] if row["Name"] == "aten::addmm")
    assert addmm["Self CPU ms"] == pytest.approx(addmm["Self CPU %"] / 100 * 1e3 * host)
    assert not {"host_time", "Self CPU", "CPU total"} & {*whole, *addmm}


@pytest.mark.slow
def test_benchmark(profiler):
    found = profiler.benchmark(
        [
            {"batch_size": 1, "precision": "fp32"},
            {"batch_size": 6, "precision": "bf16"},
            {"batch_size": 2, "precision": "fp8"},
            {"batch_size": 0},
            {"size": 3},
            3,
            {"batch_size": 2},
        ],
        num_runs=3,
        warmup_runs=1,
    )
    assert [one.error is None for one in found] == [True, True, *[False] * 4, True]
    assert [one.profile.target.batch for one in found if one.profile] == [1, 6, 2]
    assert [one.profile.target.precision for one in found if one.profile] == [
        "fp32",
        "bf16",
        "fp32",
    ]
    assert found[1]["configuration"] == {"batch_size": 6, "precision": "bf16"}
    assert found[1]["error"] is None
    assert found[1]["latency"]["mean"] > 0
    assert "fp8" in found[2]["error"]
    assert "latency" not in found[2]
    assert profiler.model.precision == "fp32"


@pytest.mark.thorough
def test_a_batch_is_made_of_the_samples_in_turn():
    seen = []

    class Noting(nn.Module):
        def forward(self, x):
            seen.append(x.tolist())
            return x

    given = torch.tensor([[1.0], [2.0]])
    ModelProfiler(Noting()).benchmark([{"batch_size": 3}], given, num_runs=1, warmup_runs=0)
    assert seen
    assert all(one == [[1.0], [2.0], [1.0]] for one in seen)


@pytest.mark.thorough
def test_a_configuration_whose_model_raises_is_a_result():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(2, 8)

    found = ModelProfiler(Fixed()).benchmark(
        [{"batch_size": 3}, {"batch_size": 2}], torch.ones(2, 8), num_runs=2, warmup_runs=0
    )
    assert "raised RuntimeError" in found[0]["error"]
    assert found[1].error is None


def test_profile_layers(profiler):
    layers = profiler.profile_layers(input_data, layer_names=["attention", "mlp", "embedding"])
    assert layers["attention"]["layers"] == ["blocks.0.attention", "blocks.1.attention"]
    assert layers["attention"]["flops"] == 2 * 32 * ATTENTION
    assert layers["mlp"]["flops"] == 2 * 32 * (MLP + 64)
    assert layers["embedding"]["parameters"] == 800
    shares = [figures["share"] for figures in layers.values()]
    assert all(0 < share < 1 for share in shares)
    assert sum(shares) <= 1 + 1e-9
    assert all(figures["latency"] > 0 for figures in layers.values())


@pytest.mark.slow
def test_layers_by_path_pattern_and_class(profiler):
    names = ["blocks.1", "*.0.mlp", "gelu", "conv"]
    layers = profiler.profile_layers(layer_names=names)
    assert layers["blocks.1"]["layers"] == ["blocks.1"]
    assert layers["*.0.mlp"]["layers"] == ["blocks.0.mlp"]
    assert layers["gelu"]["layers"] == ["blocks.0.mlp.1", "blocks.1.mlp.1"]
    assert layers["conv"]["layers"] == []
    assert layers["conv"]["latency"] is layers["conv"]["flops"] is None
    with pytest.raises(tg.InputError, match="No layer is named like 'conv'") as error:
        profiler.profile_layers(layer_names=["conv"])
    assert "blocks.0.attention" in error.value.cause


@pytest.mark.thorough
def test_memory_profile(profiler):
    found = profiler.memory_profile(
        track_allocations=True, track_deallocations=True, memory_snapshots=True
    )
    assert (
        found["peak"]
        == sum(found["parts"].values())
        == max(snapshot["bytes"] for snapshot in found["snapshots"])
    )
    rises, falls = found["allocations"]["bytes"], found["deallocations"]["bytes"]
    assert found["snapshots"][0]["bytes"] + rises - falls == found["snapshots"][-1]["bytes"]
    less = profiler.memory_profile(track_deallocations=False, memory_snapshots=False)
    assert "allocations" in less
    assert "deallocations" not in less
    assert "snapshots" not in less


@needs_no_gpu
def test_a_gpu_that_is_not_there_is_said():
    for ask in (
        lambda: ModelProfiler(Words(), device="cuda"),
        lambda: ModelProfiler(Words()).gpu_profile(
            track_kernels=True, track_memory_transfers=True, profile_nvtx=True
        ),
    ):
        with pytest.raises(tg.InputError, match="not available") as error:
            ask()
        assert error.value.id == "device-absent"
        assert error.value.remedy


def test_html_report(profiler, tmp_path):
    path = tmp_path / "report.html"
    profiler.generate_html_report(str(path), include_graphs=True, include_details=True)
    whole = page_data.data(path.read_text())["parts"]
    assert {"overview", "latency", "memory", "method", "environment"} <= set(whole)
    profiler.generate_html_report(path, include_graphs=False, include_details=False)
    assert set(page_data.data(path.read_text())["parts"]) == {"overview"}


@pytest.mark.thorough
def test_exports_and_regressions(profiler, tmp_path):
    path = profiler.export_json(tmp_path / "baseline.json")
    baseline = load_baseline(path)
    assert baseline == profiler.results.profile
    found = csv.DictReader(io.StringIO(profiler.export_csv(tmp_path / "run.csv").read_text()))
    assert int(next(found)["parameters"]) == profiler.results["model"]["parameters"]
    same = detect_regressions(baseline, profiler.results)
    assert not same
    larger = Words()
    larger.blocks.append(Block())
    current = ModelProfiler(larger).profile(input_data, num_runs=5, warmup_runs=1)
    worse = detect_regressions(baseline, current)
    assert worse
    assert "params got worse" in str(worse)
    assert detect_regressions(profiler.results, current)


def test_before_anything_is_measured(tmp_path):
    for ask in ("generate_html_report", "export_json", "export_csv"):
        with pytest.raises(tg.InputError, match="Nothing has been measured"):
            getattr(ModelProfiler(Words()), ask)(tmp_path / "x")


def test_a_model_that_raises():
    with pytest.raises(tg.MeasurementError, match="raised RuntimeError"):
        ModelProfiler(nn.Linear(3, 4)).profile(torch.randn(2, 5))
    with pytest.raises(tg.MeasurementError, match="raised ZeroDivisionError"):
        ModelProfiler(lambda x: 1 / 0).profile(np.ones(3))


def test_end_to_end():
    profiler = ModelProfiler(nn.Linear(8, 4))
    results = profiler.profile(
        [[1.0] * 8] * 2,
        num_runs=5,
        warmup_runs=1,
        preprocess=torch.tensor,
        postprocess=lambda outputs: outputs.argmax(-1).tolist(),
    )
    latency = results["latency"]
    assert list(latency["stages"]) == ["preprocess", "model", "postprocess"]
    assert latency["end_to_end"]["median"] > latency["stages"]["model"] > 0
    assert latency["mean"] > 0


FACTORY = """
import torch
from torch import nn

def alone():
    return nn.Sequential(nn.Linear(8, 4))

def complete():
    return alone(), torch.ones(3, 8)
"""


@pytest.mark.slow
def test_targets_by_name(tmp_path):
    (tmp_path / "model.py").write_text(FACTORY)
    complete = ModelProfiler(f"{tmp_path}/model.py:complete").profile(num_runs=2, warmup_runs=0)
    assert complete["throughput"]["batch_size"] == 3
    assert complete.profile.target.spec.endswith("model.py:complete")
    alone = ModelProfiler(f"{tmp_path}/model.py:alone", device="cpu")
    with pytest.raises(tg.InputError) as error:
        alone.profile()
    assert error.value.id == "input-missing"
    for given in (torch.ones(5, 8), np.ones((5, 8)), "5x8", ["5x8"]):
        results = alone.profile(given, num_runs=2, warmup_runs=0)
        assert results["model"]["flops"] == 5 * 64
    with pytest.raises(tg.InputError):
        ModelProfiler(tmp_path / "nothing.pt2")


@pytest.mark.thorough
def test_its_own_path_in_place_of_inputs_means_the_targets_own(tmp_path):
    (tmp_path / "model.py").write_text(FACTORY)
    (tmp_path / "other.pt2").touch()
    model_path = f"{tmp_path}/model.py:complete"
    profiler = ModelProfiler(model_path)
    assert profiler.profile(model_path, num_runs=2)["throughput"]["batch_size"] == 3
    with pytest.raises(tg.InputError, match=r"other\.pt2") as error:
        profiler.profile(tmp_path / "other.pt2")
    assert error.value.id == "other-model"
    with pytest.raises(tg.InputError) as error:
        profiler.profile("torchvision:resnet18")
    assert "--input" not in str(error.value)
    alone = f"{tmp_path}/model.py:alone"
    with pytest.raises(tg.InputError) as error:
        ModelProfiler(alone).profile(alone)
    assert error.value.id == "input-missing"
    assert "--input" not in str(error.value)
    with pytest.raises(tg.InputError, match="holds a Linear"):
        ModelProfiler(nn.Linear(2, 2)).profile(str(tmp_path))


@pytest.mark.thorough
def test_a_folder_by_another_way_to_write_it(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Linear(8, 4))
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (torch.ones(3, 8),)), path)
    monkeypatch.chdir(tmp_path)
    results = ModelProfiler(path, trust=True).profile("model.pt2", num_runs=2, warmup_runs=0)
    assert results["throughput"]["batch_size"] == 3


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, input_ids, attention_mask=None):
        return self.table(input_ids)


@pytest.mark.slow
def test_a_positional_input_has_the_name_that_the_signature_gives_it():
    profiler = ModelProfiler(Tokens())
    ids = torch.randint(0, 50, (2, 16))
    for given in (ids, (ids,), {"input_ids": ids}):
        throughput = profiler.profile(given, num_runs=2, warmup_runs=0)["throughput"]
        assert throughput["tokens_per_second"] == pytest.approx(
            32 * throughput["requests_per_second"]
        )
    other = ModelProfiler(nn.Embedding(50, 4)).profile(ids, num_runs=2, warmup_runs=0)
    assert other["throughput"]["tokens_per_second"] is None


@pytest.mark.slow
def test_a_folder_that_save_pretrained_wrote(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    profiler = ModelProfiler(str(tmp_path), device="cpu", precision="bf16")
    results = profiler.profile(input_data, num_runs=2, warmup_runs=0)
    assert results["throughput"]["tokens_per_second"] > 0
    assert results.profile.target.precision == "bf16"
    assert results.profile.size.disk_source != "state dict"
    layers = profiler.profile_layers(input_data, ["attention", "intermediate", "embeddings"])
    assert all(figures["layers"] for figures in layers.values())


def test_a_program_is_loaded_where_it_is_trusted(tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.script(nn.Linear(8, 4)).save(str(path))
    with pytest.raises(tg.InputError, match="trust=True"):
        ModelProfiler(path)
    results = ModelProfiler(path, trust=True).profile(torch.ones(3, 8), num_runs=2, warmup_runs=0)
    assert results["model"]["parameters"] == 36


class Estimator:
    def __init__(self):
        self.coef_ = np.ones((3, 20))

    def predict(self, x):
        return (x @ self.coef_.T).argmax(1)


@pytest.mark.thorough
def test_an_estimator_beside_torch(tmp_path):
    profiler = ModelProfiler(Estimator())
    results = profiler.profile(np.ones((10, 20)), num_runs=20, warmup_runs=2)
    assert results["throughput"]["samples_per_second"] == pytest.approx(
        1e4 / results["latency"]["median"]
    )
    assert results["memory"]["peak"] >= (60 + 200 + 30) * 8
    assert results["memory"]["average"] is None
    assert results["model"]["flops"] == 10 * (2 * 60 + 3)
    assert results["system"]["cpu_cores"] > 0
    assert load_baseline(profiler.export_json(tmp_path / "e.json")) == results.profile
    assert (
        "memory"
        not in page_data.data(profiler.generate_html_report(tmp_path / "e.html").read_text())[
            "parts"
        ]
    )
    several = profiler.benchmark([{"batch_size": 1}, {"precision": "fp16"}], num_runs=2)
    assert several[0]["throughput"]["batch_size"] == 1
    assert "no device and no precision" in several[1]["error"]
    with pytest.raises(tg.InputError):
        profiler.profile_layers(layer_names=["coef"])
