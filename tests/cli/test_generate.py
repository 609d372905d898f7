"""`torchgauge generate` from its arguments to its files and exit codes; measuring by a stand-in."""

import json

import jsonschema
import pytest
from tests.support import generations
from tests.support.published_schemas import published

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.records.record import MeasurementWarning


@pytest.fixture
def measured(monkeypatch):
    """Have a record returned in place of measuring; returns what was asked for."""
    requests = []

    def use(record):
        def request(*arguments):
            requests.append(arguments)
            return record

        monkeypatch.setattr("torchgauge.api.generations.generation_request", request, raising=False)
        return requests

    return use


def generate(*arguments):
    return main(["generate", "model.py:make", *arguments])


def test_options_reach_the_measurement(measured):
    requests = measured(generations.single())
    assert generate(
        "--prompt", "128,1024", "--batch", "1,4", "--new", "32", "--cache", "dynamic,static",
        "--beams", "2", "--predict", "8x4096,1×16", "--precise", "--budget", "20", "--no-trees",
        "--no-memory", "--no-roofs", "--assistant", "small.py:make", "--precision", "bf16",
        "--device", "cpu", "--input", "input_ids=1x8:int64<99", "--weights", "w.pt",
    ) == 0  # fmt: skip
    ((request, options, assistant),) = requests
    assert (request.spec, request.device, request.precision) == ("model.py:make", "cpu", "bf16")
    assert (request.inputs, request.weights.name) == (("input_ids=1x8:int64<99",), "w.pt")
    assert (assistant.spec, assistant.precision, assistant.inputs) == ("small.py:make", "bf16", ())
    assert assistant.weights is None
    assert (options.prompts, options.batches, options.new_tokens) == ((128, 1024), (1, 4), 32)
    assert (options.caches, options.beams) == (("dynamic", "static"), 2)
    assert options.predict == ((8, 4096), (1, 16))
    assert (options.effort, options.budget) == ("precise", 20.0)
    assert (options.trees, options.memory, options.roofs) == (False, False, False)


def test_without_options_the_inputs_decide(measured):
    requests = measured(generations.single())
    assert generate() == 0
    ((_, options, assistant),) = requests
    assert (options.prompts, options.batches, assistant) == ((), (), None)
    assert (options.effort, options.trees, options.memory, options.roofs) == (
        "usual", True, True, True,
    )  # fmt: skip


def test_it_shows_the_shapes_and_what_to_run_next(measured, capsys):
    measured(generations.grid())
    assert generate("--prompt", "128,1024", "--batch", "1,4", "--quick") == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("  batch 4, prompt 128"))
    assert [text in row for text in ("241 ms", "12.9 ms", "148")] == [True] * 3
    following = " ".join(line.strip() for line in lines[lines.index("Next") + 1 :])
    again = "torchgauge generate model.py:make --prompt 128,1024 --batch 1,4"
    assert f"{again}  # with narrower intervals" in following
    assert f"{again} --open  # the same as a page" in following


def test_a_single_shape_leads_to_a_grid(measured, capsys):
    measured(generations.single())
    assert generate() == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "generate model.py:make --prompt 128,512 --batch 1,4 # how it grows" in shown


def test_every_format_is_written(measured, tmp_path, capsys):
    measured(generations.grid())
    forms = "json,text,csv,layers,operators,kernels,markdown,html,openmetrics"
    assert generate("--output-dir", str(tmp_path), "--format", forms) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 9
    assert {"generation.json", "generation.html", "generation.layers.csv"} < names
    assert tg.load(tmp_path / "generation.json") == generations.grid()
    shown = capsys.readouterr().out
    assert main(["report", str(tmp_path / "generation.json")]) == 0
    reported = capsys.readouterr().out
    assert reported.split("What matters most")[0] == shown.split("What matters most")[0]


def test_json_is_the_record(measured, capsys):
    measured(generations.grid())
    assert generate("--json", "--threshold", "ttft:1ms") == 3
    output = capsys.readouterr()
    content = json.loads(output.out)
    jsonschema.Draft202012Validator(published("torchgauge.generation/1")).validate(content)
    assert "FAIL" in output.err


FAILED = MeasurementWarning(id="tree", message="It failed.", failed=True)


