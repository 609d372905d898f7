"""Saved programs: refused without --trust, measured in a process of their own with it."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.targets.loaders import exported
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

QUICK = ("--iterations", "3", "--warmup", "1", "--json")
FILES = ("program.pt2", "script.pt", "script.ts")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    example = torch.ones(2, 4)
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(network(), (example,), dynamic_shapes=(batch,))
    torch.export.save(program, folder / "program.pt2")
    for name in ("script.pt", "script.ts"):
        torch.jit.save(torch.jit.trace(network(), example), folder / name)
    torch.save(network().state_dict(), folder / "state.pt")
    for name in ("garbage.pt2", "garbage.ts", "garbage.pt"):
        (folder / name).write_bytes(b"PK\x03\x04 nothing")
    return folder


def refused(request: TargetRequest) -> InputError:
    with pytest.raises(InputError) as caught:
        load(request)
    return caught.value


@pytest.mark.parametrize("name", FILES)
def test_without_trust_nothing_of_the_file_is_loaded(name, folder, monkeypatch):
    def loaded(*_, **__):
        pytest.fail("the file was loaded")

    monkeypatch.setattr(torch.export, "load", loaded)
    monkeypatch.setattr(torch.jit, "load", loaded)
    monkeypatch.setattr(torch, "load", loaded)
    error = refused(TargetRequest(str(folder / name)))
    assert error.id == "untrusted-file"
    assert "--trust" in error.remedy


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_with_trust_it_is_measured_like_the_module_it_was(name, folder, capsys, monkeypatch):
    monkeypatch.setattr(torch.export, "load", lambda _: pytest.fail("loaded in this process"))
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("loaded in this process"))
    given = ("--input", "2x4") if "script" in name else ()
    assert main(["profile", str(folder / name), "--trust", *given, *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    size = tg.measure_size(network())
    assert record["target"]["kind"] == ("exported" if "program" in name else "torchscript")
    assert record["size"]["parameters"] == size.parameters
    assert record["size"]["buffer_bytes"] == size.buffer_bytes
    assert record["target"]["batch"] == 2
    memory = record["memory"]
    assert memory["parameters"] == size.parameter_bytes
    assert memory["inputs"] == 2 * 4 * 4
    assert memory["peak"] == tg.measure_memory(network(), torch.ones(2, 4)).peak
    assert memory["warnings"] == []
    assert {done["process"] for done in record["passes"]} == {"fresh"}
    assert len(record["latency"]["processes"][0]["samples"]) == 4


@pytest.mark.slow
def test_with_trust_it_is_counted_in_a_process_of_its_own(folder, capsys, monkeypatch):
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("loaded in this process"))
    script = str(folder / next(name for name in FILES if "script" in name))
    assert main(["count", script, "--trust", "--input", "2x4", "--json"]) == 0
    count, truth = json.loads(capsys.readouterr().out), tg.count_cost(network(), torch.ones(2, 4))
    assert count["target"]["device"] == "meta"
    assert count["size"]["parameters"] == tg.measure_size(network()).parameters
    assert count["totals"]["macs"] == truth.macs
    assert len(count["cost"]["nodes"]) == len(truth.nodes)


@pytest.mark.slow
def test_an_exported_program_takes_another_batch_and_processes_of_its_own(folder, capsys):
    arguments = [str(folder / "program.pt2"), "--trust", "--batch", "6", "--processes", "2"]
    assert main(["profile", *arguments, *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["target"]["inputs"][0]["shape"] == [6, 4]
    assert len(record["latency"]["processes"]) == 2


def test_its_outputs_are_those_of_the_module_it_was(folder):
    x = torch.randn(2, 4)
    for name in FILES:
        request = TargetRequest(str(folder / name), inputs=("2x4",), trust=True)
        torch.testing.assert_close(load(request).model(x), network()(x))


@pytest.mark.parametrize(
    ("name", "kind"), [("program.pt2", "exported"), ("script.pt", "torchscript")]
)
def test_a_program_is_known_by_what_it_holds_not_by_its_name(name, kind, folder, tmp_path):
    latest = str(shutil.copy(folder / name, tmp_path / "latest"))
    assert refused(TargetRequest(latest)).id == "untrusted-file"
    assert load(TargetRequest(latest, inputs=("2x4",), trust=True)).kind == kind
    shutil.copy(folder / "state.pt", latest)
    assert refused(TargetRequest(latest, trust=True)).id == "target-unknown"


def test_a_script_brings_no_inputs(folder):
    error = refused(TargetRequest(str(folder / "script.pt"), trust=True))
    assert error.id == "input-missing"
    assert "Tensor input" in error.cause


@pytest.mark.slow
@pytest.mark.parametrize("name", ["garbage.pt2", "garbage.ts"])
def test_what_is_no_program_is_said_from_the_child(name, folder, capsys):
    if name.endswith(".ts"):
        assert refused(TargetRequest(str(folder / name))).id == "target-not-supported"
        return
    assert main(["profile", str(folder / name), "--trust", *QUICK]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["id"] == "program-unreadable"
    assert error["cause"]


@pytest.mark.parametrize(
    ("member", "kind"),
    [
        ("models/code/__torch__/torchvision/models/resnet.py", "torchscript"),
        ("code/models/model.json", "exported"),
        ("serialized_exported_program.json", "exported"),
        ("models/data/aotinductor/model/a.wrapper.so", "aotinductor"),
        ("models/data.pkl", None),
    ],
)
def test_a_kind_is_known_by_where_its_members_are(member, kind, tmp_path, monkeypatch):
    path, kinds = tmp_path / "saved", []
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"")
    loaders = {
        name: lambda _path, _device, name=name: kinds.append(name) for name in exported._LOADERS
    }
    monkeypatch.setattr(exported, "_LOADERS", loaders)
    assert refused(TargetRequest(str(path), trust=True)).id == (
        "target-unknown" if kind is None else "program-unreadable"
    )
    assert kinds == ([] if kind is None else [kind])


@pytest.mark.parametrize("name", ["state.pt", "garbage.pt"])
def test_a_checkpoint_is_no_program(name, folder):
    error = refused(TargetRequest(str(folder / name), trust=True))
    assert error.id == "target-not-supported"
    assert "--weights" in error.remedy


@pytest.mark.thorough
def test_the_module_of_an_exported_program_is_measured_from_python():
    program = torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(3, 4),))
    profile = tg.profile(program.module(), torch.ones(3, 4), warmup=1, iterations=3)
    assert profile.complete, profile.warnings
    assert profile.size.parameters == 10


def test_a_package_of_aotinductor_is_run_as_a_function(tmp_path, monkeypatch):
    path = tmp_path / "compiled.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("compiled/data/aotinductor/model/a.wrapper.so", b"\x7fELF")
        archive.writestr("compiled/archive_format", "pt2")
    assert refused(TargetRequest(str(path))).id == "untrusted-file"
    inductor = types.SimpleNamespace(aoti_load_package=lambda name: lambda x: (name, x))
    monkeypatch.setitem(sys.modules, "torch._inductor", inductor)
    target = load(TargetRequest(str(path), inputs=("2x4",), trust=True))
    assert (target.kind, target.batch) == ("aotinductor", 2)
    assert target.model(1) == (str(path), 1)


@pytest.mark.slow
def test_a_real_package_has_latency_memory_and_size_and_says_what_is_unknown(tmp_path, capsys):
    path, example = tmp_path / "compiled.pt2", torch.ones(2, 4)
    program = torch.export.export(network(), (example,))
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    arguments = [str(path), "--trust", "--input", "2x4"]
    assert main(["profile", *arguments, *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["target"]["kind"] == "aotinductor"
    assert record["latency"]["processes"][0]["samples"]
    assert record["size"] is None
    assert record["memory"]["peak"] >= 2 * 4 * 4 + 2 * 2 * 4
    warnings = {warning["id"] for warning in record["warnings"]}
    assert "not-a-module" in warnings


@pytest.mark.slow
def test_a_library_whose_classes_a_program_returns_is_imported_for_it(tmp_path, capsys):
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.BertConfig(num_attention_heads=2, vocab_size=50, **sizes)
    path = tmp_path / "bert.pt2"
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    torch.export.save(torch.export.export(model, (torch.ones(1, 8, dtype=torch.int64),)), path)
    assert main(["profile", str(path), "--trust", "--detail", "layers", *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["size"]["parameters"] == tg.measure_size(model).parameters


def test_why_a_program_cannot_be_loaded_is_said_as_torch_logged_it(folder, monkeypatch):
    def fails(_):
        try:
            raise RuntimeError("of a newer opset")
        except RuntimeError:
            logging.getLogger("torch.export").warning("while reading", exc_info=True)
        raise RuntimeError("check the warnings above")

    monkeypatch.setattr(torch.export, "load", fails)
    error = refused(TargetRequest(str(folder / "program.pt2"), trust=True))
    assert error.cause == "of a newer opset"
