"""`.pte` as a target: counted without trust or ExecuTorch, run with both."""

import importlib.util
import json
import sys

import pytest
import torch
from tests.support import executorch_files

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.errors import InputError, MissingExtraError
from torchgauge.targets.loaders.load import load
from torchgauge.targets.quantization import Variant
from torchgauge.targets.runtimes import runtime_model as executorch_program
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
from torchgauge.targets.target import TargetRequest

PORTABLE, DYNAMIC = (str(executorch_files.path(name)) for name in ("portable.pte", "dynamic.pte"))
needs_executorch = pytest.mark.skipif(
    importlib.util.find_spec("executorch") is None, reason="needs the extra executorch"
)


def refused(spec: str, **fields) -> InputError:
    with pytest.raises(InputError) as caught:
        load(TargetRequest(spec, **fields))
    return caught.value


def test_without_trust_a_program_is_not_run(monkeypatch):
    monkeypatch.setattr(executorch_program, "import_executorch", lambda: pytest.fail("imported"))
    error = refused(PORTABLE)
    assert error.id == "untrusted-file"
    assert "--trust" in error.remedy


def test_it_is_counted_without_executorch(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch", None)
    record = executorch_files.path("portable.etrecord")
    assert main(["count", PORTABLE, "--etrecord", str(record), "--json"]) == 0
    count = json.loads(capsys.readouterr().out)
    assert count["totals"]["matmul_flops"] == 288
    assert count["size"]["parameters"] == 58
    assert count["graph"]["format"] == "executorch"
    assert main(["count", PORTABLE]) == 0
    shown = capsys.readouterr().out
    assert "ExecuTorch program" in shown
    assert "ONNX" not in shown


def test_without_executorch_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch.extension.pybindings._C", None)
    with pytest.raises(MissingExtraError) as caught:
        load(TargetRequest(PORTABLE, trust=True))
    assert "torchgauge-profiler[executorch]" in caught.value.remedy


@pytest.mark.parametrize(
    ("spec", "fields", "word"),
    [
        (PORTABLE, {"inputs": ("2x4",)}, "exported for 3x4"),
        (PORTABLE, {"batch": 4}, "exported for 3x4"),
        (PORTABLE, {"inputs": ("x=3x4",)}, ""),
        (PORTABLE, {"inputs": ("3x4", "3x4")}, ""),
        (PORTABLE, {"inputs": ("3x4:int64",)}, "float32"),
        (DYNAMIC, {"batch": 7}, "at most 6x4"),
    ],
)
def test_inputs_that_the_program_does_not_take(spec, fields, word):
    error = refused(spec, device="meta", **fields)
    assert error.id == "inputs-unfit"
    assert word in (error.cause or "")


def test_smaller_inputs_of_a_dynamic_program_have_no_known_work():
    target = load(TargetRequest(DYNAMIC, device="meta", batch=2))
    assert target.batch == 2
    assert all(node.flops is None for node in target.graph.nodes if node.operator == "addmm")
    target = load(TargetRequest(DYNAMIC, device="meta"))
    assert all(node.flops is not None for node in target.graph.nodes)


def test_a_record_of_how_it_was_lowered_belongs_to_a_program(tmp_path):
    with pytest.raises(InputError) as caught:
        TargetRequest("torchvision:resnet18", etrecord=tmp_path / "model.etrecord")
    assert caught.value.id == "option-conflict"


@pytest.mark.parametrize("name", ["dump.etdp", "lowered.etrecord"])
def test_other_files_of_executorch_are_no_targets(name, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    error = refused(str(tmp_path / name), trust=True)
    assert error.id == "target-not-supported"
    assert ("trace" if name.endswith("etdp") else "--etrecord") in error.remedy


def test_a_dump_is_read_as_a_trace(tmp_path):
    path = tmp_path / "run.etdp"
    path.write_bytes(
        executorch_files.dump(
            [executorch_files.event("Program::load_method", 0, 1_000, 5_000)],
            executorch_files.run(100_000, 30_000, 50_000),
            executorch_files.run(200_000, 40_000, 60_000),
        )
    )
    (rank,) = tg.read_trace(path).ranks
    assert rank.contents.recorder == "ExecuTorch"
    assert rank.contents.steps == 2
    total = sum(row.host or 0 for row in rank.tree.rows if row.name == "add.out")
    assert total == 180_000
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(InputError) as caught:
        tg.read_trace(path)
    assert caught.value.id == "trace-malformed"


@pytest.mark.parametrize("fields", [{"provider": "cuda"}, {"optimization": "off"}])
def test_settings_of_onnx_files_are_not_a_program_s(fields):
    with pytest.raises(InputError) as caught:
        TargetRequest(PORTABLE, trust=True, runtime=RuntimeOptions(**fields))
    assert caught.value.id == "runtime-unsupported"


@pytest.mark.slow
@needs_executorch
def test_a_sweep_s_cell_has_its_threads_and_no_runtime_of_another():
    program = TargetRequest(PORTABLE, trust=True)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            Variant(program, threads=threads).open()
            runtime = executorch_program.import_executorch()
            assert runtime._threadpool_get_thread_count() == threads
    finally:
        torch.set_num_threads(before)
    with pytest.raises(InputError) as caught:
        Variant(program, runtime="onnxruntime").open()
    assert caught.value.id == "runtime-unsupported"


@pytest.mark.slow
@needs_executorch
@pytest.mark.parametrize("name", ["portable", "delegated"])
def test_a_program_is_run_and_its_times_are_in_its_layers(name, capsys):
    file, record = (str(executorch_files.path(f"{name}.{end}")) for end in ("pte", "etrecord"))
    arguments = ["profile", file, "--etrecord", record, "--trust", "--quick", "--json"]
    assert main(arguments) == 0
    profile = json.loads(capsys.readouterr().out)
    assert {done["process"] for done in profile["passes"]} == {"fresh"}
    assert profile["target"]["runtime"].startswith("executorch, ")
    assert profile["size"]["parameters"] == 58
    rows = profile["tree"]["rows"]
    (bare,) = (p["bare"] for p in profile["tree"]["passes"])
    assert sum(row.get("host") or 0 for row in rows) * 1e-9 == pytest.approx(bare, rel=0.02)
    paths = {row.get("path") for row in rows if row["kind"] == "layer"}
    assert paths == ({"body", "body.linear", "body.act", "head"} if name == "portable" else set())
    backend = "XnnpackBackend::delegate" if name == "delegated" else "aten::addmm"
    assert any(row["name"] == backend for row in rows)
    assert profile["memory"]["inputs"] == 3 * 4 * 4


@pytest.mark.slow
@needs_executorch
def test_outputs_are_those_of_the_runtime_and_bad_calls_are_errors():
    target = load(TargetRequest(PORTABLE, trust=True))
    (result,) = target.model(torch.ones(3, 4))
    torch.testing.assert_close(result.sum(-1), torch.ones(3))
    with pytest.raises(InputError):
        target.model(torch.ones(3, 4), torch.ones(1))
    with pytest.raises(InputError):
        target.model.reopen(threads=1)


@pytest.mark.slow
@needs_executorch
@pytest.mark.parametrize("name", ["portable", "delegated"])
def test_its_own_inspector_reads_the_same_times(name):
    from executorch.devtools import Inspector

    from torchgauge.readers.executorch.flatbuffer import read_runs

    path = executorch_files.path(f"{name}.etdp")
    blocks = Inspector(etdump_path=str(path)).event_blocks
    (events,) = (block.events for block in blocks if block.name == "Execute")
    runs = [run for run in read_runs(path.read_bytes()) if run.execution is not None]
    theirs = [event.perf_data.raw for event in events if event.name.endswith("_CALL")]
    ours = [
        [(run.calls[n].end - run.calls[n].begin) * 1e-6 for run in runs] for n in range(len(theirs))
    ]
    assert ours == [pytest.approx(times, abs=1e-6) for times in theirs]