@pytest.mark.parametrize(
    ("arguments", "record", "code"),
    [
        ((), generations.grid(), 0),
        ((), generations.without_times(), 130),
        ((), generations.generation([generations.ended("out of memory", "It was.")]), 1),
        ((), generations.generation([generations.cell()], warnings=(FAILED,)), 1),
        (("--threshold", "ttft:1s"), generations.single(), 0),
        (("--threshold", "ttft:600ms", "tokens:20tokens/s"), generations.single(), 0),
        (("--threshold", "tokens:1k tokens/s"), generations.single(), 3),
        (("--threshold", "tpot:11ms"), generations.by_cache(), 3),
        (("--threshold", "ttft:1s"), generations.grid(), 4),
        (("--threshold", "latency:1s"), generations.single(), 4),
    ],
)
def test_the_exit_code_says_how_it_ended(arguments, record, code, measured):
    measured(record)
    assert generate(*arguments) == code


def test_a_limit_names_the_shape_that_exceeds_it(measured, tmp_path, capsys):
    measured(generations.grid())
    files = ["--output-dir", str(tmp_path), "--format", "json,junit"]
    assert generate("--threshold", "ttft:300ms", "params:50M", *files) == 3
    verdict = tg.load(tmp_path / "verdict.json")
    outcomes = [(ruling.label, ruling.outcome) for ruling in verdict.rulings]
    assert outcomes == [
        ("ttft, batch 1, prompt 128", "pass"),
        ("ttft, batch 1, prompt 1,024", "fail"),
        ("ttft, batch 4, prompt 128", "pass"),
        ("ttft, batch 4, prompt 1,024", "inconclusive"),
        ("params", "pass"),
    ]
    assert "18.2 GB would be needed" in verdict.rulings[3].reason
    assert (
        'name="ttft, batch 1, prompt 1,024 limit"' in (tmp_path / "verdict.junit.xml").read_text()
    )
    assert "ttft (1 of 5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["--batch", "0"], "option-invalid"),
        (["--prompt", "1,,2"], "option-invalid"),
        (["--cache", "paged"], "cache-unknown"),
        (["--predict", "8"], "option-invalid"),
        (["--predict", "0x8"], "option-invalid"),
        (["--threshold", "tokens:100samples/s"], "threshold-invalid"),
        (["--threshold", "ttft:100"], "threshold-invalid"),
        (["--quick", "--precise"], "option-invalid"),
        (["--format", "csv"], "option-conflict"),
        (["--format", "json,folded", "--output-dir", "out"], "format-unfit"),
        (["-o", "x.junit.xml"], "option-conflict"),
        (["--precison", "bf16"], "option-unknown"),
    ],
)
def test_what_cannot_be_is_refused_with_a_stable_id(
    arguments, id, measured, capsys, tmp_path, monkeypatch
):
    requests = measured(generations.single())
    monkeypatch.chdir(tmp_path)
    assert generate(*arguments) == 2
    assert f"[{id}]" in capsys.readouterr().err
    assert not requests


def test_what_cannot_be_written_is_shown(measured, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise tg.InputError("The disk is full.", id="output-unwritable")

    measured(generations.single())
    monkeypatch.setattr("torchgauge.cli.formats.write", full)
    assert generate("--output-dir", str(tmp_path)) == 2
    assert "batch 1, prompt 128" in capsys.readouterr().out


TINY = (
    "hf:llama?hidden_size=32&num_hidden_layers=1&num_attention_heads=2&num_key_value_heads=1"
    "&intermediate_size=32&vocab_size=64"
)


@pytest.mark.thorough
def test_a_tiny_model_end_to_end(tmp_path):
    path = tmp_path / "generation.json"
    assert main(
        ["generate", TINY, "--prompt", "8,16", "--batch", "1,2", "--new", "4", "--quick",
         "--no-roofs", "--device", "cpu", "-o", str(path)]
    ) == 0  # fmt: skip
    content = json.loads(path.read_text())
    jsonschema.Draft202012Validator(published("torchgauge.generation/1")).validate(content)
    record = tg.load(path)
    shapes = [(cell.status, cell.batch, cell.prompt) for cell in record.cells]
    assert shapes == [("done", batch, prompt) for batch in (1, 2) for prompt in (8, 16)]
    for cell in record.cells:
        assert len(cell.timed_calls) == 3
        for call in cell.timed_calls:
            assert call.forwards.stage == ("prefill", "decode", "decode", "decode")
            assert call.forwards.tokens == (cell.prompt, 1, 1, 1)
            assert call.forwards.cached == (0, cell.prompt, cell.prompt + 1, cell.prompt + 2)
    same = tg.gate(path, path, metrics=["ttft"], tolerance="ttft:100%:5000%")
    assert len(same.rulings) == 4
    # Three calls beside other work can be too noisy to decide, never worse than themselves.
    assert same.outcome != "fail"
    assert {ruling.change for ruling in same.rulings} == {0.0}
