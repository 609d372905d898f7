"""The published JSON Schema: current, and what records are is what it says."""

import importlib.util
import json
import pickle

import jsonschema
import pytest
from tests.support import advices, alert_series
from tests.support import exported_records as records
from tests.support import records as plain
from tests.support import snapshots as made
from tests.support.published_schemas import SCHEMAS, published

from torchgauge.analyze.snapshot.growth import growth
from torchgauge.analyze.snapshot.snapshot import snapshot
from torchgauge.cli.main import main
from torchgauge.readers.snapshot.snapshot import read_recording
from torchgauge.records import codec
from torchgauge.records.doctor import Diagnosis

FREED = snapshot(read_recording(pickle.dumps(made.step())), "freed")
NOTHING = snapshot(read_recording(pickle.dumps(made.whole([]))), "nothing")
SAVED = records.every() | {
    "snapshot": FREED,
    "growth": growth(NOTHING, FREED),
    "advice": advices.advice(),
    "diagnosis": Diagnosis(environment=plain.environment(), fingerprint="f", checks=()),
    "trend": alert_series.trend(),
    "profile without parts": plain.profile(latency=None, memory=None, size=None),
}


def test_it_is_current():
    spec = importlib.util.spec_from_file_location("write", SCHEMAS / "write.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    files = script.schemas()
    assert {path.name for path in files} == {path.name for path in SCHEMAS.glob("*.json")}
    stale = [path.name for path, text in files.items() if path.read_bytes() != text]
    assert not stale, f"run {SCHEMAS / 'write.py'}"


@pytest.mark.parametrize("name", SAVED)
def test_saved_records_are_valid(name):
    content = json.loads(codec.encode(SAVED[name]))
    schema = published(content["schema"])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(content)


@pytest.mark.thorough
def test_what_a_run_saves_is_valid(tmp_path, capsys):
    model = "from torch import nn, ones\ndef make(): return nn.Linear(4, 2), ones(1, 4)\n"
    (tmp_path / "mymodel.py").write_text(model)
    command = ["profile", f"{tmp_path}/mymodel.py:make", "--iterations", "3", "--warmup", "1"]
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["tree"] is not None
    jsonschema.Draft202012Validator(published(content["schema"])).validate(content)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda content: content.pop("target"),
        lambda content: content.pop("schema"),
        lambda content: content.update(schema="torchgauge.profile/0"),
        lambda content: content["latency"].update(median="10 ms"),
        lambda content: content["tree"]["rows"][0].update(kind="module"),
        lambda content: content["memory"]["timeline"].append([1]),
    ],
)
def test_what_is_no_record_is_not_valid(break_it):
    content = json.loads(codec.encode(records.profile()))
    break_it(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(published("torchgauge.profile/1")).validate(content)
