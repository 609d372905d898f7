"""TensorBoard, MLflow and Weights & Biases, each read back by its own reader."""

import json
import struct
import sys

import pytest
from tests.support import exported_records as records

import torchgauge as tg
from torchgauge.records import codec
from torchgauge.report.export import mlflow, tensorboard, wandb
from torchgauge.report.export.scalars import scalars

KINDS = [pytest.param(record, id=kind) for kind, record in records.every().items()]


def needed(name):
    return pytest.importorskip(name, reason=f"needs {name}: make test-all installs it")


@pytest.mark.parametrize("record", KINDS)
def test_scalars_are_the_known_figures_of_the_summary(record):
    summary = record.summary()
    found = scalars(record)
    numbers = {n: v for n, v in summary.items() if v is not None and not isinstance(v, str)}
    assert found == {f"torchgauge/{name}": value for name, value in numbers.items()}
    assert len(found) > 3


@pytest.mark.parametrize("record", KINDS)
def test_tensorboard_reads_its_scalars(record, tmp_path):
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert tensorboard.log(record, tmp_path / "runs", step=3) == tmp_path / "runs"
    found = EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    events = {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}
    assert {tag: one.value for tag, (one,) in events.items()} == pytest.approx(scalars(record))
    assert {one.step for (one,) in events.values()} == {3}


def test_a_record_is_placed_at_its_own_time(tmp_path):
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tensorboard.log(records.profile(), tmp_path)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert found.Scalars("torchgauge/latency_median_ms")[0].wall_time == 1767323045


def test_where_tensorboard_cannot_write_is_said(tmp_path):
    needed("tensorboard")
    (tmp_path / "taken").write_text("")
    with pytest.raises(tg.InputError) as caught:
        tensorboard.log(records.profile(), tmp_path / "taken" / "runs")
    assert caught.value.id == "output-unwritable"


def test_mlflow_keeps_figures_texts_and_the_record(tmp_path, monkeypatch):
    client = needed("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client.set_tracking_uri(tmp_path.as_uri())
    client.set_experiment("net")
    profile = records.profile(gpu=True)
    with client.start_run() as run:
        mlflow.log(profile, step=4)
    found = client.get_run(run.info.run_id)
    assert found.data.metrics == pytest.approx(scalars(profile))
    assert found.data.tags["torchgauge.targets"] == records.ODD.strip()
    history = client.MlflowClient().get_metric_history(run.info.run_id, "torchgauge/flops")
    assert [one.step for one in history] == []  # it was not counted
    median = "torchgauge/latency_median_ms"
    (one,) = client.MlflowClient().get_metric_history(run.info.run_id, median)
    assert (one.step, one.value) == (4, 10.0)
    text = client.artifacts.load_text(f"{found.info.artifact_uri}/torchgauge/record.json")
    assert codec.decode(text.encode()) == profile


def stored(path):
    """Return the records of a run's file: blocks of 32 KiB with parts of 7 bytes and their data."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 2**15 - place % 2**15
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(whole)
            whole = b""


def test_weights_and_biases_keeps_figures_and_texts(tmp_path):
    client = needed("wandb")
    profile = records.profile(gpu=True)
    settings = client.Settings(silent=True, disable_git=True, console="off")
    with client.init(mode="offline", dir=tmp_path, project="net", settings=settings):
        wandb.log(profile, step=2)
    client.teardown()  # its service writes the file until it ends
    (path,) = tmp_path.rglob("*.wandb")
    kept = list(stored(path))
    history = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for record in kept
        for item in record.history.item
    }
    assert {name: history[name] for name in scalars(profile)} == pytest.approx(scalars(profile))
    assert history["_step"] == 2
    config = {
        item.key: json.loads(item.value_json) for record in kept for item in record.config.update
    }
    assert config["torchgauge"]["target"] == records.ODD


def test_without_a_run_of_weights_and_biases_the_error_says_so():
    needed("wandb")
    with pytest.raises(tg.InputError) as caught:
        wandb.log(records.profile())
    assert caught.value.id == "no-run"


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("tensorboard", lambda: tensorboard.log(records.profile(), "x")),
        ("mlflow", lambda: mlflow.log(records.profile())),
        ("wandb", lambda: wandb.log(records.profile())),
    ],
)
def test_a_missing_library_names_its_extra(name, log, monkeypatch):
    for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(tg.MissingExtraError, match=rf"torchgauge-profiler\[{name}\]"):
        log()
